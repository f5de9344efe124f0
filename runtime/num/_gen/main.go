// Command _gen writes the AVX2 kernels of package num.
//
//	cd runtime/num/_gen && go run . -out ../kernels_amd64.s -stubs ../stubs_amd64.go -pkg num
//
// It is a module of its own, so that its dependencies are none of quern's. Each
// kernel does what the scalar function named in its comment does, eight lanes
// at a time: the bits are the same. Multiplication and addition stay apart.
package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"

	. "quern/internal/asm"
)

func main() {
	ConstraintExpr("amd64,!noasm")
	for _, half := range []bool{false, true} {
		for _, tile := range [][2]int{{4, 2}, {4, 1}, {1, 2}, {1, 1}} {
			dots(tile[0], tile[1], half)
		}
		for _, vectors := range []int{8, 4, 1} {
			addWeighted(vectors, half)
		}
	}
	expMinus()
	gates()
	plain()
	Generate()
}

func float(name string, v float64) VecVirtual {
	return Spread(name, math.Float32bits(float32(v)))
}

// tailMasks has a set word for each of the last n%8 lanes: the mask of n%8 = k
// starts at byte 32-4k.
func tailMasks() Mem {
	const set = 0xffffffff
	return Words("tailMasks", set, set, set, set, set, set, set, set, 0, 0, 0, 0, 0, 0, 0, 0)
}
