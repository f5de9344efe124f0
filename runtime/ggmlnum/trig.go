package ggmlnum

import (
	"math"
	"math/bits"
)

// fourOverPi holds the bits of 4/π, each entry 8 bits further on.
var fourOverPi = [24]uint32{
	0xa2, 0xa2f9, 0xa2f983, 0xa2f9836e, 0xf9836e4e, 0x836e4e44, 0x6e4e4415, 0x4e441529, 0x441529fc, 0x1529fc27, 0x29fc2757, 0xfc2757d1,
	0x2757d1f5, 0x57d1f534, 0xd1f534dd, 0xf534ddc0, 0x34ddc0db, 0xddc0db62, 0xc0db6295, 0xdb629599, 0x6295993c, 0x95993c43, 0x993c4390, 0x3c439041,
}

// quarter writes x as n quarters of a turn and an angle r in [-π/4, π/4]. sign is 1 where n counts
// from a negative x whose sign r has lost.
func quarter(x float32) (n int, r float64, sign int) {
	raw := math.Float32bits(x)
	exponent := raw >> 20 & 0x7ff
	if exponent < 0x42f { // |x| < 120
		xd := float64(x)
		n = int((int32(xd*0x1.45f306dc9c883p+23) + 0x800000) >> 24)
		return n, math.FMA(-float64(n), 0x1.921fb54442d18p+0, xd), 0
	}
	parts := fourOverPi[raw>>26&15:]
	m := (raw&0x7fffff | 0x800000) << (raw >> 23 & 7)
	low, mid, high := m*parts[0], uint64(m)*uint64(parts[4]), uint64(m)*uint64(parts[8])
	turn, _ := bits.Add64(high>>32|uint64(low)<<32, mid, 0)
	q := (turn + 1<<61) >> 62
	return int(q), float64(float64(int64(turn-q<<62)) * 0x1.921fb54442d18p-62), int(raw >> 31)
}

// sine is sin r for r in [-π/4, π/4], r2 = r*r.
func sine(r, r2 float64) float32 {
	p := math.FMA(-0x1.994eb3774cf24p-13, r2, 0x1.1107605230bc4p-7)
	r3 := float64(r2 * r)
	low := math.FMA(r3, -0x1.555545995a603p-3, r)
	return float32(math.FMA(p, float64(r2*r3), low))
}

// cosine is sign * cos r.
func cosine(sign, r2 float64) float32 {
	low := math.FMA(r2, float64(sign*-0x1.ffffffd0c621cp-2), sign)
	p := math.FMA(float64(sign*0x1.99343027bf8c3p-16), r2, float64(sign*-0x1.6c087e89a359dp-10))
	r4 := float64(r2 * r2)
	return float32(math.FMA(p, float64(r4*r2), math.FMA(r4, float64(sign*0x1.55553e1068f19p-5), low)))
}

// circle is the sine or, shifted by a quarter, the cosine of a large enough x.
func circle(x float32, shift int) float32 {
	n, r, sign := quarter(x)
	r2 := float64(r * r)
	// cosf counts its quarters from the cosine: its sine is that of x less a quarter turn.
	if (n+shift)&1 != 0 {
		s := 1.0
		if (n+sign)&2 != 0 {
			s = -1
		}
		return cosine(s, r2)
	}
	s := 1.0
	if m := (n + sign) & 3; m == 1 || m == 2 {
		s = -1
	}
	return sine(float64(s*r), r2)
}

// Sin is the sine as glibc's sinf gives it.
func Sin(x float32) float32 {
	switch exponent := math.Float32bits(x) >> 20 & 0x7ff; {
	case exponent < 0x398: // |x| < 2^-12
		return x
	case exponent < 0x3f4: // |x| < 0.75
		return sine(float64(x), float64(float64(x)*float64(x)))
	case exponent >= 0x7f8:
		return float32(math.NaN())
	}
	return circle(x, 0)
}

// Cos is the cosine as glibc's cosf gives it.
func Cos(x float32) float32 {
	switch exponent := math.Float32bits(x) >> 20 & 0x7ff; {
	case exponent < 0x398:
		return 1
	case exponent < 0x3f4:
		return cosine(1, float64(float64(x)*float64(x)))
	case exponent >= 0x7f8:
		return float32(math.NaN())
	}
	return circle(x, 1)
}
