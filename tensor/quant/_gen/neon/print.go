package neon

import (
	"fmt"
	"strings"

	"github.com/mmcloughlin/avo/ir"
)

// Assembly is a file of functions.
type Assembly struct {
	data      map[string][]uint32
	symbols   []string // of data, in order
	functions []compiled
}

type compiled struct {
	source  *ir.Function
	code    *function
	numbers []int // of the registers
}

// Functions are the functions that were translated, in order.
func (a *Assembly) Functions() []*ir.Function {
	var fs []*ir.Function
	for _, c := range a.functions {
		fs = append(fs, c.source)
	}
	return fs
}

// Print gives the file in the Go assembler's syntax, under a comment and a build
// constraint.
func (a *Assembly) Print(comment, constraint string) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "// %s\n\n//go:build %s\n\n#include \"textflag.h\"\n", comment, constraint)
	used := map[string]bool{}
	for _, c := range a.functions {
		for _, in := range c.code.code {
			if in.op == movSym {
				used[in.text] = true
			}
		}
	}
	for _, s := range a.symbols {
		if !used[s] {
			continue
		}
		b.WriteByte('\n')
		for i, w := range a.data[s] {
			fmt.Fprintf(&b, "DATA %s<>+%d(SB)/4, $%#08x\n", s, 4*i, w)
		}
		fmt.Fprintf(&b, "GLOBL %s<>(SB), RODATA|NOPTR, $%d\n", s, 4*len(a.data[s]))
	}
	for _, c := range a.functions {
		fmt.Fprintf(&b, "\n// %s\n", c.source.Stub())
		fmt.Fprintf(&b, "TEXT ·%s(SB), %s, $%d-%d\n", c.source.Name, c.source.Attributes.Asm(), 16*c.code.slots, c.source.ArgumentBytes())
		for _, in := range c.code.code {
			c.print(&b, in)
		}
	}
	return []byte(b.String())
}

func (c *compiled) print(b *strings.Builder, in inst) {
	if in.isLabel {
		fmt.Fprintf(b, "\n%s:\n", in.text)
		return
	}
	if in.move && c.numbers[in.dst[0]] == c.numbers[in.src[0]] {
		return
	}
	if in.word != 0 {
		src := in.src
		if in.tied {
			src = src[1:]
		}
		numbers := []int{}
		for _, s := range src {
			numbers = append(numbers, c.numbers[s])
		}
		word, text := in.encode(c.numbers[in.dst[0]], numbers, in.i)
		fmt.Fprintf(b, "\tWORD $%#08x // %s\n", word, text)
		return
	}
	pairs := []string{"{t}", in.text, "{i}", fmt.Sprint(in.i), "${i}", dollar(in.i), "{slot}", fmt.Sprintf("slot%d-%d", in.i, 16*(in.i+1))}
	for letter, regs := range map[string][]temp{"d": in.dst, "s": in.src} {
		for i, r := range regs {
			name := fmt.Sprint(c.numbers[r])
			if c.code.classes[r] == general {
				name = "R" + name
			}
			pairs = append(pairs, fmt.Sprintf("{%s%d}", letter, i), name)
		}
	}
	text := strings.NewReplacer(pairs...).Replace(in.form)
	text = strings.NewReplacer(" 0(", " (", ", 0(", ", (", "<>+0(SB)", "<>(SB)").Replace(text)
	fmt.Fprintf(b, "\t%s\n", text)
}

// dollar writes great numbers in hexadecimal.
func dollar(i int64) string {
	if i < 0 {
		return fmt.Sprintf("$-%#x", uint64(-i))
	}
	if i > 4096 {
		return fmt.Sprintf("$%#x", i)
	}
	return fmt.Sprintf("$%d", i)
}
