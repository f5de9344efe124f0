package quant

import (
	"crypto/sha256"
	"math/rand/v2"
	"testing"

	"quern/tensor"
)

// Benchmarks count bytes of the input, so that an encoder compares with the
// digest of its source: SHA-256 of the same bytes is in the list.

func benchFloats(n int) []float32 {
	rng := rand.New(rand.NewPCG(7, 8))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.NormFloat64()) * 0.02
	}
	return x
}

func BenchmarkSHA256(b *testing.B) {
	src := make([]byte, 4<<20)
	(f32{}).EncodeRow(src, benchFloats(1<<20), nil)
	b.SetBytes(int64(len(src)))
	for b.Loop() {
		sha256.Sum256(src)
	}
}

// BenchmarkEncode measures rows of 65536 F32 values through the codec.
func BenchmarkEncode(b *testing.B) {
	x := benchFloats(1 << 16)
	w := make([]float32, len(x))
	for i := range w {
		w[i] = 1 + float32(i%7)
	}
	for _, typ := range tensor.Types() {
		c, err := For(typ)
		if err != nil {
			continue
		}
		n, err := tensor.RowBytes(typ, int64(len(x)))
		if err != nil {
			b.Fatal(err)
		}
		dst := make([]byte, n)
		for name, weights := range map[string][]float32{"plain": nil, "weighted": w} {
			b.Run(typ.String()+"/"+name, func(b *testing.B) {
				b.SetBytes(int64(4 * len(x)))
				for b.Loop() {
					c.EncodeRow(dst, x, weights)
				}
			})
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	x := benchFloats(4096)
	out := make([]float32, len(x))
	for _, typ := range tensor.Types() {
		c, err := For(typ)
		if err != nil {
			continue
		}
		n, err := tensor.RowBytes(typ, int64(len(x)))
		if err != nil {
			b.Fatal(err)
		}
		dst := make([]byte, n)
		c.EncodeRow(dst, x, nil)
		b.Run(typ.String(), func(b *testing.B) {
			b.SetBytes(n)
			for b.Loop() {
				c.Decode(out, dst)
			}
		})
	}
}

// BenchmarkConvert measures what a stage runs: decode, scan, encode, check.
func BenchmarkConvert(b *testing.B) {
	x := benchFloats(1 << 20)
	src := make([]byte, 4*len(x))
	(f32{}).EncodeRow(src, x, nil)
	half := make([]byte, 2*len(x))
	encodeF16(half, x)
	for _, tc := range []struct {
		name     string
		to, from tensor.Type
		src      []byte
	}{
		{"F32-Q8_0", tensor.Q8_0, tensor.F32, src},
		{"F32-Q4_0", tensor.Q4_0, tensor.F32, src},
		{"F32-KMCU_Q4", tensor.KMCUQ4, tensor.F32, src},
		{"F32-F16", tensor.F16, tensor.F32, src},
		{"F32-BF16", tensor.BF16, tensor.F32, src},
		{"F16-Q8_0", tensor.Q8_0, tensor.F16, half},
		{"F16-F32", tensor.F32, tensor.F16, half},
		{"F32-F32", tensor.F32, tensor.F32, src},
	} {
		b.Run(tc.name, func(b *testing.B) {
			c, err := NewConverter(tc.to, tc.from)
			if err != nil {
				b.Fatal(err)
			}
			n, err := tensor.Bytes(tc.to, tensor.Shape{int64(len(x))})
			if err != nil {
				b.Fatal(err)
			}
			dst := make([]byte, n)
			b.SetBytes(int64(len(tc.src)))
			for b.Loop() {
				if err := c.Rows(dst, tc.src, 4096, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkScan(b *testing.B) {
	x := benchFloats(1 << 16)
	for _, typ := range []tensor.Type{tensor.F32, tensor.F16, tensor.BF16} {
		b.Run(typ.String(), func(b *testing.B) {
			b.SetBytes(int64(4 * len(x)))
			for b.Loop() {
				var l Loss
				Scan(&l, typ, 0, x)
			}
		})
	}
}
