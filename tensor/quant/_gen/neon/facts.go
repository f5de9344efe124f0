package neon

import (
	"fmt"

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
}

// elementwise are the instructions whose result has equal halves if the operands
// have.
var elementwise = set("VADDPS", "VSUBPS", "VMULPS", "VDIVPS", "VSQRTPS", "VMAXPS", "VMINPS", "VCMPPS", "VBLENDVPS",
	"VANDPS", "VORPS", "VXORPS", "VANDNPS", "VPAND", "VPOR", "VPXOR", "VPANDN", "VPADDD", "VPADDB", "VPSUBD", "VPMAXSD",
	"VPMINSD", "VPMAXSB", "VPMINSB", "VPMINUB", "VPCMPEQD", "VPCMPGTD", "VPSLLD", "VPSLLW", "VPSRLD", "VMOVAPS", "VMOVDQA",
	"VCVTTPS2DQ", "VCVTPS2DQ", "VPBLENDVB")

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
	t.facts = facts{wide: map[reg.ID]bool{}, uniform: map[reg.ID]bool{}, mask: map[reg.ID]bool{}, table: map[reg.ID][]uint32{}}
	writes := map[reg.ID]int{}
	for _, in := range fn.Instructions() {
		for _, o := range in.Operands {
			if r := asVector(o); r != nil {
				id := r.ID()
				t.wide[id] = t.wide[id] || r.Size() == 32
				t.uniform[id] = t.wide[id]
				t.mask[id] = true
			}
		}
		if r := written(in); r != nil {
			writes[r.ID()]++
			if words, ok := t.words(in.Operands[0]); ok && loading[in.Opcode] {
				t.table[r.ID()] = words
			}
		}
	}
	for id, n := range writes {
		if n > 1 {
			delete(t.table, id)
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
	if !elementwise[in.Opcode] || r.Size() != 32 {
		return false
	}
	for _, o := range in.Operands[:len(in.Operands)-1] {
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

// learnLanes finds the general registers that only take masks of lanes. They hold
// a byte of ones for each lane here, where AVX2 has one bit.
func (t *translator) learnLanes(fn *ir.Function) error {
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
	allowed := set("VMOVMSKPS", "ORL", "TESTL", "CMPL", "XORL")
	for _, in := range fn.Instructions() {
		for _, o := range in.Operands {
			if t.isLanes(o) && !allowed[in.Opcode] {
				return fmt.Errorf("%s reads the bits of a mask", in.Opcode)
			}
		}
		if in.Opcode == "ORL" && t.isLanes(in.Operands[0]) != t.isLanes(in.Operands[1]) {
			return fmt.Errorf("a mask of lanes and a number meet")
		}
	}
	return nil
}

func (t *translator) isLanes(o operand.Op) bool {
	r, ok := o.(reg.Register)
	return ok && t.lanes[r.ID()]
}
