package neon

import (
	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// facts are what all writes to a vector register of an AVX2 function have in
// common. They save instructions and change no value.
type facts struct {
	wide    map[reg.ID]bool     // all 256 bits are in use
	uniform map[reg.ID]bool     // both halves are the same, one register holds them
	mask    map[reg.ID]bool     // each element is all ones or all zeros
	table   map[reg.ID][]uint32 // the words of a register that is written once
	lanes   map[reg.ID]bool     // see learnLanes
	quiet   map[reg.ID]bool     // no element is a NaN that signals
	word    map[reg.ID]uint32   // what fills a register that is written once
}

// elementwise are the instructions whose result has equal halves if the operands
// have.
var elementwise = set("VADDPS", "VSUBPS", "VMULPS", "VDIVPS", "VSQRTPS", "VMAXPS", "VMINPS", "VCMPPS", "VBLENDVPS",
	"VANDPS", "VORPS", "VXORPS", "VANDNPS", "VPAND", "VPOR", "VPXOR", "VPANDN", "VPADDD", "VPADDB", "VPSUBD", "VPMAXSD",
	"VPMINSD", "VPMAXSB", "VPMINSB", "VPMINUB", "VPCMPEQD", "VPCMPGTD", "VPSLLD", "VPSLLW", "VPSRLD", "VMOVAPS", "VMOVDQA",
	"VCVTTPS2DQ", "VCVTPS2DQ", "VPBLENDVB", "VROUNDPS", "VPSRAD")

var (
	comparing = set("VCMPPS", "VPCMPEQD", "VPCMPGTD")
	masking   = set("VANDPS", "VORPS", "VXORPS", "VANDNPS", "VPAND", "VPOR", "VPXOR", "VPANDN", "VMOVAPS", "VMOVDQA", "VPACKSSDW", "VPACKSSWB", "VPERMD", "VPERMQ")
	zeroing   = set("VXORPS", "VPXOR")
	loading   = set("VMOVUPS", "VMOVDQU")
	broadcast = set("VBROADCASTSS", "VPBROADCASTD")
)

func set(names ...string) map[string]bool {
	m := map[string]bool{}
	for _, n := range names {
		m[n] = true
	}
	return m
}

func asVector(o operand.Op) reg.Register {
	if r, ok := o.(reg.Register); ok && r.Kind() == reg.KindVector {
		return r
	}
	return nil
}

// written is the vector register that an instruction writes, which comes last.
func written(in *ir.Instruction) reg.Register {
	if len(in.Operands) == 0 || len(in.Outputs) == 0 {
		return nil
	}
	return asVector(in.Operands[len(in.Operands)-1])
}

// same reports an instruction on one register only.
func same(in *ir.Instruction) bool {
	a, b := asVector(in.Operands[0]), asVector(in.Operands[1])
	return a != nil && b != nil && a.ID() == b.ID()
}

func (t *translator) learn(fn *ir.Function) {
	t.facts = facts{wide: map[reg.ID]bool{}, uniform: map[reg.ID]bool{}, mask: map[reg.ID]bool{}, quiet: map[reg.ID]bool{}, word: map[reg.ID]uint32{}, table: map[reg.ID][]uint32{}}
	writes := map[reg.ID]int{}
	for _, in := range fn.Instructions() {
		for _, o := range in.Operands {
			if r := asVector(o); r != nil {
				id := r.ID()
				t.wide[id] = t.wide[id] || r.Size() == 32
				t.uniform[id] = t.wide[id]
				t.mask[id], t.quiet[id] = true, true
			}
		}
		if r := written(in); r != nil {
			writes[r.ID()]++
			if words, ok := t.words(in.Operands[0]); ok && loading[in.Opcode] {
				t.table[r.ID()] = words
			}
			if w, ok := t.fills(in); ok && r.Size() == 32 {
				t.word[r.ID()] = w
			}
		}
	}
	for id, n := range writes {
		if n > 1 {
			delete(t.table, id)
			delete(t.word, id)
		}
	}
	// Suppose the best of all, until a write contradicts.
	for changed := true; changed; {
		changed = false
		for _, in := range fn.Instructions() {
			r := written(in)
			if r == nil {
				continue
			}
			if t.uniform[r.ID()] && !t.writesUniform(in, r) {
				t.uniform[r.ID()], changed = false, true
			}
			if t.mask[r.ID()] && !t.writesMask(in) {
				t.mask[r.ID()], changed = false, true
			}
			if t.quiet[r.ID()] && !t.writesQuiet(in) {
				t.quiet[r.ID()], changed = false, true
			}
		}
	}
}

func (t *translator) writesUniform(in *ir.Instruction, r reg.Register) bool {
	if broadcast[in.Opcode] {
		return r.Size() == 32
	}
	if loading[in.Opcode] {
		_, ok := t.equalWords(in.Operands[0])
		return ok && r.Size() == 32
	}
	if zeroing[in.Opcode] && same(in) {
		return true
	}
	// One half twice.
	switch how, _ := number(in.Operands[0]); in.Opcode {
	case "VPERM2F128", "VPERM2I128":
		return how>>4&15 == how&15
	case "VINSERTF128":
		x, y := asVector(in.Operands[1]), asVector(in.Operands[2])
		return how&1 == 1 && x != nil && x.ID() == y.ID()
	}
	if !elementwise[in.Opcode] || r.Size() != 32 {
		return false
	}
	for _, o := range in.Operands[:len(in.Operands)-1] {
		if _, ok := t.equalWords(o); ok {
			continue
		}
		if s := asVector(o); operand.IsMem(o) || s != nil && !t.uniform[s.ID()] {
			return false
		}
	}
	return true
}

func (t *translator) writesMask(in *ir.Instruction) bool {
	if comparing[in.Opcode] || zeroing[in.Opcode] && same(in) {
		return true
	}
	if !masking[in.Opcode] {
		return false
	}
	for _, o := range in.Operands[:len(in.Operands)-1] {
		if in.Opcode == "VPERMD" && o == in.Operands[1] { // the order
			continue
		}
		if s := asVector(o); operand.IsMem(o) || s != nil && !t.mask[s.ID()] {
			return false
		}
	}
	return true
}

// writesQuiet: arithmetic quiets what it passes on.
func (t *translator) writesQuiet(in *ir.Instruction) bool {
	switch in.Opcode {
	case "VADDPS", "VSUBPS", "VMULPS", "VDIVPS", "VSQRTPS", "VROUNDPS":
		return true
	case "VMAXPS", "VMINPS":
		return t.isQuiet(in.Operands[0]) && t.isQuiet(in.Operands[1])
	}
	w, ok := t.fills(in)
	return ok && isNumber(w)
}

func (t *translator) isQuiet(o operand.Op) bool {
	r := asVector(o)
	return r != nil && (t.quiet[r.ID()] || t.sure(o))
}

func isNumber(w uint32) bool { return w&^(1<<31) <= 0x7f800000 }

// sure reports that no element is zero or no number.
func (t *translator) sure(o operand.Op) bool {
	if w, ok := t.wordOf(o); ok {
		return isNumber(w) && w&^(1<<31) != 0
	}
	r := asVector(o)
	return r != nil && t.bounds[r.ID()]
}

func (t *translator) wordOf(o operand.Op) (uint32, bool) {
	r := asVector(o)
	if r == nil {
		return 0, false
	}
	w, ok := t.word[r.ID()]
	return w, ok
}

// fills gives the word that an instruction fills a register with.
func (t *translator) fills(in *ir.Instruction) (uint32, bool) {
	switch {
	case zeroing[in.Opcode] && same(in):
		return 0, true
	case loading[in.Opcode]:
		return t.equalWords(in.Operands[0])
	case broadcast[in.Opcode]:
		if w, ok := t.words(in.Operands[0]); ok {
			return w[0], true
		}
	}
	return 0, false
}

// words gives the data from a place in memory that never changes.
func (t *translator) words(o operand.Op) ([]uint32, bool) {
	m, ok := o.(operand.Mem)
	if !ok || m.Base != reg.StaticBase || m.Index != nil {
		return nil, false
	}
	return t.data[m.Symbol.Name][m.Disp/4:], true
}

// equalWords gives the one word that fills a vector's place in memory.
func (t *translator) equalWords(o operand.Op) (uint32, bool) {
	w, ok := t.words(o)
	if !ok || len(w) < 8 {
		return 0, false
	}
	for _, v := range w[:8] {
		if v != w[0] {
			return 0, false
		}
	}
	return w[0], true
}

// learnLanes finds the general registers that only take masks of lanes and are
// only asked whether none or all are set. They hold a byte of ones for each lane
// here, where AVX2 has one bit.
func (t *translator) learnLanes(fn *ir.Function) {
	t.lanes = map[reg.ID]bool{}
	for _, in := range fn.Instructions() {
		if in.Opcode == "VMOVMSKPS" && asVector(in.Operands[0]).Size() == 32 {
			t.lanes[in.Operands[1].(reg.Register).ID()] = true
		}
	}
	for changed := true; changed; {
		changed = false
		for _, in := range fn.Instructions() {
			if in.Opcode == "ORL" && t.isLanes(in.Operands[0]) && !t.isLanes(in.Operands[1]) {
				t.lanes[in.Operands[1].(reg.Register).ID()], changed = true, true
			}
		}
	}
	for changed := true; changed; {
		changed = false
		for _, in := range fn.Instructions() {
			for _, o := range in.Operands {
				if r, ok := o.(reg.Register); ok && t.isLanes(o) && !t.keepsLanes(in) {
					t.lanes[r.ID()], changed = false, true
				}
			}
		}
	}
}

func (t *translator) keepsLanes(in *ir.Instruction) bool {
	switch in.Opcode {
	case "VMOVMSKPS":
		return true
	case "ORL", "TESTL":
		return t.isLanes(in.Operands[0]) && t.isLanes(in.Operands[1])
	case "XORL":
		return in.Operands[0] == in.Operands[1]
	case "CMPL":
		v, ok := number(in.Operands[1])
		return ok && v == 0xff
	}
	return false
}

func (t *translator) isLanes(o operand.Op) bool {
	r, ok := o.(reg.Register)
	return ok && t.lanes[r.ID()]
}
