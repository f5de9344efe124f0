//go:build !amd64 || noasm

package cq

func transform(x []float32) { transformScalar(x) }

func scaledSquares(x []float32, root float32) float32 { return scaledSquaresScalar(x, root) }

func nearest(index []byte, x []float32, norm float32, c *cuts) float32 {
	return nearestScalar(index, x, norm, c)
}

func lookUp(dst []float32, src []byte, table *[maxLevels]float32, norm float32, w Width) {
	lookUpScalar(dst, src, table, norm, w)
}
