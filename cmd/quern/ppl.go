package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/urfave/cli/v2"

	"quern/pipeline"
	infer "quern/runtime"
	"quern/runtime/generate"
	"quern/runtime/score"
)

func pplCommand() *cli.Command {
	flags := []cli.Flag{
		&cli.StringFlag{Name: "file", Aliases: []string{"f"}, Usage: "the text `FILE`; - reads standard input"},
		&cli.IntFlag{Name: "chunks", Usage: "use at most this many chunks of the text; 0 means all"},
		&cli.StringFlag{Name: "base", Usage: "also say how far the probabilities are from those of another `MODEL`"},
		progressFlag(),
	}
	return &cli.Command{
		Name:      "ppl",
		Usage:     "measure how well a model foretells a text",
		ArgsUsage: "FILE|FOLDER",
		Description: "The perplexity is counted exactly as llama-perplexity does it, in chunks of 512 tokens unless --context says\n" +
			"otherwise; with it come bits per byte, which models of different vocabularies can be compared by.",
		Flags:  slices.Concat(flags, modelFlags(), []cli.Flag{orderFlag("ggml where the model has it")}),
		Action: runPPL,
	}
}

// pplDoc is the document of quern ppl --json.
type pplDoc struct {
	Model string `json:"model"`
	score.Perplexity
	Base       string            `json:"base,omitempty"`
	Divergence *score.Divergence `json:"divergence,omitempty"`
}

func runPPL(c *cli.Context) (err error) {
	if c.Int("chunks") < 0 {
		return usagef("--chunks %d: a number of chunks, or 0", c.Int("chunks"))
	}
	if n := c.Int("context"); n > 0 && n < 4 {
		return usagef("--context %d: a chunk of 4 tokens or more, or nothing is scored", n)
	}
	o, err := openOverText(c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.close()) }()
	opt := score.Options{Context: o.session.Context, Chunks: c.Int("chunks"), Jobs: o.session.Jobs, Act: o.session.Act, Order: o.session.Order}
	opt.Progress = func(done, total int, ppl float64) {
		o.rep.Event(pipeline.Event{Kind: pipeline.EventPhase, Message: fmt.Sprintf("chunk %d of %d: perplexity %.4f", done, total, ppl)})
	}
	opt.Ready = func() { settle() }
	var b infer.Model
	models := []infer.Model{o.model}
	base := c.String("base")
	if base != "" {
		// A base that is none shows before the work is done.
		if b, err = openModel(c.Context, base); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, b.Close()) }()
		models = append(models, b)
	}
	if c.String("order") == "" {
		opt.Order = infer.ScoreOrder(opt.Act, models...)
	}
	p, err := score.Measure(c.Context, o.model, o.text, opt)
	if err != nil {
		return err
	}
	doc := pplDoc{Model: modelName(o.path), Perplexity: *p}
	if b != nil {
		doc.Base = modelName(base)
		if doc.Divergence, err = score.Diverge(c.Context, b, o.model, o.text, opt); err != nil {
			return err
		}
	}
	if c.Bool("json") {
		return printJSON(c, doc)
	}
	w := c.App.Writer
	fmt.Fprintf(w, "perplexity     %.4f +/- %.5f\nbits per byte  %.5f\nscored         %d tokens, %d bytes, %d chunks of %d tokens\n",
		p.Perplexity, p.Error, p.BitsPerByte, p.Scored, p.Bytes, p.Chunks, p.Context)
	if p.Outside > 0 {
		fmt.Fprintf(w, "outside        %d tokens that the pruned head cannot say, left out\n", p.Outside)
	}
	if d := doc.Divergence; d != nil {
		_, err = fmt.Fprintf(w, "divergence     %.6f nats from %s (at most %.4f); the same best token at %.2f %% of the places\n", d.Mean, doc.Base, d.Max, 100*d.SameTop)
		if d.OutsideMass > 0 {
			fmt.Fprintf(w, "outside        %.3f %% of the probability that %s gives is for tokens that the pruned head cannot say\n", 100*d.OutsideMass, doc.Base)
		}
	}
	return err
}

func loopsCommand() *cli.Command {
	flags := []cli.Flag{
		&cli.StringFlag{Name: "file", Aliases: []string{"f"}, Usage: "take the prompts from a text `FILE`; - reads standard input"},
		&cli.IntFlag{Name: "answers", Value: 16, Usage: "make this many answers"},
		&cli.IntFlag{Name: "n", Value: 256, Usage: "let each have at most this many `TOKENS`"},
		&cli.IntFlag{Name: "prompt-length", Value: 16, Usage: "take prompts of this many `TOKENS`, at equal distances"},
		&cli.Float64Flag{Name: "max", Value: 1, Usage: "fail, with exit code 3, when a larger `SHARE` of the answers loops"},
		progressFlag(),
	}
	return &cli.Command{
		Name:      "loops",
		Usage:     "count the long answers that fall into a loop",
		ArgsUsage: "FILE|FOLDER",
		Description: "An answer loops when one piece comes at least three times on end, 24 tokens or more, anywhere in it, or when of 64 places on end 40\n" +
			"begin four tokens that it had before. Perplexity does not see this: a damaged model may foretell a good text well and still not write one.",
		Flags:  slices.Concat(flags, samplingFlags(), modelFlags()),
		Action: runLoops,
	}
}

// loopsDoc is the document of quern loops --json.
type loopsDoc struct {
	Model string `json:"model"`
	generate.Loops
}

func runLoops(c *cli.Context) (err error) {
	for _, f := range []string{"answers", "n", "prompt-length"} {
		if c.Int(f) < 1 {
			return usagef("%s %d: a number above 0", dashes(f), c.Int(f))
		}
	}
	if most := c.Float64("max"); !(most >= 0 && most <= 1) {
		return usagef("--max %v: a share from 0 to 1", most)
	}
	o, err := openOverText(c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.close()) }()
	var tok infer.Tokenizer
	if tok, err = o.model.Tokenizer(); err != nil {
		return err
	}
	opt := generate.LoopOptions{Answers: c.Int("answers"), Tokens: c.Int("n"), Prompt: c.Int("prompt-length"), Jobs: o.session.Jobs, Act: o.session.Act}
	if opt.Sampling, err = sampling(c, tok); err != nil {
		return err
	}
	opt.Progress = func(done, total int) {
		o.rep.Event(pipeline.Event{Kind: pipeline.EventPhase, Message: fmt.Sprintf("answer %d of %d", done, total)})
	}
	l, err := generate.TestLoops(c.Context, o.model, string(o.text), opt)
	if err != nil {
		return err
	}
	if l.Share > c.Float64("max") {
		err = fmt.Errorf("%w: %d of %d answers fall into a loop, a share of %.3f; at most %.3f is allowed", errVerify, l.Looped, len(l.Answers), l.Share, c.Float64("max"))
	}
	if c.Bool("json") {
		return errors.Join(err, printJSON(c, loopsDoc{modelName(o.path), *l}))
	}
	for i, a := range l.Answers {
		switch a.Loop {
		case generate.LoopCycle:
			fmt.Fprintf(c.App.Writer, "answer %d, to %q, repeats %d tokens from token %d to %d of %d: %q\n", i+1, a.Prompt, a.Cycle.Period, a.Cycle.Start, a.Cycle.End, a.Tokens, tail(a.Text, 120))
		case generate.LoopRepeat:
			fmt.Fprintf(c.App.Writer, "answer %d, to %q, says %.0f %% of it again: %q\n", i+1, a.Prompt, 100*a.Repeated, tail(a.Text, 120))
		}
	}
	fmt.Fprintf(c.App.Writer, "%d of %d answers fall into a loop, %d are in one when they end; %.1f %% of all is said again\n", l.Looped, len(l.Answers), l.AtEnd, 100*l.Repeated)
	return err
}

// tail is the end of a text, in whole characters.
func tail(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return "..." + string(r[len(r)-n:])
	}
	return s
}
