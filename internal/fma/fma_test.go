package fma

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// exact rounds the exact x*y+z once, with numbers of any length.
func exact(x, y, z float32) float32 {
	p := new(big.Float).SetPrec(2000).Mul(big.NewFloat(float64(x)), big.NewFloat(float64(y)))
	f, _ := p.Add(p, big.NewFloat(float64(z))).Float32()
	return f
}

func TestF32(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	finite := func() float32 {
		for {
			if v := math.Float32frombits(r.Uint32()); !math.IsNaN(float64(v)) && !math.IsInf(float64(v), 0) {
				return v
			}
		}
	}
	// near is z of about the size of the product, so that all cases of rounding come up.
	near := func(p float64) float32 {
		return float32(math.Ldexp(p*(r.Float64()-0.5), r.IntN(60)-30))
	}
	wrong := 0
	for i := range 400_000 {
		x, y := finite(), finite()
		z := finite()
		switch i % 4 {
		case 1:
			z = near(float64(x) * float64(y))
		case 2: // subnormal results
			x = float32(math.Ldexp(float64(1+r.Float32()), -70-r.IntN(8)))
			y = float32(math.Ldexp(float64(1+r.Float32()), -70-r.IntN(8)))
			z = math.Float32frombits(r.Uint32N(1 << 24))
		case 3: // halves of a last place, where two roundings go wrong
			x, y = 1+float32(r.IntN(4096))/4096, 1+float32(r.IntN(4096))/4096
			z = float32(math.Ldexp(1+float64(r.IntN(1<<20))/(1<<23), -50-r.IntN(40)))
			if r.IntN(2) == 0 {
				z = -z
			}
		}
		if z != z || math.IsInf(float64(z), 0) {
			continue
		}
		got, want := F32(x, y, z), exact(x, y, z)
		if math.Float32bits(got) != math.Float32bits(want) && !(got == 0 && want == 0) {
			if wrong++; wrong < 10 {
				t.Errorf("%x*%x+%x is %x, want %x", x, y, z, got, want)
			}
		}
	}
}

func TestF32Special(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, c := range []struct{ x, y, z, want float32 }{
		{inf, 1, 0, inf}, {inf, 0, 1, nan}, {inf, 1, -inf, nan}, {1, 1, -inf, -inf}, {nan, 1, 1, nan}, {1, 1, nan, nan},
		{math.MaxFloat32, 2, 0, inf}, {math.MaxFloat32, 2, -math.MaxFloat32, math.MaxFloat32}, {2, 3, -6, 0},
	} {
		if got := F32(c.x, c.y, c.z); got != c.want && !(got != got && c.want != c.want) {
			t.Errorf("%g*%g+%g is %g, want %g", c.x, c.y, c.z, got, c.want)
		}
	}
	if got := F32(-1, 0, 0); math.Signbit(float64(got)) {
		t.Errorf("-1*0+0 is %g, want 0", got)
	}
}
