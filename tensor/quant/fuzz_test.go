package quant

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"

	"quern/tensor"
)

// fuzzDecoder runs any bytes through a decoder: no panic, and finite values
// unless the block is one that FirstBadBlock reports.
func fuzzDecoder(f *testing.F, typ tensor.Type) {
	d, err := DecoderFor(typ)
	if err != nil {
		f.Fatal(err)
	}
	size, n := int(typ.BlockBytes()), int(typ.BlockValues())
	for _, b := range []byte{0x00, 0xff, 0x7f, 0x80, 0x3c} {
		seed := make([]byte, 2*size)
		for i := range seed {
			seed[i] = b + byte(i%2)
		}
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		blocks := min(len(data)/size, 64)
		data = data[:blocks*size]
		out := make([]float32, blocks*n)
		d.Decode(out, data)
		for b := range blocks {
			if FirstBadBlock(typ, data[b*size:(b+1)*size]) >= 0 {
				continue
			}
			if typ == tensor.MXFP4 && data[b*size] >= 253 {
				continue // 12 times 2^125 is over float32, in ggml as here
			}
			for i, v := range out[b*n : (b+1)*n] {
				if v-v != 0 && typ != tensor.F64 {
					t.Fatalf("block %d value %d is %v (%#x)", b, i, v, math.Float32bits(v))
				}
			}
		}
	})
}

func FuzzDecodeF64(f *testing.F)     { fuzzDecoder(f, tensor.F64) }
func FuzzDecodeF32(f *testing.F)     { fuzzDecoder(f, tensor.F32) }
func FuzzDecodeF16(f *testing.F)     { fuzzDecoder(f, tensor.F16) }
func FuzzDecodeBF16(f *testing.F)    { fuzzDecoder(f, tensor.BF16) }
func FuzzDecodeF8E4M3(f *testing.F)  { fuzzDecoder(f, tensor.F8E4M3) }
func FuzzDecodeF8E5M2(f *testing.F)  { fuzzDecoder(f, tensor.F8E5M2) }
func FuzzDecodeQ4_0(f *testing.F)    { fuzzDecoder(f, tensor.Q4_0) }
func FuzzDecodeQ4_1(f *testing.F)    { fuzzDecoder(f, tensor.Q4_1) }
func FuzzDecodeQ5_0(f *testing.F)    { fuzzDecoder(f, tensor.Q5_0) }
func FuzzDecodeQ5_1(f *testing.F)    { fuzzDecoder(f, tensor.Q5_1) }
func FuzzDecodeQ8_0(f *testing.F)    { fuzzDecoder(f, tensor.Q8_0) }
func FuzzDecodeQ6_K(f *testing.F)    { fuzzDecoder(f, tensor.Q6_K) }
func FuzzDecodeKMCUQ4(f *testing.F)  { fuzzDecoder(f, tensor.KMCUQ4) }
func FuzzDecodeQ1_0(f *testing.F)    { fuzzDecoder(f, tensor.Q1_0) }
func FuzzDecodeQ2_0(f *testing.F)    { fuzzDecoder(f, tensor.Q2_0) }
func FuzzDecodeQ2_K(f *testing.F)    { fuzzDecoder(f, tensor.Q2_K) }
func FuzzDecodeQ3_K(f *testing.F)    { fuzzDecoder(f, tensor.Q3_K) }
func FuzzDecodeQ4_K(f *testing.F)    { fuzzDecoder(f, tensor.Q4_K) }
func FuzzDecodeQ5_K(f *testing.F)    { fuzzDecoder(f, tensor.Q5_K) }
func FuzzDecodeTQ1_0(f *testing.F)   { fuzzDecoder(f, tensor.TQ1_0) }
func FuzzDecodeTQ2_0(f *testing.F)   { fuzzDecoder(f, tensor.TQ2_0) }
func FuzzDecodeIQ4_NL(f *testing.F)  { fuzzDecoder(f, tensor.IQ4_NL) }
func FuzzDecodeIQ4_XS(f *testing.F)  { fuzzDecoder(f, tensor.IQ4_XS) }
func FuzzDecodeMXFP4(f *testing.F)   { fuzzDecoder(f, tensor.MXFP4) }
func FuzzDecodeNVFP4(f *testing.F)   { fuzzDecoder(f, tensor.NVFP4) }
func FuzzDecodeIQ1_S(f *testing.F)   { fuzzDecoder(f, tensor.IQ1_S) }
func FuzzDecodeIQ1_M(f *testing.F)   { fuzzDecoder(f, tensor.IQ1_M) }
func FuzzDecodeIQ2_XXS(f *testing.F) { fuzzDecoder(f, tensor.IQ2_XXS) }
func FuzzDecodeIQ2_XS(f *testing.F)  { fuzzDecoder(f, tensor.IQ2_XS) }
func FuzzDecodeIQ2_S(f *testing.F)   { fuzzDecoder(f, tensor.IQ2_S) }
func FuzzDecodeIQ3_XXS(f *testing.F) { fuzzDecoder(f, tensor.IQ3_XXS) }
func FuzzDecodeIQ3_S(f *testing.F)   { fuzzDecoder(f, tensor.IQ3_S) }

// FuzzEncode runs any float32 patterns, NaN and Inf among them, through an
// encoder with and without weights: no panic, and the same bytes twice.
func FuzzEncode(f *testing.F) {
	rng := rand.New(rand.NewPCG(17, 18))
	types := writable()
	for i := range types {
		f.Add(uint8(i), bytesOfFloats(kernelInput(rng, 256)), bytesOfFloats(kernelInput(rng, 256)))
	}
	f.Fuzz(func(t *testing.T, which uint8, values, weights []byte) {
		x, w := make([]float32, 256), make([]float32, 256)
		(f32{}).Decode(x[:min(len(values)/4, 256)], values)
		(f32{}).Decode(w[:min(len(weights)/4, 256)], weights)
		for i, v := range w {
			if w[i] = abs32(v); !(w[i] <= maxFloat) {
				w[i] = 0
			}
		}
		typ := types[int(which)%len(types)]
		c, _ := For(typ)
		n, _ := tensor.RowBytes(typ, 256)
		a, b := make([]byte, n), make([]byte, n)
		for _, weights := range [][]float32{nil, w} {
			c.EncodeRow(a, x, weights)
			c.EncodeRow(b, x, weights)
			if !bytes.Equal(a, b) {
				t.Fatalf("%s: two calls differ at %d", typ, firstDiff(a, b))
			}
			c.Decode(make([]float32, 256), a)
		}
	})
}
