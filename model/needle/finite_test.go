package needle

import (
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"quern/model"
	"quern/tensor"
	"quern/tensor/cq"
	"quern/tensor/view"
)

// spoiled is the made-up checkpoint with some values of one tensor replaced, in F16.
func spoiled(t *testing.T, name string, values map[int]uint16) *model.Model {
	t.Helper()
	m := third(t, nil)
	var ts []*tensor.Tensor
	for _, x := range m.Tensors {
		if x.Name == name {
			b := bytesOf(t, x)
			for at, v := range values {
				binary.LittleEndian.PutUint16(b[2*at:], v)
			}
			x = Bytes(name, x.Type, x.Shape, b)
		}
		ts = append(ts, x)
	}
	return m.WithTensors(ts)
}

// TestNotFinite: what is not finite among the weights is found when its rows are
// written, with the name, the first place and how many there are, whether the matrix
// is quantized, turned around or kept, and whichever rows are asked for first.
func TestNotFinite(t *testing.T) {
	const nan, inf, minusInf = 0x7e00, 0x7c00, 0xfc00
	for _, c := range []struct {
		name, as string
		values   map[int]uint16
		row, col int64
		count    int64
	}{
		{"embedding/embedding", "embedding", map[int]uint16{5: nan}, 0, 5, 1},
		{"embedding/embedding", "embedding", map[int]uint16{64*3 + 7: inf, 64*3 + 8: nan, 64 * 39: minusInf, 64*39 + 1: nan}, 3, 7, 4},
		// [in, out] becomes [out, in]: input 2 of output 9 of layer 1.
		{"stack/layers/block/self_attn/q_proj/kernel", "layer01.q_proj", map[int]uint16{64*64 + 2*64 + 9: minusInf}, 9, 2, 1},
		{"stack/final_norm/scale", "final_norm", map[int]uint16{5: nan, 6: nan, 63: nan}, 0, 5, 3},
	} {
		a := mustArchive(t, spoiled(t, c.name, c.values))
		for _, x := range a.Tensors {
			if x.Name != c.as {
				continue
			}
			for _, first := range []int64{0, x.Rows() - 1} {
				// The last row alone first: it reports the matrix all the same.
				err := x.ReadRows(context.Background(), make([]byte, (x.Rows()-first)*x.RowBytes()), first, x.Rows()-first)
				if err == nil && first > 0 {
					continue // no bad value in it
				}
				var v *view.ValueError
				if !errors.As(err, &v) || v.Tensor != c.as || v.Row != c.row || v.Column != c.col || v.Count != c.count {
					t.Errorf("%s: %+v, want row %d, column %d, %d in all", c.name, err, c.row, c.col, c.count)
				}
			}
		}
	}
	a := mustArchive(t, spoiled(t, "embedding/embedding", map[int]uint16{64: nan, 70: nan, 71: inf}))
	err := a.Tensors[0].ReadRows(context.Background(), make([]byte, a.Tensors[0].Bytes()), 0, a.Tensors[0].Rows())
	if want := "tensor embedding: row 1, column 0: NaN is not finite; it has 2 more of the kind"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestTooLong: finite weights whose group is too long for F16 are no value that is
// not finite.
func TestTooLong(t *testing.T) {
	a := mustArchive(t, spoiled(t, "embedding/embedding", map[int]uint16{64: 0x7bff, 65: 0x7bff}))
	err := a.Tensors[0].ReadRows(context.Background(), make([]byte, a.Tensors[0].Bytes()), 0, a.Tensors[0].Rows())
	if !errors.Is(err, cq.ErrValue) || !strings.Contains(err.Error(), "embedding: row 1") || !strings.Contains(err.Error(), "65504") {
		t.Errorf("%v", err)
	}
}
