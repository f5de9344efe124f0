package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"

	"github.com/urfave/cli/v2"

	"quern/pipeline"
	"quern/runtime/importance"
)

func imatrixCommand() *cli.Command {
	flags := []cli.Flag{
		&cli.StringFlag{Name: "file", Aliases: []string{"f"}, Usage: "the calibration text `FILE`; - reads standard input"},
		&cli.StringFlag{Name: "out", Aliases: []string{"o"}, Usage: "write the matrix to `FILE`"},
		&cli.IntFlag{Name: "chunks", Usage: "use at most this many chunks of the text; 0 means all"},
		&cli.BoolFlag{Name: "process-output", Usage: "cover the output head too"},
		&cli.BoolFlag{Name: "special", Usage: "take the texts of special tokens in the text for these"},
		progressFlag(),
	}
	return &cli.Command{
		Name:      "imatrix",
		Usage:     "compute an importance matrix: how much each weight's inputs matter over a text",
		ArgsUsage: "FILE|FOLDER",
		Description: "As llama-imatrix does it, in chunks of 512 tokens unless --context says otherwise. The file has its GGUF format\n" +
			"and serves recipes (quantize: {imatrix: ...}) and llama-quantize.",
		Flags:  slices.Concat(flags, modelFlags()),
		Action: runImatrix,
	}
}

// imatrixDoc is the document of quern imatrix --json.
type imatrixDoc struct {
	Model   string `json:"model"`
	File    string `json:"file"`
	Entries int    `json:"entries"`
	Chunks  int    `json:"chunks"`
	Context int    `json:"context"`
	// Unseen counts, for tensors of experts, those that no token was sent to.
	Unseen map[string]int `json:"unseen_experts"`
}

func runImatrix(c *cli.Context) (err error) {
	out := c.String("out")
	switch {
	case out == "":
		return usagef("imatrix: --out is missing: the file to write")
	case c.Int("chunks") < 0:
		return usagef("--chunks %d: a number of chunks, or 0", c.Int("chunks"))
	}
	if err := refuseInput(c, out); err != nil {
		return err
	}
	o, err := openOverText(c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.close()) }()
	opt := importance.Options{Context: o.session.Context, Chunks: c.Int("chunks"), Output: c.Bool("process-output"), ParseSpecial: c.Bool("special"),
		Dataset: filepath.Base(c.String("file")), Jobs: o.session.Jobs, Act: o.session.Act}
	opt.Progress = func(done, total int) {
		o.rep.Event(pipeline.Event{Kind: pipeline.EventPhase, Message: fmt.Sprintf("chunk %d of %d", done, total)})
	}
	x, err := importance.Compute(c.Context, o.model, o.text, opt)
	if err != nil {
		return err
	}
	if err := writeOutput(c, out, func(w io.Writer) error { return x.Write(c.Context, w) }); err != nil {
		return err
	}
	doc := imatrixDoc{modelName(o.path), out, len(x.Entries), x.Chunks, x.ChunkSize, x.Unseen()}
	for _, name := range slices.Sorted(maps.Keys(doc.Unseen)) {
		o.rep.Event(pipeline.Event{Kind: pipeline.EventWarning, Message: fmt.Sprintf("%s: %d experts were sent no token", name, doc.Unseen[name])})
	}
	if c.Bool("json") {
		return printJSON(c, doc)
	}
	_, err = fmt.Fprintf(c.App.Writer, "%s: %d tensors, %d chunks of %d tokens\n", out, doc.Entries, doc.Chunks, doc.Context)
	return err
}
