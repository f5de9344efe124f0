package repack

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"quern/tensor"
)

func TestParse(t *testing.T) {
	for _, l := range Layouts() {
		got, err := Parse(strings.ToUpper(l.String()))
		if err != nil || got != l {
			t.Errorf("%s: %v, %v", l, got, err)
		}
	}
	if _, err := Parse("q4_0_3x3"); !errors.Is(err, ErrLayout) || !strings.Contains(err.Error(), "q4_0_8x8") {
		t.Errorf("unknown layout: %v", err)
	}
}

func TestCheckRefuses(t *testing.T) {
	for _, c := range []struct {
		name, layout string
		typ          tensor.Type
		shape        tensor.Shape
		say          string
	}{
		{"another type", "q4_0_4x4", tensor.Q8_0, tensor.Shape{8, 32}, "not of Q8_0"},
		{"a vector", "q4_0_4x4", tensor.Q4_0, tensor.Shape{32}, "matrices"},
		{"four axes", "q4_0_4x4", tensor.Q4_0, tensor.Shape{1, 1, 4, 32}, "matrices"},
		{"rows that do not divide", "q4_0_8x8", tensor.Q4_0, tensor.Shape{12, 32}, "groups of 8, 12 rows"},
		{"groups across experts", "q4_0_8x8", tensor.Q4_0, tensor.Shape{2, 4, 32}, "groups of 8, 4 rows"},
		{"a row that no blocks fit", "q4_K_8x8", tensor.Q4_K, tensor.Shape{8, 288}, "288"},
		{"a size past int64", "q4_0_4x4", tensor.Q4_0, tensor.Shape{1 << 40, 1 << 40}, "q4_0_4x4"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, err := Parse(c.layout)
			if err != nil {
				t.Fatal(err)
			}
			err = l.Check(c.typ, c.shape)
			if !errors.Is(err, tensor.ErrShape) || !strings.Contains(err.Error(), c.say) {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestPackRefusesBuffers(t *testing.T) {
	l, err := Parse("q4_0_4x4")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		dst, src int
		rowLen   int64
	}{{72, 71, 32}, {54, 54, 32}, {72, 72, 33}, {72, 72, 0}, {72, 72, -32}, {72, 72, 1 << 62}} {
		if err := l.Pack(make([]byte, c.dst), make([]byte, c.src), c.rowLen); err == nil {
			t.Errorf("packs %+v", c)
		}
		if err := l.Unpack(make([]byte, c.dst), make([]byte, c.src), c.rowLen); err == nil {
			t.Errorf("unpacks %+v", c)
		}
	}
	if err := l.Pack(nil, nil, 32); err != nil {
		t.Errorf("nothing: %v", err)
	}
}

// held is a tensor whose rows are in memory.
type held struct {
	row  int64
	data []byte
}

func (h held) ReadRows(_ context.Context, dst []byte, first, n int64) error {
	copy(dst, h.data[first*h.row:(first+n)*h.row])
	return nil
}

// TestViews reads a stack of experts through both views, whole and in pieces that
// begin and end inside groups.
func TestViews(t *testing.T) {
	ctx := context.Background()
	for _, l := range Layouts() {
		shape := tensor.Shape{3, 2 * l.GroupRows(), 2 * l.Type().BlockValues()}
		size, err := tensor.Bytes(l.Type(), shape)
		if err != nil {
			t.Fatal(err)
		}
		src := blocksFor(l, l.String(), size)
		packed, err := l.Bytes(shape)
		if err != nil {
			t.Fatal(err)
		}
		in := &tensor.Tensor{Name: "blk.0.ffn_up_exps.weight", Type: l.Type(), Shape: shape, Key: tensor.Key{1}}
		in.Src = held{in.RowBytes(), src}
		p, err := Interleave(in, l)
		if err != nil {
			t.Fatal(err)
		}
		if p.Type != tensor.U8 || p.Bytes() != packed || p.Key == in.Key || p.Key.IsZero() {
			t.Errorf("%s: %s of %d bytes, key %s", l, p.Type, p.Bytes(), p.Key)
		}
		want := make([]byte, packed)
		if err := l.Pack(want, src, shape.RowLen()); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, packed)
		for r := range p.Rows() {
			if err := p.ReadRows(ctx, got[r*p.RowBytes():(r+1)*p.RowBytes()], r, 1); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s: rows through the view differ from those packed at once", l)
		}
		back, err := Deinterleave(p, l, shape)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []int64{1, 3, 5, back.Rows()} {
			got := make([]byte, 0, size)
			for first := int64(0); first < back.Rows(); first += n {
				if n > back.Rows()-first {
					n = back.Rows() - first
				}
				buf := make([]byte, n*back.RowBytes())
				if err := back.ReadRows(ctx, buf, first, n); err != nil {
					t.Fatal(err)
				}
				got = append(got, buf...)
			}
			if !bytes.Equal(got, src) {
				t.Errorf("%s: rows in runs of %d do not come back", l, n)
			}
		}
		if _, err := Deinterleave(p, l, tensor.Shape{2 * l.GroupRows(), shape.RowLen()}); !errors.Is(err, tensor.ErrShape) {
			t.Errorf("%s: another shape: %v", l, err)
		}
		if _, err := Interleave(p, l); !errors.Is(err, tensor.ErrShape) {
			t.Errorf("%s: packed twice: %v", l, err)
		}
	}
}

// TestWords holds unpacking by words to that by chunks, and sees that bytes of other
// fields are left alone.
func TestWords(t *testing.T) {
	runs, words := 0, 0
	for _, l := range Layouts() {
		block := int(l.typ.BlockBytes())
		row := block + 5
		bundle := noise(l.name, int64(l.size))
		blank := func() []byte { return bytes.Repeat([]byte{0xa5}, l.rows*row) }
		want, at := blank(), 0
		for _, f := range l.fields {
			n := f.size * l.rows
			in := bundle[at : at+n]
			at += n
			if f.order != turns && f.order != flipped {
				continue
			}
			f.unpackBytes(in, want, row, l.rows)
			if f.order == flipped {
				continue
			}
			one, got := blank(), blank()
			f.unpackBytes(in, one, row, l.rows)
			if f.unpackRuns(in, got, row, l.rows) {
				runs++
				if !bytes.Equal(got, one) {
					t.Errorf("%s: the field at %d is another by words", l, f.at)
				}
			}
		}
		if l.words {
			words++
			got := blank()
			l.unbundle32(bundle, got, row)
			if !bytes.Equal(got, want) {
				t.Errorf("%s: other blocks by words", l)
			}
		}
	}
	if runs == 0 || words == 0 {
		t.Errorf("%d fields and %d layouts by words", runs, words)
	}
}
