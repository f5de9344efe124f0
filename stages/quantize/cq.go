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
	bits     *needle.Bits
	group    int
	codebook string
}

func newCQ(p recipes.Quantize) (*cqStage, error) {
	s := &cqStage{group: int(p.Group), codebook: p.Codebook}
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
func (s *cqStage) Plan(ctx context.Context, in *model.Model) (*model.Model, error) {
	return s.PlanWith(ctx, in, nil)
}

// PlanWith is Plan with the sources that fitted codebooks may be one of.
func (s *cqStage) PlanWith(ctx context.Context, in *model.Model, sources []*pipeline.Source) (*model.Model, error) {
	switch in.Form {
	case model.Needle:
	case model.Cact:
		return nil, fmt.Errorf("%w: the archive's matrices; start from the checkpoint that it was made of", ErrRequantize)
	default:
		return nil, fmt.Errorf("%w: the model is in %s form; CQ is for Needle checkpoints", model.ErrForm, in.Form)
	}
	opt := needle.Options{Bits: s.bits, Group: s.group}
	if s.codebook == "" {
		return needle.ToArchive(in, opt)
	}
	books, err := s.books(ctx, sources)
	if err != nil {
		return nil, err
	}
	opt.Books = map[cq.Width][]float32{}
	var notes []model.Note
	for _, b := range books.Books {
		w, err := cq.ParseWidth(b.Bits)
		if err != nil {
			return nil, err
		}
		opt.Books[w] = cq.ForGroup(b.Levels, s.group)
		notes = append(notes, model.Note{Subject: s.codebook, Text: fmt.Sprintf(
			"codebook of %s bits fitted to %d coordinates: RMS error %.4f, %.4f with the standard one", w, books.Samples, b.RMS, b.StandardRMS)})
	}
	out, err := needle.ToArchive(in, opt)
	if err != nil {
		return nil, err
	}
	return out.WithNotes(notes...), nil
}

// maxBooks bounds what is read of a source with codebooks.
const maxBooks = 1 << 16

// books reads the codebooks that the step names.
func (s *cqStage) books(ctx context.Context, sources []*pipeline.Source) (*cq.Books, error) {
	src, err := pipeline.Find(sources, s.codebook)
	if err != nil {
		return nil, err
	}
	if src.Content == nil || src.Content.Size() > maxBooks {
		return nil, fmt.Errorf("%w: source %s: the product of a codebook step is needed", cq.ErrCodebook, src.Name)
	}
	text := make([]byte, src.Content.Size())
	if err := src.Content.ReadAt(ctx, text, 0); err != nil {
		return nil, pipeline.SourceFault(err)
	}
	b, err := cq.ParseBooks(text)
	if err != nil {
		return nil, fmt.Errorf("source %s: %w", src.Name, err)
	}
	if b.Group != s.group {
		return nil, fmt.Errorf("source %s: %w: it was fitted to groups of %d, the step has %d", src.Name, cq.ErrCodebook, b.Group, s.group)
	}
	return b, nil
}
