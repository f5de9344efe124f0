package ggmlnum

import "math"

// expTable holds 2^(i/32), the bits of i/32 taken from the exponent: adding k<<47 to entry k%32
// gives the bits of 2^(k/32).
var expTable = func() (t [32]uint64) {
	bits := [32]uint64{
		0x3ff0000000000000, 0x3fefd9b0d3158574, 0x3fefb5586cf9890f, 0x3fef9301d0125b51, 0x3fef72b83c7d517b, 0x3fef54873168b9aa,
		0x3fef387a6e756238, 0x3fef1e9df51fdee1, 0x3fef06fe0a31b715, 0x3feef1a7373aa9cb, 0x3feedea64c123422, 0x3feece086061892d,
		0x3feebfdad5362a27, 0x3feeb42b569d4f82, 0x3feeab07dd485429, 0x3feea47eb03a5585, 0x3feea09e667f3bcd, 0x3fee9f75e8ec5f74,
		0x3feea11473eb0187, 0x3feea589994cce13, 0x3feeace5422aa0db, 0x3feeb737b0cdc5e5, 0x3feec49182a3f090, 0x3feed503b23e255d,
		0x3feee89f995ad3ad, 0x3feeff76f2fb5e47, 0x3fef199bdd85529c, 0x3fef3720dcef9069, 0x3fef5818dcfba487, 0x3fef7c97337b9b5f,
		0x3fefa4afa2a490da, 0x3fefd0765b6e4540,
	}
	return bits
}()

const (
	roundShift = 0x1.8p+52 // adding it rounds a float64 to a whole number, kept in the low bits
	invLn2x32  = 0x1.71547652b82fep+5
)

// exp2Part is 2^(k/32) * p(r), p a polynomial for 2^(r/32) with the given coefficients, highest first.
func exp2Part(k uint64, r, c0, c1, c2 float64) float64 {
	scale := math.Float64frombits(expTable[k%32] + k<<47)
	p := math.FMA(c0, r, c1)
	q := math.FMA(c2, r, 1)
	return float64(math.FMA(p, float64(r*r), q) * scale)
}

// Exp is e^x as glibc's expf gives it.
func Exp(x float32) float32 {
	switch {
	case x != x:
		return x
	case x > 0x1.62e42ep+6:
		return float32(math.Inf(1))
	case x < -0x1.9fe368p+6:
		return 0
	}
	xd := float64(x)
	kd := math.FMA(invLn2x32, xd, roundShift)
	k := math.Float64bits(kd)
	r := math.FMA(invLn2x32, xd, -(kd - roundShift))
	return float32(exp2Part(k, r, 0x1.c6af84b912394p-20, 0x1.ebfce50fac4f3p-13, 0x1.62e42ff0c52d6p-6))
}

// logPart is one sixteenth of the range of a logarithm: 1/c and log(c) for c near its middle.
type logPart struct{ inverse, log float64 }

var lnTable = [16]logPart{
	{0x1.661ec79f8f3bep+0, -0x1.57bf7808caadep-2}, {0x1.571ed4aaf883dp+0, -0x1.2bef0a7c06ddbp-2},
	{0x1.49539f0f010b0p+0, -0x1.01eae7f513a67p-2}, {0x1.3c995b0b80385p+0, -0x1.b31d8a68224e9p-3},
	{0x1.30d190c8864a5p+0, -0x1.6574f0ac07758p-3}, {0x1.25e227b0b8ea0p+0, -0x1.1aa2bc79c8100p-3},
	{0x1.1bb4a4a1a343fp+0, -0x1.a4e76ce8c0e5ep-4}, {0x1.12358f08ae5bap+0, -0x1.1973c5a611cccp-4},
	{0x1.0953f419900a7p+0, -0x1.252f438e10c1ep-5}, {0x1.0000000000000p+0, 0},
	{0x1.e608cfd9a47acp-1, 0x1.aa5aa5df25984p-5}, {0x1.ca4b31f026aa0p-1, 0x1.c5e53aa362eb4p-4},
	{0x1.b2036576afce6p-1, 0x1.526e57720db08p-3}, {0x1.9c2d163a1aa2dp-1, 0x1.bc2860d224770p-3},
	{0x1.886e6037841edp-1, 0x1.1058bc8a07ee1p-2}, {0x1.767dcf5534862p-1, 0x1.4043057b6ee09p-2},
}

var log2Table = [16]logPart{
	{0x1.661ec79f8f3bep+0, -0x1.efec65b963019p-2}, {0x1.571ed4aaf883dp+0, -0x1.b0b6832d4fca4p-2},
	{0x1.49539f0f010b0p+0, -0x1.7418b0a1fb77bp-2}, {0x1.3c995b0b80385p+0, -0x1.39de91a6dcf7bp-2},
	{0x1.30d190c8864a5p+0, -0x1.01d9bf3f2b631p-2}, {0x1.25e227b0b8ea0p+0, -0x1.97c1d1b3b7af0p-3},
	{0x1.1bb4a4a1a343fp+0, -0x1.2f9e393af3c9fp-3}, {0x1.12358f08ae5bap+0, -0x1.960cbbf788d5cp-4},
	{0x1.0953f419900a7p+0, -0x1.a6f9db6475fcep-5}, {0x1.0000000000000p+0, 0},
	{0x1.e608cfd9a47acp-1, 0x1.338ca9f24f53dp-4}, {0x1.ca4b31f026aa0p-1, 0x1.476a9543891bap-3},
	{0x1.b2036576afce6p-1, 0x1.e840b4ac4e4d2p-3}, {0x1.9c2d163a1aa2dp-1, 0x1.40645f0c6651cp-2},
	{0x1.886e6037841edp-1, 0x1.88e9c2c1b9ff8p-2}, {0x1.767dcf5534862p-1, 0x1.ce0a44eb17bccp-2},
}

// split writes a positive normal number as 2^k * z with z near 1, and gives r = z/c - 1 and the log of c
// by a table.
func split(x float32, table *[16]logPart) (k, r, log float64) {
	bits := math.Float32bits(x)
	t := bits - 0x3f330000
	part := &table[t>>19%16]
	z := float64(math.Float32frombits(bits - t&0xff800000))
	return float64(int32(t) >> 23), math.FMA(z, part.inverse, -1), part.log
}

// Log is the natural logarithm as glibc's logf gives it.
func Log(x float32) float32 {
	switch {
	case x != x || x > math.MaxFloat32:
		return x
	case x == 0:
		return float32(math.Inf(-1))
	case x < 0:
		return float32(math.NaN())
	case x == 1:
		return 0
	}
	below := 0.0
	if x < 0x1p-126 {
		x, below = float32(x*0x1p23), 23
	}
	k, r, log := split(x, &lnTable)
	y0 := math.FMA(k-below, 0x1.62e42fefa39efp-1, log)
	r2 := float64(r * r)
	y := math.FMA(0x1.5575b0be00b6ap-2, r, -0x1.ffffef20a4123p-2)
	y = math.FMA(-0x1.00ea348b88334p-2, r2, y)
	return float32(math.FMA(y, r2, r+y0))
}

// Pow is x^y for x > 0 as glibc's powf gives it; other x have no place here and give NaN.
func Pow(x, y float32) float32 {
	if !(x > 0) || y != y {
		return float32(math.NaN())
	}
	if x == 1 || y == 0 {
		return 1
	}
	if x > math.MaxFloat32 || y > math.MaxFloat32 || y < -math.MaxFloat32 {
		if (x > 1) == (y > 0) {
			return float32(math.Inf(1))
		}
		return 0
	}
	below := 0.0
	if x < 0x1p-126 {
		x, below = float32(x*0x1p23), 23
	}
	k, r, log := split(x, &log2Table)
	y0 := log + (k - below)
	r2 := float64(r * r)
	p := math.FMA(0x1.27616c9496e0bp-2, r, -0x1.71969a075c67ap-2)
	q := math.FMA(0x1.ec70a6ca7baddp-2, r, -0x1.7154748bef6c8p-1)
	t := math.FMA(0x1.71547652ab82bp+0, r, y0)
	log2 := math.FMA(p, float64(r2*r2), math.FMA(q, r2, t))
	z := float64(float64(y) * log2)
	switch {
	case z > 0x1.fffffffa3aae2p+6:
		return float32(math.Inf(1))
	case z <= -0x1.2cp+7:
		return 0
	}
	// Here a 32nd is one, so that the number to round stands 5 bits lower.
	const shift = 0x1.8p+47
	kd := z + shift
	return float32(exp2Part(math.Float64bits(kd), z-(kd-shift), 0x1.c6af84b912394p-5, 0x1.ebfce50fac4f3p-3, 0x1.62e42ff0c52d6p-1))
}
