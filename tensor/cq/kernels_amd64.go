//go:build !noasm

package cq

import (
	"os"

	"golang.org/x/sys/cpu"
)

// useAVX2 is decided once, at start. It changes the speed, not the results.
var useAVX2 = cpu.X86.HasAVX2 && os.Getenv("QUERN_NOASM") != "1"

func transform(x []float32) {
	if useAVX2 && len(x) >= 32 {
		transformAVX2(&x[0], len(x))
		return
	}
	transformScalar(x)
}

func scaledSquares(x []float32, root float32) float32 {
	if !useAVX2 || len(x) < 8 {
		return scaledSquaresScalar(x, root)
	}
	if len(x) > 128 {
		h := len(x) / 2
		return scaleAVX2(&x[0], h, root) + scaleAVX2(&x[h], len(x)-h, root)
	}
	return scaleAVX2(&x[0], len(x), root)
}

func nearest(index []byte, x []float32, norm float32, c *cuts) float32 {
	if useAVX2 && len(x) >= 32 {
		if norm < smallest {
			norm = smallest
		}
		return nearestAVX2(&index[:len(x)][0], &x[0], len(x), norm, &c[0][0])
	}
	return nearestScalar(index, x, norm, c)
}
