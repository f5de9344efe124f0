package reorder

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"quern/formats/imatrix"
	"quern/formats/trace"
	"quern/model"
	"quern/model/order"
	"quern/pipeline"
	"quern/tensor"
)

// ErrUse marks a source that says nothing of how experts are used.
var ErrUse = errors.New("no counts of use")

// byUse is the step where it renumbers experts too.
type byUse struct{ *Stage }

// PlanWith moves the tensors, and the experts in them by the counts of a source or of
// a step before: an expert-use trace, or an importance matrix that counts experts.
func (s byUse) PlanWith(ctx context.Context, in *model.Model, sources []*pipeline.Source) (*model.Model, error) {
	src, err := pipeline.Find(sources, s.p.By)
	if err != nil {
		return nil, fmt.Errorf("by: %w", err)
	}
	uses, cut, err := usesOf(ctx, src)
	if err != nil {
		return nil, pipeline.SourceFault(fmt.Errorf("by: source %s: %w", s.p.By, err))
	}
	m, err := inGGUF(ctx, in)
	if err != nil {
		return nil, err
	}
	if m, err = order.ByUse(m, uses); err != nil {
		return nil, fmt.Errorf("by: source %s: %w", s.p.By, err)
	}
	if m, err = order.ExpertsLast(m, s.p.Align); err != nil {
		return nil, err
	}
	if cut {
		m = m.WithNotes(model.Note{Subject: "by: source " + s.p.By, Text: "the trace breaks off inside a token; the rows that are there count"})
	}
	return m, nil
}

// usesOf counts how often experts were chosen. cut tells of a trace that breaks off.
func usesOf(ctx context.Context, src *pipeline.Source) (uses order.Uses, cut bool, err error) {
	if src.Content == nil {
		return nil, false, fmt.Errorf("%w: it is a model; give an importance matrix or an expert-use trace", ErrUse)
	}
	head := make([]byte, min(src.Content.Size(), 4))
	if err := src.Content.ReadAt(ctx, head, 0); err != nil {
		return nil, false, err
	}
	if isTrace(head) {
		return usesOfTrace(ctx, src)
	}
	m, err := imatrix.Read(ctx, src.FileName(), src.Content, imatrix.Options{})
	if err != nil {
		return nil, false, err
	}
	if uses, err = usesOfMatrix(m); err != nil {
		return nil, false, fmt.Errorf("%s: %w", src.FileName(), err)
	}
	return uses, false, nil
}

// isTrace tells a trace, plain or compressed, from an importance matrix, which
// begins with GGUF or with a count.
func isTrace(head []byte) bool {
	for _, magic := range []string{"quer", "\x1f\x8b", "\x28\xb5\x2f\xfd"} {
		if bytes.HasPrefix(head, []byte(magic)) {
			return true
		}
	}
	return false
}

func usesOfTrace(ctx context.Context, src *pipeline.Source) (order.Uses, bool, error) {
	u, cut, err := trace.ReadUse(src.FileName(), io.NewSectionReader(tensor.ContextReaderAt(ctx, src.Content), 0, src.Content.Size()))
	if err != nil {
		return nil, false, err
	}
	uses := order.Uses{}
	for i, layer := range u.Header.Layers {
		uses[layer] = u.Counts[i]
	}
	return uses, cut, nil
}

// usesOfMatrix takes the counts of an importance matrix: rows of inputs that went
// to each expert's matrices.
func usesOfMatrix(m *imatrix.Matrix) (order.Uses, error) {
	uses := order.Uses{}
	stacks := 0
	for _, e := range m.Entries {
		number, rest, _ := strings.Cut(strings.TrimPrefix(e.Name, "blk."), ".")
		b, err := strconv.ParseUint(number, 10, 31)
		if err != nil || !strings.HasPrefix(e.Name, "blk.") || !strings.HasSuffix(rest, "_exps.weight") {
			continue
		}
		stacks++
		// All matrices of an expert see the same tokens.
		if len(e.Counts) > 1 {
			uses[int(b)] = e.Counts
		}
	}
	switch {
	case len(uses) > 0:
		return uses, nil
	case stacks > 0:
		return nil, fmt.Errorf("%w: the older format keeps no counts of experts; make the matrix anew in GGUF format", ErrUse)
	}
	return nil, fmt.Errorf("%w: none of its %d entries is of experts", ErrUse, len(m.Entries))
}
