package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	infer "quern/runtime"
	"quern/runtime/needle"
	"quern/runtime/num"
)

func headsCommand() *cli.Command {
	flags := []cli.Flag{
		&cli.StringFlag{Name: "prompt", Aliases: []string{"p"}, Usage: "the `TEXT` that the heads are asked about; - reads standard input"},
		&cli.StringFlag{Name: "prompt-tokens", Usage: "the text as token `IDS` between commas, taken as they are; for files without a tokenizer"},
		&cli.BoolFlag{Name: "special", Usage: "take the texts of special tokens in the text for these"},
	}
	return &cli.Command{
		Name:      "heads",
		Usage:     "ask the heads of a Needle model about a text: its embedding, confidence and routing",
		ArgsUsage: "FILE|FOLDER",
		Description: "The embedding has length 1, the confidence is a probability, and the router has one logit for each way, of which the\n" +
			"greatest is taken; heads that the model lacks are left out. Heads are those of .cact archives and Needle checkpoints.",
		Flags:  slices.Concat(flags, modelFlags()),
		Action: runHeads,
	}
}

// headsDoc is the document of quern heads --json.
type headsDoc struct {
	Model     string      `json:"model"`
	Prompt    []int32     `json:"prompt_tokens"`
	Act       string      `json:"act"`
	Embedding []jsonFloat `json:"embedding,omitempty"`
	// Confidence is null when the model has no such head.
	Confidence *confidenceDoc `json:"confidence"`
	Router     *routerDoc     `json:"router"`
}

type confidenceDoc struct {
	Logit       jsonFloat `json:"logit"`
	Probability jsonFloat `json:"probability"`
}

type routerDoc struct {
	Logits []jsonFloat `json:"logits"`
	Way    int         `json:"way"`
	// Calibration is what the archive says of the router's use.
	Calibration []jsonFloat `json:"calibration"`
}

// reader is a model with heads.
type reader interface {
	Read(ctx context.Context, tokens []int32, opt infer.SessionOptions, more needle.Options) (*needle.Reading, error)
}

func runHeads(c *cli.Context) (err error) {
	path, err := oneArg(c, "a model")
	if err != nil {
		return err
	}
	opt, err := sessionOptions(c)
	if err != nil {
		return err
	}
	if !c.IsSet("prompt") && !c.IsSet("prompt-tokens") {
		return usagef("heads: --prompt TEXT or --prompt-tokens IDS")
	}
	m, err := openMain(c, path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	r, ok := unwrapped(m).(reader)
	if !ok {
		return fmt.Errorf("%s: %w: a %s model has no heads; Needle models have", modelName(path), infer.ErrUnsupported, m.Info().Architecture)
	}
	tok, tokErr := m.Tokenizer()
	_, ids, err := promptOf(c, m.Info().Vocab, tok, tokErr)
	if err != nil {
		return err
	}
	if opt.Context == 0 {
		opt.Context = max(m.Info().Context, len(ids))
	}
	got, err := r.Read(c.Context, ids, opt, needle.Options{})
	if err != nil {
		return err
	}
	doc := headsDoc{Model: modelName(path), Prompt: ids, Act: opt.Act.String(), Embedding: jsonFloats(got.Embedding)}
	if got.Confidence != nil {
		x := got.Confidence[0]
		doc.Confidence = &confidenceDoc{Logit: jsonFloat(x), Probability: jsonFloat(num.Sigmoid(x))}
	}
	if got.Router != nil {
		doc.Router = &routerDoc{Logits: jsonFloats(got.Router), Way: greatest(got.Router), Calibration: jsonFloats(got.Calibration)}
	}
	if c.Bool("json") {
		return printJSON(c, doc)
	}
	return printHeads(c.App.Writer, &doc)
}

// greatest is the place of the greatest value, the first of equal ones.
func greatest(x []float32) int {
	best := 0
	for i, v := range x {
		if v > x[best] {
			best = i
		}
	}
	return best
}

func jsonFloats(x []float32) []jsonFloat {
	if x == nil {
		return nil
	}
	out := make([]jsonFloat, len(x))
	for i, v := range x {
		out[i] = jsonFloat(v)
	}
	return out
}

func printHeads(w io.Writer, doc *headsDoc) error {
	var b strings.Builder
	line := func(name string, x []jsonFloat) {
		fmt.Fprintf(&b, "%-12s", name)
		for _, v := range x {
			b.WriteString(" " + strconv.FormatFloat(float64(v), 'g', 6, 32))
		}
		b.WriteByte('\n')
	}
	if doc.Embedding != nil {
		line("embedding", doc.Embedding)
	}
	if x := doc.Confidence; x != nil {
		fmt.Fprintf(&b, "%-12s %.4f (logit %.4f)\n", "confidence", x.Probability, x.Logit)
	}
	if x := doc.Router; x != nil {
		fmt.Fprintf(&b, "%-12s way %d\n", "router", x.Way)
		line("  logits", x.Logits)
		line("  calibration", x.Calibration)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
