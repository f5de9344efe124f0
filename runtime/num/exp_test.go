package num

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// The functions are held against values of 200 bits that math/big adds up here.

const precision = 200

func precise(x float64) *big.Float { return new(big.Float).SetPrec(precision).SetFloat64(x) }

// preciseExp is e^x: the series at x/2^k, squared k times.
func preciseExp(x *big.Float) *big.Float {
	const k = 24
	r := new(big.Float).SetPrec(precision).SetMantExp(x, -k)
	sum, term := precise(1), precise(1)
	for i := range 20 {
		term.Mul(term, r)
		term.Quo(term, precise(float64(i+1)))
		sum.Add(sum, term)
	}
	for range k {
		sum.Mul(sum, sum)
	}
	return sum
}

// preciseSinCos adds up both series at x/2^k and doubles the angle k times.
func preciseSinCos(x float64) (sin, cos *big.Float) {
	k := max(math.Ilogb(x)+12, 0)
	if x == 0 {
		k = 0
	}
	prec := uint(precision + 3*k)
	wide := func(v float64) *big.Float { return new(big.Float).SetPrec(prec).SetFloat64(v) }
	r := wide(0).SetMantExp(wide(x), -k)
	sin, cos = wide(0), wide(0)
	term := wide(1)
	for i := range 40 {
		into := cos
		if i%2 == 1 {
			into = sin
		}
		if i%4 < 2 {
			into.Add(into, term)
		} else {
			into.Sub(into, term)
		}
		term = wide(0).Mul(term, r)
		term.Quo(term, wide(float64(i+1)))
	}
	for range k {
		s2 := wide(0).Mul(sin, cos)
		s2.Mul(s2, wide(2))
		c2 := wide(0).Mul(sin, sin)
		c2.Mul(c2, wide(2))
		sin, cos = s2, wide(0).Sub(wide(1), c2)
	}
	return sin, cos
}

// ulps is the distance of got from want in units of got's last place, for
// formats of the given digits and least exponent.
func ulps(got float64, want *big.Float, digits, least int) float64 {
	d := new(big.Float).SetPrec(precision).Sub(precise(got), want)
	exp := max(want.MantExp(nil)-digits, least)
	d.SetMantExp(d, -exp)
	f, _ := d.Float64()
	return math.Abs(f)
}

func ulps64(got float64, want *big.Float) float64 { return ulps(got, want, 53, -1074) }
func ulps32(got float32, want *big.Float) float64 { return ulps(float64(got), want, 24, -149) }

// worst keeps the greatest error and where it was.
type worst struct{ err, at float64 }

func (w *worst) see(err, at float64) {
	if err > w.err || err != err {
		w.err, w.at = err, at
	}
}

func (w worst) check(t *testing.T, limit float64) {
	t.Helper()
	t.Logf("at most %.3f at %v", w.err, w.at)
	if !(w.err <= limit) || w.err == 0 {
		t.Errorf("an error of %g at %v, want more than 0 and at most %g", w.err, w.at, limit)
	}
}

func TestExpIsCloseToTheSeries(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var w32, w64 worst
	for i := range 6000 {
		x := rng.Float64()*192 - 103.5
		if i%3 == 0 {
			x = rng.Float64() - 0.5
		}
		if i%8 == 0 {
			x *= math.Ldexp(1, -i%30)
		}
		f := float32(x)
		if f < 88.7 {
			w32.see(ulps32(Exp(f), preciseExp(precise(float64(f)))), float64(f))
		}
		x *= 7.1
		if x < 709.7 {
			w64.see(ulps64(Exp64(x), preciseExp(precise(x))), x)
		}
	}
	w32.check(t, 1.5)
	w64.check(t, 1)
}

func TestExpAtTheEnds(t *testing.T) {
	inf := math.Inf(1)
	for _, c := range []struct{ x, want float64 }{
		{0, 1}, {math.Copysign(0, -1), 1}, {inf, inf}, {-inf, 0}, {1e30, inf}, {-1e30, 0},
	} {
		if got := Exp64(c.x); got != c.want {
			t.Errorf("Exp64(%v) = %v", c.x, got)
		}
		if got := Exp(float32(c.x)); float64(got) != c.want {
			t.Errorf("Exp(%v) = %v", c.x, got)
		}
	}
	for _, c := range []struct{ x, want float32 }{
		{88.72284, float32(inf)}, {88.72283, 3.4027979e38}, {-103.97, math.SmallestNonzeroFloat32}, {-104, 0}, {-88, 6.054602e-39},
	} {
		if got := Exp(c.x); math.Abs(float64(got)/float64(c.want)-1) > 1e-6 && got != c.want {
			t.Errorf("Exp(%v) = %v, want %v", c.x, got, c.want)
		}
	}
	if got := Exp64(-745.13); got != math.SmallestNonzeroFloat64 {
		t.Errorf("Exp64(-745.13) = %v", got)
	}
	nan := float32(math.NaN())
	if Exp(nan) == Exp(nan) || Exp64(math.NaN()) == 0 {
		t.Error("the exponential of NaN is a number")
	}
}

func TestLogUndoesExp(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var w worst
	for i := range 3000 {
		x := math.Ldexp(0.5+rng.Float64()/2, rng.IntN(2090)-1070)
		if i%2 == 0 {
			x = math.Exp2(rng.Float64() - 0.5)
		}
		if x == 0 || x == 1 {
			continue
		}
		y := Log64(x)
		// log x = y + log(x/e^y), and the last is x/e^y - 1 to far more digits
		// than asked for.
		d := new(big.Float).SetPrec(precision).Quo(precise(x), preciseExp(precise(y)))
		d.Sub(d, precise(1))
		w.see(ulps64(y, d.Add(d, precise(y))), x)
	}
	w.check(t, 2)
	for x, want := range map[float64]float64{0: math.Inf(-1), 1: 0, math.Inf(1): math.Inf(1)} {
		if got := Log64(x); got != want {
			t.Errorf("Log64(%v) = %v", x, got)
		}
	}
	if v := Log64(-1); v == v {
		t.Errorf("Log64(-1) = %v", v)
	}
}

func TestPowOfRotations(t *testing.T) {
	var w worst
	for _, base := range []float64{10000, 500000, 1e6, 1e7} {
		for i := range 128 {
			y := -float64(i) / 128
			// base^y by whole roots: base^(1/128) to the i-th.
			root := precise(base)
			for range 7 {
				root.Sqrt(root)
			}
			want := precise(1)
			for range i {
				want.Mul(want, root)
			}
			want.Quo(precise(1), want)
			w.see(ulps64(Pow64(base, y), want), y)
		}
	}
	w.check(t, 20)
	for _, c := range [][3]float64{{7, 0, 1}, {1, 9, 1}} {
		if got := Pow64(c[0], c[1]); got != c[2] {
			t.Errorf("%v to the %v = %v", c[0], c[1], got)
		}
	}
}

func TestSinCosAreCloseToTheSeries(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	var ws, wc worst
	for i := range 2500 {
		x := rng.Float64() * math.Ldexp(1, rng.IntN(30)-9)
		switch i % 5 {
		case 0: // near multiples of pi/2, where the result is near 0
			x = float64(rng.IntN(1<<20)) * math.Pi / 2
		case 1: // a whole number of positions
			x = float64(rng.IntN(1 << 20))
		}
		if i%2 == 0 {
			x = -x
		}
		if x == 0 {
			continue
		}
		s, c := SinCos64(x)
		ps, pc := preciseSinCos(x)
		ws.see(ulps64(s, ps), x)
		wc.see(ulps64(c, pc), x)
	}
	ws.check(t, 1)
	wc.check(t, 1)
	if s, c := SinCos64(0); s != 0 || c != 1 {
		t.Errorf("at 0: %v, %v", s, c)
	}
	for _, x := range []float64{math.NaN(), math.Inf(1), -1e18} {
		if s, c := SinCos64(x); s == s || c == c {
			t.Errorf("at %v: %v, %v", x, s, c)
		}
	}
	// Far out the absolute error counts.
	for _, x := range []float64{3e8, 5e9} {
		s, _ := SinCos64(x)
		want, _ := preciseSinCos(x)
		f, _ := want.Float64()
		if math.Abs(s-f) > x*0x1p-52 {
			t.Errorf("at %v: %v, want %v", x, s, f)
		}
	}
}

func TestActivations(t *testing.T) {
	one := precise(1)
	exp := func(x float64) *big.Float { return preciseExp(precise(x)) }
	quo := func(a, b *big.Float) *big.Float { return new(big.Float).SetPrec(precision).Quo(a, b) }
	var sig, silu, gelu, tanh worst
	for i := range 2001 {
		f := float32(i-1000) / 64
		x := float64(f)
		if x == 0 {
			continue
		}
		s := quo(one, new(big.Float).Add(one, exp(-x)))
		sig.see(ulps32(Sigmoid(f), s), x)
		silu.see(ulps32(SiLU(f), new(big.Float).Mul(s, precise(x))), x)
		// 1 + tanh(a) = 2 / (1 + e^-2a)
		a := math.Sqrt(2/math.Pi) * (x + 0.044715*x*x*x)
		half := quo(one, new(big.Float).Add(one, exp(-2*a)))
		want, _ := new(big.Float).Mul(half, precise(x)).Float64()
		gelu.see(math.Abs(float64(GELU(f))-want), x)
		th, _ := new(big.Float).Sub(new(big.Float).Mul(half, precise(2)), one).Float64()
		if at := float32(a); at > -40 && at < 40 {
			tanh.see(math.Abs(float64(Tanh(at))-th), x)
		}
	}
	sig.check(t, 3)
	silu.check(t, 3.5)
	gelu.check(t, 1e-6)
	tanh.check(t, 2e-7)
	for x, want := range map[float32]float32{200: 200, -200: 0, 0: 0} {
		if s, g := SiLU(x), GELU(x); s != want || g != want {
			t.Errorf("at %v: SiLU %v, GELU %v", x, s, g)
		}
	}
}
