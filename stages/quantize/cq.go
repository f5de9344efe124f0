package quantize

import (
	"context"
	"fmt"
	"strings"

	"quern/model"
	"quern/model/needle"
	"quern/pipeline"
	"quern/recipes"
	"quern/tensor/cq"
)

// Make makes the stage of a quantize step: for CQ widths the one that turns a
// Needle checkpoint into the tensors of a .cact archive, else the one for GGUF.
func Make(p recipes.Quantize) (pipeline.Stage, error) {
	if p.Bits != "" || strings.HasPrefix(p.Type, "CQ") {
		return newCQ(p)
	}
	return New(p)
}

// cqStage quantizes a Needle checkpoint.
type cqStage struct {
	bits  *needle.Bits
	group int
}

func newCQ(p recipes.Quantize) (*cqStage, error) {
	s := &cqStage{group: int(p.Group)}
	if s.group == 0 {
		s.group = needle.DefaultGroup
	}
	if err := cq.CheckGroup(s.group); err != nil {
		return nil, fmt.Errorf("group: %w", err)
	}
	if p.Bits != "" {
		var err error
		s.bits, err = needle.ParseBits(p.Bits)
		return s, err
	}
	w, err := cq.ParseWidth(p.Type)
	if err != nil {
		return nil, err
	}
	s.bits = needle.OneWidth(w)
	return s, nil
}

// Name is the step's name.
func (s *cqStage) Name() string { return "quantize" }

// Lossy marks the stage as one that changes values beyond a declared transform.
func (s *cqStage) Lossy() {}

// Plan links the quantized matrices.
func (s *cqStage) Plan(_ context.Context, in *model.Model) (*model.Model, error) {
	switch in.Form {
	case model.Needle:
	case model.Cact:
		return nil, fmt.Errorf("%w: the archive's matrices; start from the checkpoint that it was made of", ErrRequantize)
	default:
		return nil, fmt.Errorf("%w: the model is in %s form; CQ is for Needle checkpoints", model.ErrForm, in.Form)
	}
	return needle.ToArchive(in, needle.Options{Bits: s.bits, Group: s.group})
}
