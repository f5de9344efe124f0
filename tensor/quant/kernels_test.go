package quant

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"
)

// The kernels that a build selects must equal the scalar functions in every
// bit. In a noasm build, or with QUERN_NOASM=1, both are the same.

// edgeFloats are values at which a kernel may differ: zeros, subnormals, ties,
// the ends of the ranges, and what is not a number.
var edgeFloats = []float32{
	0, float32(math.Copysign(0, -1)), 1, -1, 0.5, -0.5, 1.5, 2.5, 127, -127, 127.5, 8, -8, 7.5, 15,
	math.SmallestNonzeroFloat32, -math.SmallestNonzeroFloat32, 1e-44, 1e-40, -1e-38, 1.1754944e-38,
	2.938736e-39, 5.9604645e-08, 2.9802322e-08, 2.9802326e-08, 6.1035156e-05, 6.097555e-05,
	65504, 65519.996, 65520, -65520, 65536, 524160, 8.3e6, 3.3895314e38, 3.3961776e38, math.MaxFloat32, -math.MaxFloat32,
	float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()), math.Float32frombits(0xff800001), math.Float32frombits(0x7fffffff),
}

// kernelInput gives n values of one of several kinds.
func kernelInput(rng *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	kind := rng.IntN(7)
	scale := float32(math.Ldexp(1, rng.IntN(270)-140))
	for i := range x {
		switch kind {
		case 0: // any bits
			x[i] = math.Float32frombits(rng.Uint32())
		case 1: // ordinary weights
			x[i] = float32(rng.NormFloat64()) * 0.05
		case 2: // small integers: ties and equal magnitudes
			x[i] = float32(rng.IntN(17)-8) / 2
		case 3: // one magnitude for the whole block
			x[i] = float32(rng.NormFloat64()) * scale
		case 4:
			x[i] = edgeFloats[rng.IntN(len(edgeFloats))]
		case 5: // mostly zero
			if rng.IntN(16) == 0 {
				x[i] = edgeFloats[rng.IntN(len(edgeFloats)-5)]
			}
		case 6: // halves of the code step around an extreme of 127
			x[i] = math.Float32frombits(math.Float32bits(float32(rng.IntN(255)-127)+0.5) + uint32(rng.IntN(7)) - 3)
			if i%32 == 0 {
				x[i] = 127
			}
		}
	}
	return x
}

func compareKernels(t *testing.T, x []float32) {
	t.Helper()
	check := func(name string, fast, scalar func(dst []byte, src []float32), size int) {
		t.Helper()
		got, want := make([]byte, size), make([]byte, size)
		fast(got, x)
		scalar(want, x)
		if !bytes.Equal(got, want) {
			i := firstDiff(got, want)
			t.Fatalf("%s: byte %d is %#x, scalar %#x; input %x", name, i, got[i], want[i], x)
		}
	}
	n := len(x)
	check("F16", encodeF16, encodeF16Scalar, 2*n)
	check("BF16", encodeBF16, encodeBF16Scalar, 2*n)
	check("Q8_0", encodeQ8_0, encodeQ8_0Scalar, n/32*34)
	check("Q4_0", encodeQ4_0, encodeQ4_0Scalar, n/32*18)
	check("KMCU_Q4", encodeKMCUQ4, encodeKMCUQ4Scalar, n/32*18)
	for _, lim := range []limits{{over: infBits}, {over: 0x477ff000, flush: 0x33000000}, {over: 0x7f7f8000, flush: 0x8000}} {
		if got, want := scanCounts(x, lim), scanCountsScalar(x, lim); got != want {
			t.Fatalf("scan %+v: %v, scalar %v; input %x", lim, got, want, x)
		}
	}
}

func TestKernelsEqualScalar(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		compareKernels(t, kernelInput(rng, rng.IntN(6)*32))
	}
	// Lengths that are no multiple of a vector.
	for n := range 70 {
		x := kernelInput(rng, n)
		got, want := make([]byte, 2*n), make([]byte, 2*n)
		encodeF16(got, x)
		encodeF16Scalar(want, x)
		if !bytes.Equal(got, want) {
			t.Fatalf("F16, %d values", n)
		}
		encodeBF16(got, x)
		encodeBF16Scalar(want, x)
		if !bytes.Equal(got, want) {
			t.Fatalf("BF16, %d values", n)
		}
		if scanCounts(x, limits{over: infBits}) != scanCountsScalar(x, limits{over: infBits}) {
			t.Fatalf("scan, %d values", n)
		}
	}
}

// TestDecodeKernels decodes every 16-bit pattern both ways, at each position
// of a vector.
func TestDecodeKernels(t *testing.T) {
	const n = 1 << 16
	src := make([]byte, 2*(n+31))
	for i := 0; i < n+31; i++ {
		binary.LittleEndian.PutUint16(src[2*i:], uint16(i))
	}
	got, want := make([]float32, n), make([]float32, n)
	for shift := 0; shift < 31; shift += 5 {
		for name, f := range map[string][2]func([]float32, []byte){
			"F16":  {decodeF16, decodeF16Scalar},
			"BF16": {decodeBF16, decodeBF16Scalar},
		} {
			f[0](got, src[2*shift:])
			f[1](want, src[2*shift:])
			for i := range got {
				if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
					t.Fatalf("%s %#04x: %#08x, scalar %#08x", name, uint16(i+shift), math.Float32bits(got[i]), math.Float32bits(want[i]))
				}
			}
		}
	}
}

func FuzzKernelsEqualScalar(f *testing.F) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 40 {
		b := make([]byte, 256)
		(f32{}).EncodeRow(b, kernelInput(rng, 64), nil)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 1<<14 {
			b = b[:1<<14]
		}
		x := make([]float32, len(b)/128*32)
		(f32{}).Decode(x, b)
		compareKernels(t, x)
	})
}
