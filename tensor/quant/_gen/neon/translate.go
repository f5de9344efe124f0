// Package neon turns the AVX2 functions that a generator built with avo into A64
// functions with the same operations in each lane. A 256-bit register becomes two
// of 128 bits, or one where both halves are the same.
//
// Values are equal to the bit. Where A64 has no instruction with the same result,
// as for the minimum with a number that is none, several take its place. Products
// and sums are never fused. One thing differs: the integer of a float that has
// none, which the scalar code never asks for because Go leaves it open.
package neon

import (
	"fmt"

	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// translator makes one function.
type translator struct {
	facts
	*function
	data    map[string][]uint32
	bounds  map[reg.ID]bool
	halves  map[reg.ID][2]temp
	numbers map[reg.ID]temp // general registers

	shared  map[uint32]temp // constants that the translation needs
	bits    map[int64]temp  // and those of 64 bits
	first   []inst          // fills shared
	indexes map[temp]temp   // byte indices for TBL, of word indices
	flags   flags
}

// Translate translates the functions of a file.
// bounds are registers that never hold zero nor what is no number.
func Translate(f *ir.File, bounds map[reg.ID]bool) (*Assembly, error) {
	a := &Assembly{data: map[string][]uint32{}}
	for _, s := range f.Sections {
		if g, ok := s.(*ir.Global); ok {
			w := make([]uint32, g.Size/4)
			for _, d := range g.Data {
				v, ok := number(d.Value)
				if !ok || d.Value.Bytes() != 4 {
					return nil, fmt.Errorf("data %s is not of words", g.Symbol.Name)
				}
				w[d.Offset/4] = uint32(v)
			}
			a.data[g.Symbol.Name] = w
			a.symbols = append(a.symbols, g.Symbol.Name)
		}
	}
	for _, fn := range f.Functions() {
		t := &translator{
			function: &function{name: fn.Name, short: map[temp]bool{}}, data: a.data, bounds: bounds, halves: map[reg.ID][2]temp{}, numbers: map[reg.ID]temp{},
			shared: map[uint32]temp{}, bits: map[int64]temp{}, indexes: map[temp]temp{},
		}
		t.learn(fn)
		t.learnLanes(fn)
		if err := t.translate(fn); err != nil {
			return nil, fmt.Errorf("%s: %w", fn.Name, err)
		}
		t.code = append(t.first, t.code...)
		t.tidy()
		numbers, err := t.allocate()
		if err != nil {
			return nil, err
		}
		a.functions = append(a.functions, compiled{fn, t.function, numbers})
	}
	return a, nil
}

func (t *translator) translate(fn *ir.Function) error {
	for i, n := range fn.Nodes {
		switch n := n.(type) {
		case ir.Label:
			clear(t.indexes)
			t.emit(inst{op: label, text: string(n)})
		case *ir.Instruction:
			var next *ir.Instruction
			if i+1 < len(fn.Nodes) {
				next, _ = fn.Nodes[i+1].(*ir.Instruction)
			}
			if err := t.instruction(n, next); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *translator) instruction(in, next *ir.Instruction) (err error) {
	// What has no translation panics with a message, deep in the operands.
	defer func() {
		if m, ok := recover().(unable); ok {
			err = fmt.Errorf("%s: %s", in.Opcode, string(m))
		}
	}()
	if translate, ok := generals[in.Opcode]; ok {
		translate(t, in, next)
		return nil
	}
	if translate, ok := vectors[in.Opcode]; ok {
		translate(t, in)
		return nil
	}
	panic(unable("there is no translation"))
}

type unable string

func fail(format string, args ...any) { panic(unable(fmt.Sprintf(format, args...))) }

func number(o operand.Op) (int64, bool) {
	switch c := o.(type) {
	case operand.U8:
		return int64(c), true
	case operand.U16:
		return int64(c), true
	case operand.U32:
		return int64(c), true
	case operand.U64:
		return int64(c), true
	case operand.I8:
		return int64(c), true
	case operand.I16:
		return int64(c), true
	case operand.I32:
		return int64(c), true
	case operand.I64:
		return int64(c), true
	}
	return 0, false
}

func (t *translator) emit(in inst) {
	t.function.emit(in)
	for _, d := range in.dst {
		for index, bytes := range t.indexes {
			if index == d || bytes == d {
				delete(t.indexes, index)
			}
		}
	}
}

// do emits an instruction and gives its result in a new register.
func (t *translator) do(o *op, c class, src ...temp) temp {
	d := t.newTemp(c)
	t.emit(inst{op: o, dst: []temp{d}, src: src})
	return d
}

// vec is do for vectors.
func (t *translator) vec(o *op, src ...temp) temp { return t.do(o, vector, src...) }

// imm is vec with an immediate.
func (t *translator) imm(o *op, i int64, src ...temp) temp {
	d := t.newTemp(vector)
	t.emit(inst{op: o, dst: []temp{d}, src: src, i: i})
	return d
}

// change is vec for an instruction that changes a part of old.
func (t *translator) change(o *op, old temp, src ...temp) temp {
	d := t.vec(moveVec, old)
	t.emit(inst{op: o, dst: []temp{d}, src: append([]temp{d}, src...)})
	return d
}

// constant gives a vector of one word.
func (t *translator) constant(w uint32) temp {
	for k := range movi {
		if w&^(0xff<<(8*k)) == 0 {
			return t.imm(movi[k], int64(w>>(8*k)))
		}
		if n := ^w; n&^(0xff<<(8*k)) == 0 {
			return t.imm(mvni[k], int64(n>>(8*k)))
		}
	}
	return t.vec(dupW, t.value(int64(w)))
}

// value gives a general register with a number.
func (t *translator) value(v int64) temp {
	d := t.newTemp(general)
	t.emit(inst{op: movImm, dst: []temp{d}, i: v})
	return d
}

// sharedConstant is constant, made once, at the start.
func (t *translator) sharedConstant(w uint32) temp {
	if _, ok := t.shared[w]; !ok {
		t.atStart(func() { t.shared[w] = t.constant(w) })
	}
	return t.shared[w]
}

// laneBits is a vector in which byte i of each eight has bit i set.
func (t *translator) laneBits() temp {
	const all = -0x7fbfdfeff7fbfdff // 0x8040201008040201
	if _, ok := t.bits[all]; !ok {
		t.atStart(func() { t.bits[all] = t.vec(dupX, t.value(all)) })
	}
	return t.bits[all]
}

func (t *translator) atStart(do func()) {
	code := t.code
	t.code = nil
	do()
	t.first = append(t.first, t.code...)
	t.code = code
}
