package quant

import (
	"sync"

	"quern/tensor"
)

// What a kernel that computes on codes needs of the types whose values come
// from tables.

// Codebook gives the grid of an IQ1, IQ2 or IQ3 type as integers, entry by
// entry: 8 values each for IQ1 and IQ2, 4 for IQ3. A value is the decoder's
// before scale, sign and shift. Other types have none. It must not be changed.
func Codebook(t tensor.Type) []int8 {
	switch t {
	case tensor.IQ1_S, tensor.IQ1_M:
		return codesIQ1S()
	case tensor.IQ2_XXS:
		return codesIQ2XXS()
	case tensor.IQ2_XS:
		return codesIQ2XS()
	case tensor.IQ2_S:
		return codesIQ2S()
	case tensor.IQ3_XXS:
		return codesIQ3XXS()
	case tensor.IQ3_S:
		return codesIQ3S()
	}
	return nil
}

var (
	codesIQ1S   = integers(gridIQ1S)
	codesIQ2XXS = integers(gridIQ2XXS)
	codesIQ2XS  = integers(gridIQ2XS)
	codesIQ2S   = integers(gridIQ2S)
	codesIQ3XXS = integers(gridIQ3XXS)
	codesIQ3S   = integers(gridIQ3S)
)

func integers(load func() *grid) func() []int8 {
	return sync.OnceValue(func() []int8 {
		values := load().values
		out := make([]int8, len(values))
		for i, v := range values {
			out[i] = int8(v)
		}
		return out
	})
}

// HalfE8M0 is the scale of an MXFP4 block: half of 2^(e-127), for values that
// are twice E2M1's.
func HalfE8M0(e byte) float32 { return halfE8M0(e) }

// HalfUE4M3 is the scale of 16 values of an NVFP4 block: half of the unsigned
// float with 4 exponent and 3 mantissa bits, for values that are twice E2M1's.
func HalfUE4M3(e byte) float32 { return halfUE4M3(e) }
