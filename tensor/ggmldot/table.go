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

	tensor.Q4_0:   lanesPath(Q8_0, 16, addAll, addAll),
	tensor.Q4_1:   lanesPath(Q8_1, 0, addMins, addMins),
	tensor.Q5_0:   lanesPath(Q8_0, 16, addAll, addAll),
	tensor.Q5_1:   lanesPath(Q8_1, 0, addMins, addMins),
	tensor.Q8_0:   lanesPath(Q8_0, 0, addAll, addAll),
	tensor.IQ4_NL: lanesPath(Q8_0, 0, addInTurn, addAll),
	tensor.MXFP4:  lanesPath(Q8_0, 16, addInTurn, addInTurn),
	tensor.Q1_0:   lowPath(Q8_0, 16, mulQ1_0),
	tensor.Q2_0:   lowPath(Q8_0x8, 16, mulQ2_0),
	tensor.NVFP4:  lowPath(Q8_0, 0, mulNVFP4),

	tensor.Q2_K:    plainSuper,
	tensor.Q3_K:    plainSuper,
	tensor.Q4_K:    familyQ4_K,
	tensor.Q5_K:    plainSuper,
	tensor.Q6_K:    plainSuper,
	tensor.TQ1_0:   plainSuper,
	tensor.TQ2_0:   plainSuper,
	tensor.IQ1_S:   panelSuper,
	tensor.IQ1_M:   panelSuper,
	tensor.IQ2_XXS: panelSuper,
	tensor.IQ2_XS:  panelSuper,
	tensor.IQ2_S:   panelSuper,
	tensor.IQ3_XXS: panelSuper,
	tensor.IQ3_S:   panelSuper,
	tensor.IQ4_XS:  panelSuper,
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
