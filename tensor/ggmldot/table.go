package ggmldot

import (
	"math"

	"quern/tensor"
)

// families is indexed by type; types without products have none.
var families = [tensor.CQ1 + 1]family{
	tensor.F32:  floatPath(F32, dotF32),
	tensor.F16:  floatPath(F16, dotF16),
	tensor.BF16: floatPath(BF16, dotBF16),
}

// quietNaN is the one NaN that results have.
var quietNaN = math.Float32frombits(0x7fc00000)

// number gives every NaN the same bits: which of two NaNs an operation keeps
// depends on the machine.
func number(v float32) float32 {
	if v != v {
		return quietNaN
	}
	return v
}
