package needle

import (
	"context"
	"fmt"
	"math"

	"quern/formats/cact"
	"quern/model"
	"quern/tensor"
	"quern/tensor/cq"
	"quern/tensor/quant"
)

// Matrices lists what an archive of a checkpoint would quantize, in file order and
// under the archive's names, not quantized.
func Matrices(m *model.Model) ([]*tensor.Tensor, error) {
	k, err := ConfigOf(m)
	if err != nil {
		return nil, err
	}
	ref, err := Reference(m)
	if err != nil {
		return nil, err
	}
	h := k.Header()
	b := &archiver{m: m, k: k}
	heads, err := b.heads()
	if err != nil {
		return nil, err
	}
	var out []*tensor.Tensor
	for i, s := range h.Tensors(b.rank(), heads) {
		if s.Kind == cact.CQ {
			out = append(out, ref[i])
		}
	}
	return out, nil
}

// Sample draws coordinates of rotated groups on the unit sphere, times sqrt(group),
// from matrices: every n-th group, with the least n that gives no more than most
// values. progress, if set, is told how many rows of all are read.
func Sample(ctx context.Context, matrices []*tensor.Tensor, group, most int, progress func(done, total int64)) ([]float64, error) {
	if err := cq.CheckGroup(group); err != nil {
		return nil, err
	}
	var groups, rows int64
	for _, t := range matrices {
		groups += t.Rows() * ((t.Shape.RowLen() + int64(group) - 1) / int64(group))
		rows += t.Rows()
	}
	every := max(1, (groups*int64(group)+int64(most)-1)/int64(max(most, 1)))
	var out []float64
	root := math.Sqrt(float64(group))
	x := make([]float32, group)
	var at, done int64
	for _, t := range matrices {
		dec, err := quant.DecoderFor(t.Type)
		if err != nil {
			return nil, fmt.Errorf("tensor %s: %w", t.Name, err)
		}
		per := t.RowBytes()
		step := max(1, min(t.Rows(), (1<<20)/max(per, 1)))
		buf, row := make([]byte, step*per), make([]float32, t.Shape.RowLen())
		for first := int64(0); first < t.Rows(); first += step {
			n := min(step, t.Rows()-first)
			if err := t.ReadRows(ctx, buf[:n*per], first, n); err != nil {
				return nil, err
			}
			for i := range n {
				dec.Decode(row, buf[i*per:(i+1)*per])
				for from := 0; from < len(row); from += group {
					if at++; (at-1)%every != 0 {
						continue
					}
					clear(x[copy(x, row[from:]):])
					cq.Rotate(x)
					var sum float64
					for _, v := range x {
						sum += float64(float64(v) * float64(v))
					}
					norm := math.Sqrt(sum)
					if norm == 0 || math.IsNaN(norm) || math.IsInf(norm, 0) {
						continue // building says what is wrong with it
					}
					for _, v := range x {
						out = append(out, float64(float64(v)/norm*root))
					}
				}
			}
			if done += n; progress != nil {
				progress(done, rows)
			}
		}
	}
	return out, nil
}
