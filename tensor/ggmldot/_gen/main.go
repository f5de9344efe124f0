// Command _gen writes the vector kernels of package ggmldot, one set of them to a
// file:
//
//	go run . -set super -out ../super_amd64.s -stubs ../super_stubs_amd64.go -pkg ggmldot
//
// It is a module of its own, so that its dependencies are none of quern's. The
// kernels need AVX2 and FMA. Each lane does what the scalar code does for one
// product, in its order: results are the same to the last bit.
package main

import (
	"flag"
	"fmt"
	"os"

	. "github.com/mmcloughlin/avo/build"
)

// sets are the kernels of a file.
var sets = map[string]func(){
	"blocks": blocks32,
	"low":    low,
	"super":  super,
}

func main() {
	set := flag.String("set", "", "which kernels")
	flag.Parse()
	kernels, ok := sets[*set]
	if !ok {
		fmt.Fprintf(os.Stderr, "no set %q\n", *set)
		os.Exit(2)
	}
	ConstraintExpr("amd64,!noasm")
	kernels()
	Generate()
}
