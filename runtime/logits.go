package infer

import "math"

// AppendLogits appends a row of logits as goldens hold it: float32, little-endian.
func AppendLogits(b []byte, logits []float32) []byte {
	for _, v := range logits {
		u := math.Float32bits(v)
		if v != v {
			u = 0x7fc00000 // the sign of a NaN depends on the machine
		}
		b = append(b, byte(u), byte(u>>8), byte(u>>16), byte(u>>24))
	}
	return b
}
