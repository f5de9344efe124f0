package gates

import (
	"context"

	"quern/formats/gguf"
	"quern/model"
	"quern/pipeline"
	"quern/verify"
)

// Notes warns of what a written file shows without being run: of ids that are not
// those of its source's tokenizer, and of norms that look shifted twice.
func Notes(ctx context.Context, in pipeline.GateInput) ([]string, error) {
	say, err := TokenizerNotes(ctx, in)
	if err != nil || in.Part > 0 || len(in.Set) == 0 {
		return say, err
	}
	format, err := verify.Sniff(ctx, in.Set[0].Name, in.Set[0].Blob)
	if err != nil || format != verify.GGUF {
		return say, context.Cause(ctx)
	}
	g, set, err := model.LoadGGUF(ctx, in.Set[0].Name, opener(in), gguf.Options{})
	if err != nil {
		return say, context.Cause(ctx)
	}
	defer set.Close()
	arch, err := g.Meta.Text("general.architecture")
	if err != nil {
		return say, context.Cause(ctx)
	}
	more, err := verify.NormNotes(ctx, arch, g.Tensors)
	if err != nil {
		return nil, err
	}
	return append(say, more...), nil
}
