// Command _gen writes the AVX2 kernels of package dot.
//
//	cd tensor/dot/_gen && go run . -out ../kernels_amd64.s -stubs ../stubs_amd64.go -pkg dot
//
// It is a module of its own, so that its dependencies are none of quern's. The
// kernels take several rows or tokens at once, one in each lane, and follow the
// scalar order in every lane: results are the same to the last bit.
package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"

	. "quern/internal/asm"
)

// tileWidth is the constant of package dot: rows of codes lie that far apart.
const tileWidth = 2048

func main() {
	ConstraintExpr("amd64,!noasm")
	for _, k := range kinds32 {
		group32(k)
		single32(k)
	}
	for _, k := range kinds256 {
		group256(k)
		if !k.wide {
			single256(k)
		}
	}
	turn()
	widen(false)
	widen(true)
	unpackers32()
	unpackNVFP4()
	unpackIQ4_XS()
	unpackersK()
	quantizeQ8_0()
	quantizeQ8_K()
	expand32(false)
	expand32(true)
	expand256(false)
	expand256(true)
	dotFloats(1)
	dotFloats(2)
	gemvs32()
	gemvs256()
	gemvsLow()
	gemvsPacked()
	Generate()
}

// pairOnes adds neighbouring 16-bit lanes by VPMADDWD.
func pairOnes() Mem { return Eights("pairOnes", 0x00010001) }
