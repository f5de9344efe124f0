// Package asm has what the generators of assembly share: those in the folders _gen of packages.
// Like them it is a module of its own, so that its dependencies are none of quern's.
package asm

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

var globals = map[string]Mem{}

// Words makes read-only data, once for each name.
func Words(name string, v ...uint32) Mem {
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

// Eights is eight copies of a word.
func Eights(name string, v uint32) Mem { return Words(name, v, v, v, v, v, v, v, v) }

// Fetch puts a constant into a register.
func Fetch(m Mem) VecVirtual {
	r := YMM()
	VMOVDQU(m, r)
	return r
}

// Spread fills a register with a word that is kept in memory once.
func Spread(name string, bits uint32) VecVirtual {
	r := YMM()
	VBROADCASTSS(Words(name, bits), r)
	return r
}

// Everywhere fills a register with a float parameter.
func Everywhere(param string) VecVirtual {
	r := YMM()
	VBROADCASTSS(Argument(param), r)
	return r
}

// Zeroed is a register of zeros.
func Zeroed() VecVirtual {
	r := YMM()
	VXORPS(r, r, r)
	return r
}

// YMMs makes n registers.
func YMMs(n int) []VecVirtual {
	out := make([]VecVirtual, n)
	for i := range out {
		out[i] = YMM()
	}
	return out
}

// Argument is the place of a parameter on the stack.
func Argument(param string) Mem {
	p, err := Param(param).Resolve()
	if err != nil {
		panic(err)
	}
	return p.Addr
}

// Pointer loads a pointer or count parameter.
func Pointer(param string) Register { return Load(Param(param), GP64()) }

// Loop runs body while n, counted down, is not zero. n is at least 1.
func Loop(name string, n Register, body func()) {
	Label(name)
	body()
	DECQ(n)
	JNZ(LabelRef(name))
}
