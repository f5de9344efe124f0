package quantize

import (
	"fmt"

	"quern/tensor"
	"quern/tensor/view"
)

func (s *Stage) cast(t *tensor.Tensor, to tensor.Type, im *importance) (*tensor.Tensor, error) {
	if isInteger(t.Type) {
		return t, nil // ids and the like: no values that could be bad
	}
	if t.Type == to {
		return view.Cast(t, to, view.CastOptions{Check: true})
	}
	if isQuantized(t.Type) && !s.p.AllowRequantize {
		return nil, fmt.Errorf("tensor %s: %w: it is %s and would become %s, with the errors of both; start from a float source, or set allow-requantize: true",
			t.Name, ErrRequantize, t.Type, to)
	}
	w, key := im.weightsFor(t, to)
	return view.Cast(t, to, view.CastOptions{Weights: w, WeightsKey: key})
}

func isInteger(t tensor.Type) bool {
	switch t {
	case tensor.I8, tensor.I16, tensor.I32, tensor.I64:
		return true
	}
	return false
}

// dropOnes leaves out outer axes of length 1, which llama.cpp does not write.
func dropOnes(s tensor.Shape) tensor.Shape {
	for len(s) > 1 && s[0] == 1 {
		s = s[1:]
	}
	return s
}
