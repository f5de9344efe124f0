//go:build amd64 && !noasm

package cq

func encodeGroup(index []byte, x []float32, c *cuts, root float32) (norm, near float32) {
	return encodeGroupScalar(index, x, c, root)
}

func groupNorm(x []float32, root float32) float32 { return groupNormScalar(x, root) }

func rotate(x []float32, root float32) { rotateScalar(x, root) }
