package repack

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"

	"quern/tensor"
	"quern/tensor/quant"
)

func find(t *testing.T, name string) *Layout {
	t.Helper()
	l, err := Parse(name)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestBase3Refuses: a code that is not ternary is an error that says where.
func TestBase3Refuses(t *testing.T) {
	l := find(t, "q2_0_8x4_base3")
	src := blocksFor(l, "x", 8*3*18)
	src[5*3*18+18+2+15] |= 3 << 6 // row 5, block 1, value 63
	err := l.Pack(make([]byte, 3*120), src, 192)
	if !errors.Is(err, ErrValue) || !strings.Contains(err.Error(), "bundle 1") || !strings.Contains(err.Error(), "row 5 of the group, value 63") {
		t.Errorf("%v", err)
	}
}

// TestBase3AnyByte: bytes that Pack does not make are read too, and give codes 0
// to 2.
func TestBase3AnyByte(t *testing.T) {
	l := find(t, "q2_0_8x4_base3")
	out := make([]byte, 8*18)
	for v := range 256 {
		if err := l.Unpack(out, bytes.Repeat([]byte{byte(v)}, 120), 64); err != nil {
			t.Fatal(err)
		}
		for r := range 8 {
			for i := range 64 {
				if code(out[r*18:], i) == 3 {
					t.Fatalf("byte %d gives code 3", v)
				}
			}
		}
	}
}

// TestMergedScale: the one scale has no greater square error than its neighbours
// among F16 numbers, codes stay as they are, and equal scales are not touched.
func TestMergedScale(t *testing.T) {
	l := find(t, "q2_0_8x4_merged128")
	src := blocksFor(find(t, "q2_0_8x4_base3"), "merge", 8*4*18)
	for at := 0; at < len(src); at += 18 {
		src[at+1] = 0x20 + src[at+1]&0x1f // positive, 2^-7 to 2
	}
	copy(src[3*18:], src[2*18:][:2]) // row 0, bundle 1: equal scales
	for i := range src[4*18+2 : 5*18] {
		src[4*18+2+i] = 0x55 // row 1, block 0: all zero
	}
	packed := make([]byte, 2*272)
	if err := l.Pack(packed, src, 256); err != nil {
		t.Fatal(err)
	}
	back := make([]byte, len(src))
	if err := l.Unpack(back, packed, 256); err != nil {
		t.Fatal(err)
	}
	d := func(b []byte) uint16 { return uint16(b[0]) | uint16(b[1])<<8 }
	if d(back[2*18:]) != d(src[2*18:]) || d(back[3*18:]) != d(src[2*18:]) {
		t.Error("equal scales changed")
	}
	if d(back[5*18:]) != d(src[5*18:]) {
		t.Error("the scale beside a block of zeros changed")
	}
	for p := 0; p < len(src); p += 36 {
		a, b := src[p:p+18], src[p+18:p+36]
		if !bytes.Equal(back[p+2:p+18], a[2:]) || !bytes.Equal(back[p+20:p+36], b[2:]) {
			t.Fatalf("pair %d: other codes", p/36)
		}
		loss := func(bits uint16) float64 {
			m := float64(quant.FromF16(bits))
			x, y := m-float64(quant.FromF16(d(a))), m-float64(quant.FromF16(d(b)))
			return float64(energy(a))*x*x + float64(energy(b))*y*y
		}
		got := d(back[p:])
		if got != d(back[p+18:]) {
			t.Fatalf("pair %d: two scales", p/36)
		}
		if loss(got) > loss(got+1) || loss(got) > loss(got-1) {
			t.Errorf("pair %d: scale %v is not the best", p/36, quant.FromF16(got))
		}
	}
	// What is merged once merges to itself.
	again := make([]byte, len(packed))
	if err := l.Pack(again, back, 256); err != nil || !bytes.Equal(again, packed) {
		t.Errorf("packed again it is another bundle: %v", err)
	}
}

// TestMergedSpecial: scales that are no numbers give one and the same NaN.
func TestMergedSpecial(t *testing.T) {
	block := func(d uint16) []byte {
		b := bytes.Repeat([]byte{0xaa}, 18)
		b[0], b[1] = byte(d), byte(d>>8)
		return b
	}
	for _, c := range []struct{ a, b, want uint16 }{
		{0x7c00, 0xfc00, 0x7e00}, {0x7e01, 0x3c00, 0x7e00}, {0xfe00, 0x3c00, 0x7e00}, {0x7bff, 0x7bfe, 0x7bfe}, {0x3c00, 0x4000, 0x3e00}, {0xbc00, 0x3c00, 0},
	} {
		if got := mergeScales(block(c.a), block(c.b)); got != c.want {
			t.Errorf("%#x and %#x give %#x, want %#x", c.a, c.b, got, c.want)
		}
	}
}

// TestSizes: what the layouts take in bits a weight.
func TestSizes(t *testing.T) {
	for _, c := range []struct {
		layout string
		bits   float64
	}{
		{"q2_0_8x4", 2.25}, {"q2_0_8x4_base3", 1.875}, {"q2_0_8x4_merged128", 2.125}, {"q1_0_8x4_planes", 1.125},
		{"q1_0_32_lut", 1.125}, {"q2_K_8x4", 2.625}, {"q2_K_32_lut", 2.625}, {"tq1_0_8x4", 1.6875}, {"tq2_0_8x4", 2.0625},
	} {
		l := find(t, c.layout)
		s := tensor.Shape{3, 32, 512}
		n, err := l.Bytes(s)
		if bits := float64(8*n) / (3 * 32 * 512); err != nil || math.Abs(bits-c.bits) > 0 {
			t.Errorf("%s: %v bits a weight, want %v, %v", c.layout, bits, c.bits, err)
		}
	}
	if err := find(t, "q2_0_8x4_merged128").Check(tensor.Q2_0, tensor.Shape{8, 192}); !errors.Is(err, tensor.ErrShape) || !strings.Contains(err.Error(), "128") {
		t.Errorf("rows of a bundle and a half: %v", err)
	}
}
