package quant

import "quern/tensor"

// NeedsWeights reports whether ggml refuses to quantize to t without importance
// weights. The encoders here take nil weights as all ones for these types.
func NeedsWeights(t tensor.Type) bool {
	return t == tensor.IQ1_S || t == tensor.IQ2_XXS || t == tensor.IQ2_XS
}

// weightGroups is the number of values, by type, whose scale the weights alone
// decide. Types that are not listed ignore weights or do without where they
// are zero.
var weightGroups = [...]int{
	tensor.Q4_0:    32,
	tensor.Q5_0:    32,
	tensor.Q2_K:    256,
	tensor.Q3_K:    16,
	tensor.Q4_K:    256,
	tensor.Q5_K:    256,
	tensor.Q6_K:    16,
	tensor.IQ1_S:   32,
	tensor.IQ1_M:   16,
	tensor.IQ2_XXS: 32,
	tensor.IQ2_XS:  16,
	tensor.IQ2_S:   16,
	tensor.IQ3_XXS: 32,
	tensor.IQ4_NL:  32,
	tensor.IQ4_XS:  32,
}

// DeadWeights counts the groups of a row for which every weight is zero. ggml,
// and so the encoders here, finds no scale for such a group: most types write
// zeros for all its values, whatever they are. A caller who does not want that
// passes other weights. First is the index of the first group's first value.
func DeadWeights(t tensor.Type, weights []float32) Count {
	var c Count
	if int(t) >= len(weightGroups) || weightGroups[t] == 0 {
		return c
	}
	n := weightGroups[t]
	for at := 0; at+n <= len(weights); at += n {
		if maxAbs(weights[at:at+n]) == 0 {
			c.add(1, int64(at), 0)
		}
	}
	return c
}
