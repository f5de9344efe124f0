package cq

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"quern/tensor"
	"quern/tensor/quant"
)

// TestEncodeAsNumPy: indices and norms are those of the exporter's arithmetic,
// with its matrix products. The fast transform adds in another order, which may
// move a value across a border once in a million; here none is moved.
func TestEncodeAsNumPy(t *testing.T) {
	for _, g := range numpy(t).Encode {
		w, err := ParseWidth(g.Bits)
		if err != nil {
			t.Fatal(err)
		}
		c, err := New(w, g.Group, nil)
		if err != nil {
			t.Fatal(err)
		}
		book := g.Book.float32s()
		for i, v := range c.Book() {
			if v != book[i] {
				t.Errorf("%s bits, group %d, entry %d: %v, want %v", w, g.Group, i, v, book[i])
			}
		}
		weights := g.Weights.float32s()
		cols := len(weights) / g.Rows
		padded := c.Padded(cols)
		if len(g.Index) != g.Rows*padded {
			t.Fatalf("%d golden indices, want %d", len(g.Index), g.Rows*padded)
		}
		index, norms := make([]byte, c.IndexBytes(cols)), make([]byte, c.NormBytes(cols))
		only := make([]byte, len(norms))
		got := make([]byte, padded)
		for r := range g.Rows {
			row := weights[r*cols : (r+1)*cols]
			if err := c.EncodeRow(index, norms, row); err != nil {
				t.Fatal(err)
			}
			unpack(got, index, w)
			if want := g.Index[r*padded : (r+1)*padded]; !bytes.Equal(got, want) {
				t.Errorf("%s bits, group %d, row %d: indices differ\n%v\n%v", w, g.Group, r, got, want)
			}
			if want := g.Norms[r*len(norms) : (r+1)*len(norms)]; !bytes.Equal(norms, want) {
				t.Errorf("%s bits, group %d, row %d: norms %x, want %x", w, g.Group, r, norms, want)
			}
			if err := c.EncodeRow(nil, only, row); err != nil || !bytes.Equal(only, norms) {
				t.Errorf("%s bits, group %d, row %d: norms alone %x, %v, with indices %x", w, g.Group, r, only, err, norms)
			}
			checkDecode(t, c, index, norms, cols)
		}
	}
}

// checkDecode holds a decoded row against a product with H in float64.
func checkDecode(t *testing.T, c *Codec, index, norms []byte, cols int) {
	t.Helper()
	got := make([]float32, cols)
	if err := c.DecodeRow(got, index, norms); err != nil {
		t.Fatal(err)
	}
	k := make([]byte, c.Padded(cols))
	unpack(k, index, c.width)
	for i, v := range got {
		at := i / c.group * c.group
		norm := float64(quant.FromF16(binary.LittleEndian.Uint16(norms[i/c.group*2:])))
		var want float64
		for j := range c.group {
			u := float64(c.book[k[at+j]]) * norm / math.Sqrt(float64(c.group))
			if ones(uint(j&(i-at)))%2 == 1 {
				u = -u
			}
			want += u
		}
		if d := math.Abs(float64(v) - want); d > 1e-6*norm {
			t.Errorf("%s bits, group %d, column %d: %v, want %v", c.width, c.group, i, v, want)
			return
		}
	}
}

func ones(x uint) (n int) {
	for ; x != 0; x &= x - 1 {
		n++
	}
	return n
}

// TestPack pins the bit order by hand.
func TestPack(t *testing.T) {
	for _, c := range []struct {
		w     Width
		index []byte
		want  []byte
	}{
		{W4, []byte{1, 2, 3, 4, 15, 0, 9, 8}, []byte{0x21, 0x43, 0x0f, 0x89}},
		// 001 010 011 100 111 000 101 110 from the lowest bits up.
		{W3, []byte{1, 2, 3, 4, 7, 0, 5, 6}, []byte{0b11_010_001, 0b0_111_100_0, 0b110_101_00}},
		{W2, []byte{0, 1, 2, 3, 3, 2, 1, 0}, []byte{0b11_10_01_00, 0b00_01_10_11}},
		{W158, []byte{0, 1, 2, 2, 1, 0, 1, 2}, []byte{0b01_01_00_11, 0b01_00_11_00}},
		{W1, []byte{1, 0, 0, 1, 1, 1, 0, 1}, []byte{0b10111001}},
	} {
		got := make([]byte, c.w.IndexBits())
		pack(got, c.index, c.w)
		if !bytes.Equal(got, c.want) {
			t.Errorf("%s bits: %08b, want %08b", c.w, got, c.want)
		}
		back := make([]byte, 8)
		if unpack(back, c.want, c.w); !bytes.Equal(back, c.index) {
			t.Errorf("%s bits: read back as %v, want %v", c.w, back, c.index)
		}
	}
	// Every index at every place.
	for _, w := range Widths() {
		for place := range 8 {
			for k := range w.Levels() {
				index := make([]byte, 8)
				index[place] = byte(k)
				b, back := make([]byte, w.IndexBits()), make([]byte, 8)
				pack(b, index, w)
				if unpack(back, b, w); !bytes.Equal(back, index) {
					t.Errorf("%s bits: index %d at %d comes back as %v", w, k, place, back)
				}
			}
		}
	}
}

// TestTies: a value in the middle of two entries goes to the lower one.
func TestTies(t *testing.T) {
	book := []float32{-0.5, -0.25, 0, 0.5}
	cut := newCuts(book)
	for _, c := range []struct {
		x    float32
		want int
	}{
		{-1, 0}, {-0.5, 0}, {-0.375, 0}, {math.Nextafter32(-0.375, 1), 1}, {-0.125, 1}, {math.Nextafter32(-0.125, 1), 2},
		{0.25, 2}, {math.Nextafter32(0.25, 1), 3}, {1, 3}, {float32(math.Inf(1)), 3}, {0, 2}, {float32(math.Copysign(0, -1)), 2},
	} {
		k := 0
		for s := range cut {
			k *= 2
			if c.x > cut[s][k/2] {
				k++
			}
		}
		if k != c.want {
			t.Errorf("%v goes to %d, want %d", c.x, k, c.want)
		}
	}
}

// TestValues: what cannot be stored is an error that names the column, and extreme
// but storable groups are not.
func TestValues(t *testing.T) {
	c, err := New(W4, 32, nil)
	if err != nil {
		t.Fatal(err)
	}
	inf := float32(math.Inf(1))
	for _, tc := range []struct {
		name  string
		value float32
		err   error
	}{
		{"zero", 0, nil}, {"negative zero", float32(math.Copysign(0, -1)), nil}, {"denormal", 1e-45, nil}, {"tiny", 1e-30, nil},
		{"large", 65504, nil}, {"over F16", 65520, ErrValue}, {"square overflows", 1e30, ErrValue}, {"greatest", math.MaxFloat32, ErrValue},
		{"Inf", inf, ErrValue}, {"-Inf", -inf, ErrValue}, {"NaN", float32(math.NaN()), ErrValue},
	} {
		row := make([]float32, 40)
		row[33] = tc.value
		index, norms := make([]byte, c.IndexBytes(40)), make([]byte, c.NormBytes(40))
		err := c.EncodeRow(index, norms, row)
		if !errors.Is(err, tc.err) {
			t.Errorf("%s: %v, want %v", tc.name, err, tc.err)
		}
		if err2 := c.EncodeRow(nil, norms, row); !errors.Is(err2, tc.err) {
			t.Errorf("%s: norms alone: %v, want %v", tc.name, err2, tc.err)
		}
		if err != nil {
			continue
		}
		back := make([]float32, 40)
		if err := c.DecodeRow(back, index, norms); err != nil {
			t.Fatal(err)
		}
		for i, v := range back {
			if abs(tc.value) < 1e-7 {
				// Shorter than any length of F16.
				if v != 0 {
					t.Errorf("%s: column %d is %v, want 0", tc.name, i, v)
				}
				continue
			}
			if v != v || math.Abs(float64(v-row[i])) > 0.2*math.Abs(float64(tc.value)) {
				t.Errorf("%s: column %d is %v, want about %v", tc.name, i, v, row[i])
			}
		}
	}
}

func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		name  string
		w     Width
		group int
		book  []float32
		err   error
	}{
		{"width 0", 0, 128, nil, ErrWidth}, {"width 6", 6, 128, nil, ErrWidth},
		{"group 0", W4, 0, nil, ErrGroup}, {"group 16", W4, 16, nil, ErrGroup}, {"group 96", W4, 96, nil, ErrGroup}, {"group 512", W4, 512, nil, ErrGroup}, {"group -128", W4, -128, nil, ErrGroup},
		{"short book", W2, 128, []float32{1, 2, 3}, ErrCodebook}, {"descending", W1, 128, []float32{1, 0}, ErrCodebook},
		{"equal", W1, 128, []float32{1, 1}, ErrCodebook}, {"NaN", W1, 128, []float32{1, float32(math.NaN())}, ErrCodebook},
		{"infinite", W1, 128, []float32{1, float32(math.Inf(1))}, ErrCodebook},
	} {
		if _, err := New(c.w, c.group, c.book); !errors.Is(err, c.err) {
			t.Errorf("%s: %v, want %v", c.name, err, c.err)
		}
	}
	for _, s := range []string{"", "5", "0", "CQ", "cq5", "4.0", "16"} {
		if w, err := ParseWidth(s); !errors.Is(err, ErrWidth) {
			t.Errorf("ParseWidth(%q) = %v, %v", s, w, err)
		}
	}
	c, err := New(W158, 32, nil)
	if err != nil {
		t.Fatal(err)
	}
	bad := bytes.Repeat([]byte{0b10_00_00_00}, 8)
	if err := c.DecodeRow(make([]float32, 32), bad, make([]byte, 2)); !errors.Is(err, ErrCrumb) {
		t.Errorf("crumb 2: %v", err)
	}
}

// TestWidthTable ties the widths to the table of types.
func TestWidthTable(t *testing.T) {
	for _, w := range Widths() {
		typ := w.Type()
		if got, err := tensor.ParseType(typ.String()); err != nil || got != typ {
			t.Errorf("%s: type %s reads as %s, %v", w, typ, got, err)
		}
		if back, err := ParseWidth(typ.String()); err != nil || back != w {
			t.Errorf("%s reads as %s, %v", typ, back, err)
		}
		if back, ok := WidthOf(typ); !ok || back != w {
			t.Errorf("%s is of width %s", typ, back)
		}
		c, err := New(w, 64, nil)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := tensor.RowBytes(typ, int64(c.Padded(100))); err != nil || int(n) != c.IndexBytes(100) {
			t.Errorf("%s: a row has %d bytes, the table says %d, %v", typ, c.IndexBytes(100), n, err)
		}
	}
}

// TestPitfall075Outliers: columns a hundred times the others must not cost more
// than plain 4-bit groups do.
func TestPitfall075Outliers(t *testing.T) {
	const rows, cols = 16, 256
	r := newRandomState(3)
	c, err := New(W4, 128, nil)
	if err != nil {
		t.Fatal(err)
	}
	index, norms := make([]byte, c.IndexBytes(cols)), make([]byte, c.NormBytes(cols))
	var cq, plain float64
	for range rows {
		row := make([]float32, cols)
		for i := range row {
			row[i] = float32(r.normal())
		}
		for _, i := range []int{5, 77, 200} {
			row[i] = float32(row[i] * 100)
		}
		back := make([]float32, cols)
		if err := c.EncodeRow(index, norms, row); err != nil {
			t.Fatal(err)
		}
		if err := c.DecodeRow(back, index, norms); err != nil {
			t.Fatal(err)
		}
		for at := 0; at < cols; at += 128 {
			var top float64
			for _, v := range row[at : at+128] {
				top = math.Max(top, math.Abs(float64(v)))
			}
			for i, v := range row[at : at+128] {
				d := float64(back[at+i]) - float64(v)
				cq += float64(d * d)
				q := math.RoundToEven(float64(v) / (top / 7))
				d = float64(q*(top/7)) - float64(v)
				plain += float64(d * d)
			}
		}
	}
	if cq > plain {
		t.Errorf("squared error %v, plain 4-bit groups have %v", cq, plain)
	}
}

// TestStats: normal weights lose what the theory of the Lloyd-Max quantizer says.
func TestStats(t *testing.T) {
	r := newRandomState(9)
	for _, tc := range []struct {
		w        Width
		relative float64 // root of the distortion of a unit normal
		entropy  float64
	}{
		{W4, 0.0975, 3.77}, {W3, 0.1858, 2.83}, {W2, 0.3428, 1.91}, {W158, 0.4362, 1.54}, {W1, 0.6028, 1},
	} {
		c, err := New(tc.w, 128, nil)
		if err != nil {
			t.Fatal(err)
		}
		var s Stats
		row, back := make([]float32, 1000), make([]float32, 1000)
		index, norms := make([]byte, c.IndexBytes(1000)), make([]byte, c.NormBytes(1000))
		for range 40 {
			for i := range row {
				row[i] = float32(r.normal())
			}
			if err := c.EncodeRow(index, norms, row); err != nil {
				t.Fatal(err)
			}
			if err := c.DecodeRow(back, index, norms); err != nil {
				t.Fatal(err)
			}
			s.Add(c, row, back, index)
		}
		if d := s.Relative()/tc.relative - 1; math.Abs(d) > 0.03 || s.Values != 40000 {
			t.Errorf("%s bits: relative error %v, want about %v", tc.w, s.Relative(), tc.relative)
		}
		if math.Abs(s.Entropy()-tc.entropy) > 0.03 {
			t.Errorf("%s bits: entropy %v, want about %v", tc.w, s.Entropy(), tc.entropy)
		}
		if s.RMS() == 0 || s.Max < s.RMS() {
			t.Errorf("%s bits: RMS %v, largest %v", tc.w, s.RMS(), s.Max)
		}
	}
}
