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

// shifts are the places of eight numbers of 1, 2 and 3 bits in a word.
var shifts = [4][8]uint32{1: {0, 1, 2, 3, 4, 5, 6, 7}, 2: {0, 2, 4, 6, 8, 10, 12, 14}, 3: {0, 3, 6, 9, 12, 15, 18, 21}}

// lookUp writes table[i]*norm for the number i of each value of a group; src may go on
// behind the group's own bytes.
func lookUp(dst []float32, src []byte, table *[maxLevels]float32, norm float32, w Width) {
	n, bits := len(dst), w.IndexBits()
	if !useAVX2 {
		lookUpScalar(dst, src, table, norm, w)
		return
	}
	if w == W4 {
		nibblesAVX2(&dst[0], &src[:n/2][0], n, &table[0], norm)
		return
	}
	// The kernel reads words of 4 bytes, of which the last must be there.
	if len(src) < n/8*bits+4 {
		n -= 32
		lookUpScalar(dst[n:], src[n/8*bits:], table, norm, w)
	}
	if n > 0 {
		codesAVX2(&dst[0], &src[:n/8*bits+4-bits][0], n, &table[0], bits, &shifts[bits][0], 1<<bits-1, norm)
	}
}
