package convert

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"quern/tensor"
)

// counted is a source of rows that each hold their number, and that keeps what
// was asked of it.
type counted struct {
	mu    sync.Mutex
	calls [][2]int64
	base  int64
	width int64
}

func (c *counted) ReadRows(_ context.Context, dst []byte, first, n int64) error {
	c.mu.Lock()
	c.calls = append(c.calls, [2]int64{first, n})
	c.mu.Unlock()
	for r := range n {
		for i := range c.width {
			dst[r*c.width+i] = byte(c.base + first + r)
		}
	}
	return nil
}

func (c *counted) rows() (n int64) {
	for _, call := range c.calls {
		n += call[1]
	}
	return n
}

// rowTensor is a matrix of 8-bit integers whose rows hold base, base+1, ...
func rowTensor(name string, base int64, shape ...int64) (*tensor.Tensor, *counted) {
	s := &counted{base: base, width: shape[len(shape)-1]}
	return &tensor.Tensor{Name: name, Type: tensor.U8, Shape: shape, Src: s, Key: tensor.Derive("test", name)}, s
}

// ranges reads every range of rows of a view and compares with one that gives
// the number of the row below, row by row.
func ranges(t *testing.T, view *tensor.Tensor, below func(row int64) byte, sources ...*counted) {
	t.Helper()
	w := view.Shape.RowLen()
	for first := range view.Rows() {
		for n := int64(1); first+n <= view.Rows(); n++ {
			for _, s := range sources {
				s.calls = nil
			}
			b := make([]byte, n*w)
			if err := view.ReadRows(t.Context(), b, first, n); err != nil {
				t.Fatal(err)
			}
			for r := range n {
				if got, want := b[r*w:(r+1)*w], bytes.Repeat([]byte{below(first + r)}, int(w)); !bytes.Equal(got, want) {
					t.Fatalf("rows %d to %d: row %d is %v, want %v", first, first+n-1, first+r, got, want)
				}
			}
			read := int64(0)
			for _, s := range sources {
				read += s.rows()
			}
			if read != n {
				t.Fatalf("%d rows were read for rows %d to %d", read, first, first+n-1)
			}
		}
	}
}

func TestPermutedRanges(t *testing.T) {
	for _, c := range []struct{ heads, dim int64 }{{1, 2}, {3, 4}, {2, 6}, {2, 10}} {
		src, s := rowTensor("q", 0, c.heads*c.dim, 3)
		p, err := permute(src, c.heads, &buffers{})
		if err != nil {
			t.Fatal(err)
		}
		ranges(t, p, func(row int64) byte {
			h, in := row/c.dim, row%c.dim
			return byte(h*c.dim + in%2*c.dim/2 + in/2)
		}, s)
		// Whole heads are one request, a cut head two, whatever their size.
		s.calls = nil
		if err := p.ReadRows(t.Context(), make([]byte, c.heads*c.dim*3), 0, c.heads*c.dim); err != nil || len(s.calls) != 1 {
			t.Errorf("%d requests for all rows, %v", len(s.calls), err)
		}
		s.calls = nil
		if err := p.ReadRows(t.Context(), make([]byte, (c.dim-1)*3), 0, c.dim-1); err != nil || len(s.calls) > 2 {
			t.Errorf("%d requests for a cut head, %v", len(s.calls), err)
		}
	}
	if src, _ := rowTensor("q", 0, 6, 3); true {
		if _, err := permute(src, 2, &buffers{}); err == nil {
			t.Error("heads of three rows have no halves")
		}
	}
}

func TestStackedRanges(t *testing.T) {
	var parts []*tensor.Tensor
	var sources []*counted
	for e := range int64(3) {
		p, s := rowTensor(fmt.Sprint("e", e), 10*e, 4, 2)
		parts, sources = append(parts, p), append(sources, s)
	}
	v := stack(parts)
	v.Name = "stack"
	if !v.Shape.Equal(tensor.Shape{3, 4, 2}) {
		t.Errorf("shape %v", v.Shape)
	}
	ranges(t, v, func(row int64) byte { return byte(10*(row/4) + row%4) }, sources...)
}

func TestHalfRanges(t *testing.T) {
	src, s := rowTensor("fused", 0, 3, 8, 2)
	for which := range int64(2) {
		v := half(src, which)
		if !v.Shape.Equal(tensor.Shape{3, 4, 2}) {
			t.Errorf("shape %v", v.Shape)
		}
		ranges(t, v, func(row int64) byte { return byte(row/4*8 + which*4 + row%4) }, s)
	}
	if half(src, 0).Key == half(src, 1).Key {
		t.Error("both halves have one key")
	}
}

func TestLeadingRanges(t *testing.T) {
	src, s := rowTensor("embd", 0, 9, 2)
	src.Origin = []tensor.Extent{{File: "f", Offset: 100, Bytes: 18}}
	v := leading(src, 7)
	ranges(t, v, func(row int64) byte { return byte(row) }, s)
	if len(v.Origin) != 1 || v.Origin[0].Bytes != 14 || v.Origin[0].Offset != 100 {
		t.Errorf("origin %v", v.Origin)
	}
}

func TestHalfOrigin(t *testing.T) {
	src, _ := rowTensor("fused", 0, 2, 8, 3)
	src.Origin = []tensor.Extent{{File: "f", Offset: 1000, Bytes: 48}}
	got := fmt.Sprint(half(src, 0).Origin, half(src, 1).Origin)
	if want := "[{ f 1000 12} { f 1024 12}] [{ f 1012 12} { f 1036 12}]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// Rows come out the same from many goroutines in any cut, and a source that
// fails is heard.
func TestConcurrentReads(t *testing.T) {
	m := newToy(t)
	m.at(t, "model.layers.0.self_attn.q_proj.weight").DType = "BF16"
	g := m.mustConvert(t, "q8_0")
	for _, x := range g.Tensors {
		whole := make([]byte, x.Bytes())
		if err := x.ReadRows(t.Context(), whole, 0, x.Rows()); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for first := range x.Rows() {
			wg.Go(func() {
				n := min(1+first%5, x.Rows()-first)
				b := make([]byte, n*x.RowBytes())
				if err := x.ReadRows(t.Context(), b, first, n); err != nil || !bytes.Equal(b, whole[first*x.RowBytes():(first+n)*x.RowBytes()]) {
					t.Errorf("%s: rows from %d differ, %v", x.Name, first, err)
				}
			})
		}
		wg.Wait()
	}
}

func TestReadErrors(t *testing.T) {
	files := newToy(t).build(t)
	g, err := ToGGUF(t.Context(), load(t, files), Options{OutType: "q8_0"})
	if err != nil {
		t.Fatal(err)
	}
	files.Fail = func(string, int64, int64) error { return context.DeadlineExceeded }
	for _, x := range g.Tensors {
		if err := x.ReadRows(t.Context(), make([]byte, x.RowBytes()), 0, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: error %v", x.Name, err)
		}
	}
	files.Fail = nil
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	x := g.Tensors[0]
	if err := x.ReadRows(ctx, make([]byte, x.RowBytes()), 0, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("after a cancel: %v", err)
	}
}

// Conversion itself reads headers and side files, never weights.
func TestNoWeightsRead(t *testing.T) {
	files := newToy(t).build(t)
	hf := load(t, files)
	before := files.Reads.Load()
	if _, err := ToGGUF(t.Context(), hf, Options{}); err != nil {
		t.Fatal(err)
	}
	if n := files.Reads.Load() - before; n != 0 {
		t.Errorf("%d reads of weight files", n)
	}
}

// Keys tell apart everything that changes bytes, and nothing else.
func TestKeys(t *testing.T) {
	keysOf := func(m *toy, out string) map[string]tensor.Key {
		keys := map[string]tensor.Key{}
		for _, x := range m.mustConvert(t, out).Tensors {
			if x.Key.IsZero() {
				t.Errorf("%s has no key", x.Name)
			}
			keys[x.Name] = x.Key
		}
		return keys
	}
	a, b := keysOf(newToy(t), "f16"), keysOf(newToy(t), "f16")
	for name, k := range a {
		if b[name] != k {
			t.Errorf("%s: the key changes from run to run", name)
		}
	}
	q := keysOf(newToy(t), "bf16")
	if q["token_embd.weight"] == a["token_embd.weight"] {
		t.Error("the key does not know the type")
	}
	if q["output_norm.weight"] != a["output_norm.weight"] {
		t.Error("a norm's key knows the type of the others")
	}
	seen := map[tensor.Key]string{}
	for name, k := range a {
		if other, dup := seen[k]; dup {
			t.Errorf("%s and %s have one key", name, other)
		}
		seen[k] = name
	}
}
