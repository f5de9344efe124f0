package verify

import (
	"bytes"
	"context"
	"fmt"

	"quern/tensor"
)

// Scan reads every tensor once and counts NaN and infinite values. The rows of
// the report have no errors: there is nothing to compare with.
func Scan(ctx context.Context, got []*tensor.Tensor, opt Options) (*Report, error) {
	rep, err := Compare(ctx, got, got, opt)
	if err != nil {
		return nil, err
	}
	for i := range rep.Rows {
		rep.Rows[i].From = ""
	}
	return rep, nil
}

// FirstDifference says where two lists of tensors first differ: in a name, a
// type, a shape or a row of bytes.
func FirstDifference(ctx context.Context, got, want []*tensor.Tensor) (string, error) {
	for i, g := range got {
		if i >= len(want) {
			return fmt.Sprintf("tensor %s is one too many", g.Name), nil
		}
		w := want[i]
		if g.Name != w.Name || g.Type != w.Type || !g.Shape.Equal(w.Shape) {
			return fmt.Sprintf("tensor %d is %s %s %v, in the golden file %s %s %v", i, g.Name, g.Type, g.Shape, w.Name, w.Type, w.Shape), nil
		}
		row, err := firstRow(ctx, g, w)
		if err != nil {
			return "", err
		}
		if row >= 0 {
			return fmt.Sprintf("tensor %s differs first in row %d of %d", g.Name, row, g.Rows()), nil
		}
	}
	if len(want) > len(got) {
		return fmt.Sprintf("tensor %s of the golden file is missing", want[len(got)].Name), nil
	}
	return "all tensors are equal, so the metadata or the padding differs", nil
}

// firstRow finds the first row that differs, or -1.
func firstRow(ctx context.Context, a, b *tensor.Tensor) (int64, error) {
	rb := a.RowBytes()
	step := int64(1)
	if rb > 0 && rb < 1<<20 {
		step = 1 << 20 / rb
	}
	x, y := make([]byte, step*rb), make([]byte, step*rb)
	for first := int64(0); first < a.Rows(); first += step {
		n := step
		if n > a.Rows()-first {
			n = a.Rows() - first
		}
		if err := a.ReadRows(ctx, x[:n*rb], first, n); err != nil {
			return 0, err
		}
		if err := b.ReadRows(ctx, y[:n*rb], first, n); err != nil {
			return 0, err
		}
		for i := int64(0); i < n; i++ {
			if !bytes.Equal(x[i*rb:(i+1)*rb], y[i*rb:(i+1)*rb]) {
				return first + i, nil
			}
		}
	}
	return -1, nil
}
