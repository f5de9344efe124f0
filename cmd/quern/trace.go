package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/urfave/cli/v2"

	"quern/formats/trace"
	"quern/pipeline"
	"quern/runtime/routes"
)

func traceCommand() *cli.Command {
	return &cli.Command{
		Name:        "trace",
		Usage:       "record which experts tokens go to, and foretell what a pool of them costs",
		Subcommands: []*cli.Command{traceRecordCommand(), traceStatsCommand(), traceSimulateCommand()},
	}
}

func traceRecordCommand() *cli.Command {
	flags := []cli.Flag{
		&cli.StringFlag{Name: "file", Aliases: []string{"f"}, Usage: "the text `FILE`; - reads standard input"},
		&cli.StringFlag{Name: "out", Aliases: []string{"o"}, Usage: "write the trace to `FILE`; a name that ends in .zst is compressed"},
		&cli.BoolFlag{Name: "scores", Usage: "write the scores of all experts too, which a bias needs"},
		&cli.IntFlag{Name: "ahead", Usage: "write what the router this many layers further would choose of the present layer's input, which reading ahead needs"},
		progressFlag(),
	}
	return &cli.Command{
		Name:      "record",
		Usage:     "run a model over a text and write down the experts of every token",
		ArgsUsage: "FILE|FOLDER",
		Description: "The text is taken in pieces as long as the context. The form of the trace is in docs/trace.md; a device's own\n" +
			"program can write it too.",
		Flags:  slices.Concat(flags, modelFlags()),
		Action: runTraceRecord,
	}
}

// traceDoc is the document of quern trace record --json.
type traceDoc struct {
	Model  string `json:"model"`
	File   string `json:"file"`
	Tokens int    `json:"tokens"`
}

func runTraceRecord(c *cli.Context) (err error) {
	out := c.String("out")
	switch {
	case out == "":
		return usagef("trace record: --out is missing: the file to write")
	case c.Int("ahead") < 0:
		return usagef("--ahead %d: a number of layers, or 0", c.Int("ahead"))
	}
	o, err := openOverText(c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.close()) }()
	doc := traceDoc{Model: modelName(o.path), File: out}
	record := func(w io.Writer) error {
		doc.Tokens, err = routes.Text(c.Context, o.model, string(o.text), routes.New(w, routes.Options{Scores: c.Bool("scores"), Ahead: c.Int("ahead")}), o.session,
			func(done, total int) {
				o.rep.Event(pipeline.Event{Kind: pipeline.EventPhase, Message: fmt.Sprintf("token %d of %d", done, total)})
			})
		return err
	}
	err = writeOutput(c, out, func(w io.Writer) error { return compressed(out, w, record) })
	switch {
	case errors.Is(err, routes.ErrAhead):
		return usagef("--ahead %d: %v", c.Int("ahead"), err)
	case errors.Is(err, routes.ErrText):
		return usagef("--file %s: %v", c.String("file"), err)
	case err != nil:
		return err
	}
	if c.Bool("json") {
		return printJSON(c, doc)
	}
	_, err = fmt.Fprintf(c.App.Writer, "%s: %d tokens\n", out, doc.Tokens)
	return err
}

// compressed writes through Zstandard where the name asks for it.
func compressed(name string, w io.Writer, write func(w io.Writer) error) error {
	if filepath.Ext(name) != ".zst" {
		return write(w)
	}
	z, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	return errors.Join(write(z), z.Close())
}

func traceStatsCommand() *cli.Command {
	return &cli.Command{
		Name:      "stats",
		Usage:     "show how a trace spreads over the experts of each layer",
		ArgsUsage: "TRACE",
		Description: "For each layer: how many experts half and nine tenths of the uses go to, those never used, and the most used ones.\n" +
			"--warm writes the most used experts of each layer, what a pool is best filled with at the start.",
		Flags: []cli.Flag{
			&cli.IntFlag{Name: "top", Value: 8, Usage: "show this many of the most used experts"},
			&cli.StringFlag{Name: "warm", Usage: "write the --top most used experts of each layer to `FILE`: a line a layer"},
			jsonFlag(),
		},
		Action: runTraceStats,
	}
}

// useDoc is the document of quern trace stats --json.
type useDoc struct {
	Trace   string     `json:"trace"`
	Tokens  int64      `json:"tokens"`
	Cut     bool       `json:"cut"`
	Experts int        `json:"experts"`
	Used    int        `json:"used"`
	Layers  []useLayer `json:"layers"`
}

type useLayer struct {
	Layer int   `json:"layer"`
	Uses  int64 `json:"uses"`
	// Half and Most are how many of the most used experts half and nine tenths of
	// the uses go to.
	Half   int     `json:"experts_of_half"`
	Most   int     `json:"experts_of_nine_tenths"`
	Unused int     `json:"unused"`
	Top    []int   `json:"top"`
	Counts []int64 `json:"counts"`
}

func runTraceStats(c *cli.Context) error {
	path, err := oneArg(c, "a trace")
	if err != nil {
		return err
	}
	if c.Int("top") < 1 {
		return usagef("--top %d: a number of experts", c.Int("top"))
	}
	u, cut, err := readUse(path)
	if err != nil {
		return pipeline.SourceFault(err)
	}
	doc := useDoc{Trace: filepath.Base(path), Tokens: u.Tokens, Cut: cut, Experts: u.Header.Experts, Used: u.Header.Used}
	for i, l := range u.Header.Layers {
		doc.Layers = append(doc.Layers, layerUse(u, i, l, c.Int("top")))
	}
	if warm := c.String("warm"); warm != "" {
		if err := writeOutput(c, warm, func(w io.Writer) error { return writeWarm(w, doc.Layers) }); err != nil {
			return err
		}
	}
	if c.Bool("json") {
		return printJSON(c, doc)
	}
	w := c.App.Writer
	fmt.Fprintf(w, "%d tokens, %d layers of %d experts, a token uses %d\n", doc.Tokens, len(doc.Layers), doc.Experts, doc.Used)
	if cut {
		fmt.Fprintln(w, "the trace breaks off inside a token")
	}
	for _, l := range doc.Layers {
		fmt.Fprintf(w, "layer %d: half of the uses go to %d experts, nine tenths to %d, %d are not used; most used: %s\n", l.Layer, l.Half, l.Most, l.Unused, joinInts(l.Top))
	}
	return nil
}

func layerUse(u *trace.Use, i, layer, top int) useLayer {
	d := useLayer{Layer: layer, Counts: u.Counts[i]}
	for _, n := range d.Counts {
		d.Uses += n
		if n == 0 {
			d.Unused++
		}
	}
	ranked := u.Ranked(i)
	var sum int64
	for k, e := range ranked {
		if sum*2 < d.Uses {
			d.Half = k + 1
		}
		if sum*10 < d.Uses*9 {
			d.Most = k + 1
		}
		sum += d.Counts[e]
	}
	d.Top = ranked[:min(top, len(ranked))]
	return d
}

func readUse(path string) (*trace.Use, bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	return trace.ReadUse(filepath.Base(path), f)
}

// writeWarm writes a line a layer: its number, a colon, its experts.
func writeWarm(w io.Writer, layers []useLayer) error {
	for _, l := range layers {
		if _, err := fmt.Fprintf(w, "%d: %s\n", l.Layer, joinInts(l.Top)); err != nil {
			return err
		}
	}
	return nil
}

func joinInts(list []int) string {
	words := make([]string, len(list))
	for i, n := range list {
		words[i] = fmt.Sprint(n)
	}
	return strings.Join(words, ",")
}
