package prune

import (
	"bytes"
	"context"
	"fmt"

	"quern/tensor"
)

// rebuilt gives rows of the embedding as rows of the head, and holds those that the
// head still has against it: one that differs shows that the two are no longer the
// same matrix.
type rebuilt struct {
	whole *tensor.Tensor // the rows wanted
	head  *tensor.Tensor
	at    []int32 // of each row wanted, its place in the head, or -1
}

func (r *rebuilt) ReadRows(ctx context.Context, dst []byte, first, n int64) error {
	if err := r.whole.ReadRows(ctx, dst, first, n); err != nil {
		return err
	}
	size := r.whole.RowBytes()
	buf := make([]byte, size)
	for i := range n {
		k := r.at[first+i]
		if k < 0 {
			continue
		}
		if err := r.head.ReadRows(ctx, buf, int64(k), 1); err != nil {
			return err
		}
		if !bytes.Equal(buf, dst[i*size:][:size]) {
			return fmt.Errorf("%w: row %d of %s is not the embedding's row any more, so rows that it lacks cannot be had from there; start from the whole model",
				ErrGone, k, r.head.Name)
		}
	}
	return nil
}
