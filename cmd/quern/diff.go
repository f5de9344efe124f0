package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"quern/formats/gguf"
	"quern/pipeline"
	"quern/stages/source"
	"quern/tensor"
	"quern/verify"
)

func diffCommand() *cli.Command {
	flags := []cli.Flag{
		&cli.BoolFlag{Name: "headers", Usage: "compare metadata, types and shapes, and read no weights"},
		&cli.BoolFlag{Name: "exit-code", Usage: "end with exit code 3 when anything differs"},
		jsonFlag(), progressFlag(),
	}
	return &cli.Command{
		Name:      "diff",
		Usage:     "show what two files or folders hold differently",
		ArgsUsage: "A B",
		Description: "Compares the metadata of GGUF files key by key, then tensors by name: types, shapes, order, and how far the values of\n" +
			"B are from those of A. The formats may differ. A and B are files, shards (the first stands for all) or model folders.",
		Flags:  slices.Concat(flags, workFlags(), headerFlags()),
		Action: runDiff,
	}
}

// side is one of the two.
type side struct {
	name    string
	meta    *gguf.Metadata // nil when it is no GGUF file
	tensors []*tensor.Tensor
	close   func() error
}

func runDiff(c *cli.Context) (err error) {
	if c.NArg() != 2 {
		return usagef("diff: two files or folders, not %d arguments; quern diff --help", c.NArg())
	}
	workers, mem, err := work(c)
	if err != nil {
		return err
	}
	h, err := headers(c)
	if err != nil {
		return err
	}
	rep, err := newReporter(c)
	if err != nil {
		return err
	}
	defer rep.Close()
	var sides [2]*side
	for i := range sides {
		s, err := openSide(c.Context, c.Args().Get(i), h)
		if err != nil {
			return pipeline.SourceFault(err)
		}
		defer func() { err = errors.Join(err, s.close()) }()
		sides[i] = s
	}
	a, b := sides[0], sides[1]
	d := &verify.Difference{A: a.name, B: b.name, Metadata: []verify.KeyChange{}, OnlyA: []string{}, OnlyB: []string{}, Changed: []verify.TensorChange{}}
	if a.meta != nil && b.meta != nil {
		d.Keys(a.meta, b.meta)
	}
	opt := verify.Options{Jobs: workers, Memory: mem, Progress: func(name string, done, total int64) {
		rep.Event(pipeline.Event{Kind: pipeline.EventProgress, Output: "comparison", Tensor: name, Done: done, Total: total})
	}}
	if err := d.Tensors(c.Context, a.tensors, b.tensors, !c.Bool("headers"), opt); err != nil {
		return pipeline.SourceFault(err)
	}
	if c.Bool("json") {
		err = printJSON(c, d)
	} else {
		err = printDiff(c.App.Writer, d, c.Bool("headers"))
	}
	if err == nil && c.Bool("exit-code") && !d.Equal() {
		return fmt.Errorf("%w: %s and %s differ", errVerify, a.name, b.name)
	}
	return err
}

// openSide opens a file of any format, all shards of one, or a folder.
func openSide(ctx context.Context, path string, h source.Headers) (*side, error) {
	src, err := folderOrShards(ctx, path, h)
	if err != nil {
		return nil, err
	}
	if src != nil {
		m := src.Model
		if m == nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", path, verify.ErrFormat), src.Close())
		}
		return &side{modelName(path), m.Meta, m.Tensors, src.Close}, nil
	}
	blob, err := tensor.OpenFile(path)
	if err != nil {
		return nil, err
	}
	name := filepath.Base(path)
	f, err := verify.Open(ctx, name, blob, verify.OpenOptions{MaxHeader: h.Max})
	if err != nil {
		return nil, errors.Join(err, blob.Close())
	}
	return &side{name, f.Meta, f.Tensors, blob.Close}, nil
}

func printDiff(w io.Writer, d *verify.Difference, headers bool) error {
	if d.Equal() {
		what := "nothing differs"
		if headers {
			what = "no header differs"
		}
		_, err := fmt.Fprintf(w, "%s: %d tensors\n", what, d.Same)
		return err
	}
	for _, k := range d.Metadata {
		switch {
		case k.B == "":
			fmt.Fprintf(w, "- %s = %s\n", k.Key, shorten(k.A))
		case k.A == "":
			fmt.Fprintf(w, "+ %s = %s\n", k.Key, shorten(k.B))
		default:
			fmt.Fprintf(w, "~ %s = %s -> %s\n", k.Key, shorten(k.A), shorten(k.B))
		}
	}
	for _, n := range d.OnlyA {
		fmt.Fprintf(w, "- tensor %s\n", n)
	}
	for _, n := range d.OnlyB {
		fmt.Fprintf(w, "+ tensor %s\n", n)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, c := range d.Changed {
		form := c.TypeB
		if c.TypeA != c.TypeB {
			form = c.TypeA + " -> " + c.TypeB
		}
		shape := fmt.Sprint(c.ShapeB)
		if !c.ShapeA.Equal(c.ShapeB) {
			shape = fmt.Sprint(c.ShapeA, " -> ", c.ShapeB)
		}
		fmt.Fprintf(t, "~ tensor %s\t%s\t%s\t%s\n", c.Name, form, shape, valuesText(c.Values))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if d.Order {
		fmt.Fprintln(w, "the tensors stand in another order")
	}
	_, err := fmt.Fprintf(w, "%d tensors are the same, %d differ, %d are only in %s, %d only in %s\n", d.Same, len(d.Changed), len(d.OnlyA), d.A, len(d.OnlyB), d.B)
	return err
}

func valuesText(r *verify.Row) string {
	switch {
	case r == nil:
		return ""
	case r.Equal:
		return "the same values"
	}
	return fmt.Sprintf("SNR %.1f dB, at most %.3g off", float64(r.SNRdB), r.MaxAbs)
}

// shorten cuts long values to a line.
func shorten(s string) string {
	if r := []rune(s); len(r) > 100 {
		return string(r[:100]) + "..."
	}
	return s
}
