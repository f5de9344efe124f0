package transformer

import (
	"context"
	"errors"
	"fmt"

	infer "quern/runtime"
	"quern/runtime/ggmlnum"
	"quern/tensor/ggmldot"
)

// ubatch is how many tokens llama.cpp takes through the layers together, logicalBatch how many its tools hand over at once.
const (
	ubatch       = 512
	logicalBatch = 2048
)

// ggmlOperations is that of llama.cpp's CPU backend: see packages ggmlnum and ggmldot.
var ggmlOperations = operations{
	batch:    func(*Model) int { return ubatch },
	trims:    true,
	headRows: ggmlHeadRows,
	norm:     ggmlnum.RMSNorm,
	silu:     ggmlnum.SiLUMul,
	gelu:     ggmlnum.GELUMul,
	softmax:  ggmlnum.Softmax,
	sigmoid:  ggmlnum.Sigmoid,
	sum:      ggmlnum.Sum,
	softcap:  ggmlnum.Softcap,
	rope:     func(p ropeParams) (rotation, error) { return newGGMLRope(p) },
	attend:   attendGGML,
	prepare:  prepareGGML,
}

// FollowsGGML tells whether sessions may ask for infer.OrderGGML: all but those of KMCU files.
func (m *Model) FollowsGGML() bool { return !m.own }

// ggmlHeadRows takes so many rows as quern's order does, but in sixteens, of which the last has what is left: kernels differ by whether
// there are 8 columns at least, and by what is left of fours, and neither changes. llama.cpp takes all rows at once.
func ggmlHeadRows(m *Model, rows int) int {
	if most := max(m.headRows()/16*16, 16); rows >= 2*most {
		return most
	}
	return rows
}

// ggmlKey tells the memory of activations apart.
type ggmlKey struct {
	place, column, width int
	format               ggmldot.Format
}

// prepareGGML puts activations in the formats of the matrices. Products of one call with the same activations and format share them.
// What has no kernel is multiplied in quern's order.
func prepareGGML(ctx context.Context, s *session, list []product) error {
	for i := range list {
		p := &list[i]
		k := p.m.ggml
		if k == nil {
			if err := s.rounded(ctx, list, i); err != nil {
				return err
			}
			continue
		}
		// Experts meet their rows as the kernel says, other matrices all together.
		each := p.in.rows
		if p.m.parts > 1 {
			each = k.ExpertColumns(each)
		}
		for _, before := range list[:i] {
			b := before.m.ggml
			if b != nil && b.Activations() == k.Activations() && b.Width() == k.Width() && &before.in.x[0] == &p.in.x[0] && before.columns[0].Rows() == each {
				p.columns = before.columns
			}
		}
		if p.columns != nil {
			continue
		}
		for c := range p.in.rows / each {
			b, err := s.ggmlBatch(ggmlKey{i, c, k.Width(), k.Activations()}, each)
			if err != nil {
				return err
			}
			p.columns = append(p.columns, b)
		}
		err := s.team.rows(ctx, p.in.rows, func(t int) error { return p.columns[t/each].SetRow(t%each, p.in.row(t)) })
		if err != nil {
			return err
		}
	}
	return nil
}

// ggmlBatch is a batch of n rows.
func (s *session) ggmlBatch(key ggmlKey, n int) (*ggmldot.Batch, error) {
	b := s.ggml[key]
	if b == nil || b.Reset(n) != nil {
		var err error
		if b, err = ggmldot.NewBatch(key.format, key.width, n); err != nil {
			return nil, err
		}
		s.ggml[key] = b
		return b, b.Reset(n)
	}
	return b, nil
}

// ggmlRows is rows for kernels of package ggmldot.
func (p *product) ggmlRows(ctx context.Context, first, n int, s *scratch) error {
	w, _, err := p.m.packed(ctx, p.part, first, n, s)
	if err != nil {
		return err
	}
	at := first
	for _, b := range p.columns {
		if err := p.m.ggml.Mul(p.dst[at:], p.m.rows, w, b, &s.ggml); err != nil {
			return err
		}
		at += b.Rows() * p.m.rows
	}
	return nil
}

// Together is how many texts llama-perplexity puts side by side.
func (s *session) Together(n int) int {
	if s.ops != &ggmlOperations || s.m.p.linear != nil {
		return 1
	}
	return max(1, logicalBatch/max(n, 1))
}

// EvalTogether evaluates texts side by side, see infer.SideBySide: so many tokens of each go through the layers that all together
// are a physical batch.
func (s *session) EvalTogether(ctx context.Context, texts [][]int32, want []int, each func(text, i int, logits []float32) error) error {
	if err := s.Rewind(0); err != nil || len(texts) == 0 {
		return err
	}
	n := len(texts[0])
	for _, t := range texts {
		if len(t) != n {
			return fmt.Errorf("texts of %d and %d tokens side by side: want one length", n, len(t))
		}
		if err := infer.CheckEval(s, s.m.p.vocab, t, want); err != nil {
			return err
		}
	}
	if len(texts) == 1 {
		err := s.Eval(ctx, texts[0], want, func(i int, logits []float32) error { return each(0, i, logits) })
		return errors.Join(err, s.Rewind(0))
	}
	for len(s.beside) < len(texts) {
		s.beside = append(s.beside, s.newMemory())
	}
	take := max(s.batch/len(texts), 1)
	return s.team.Work(func() error {
		for at := 0; at < n; at += take {
			count := min(take, n-at)
			var tokens []int32
			var rows, place []int
			s.spans = s.spans[:0]
			for k, t := range texts {
				s.spans = append(s.spans, span{&s.beside[k], len(tokens), at, count})
				for _, i := range want {
					if i >= at && i < at+count {
						rows, place = append(rows, len(tokens)+i-at), append(place, k)
					}
				}
				tokens = append(tokens, t[at:at+count]...)
			}
			if err := s.forward(ctx, tokens, rows); err != nil {
				return err
			}
			j := 0
			err := s.head(ctx, 0, rows, func(row int, logits []float32) error {
				k := place[j]
				j++
				return each(k, at+row-s.spans[k].first, logits)
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}
