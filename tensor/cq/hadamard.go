package cq

import "math"

// transformScalar replaces a group by its product with Sylvester's matrix, before the
// division by sqrt(len(x)): a fast Walsh-Hadamard transform, neighbours first.
// len(x) is a power of two.
func transformScalar(x []float32) {
	for h := 1; h < len(x); h *= 2 {
		for i := 0; i < len(x); i += 2 * h {
			a, b := x[i:i+h], x[i+h:i+2*h]
			for j, u := range a {
				v := b[j]
				a[j], b[j] = u+v, u-v
			}
		}
	}
}

// rootOf is 1/sqrt(group) in float32, the magnitude of every entry of H.
func rootOf(group int) float32 { return float32(1 / math.Sqrt(float64(group))) }

// Rotate replaces a group of 32 to 256 weights by its product with the
// normalized Walsh-Hadamard matrix, which is its own inverse.
func Rotate(x []float32) { rotate(x, rootOf(len(x))) }

func rotate(x []float32, root float32) {
	transform(x)
	scaledSquares(x, root)
}
