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
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
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

// words makes read-only data, once for each name.
func words(name string, v ...uint32) Mem {
	if m, ok := globals[name]; ok {
		return m
	}
	m := GLOBL(name, RODATA|NOPTR)
	for i, w := range v {
		DATA(4*i, U32(w))
	}
	globals[name] = m
	return m
}

var globals = map[string]Mem{}

// eights is eight copies of a word.
func eights(name string, v uint32) Mem { return words(name, v, v, v, v, v, v, v, v) }

// pointer loads a pointer or count parameter.
func pointer(name string) Register { return Load(Param(name), GP64()) }

// ymms makes n registers.
func ymms(n int) []VecVirtual {
	out := make([]VecVirtual, n)
	for i := range out {
		out[i] = YMM()
	}
	return out
}

// loop runs body while n, counted down, is not zero. n is at least 1.
func loop(name string, n Register, body func()) {
	Label(name)
	body()
	DECQ(n)
	JNZ(LabelRef(name))
}
