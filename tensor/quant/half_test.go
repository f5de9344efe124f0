package quant

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"sort"
	"testing"

	"quern/tensor"
)

// halfValue is the IEEE definition, in float64.
func halfValue(h uint16) float64 {
	exp, man := int(h>>10&31), float64(h&0x3ff)
	v := math.Ldexp(1+man/1024, exp-15)
	switch {
	case exp == 31 && man == 0:
		v = math.Inf(1)
	case exp == 31:
		v = math.NaN()
	case exp == 0:
		v = math.Ldexp(man, -24)
	}
	if h>>15 == 1 {
		v = -v
	}
	return v
}

func TestFromF16EveryPattern(t *testing.T) {
	for h := range 1 << 16 {
		got, want := FromF16(uint16(h)), halfValue(uint16(h))
		if math.IsNaN(want) {
			// Sign and payload stay, the quiet bit is set.
			bits := uint32(h&0x8000)<<16 | 0x7fc00000 | uint32(h&0x3ff)<<13
			if math.Float32bits(got) != bits {
				t.Errorf("%#04x: %#08x, want %#08x", h, math.Float32bits(got), bits)
			}
			if back := ToF16(got); back != uint16(h&0x8000|0x7e00) {
				t.Errorf("NaN %#04x back to %#04x", h, back)
			}
			continue
		}
		if math.Float32bits(got) != math.Float32bits(float32(want)) {
			t.Errorf("%#04x: %v, want %v", h, got, want)
		}
		if back := ToF16(got); back != uint16(h) {
			t.Errorf("%#04x back to %#04x", h, back)
		}
	}
}

// nearestHalf finds the half nearest to v among all, the even one in a tie;
// 65536 stands for infinity.
func nearestHalf(v float64) uint16 {
	if math.IsNaN(v) {
		if math.Signbit(v) {
			return 0xfe00
		}
		return 0x7e00
	}
	var sign uint16
	if math.Signbit(v) {
		sign, v = 0x8000, -v
	}
	at := func(h int) float64 {
		if h == 0x7c00 {
			return 65536
		}
		return halfValue(uint16(h))
	}
	hi := sort.Search(0x7c00, func(h int) bool { return at(h) >= v })
	if hi == 0 || v >= 65536 {
		return sign | uint16(hi)
	}
	lo := hi - 1
	switch below, above := v-at(lo), at(hi)-v; {
	case below < above, below == above && lo%2 == 0:
		return sign | uint16(lo)
	}
	return sign | uint16(hi)
}

func TestToF16(t *testing.T) {
	check := func(v float32) {
		t.Helper()
		if got, want := ToF16(v), nearestHalf(float64(v)); got != want {
			t.Errorf("%v (%#08x): %#04x, want %#04x", v, math.Float32bits(v), got, want)
		}
	}
	for _, v := range edgeFloats {
		check(v)
	}
	// Every half, every midpoint of two, and their float32 neighbours.
	for h := uint16(0); h < 0x7c00; h++ {
		a, b := halfValue(h), 65536.0
		if h < 0x7bff {
			b = halfValue(h + 1)
		}
		for _, v := range []float32{float32(a), float32((a + b) / 2)} {
			for d := -1; d <= 1; d++ {
				n := math.Float32frombits(uint32(int64(math.Float32bits(v)) + int64(d)))
				check(n)
				check(-n)
			}
		}
	}
	rng := rand.New(rand.NewPCG(5, 6))
	for range 200000 {
		check(math.Float32frombits(rng.Uint32()))
	}
}

// TestBF16Identity: every pattern comes back, but a signalling NaN comes back
// quiet, and a conversion of BF16 to BF16 keeps even that.
func TestBF16Identity(t *testing.T) {
	src := make([]byte, 2<<16)
	for h := range 1 << 16 {
		binary.LittleEndian.PutUint16(src[2*h:], uint16(h))
		want := uint16(h)
		if h&0x7fff > 0x7f80 {
			want |= 0x40
		}
		if got := ToBF16(FromBF16(uint16(h))); got != want {
			t.Errorf("%#04x: %#04x, want %#04x", h, got, want)
		}
	}
	c, err := NewConverter(tensor.BF16, tensor.BF16)
	if err != nil {
		t.Fatal(err)
	}
	dst := make([]byte, len(src))
	if err := c.Rows(dst, src, 256, nil); err != nil {
		t.Fatal(err)
	}
	if i := firstDiff(dst, src); i != len(src) {
		t.Errorf("copy differs at %d", i)
	}
	l := c.Loss()
	if l.NaN.N != 2*127 || l.NaN.First != 0x7f81 || l.Inf.N != 2 || l.Inf.First != 0x7f80 {
		t.Errorf("loss of the copy: %+v", l)
	}
}

func TestToBF16(t *testing.T) {
	for _, tc := range []struct {
		bits uint32
		want uint16
	}{
		{0x3f800000, 0x3f80}, {0x3f808000, 0x3f80}, {0x3f808001, 0x3f81}, {0x3f818000, 0x3f82}, // ties to even
		{0x00008000, 0x0000}, {0x00008001, 0x0001}, {0x80018000, 0x8002}, // subnormals stay
		{0x7f7f7fff, 0x7f7f}, {0x7f7f8000, 0x7f80}, {0xff7fffff, 0xff80}, // overflow
		{0x7f800001, 0x7fc0}, {0xff812345, 0xffc1}, {0x7fffffff, 0x7fff}, // NaN
	} {
		if got := ToBF16(math.Float32frombits(tc.bits)); got != tc.want {
			t.Errorf("%#08x: %#04x, want %#04x", tc.bits, got, tc.want)
		}
	}
}

func TestF8(t *testing.T) {
	decode := func(typ tensor.Type, b byte) float32 {
		d, err := DecoderFor(typ)
		if err != nil {
			t.Fatal(err)
		}
		var v [1]float32
		d.Decode(v[:], []byte{b})
		return v[0]
	}
	for b := range 256 {
		sign := 1.0
		if b > 127 {
			sign = -1
		}
		e, m := b>>3&15, float64(b&7)
		want := sign * math.Ldexp(1+m/8, e-7)
		if e == 0 {
			want = sign * m / 512
		}
		if b&0x7f == 0x7f {
			want = math.NaN()
		}
		if got := float64(decode(tensor.F8E4M3, byte(b))); got != want && !(math.IsNaN(got) && math.IsNaN(want)) {
			t.Errorf("E4M3 %#02x: %v, want %v", b, got, want)
		}
		e, m = b>>2&31, float64(b&3)
		want = sign * math.Ldexp(1+m/4, e-15)
		switch {
		case e == 0:
			want = sign * m / 65536
		case e == 31 && m == 0:
			want = math.Inf(int(sign))
		case e == 31:
			want = math.NaN()
		}
		if got := float64(decode(tensor.F8E5M2, byte(b))); got != want && !(math.IsNaN(got) && math.IsNaN(want)) {
			t.Errorf("E5M2 %#02x: %v, want %v", b, got, want)
		}
	}
	if v := decode(tensor.F8E4M3, 0x7e); v != 448 {
		t.Errorf("E4M3 0x7E = %v", v)
	}
	if v := decode(tensor.F8E4M3, 0x01); v != 1.0/512 {
		t.Errorf("E4M3 0x01 = %v", v)
	}
	if v := decode(tensor.F8E5M2, 0x7b); v != 57344 {
		t.Errorf("E5M2 0x7B = %v", v)
	}
}
