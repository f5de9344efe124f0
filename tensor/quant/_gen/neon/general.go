package neon

import (
	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// flags is what the conditional jump that follows looks at: a register that may
// be zero, or the condition flags of a subtraction.
type flags struct {
	set  bool
	zero []temp
	is32 bool
	left bool // the flags tell equal from unequal only
}

type generalFunc func(t *translator, in, next *ir.Instruction)

var generals map[string]generalFunc

func init() {
	generals = map[string]generalFunc{
		"MOVQ": move, "MOVL": move, "MOVW": move, "MOVB": move, "MOVBLZX": zeroExtend, "MOVWLZX": zeroExtend, "LEAQ": lea, "LEAL": lea, "VZEROUPPER": nothing,
		"ADDQ": arithmetic, "SUBQ": arithmetic, "DECQ": arithmetic, "INCQ": arithmetic, "XORQ": arithmetic, "SHLQ": arithmetic,
		"ADDL": arithmetic, "SUBL": arithmetic, "DECL": arithmetic, "INCL": arithmetic, "ANDL": arithmetic, "ORL": arithmetic,
		"XORL": arithmetic, "SHLL": arithmetic, "SHRL": arithmetic, "NOTL": complement,
		"TESTQ": test, "TESTL": test, "CMPL": compare, "CMPQ": compare, "BSFL": lowestBit, "TZCNTL": lowestBit, "POPCNTL": countBits,
		"RET": func(t *translator, in, next *ir.Instruction) { t.emit(inst{op: ret}) },
		"JMP": func(t *translator, in, next *ir.Instruction) { t.emit(inst{op: jmp, text: target(in)}) },
	}
	for name := range conditions {
		generals[name] = jumpIf
	}
}

func nothing(t *translator, in, next *ir.Instruction) {}

func target(in *ir.Instruction) string { return string(in.Operands[0].(operand.LabelRef)) }

// gen is the temp of a general register.
func (t *translator) gen(o operand.Op) temp {
	r, ok := o.(reg.Register)
	if !ok || r.Kind() != reg.KindGP {
		fail("%s is no general register", o.Asm())
	}
	n, ok := t.numbers[r.ID()]
	if !ok {
		n = t.newTemp(general)
		t.numbers[r.ID()] = n
	}
	return n
}

func isGen(o operand.Op) bool {
	r, ok := o.(reg.Register)
	return ok && r.Kind() == reg.KindGP
}

// address gives a register and a displacement from it.
func (t *translator) address(o operand.Op) (temp, int64) {
	m, ok := o.(operand.Mem)
	if !ok {
		fail("%s is no place in memory", o.Asm())
	}
	switch m.Base {
	case reg.FramePointer, reg.StackPointer:
		fail("the frame has no address")
	case reg.StaticBase:
		d := t.newTemp(general)
		t.emit(inst{op: movSym, dst: []temp{d}, text: m.Symbol.Name, i: int64(m.Disp)})
		return d, 0
	}
	base := t.gen(m.Base)
	if m.Index != nil {
		base = t.do(scaled[m.Scale], general, base, t.gen(m.Index))
	}
	return base, int64(m.Disp)
}

// exact is address without a displacement.
func (t *translator) exact(o operand.Op) temp {
	base, disp := t.address(o)
	if disp == 0 {
		return base
	}
	d := t.newTemp(general)
	t.emit(inst{op: addImm, dst: []temp{d}, src: []temp{base}, i: disp})
	return d
}

// argument gives the name of a parameter and its place.
func argument(o operand.Op) (name string, at int64, ok bool) {
	m, ok := o.(operand.Mem)
	if !ok || m.Base != reg.FramePointer {
		return "", 0, false
	}
	return m.Symbol.Name, int64(m.Disp), true
}

func move(t *translator, in, next *ir.Instruction) {
	from, to := in.Operands[0], in.Operands[1]
	v, isNumber := number(from)
	if isGen(to) {
		d := []temp{t.gen(to)}
		if isNumber {
			t.emit(inst{op: movImm, dst: d, i: v})
			return
		}
		if isGen(from) {
			o := movGen
			if in.Opcode != "MOVQ" {
				o = zero32
			}
			t.emit(inst{op: o, dst: d, src: []temp{t.gen(from)}})
			return
		}
		wide := map[string]int{"MOVQ": 0, "MOVL": 1}
		k, ok := wide[in.Opcode]
		if !ok {
			fail("cannot load this width")
		}
		if name, at, ok := argument(from); ok {
			t.emit(inst{op: [...]*op{load64Arg, load32Arg}[k], dst: d, text: name, i: at})
			return
		}
		base, disp := t.address(from)
		t.emit(inst{op: [...]*op{load64, load32}[k], dst: d, src: []temp{base}, i: disp})
		return
	}
	var s temp
	if isNumber {
		s = t.value(v)
	} else {
		s = t.gen(from)
	}
	if name, at, ok := argument(to); ok {
		o, ok := map[string]*op{"MOVB": store8Arg, "MOVL": store32Arg, "MOVQ": store64Arg}[in.Opcode]
		if !ok {
			fail("cannot give a result of this width")
		}
		t.emit(inst{op: o, src: []temp{s}, text: name, i: at})
		return
	}
	o, ok := map[string]*op{"MOVL": store32, "MOVW": store16, "MOVB": store8}[in.Opcode]
	if !ok {
		fail("cannot store this width")
	}
	base, disp := t.address(to)
	t.emit(inst{op: o, src: []temp{base, s}, i: disp})
}

func lea(t *translator, in, next *ir.Instruction) {
	d := t.gen(in.Operands[1])
	base, disp := t.address(in.Operands[0])
	o, w := addImm, addW
	if disp < 0 {
		o, w, disp = subImm, subW, -disp
	}
	if in.Opcode == "LEAL" {
		o = w
	} else if disp == 0 {
		o = movGen
	}
	t.emit(inst{op: o, dst: []temp{d}, src: []temp{base}, i: disp})
}

// looks reports whether the next instruction is a conditional jump. Nothing else
// reads the flags.
func looks(next *ir.Instruction) bool { return next != nil && next.IsConditional }

var (
	withRegister = map[string]*op{"ADDQ": add, "SUBQ": sub, "ADDL": addWW, "SUBL": subWW, "ORL": orW, "XORL": eorW, "ANDL": andWW, "SHLL": lslWW}
	withNumber   = map[string]*op{"ADDQ": addImm, "INCQ": addImm, "SUBQ": subImm, "DECQ": subImm, "ADDL": addW, "INCL": addW, "SUBL": subW, "DECL": subW, "ANDL": andW, "XORL": eorImm, "SHLL": lslW, "SHLQ": lslX, "SHRL": lsrW}
)

func arithmetic(t *translator, in, next *ir.Instruction) {
	d := t.gen(in.Operands[len(in.Operands)-1])
	v, isNumber := number(in.Operands[0])
	switch in.Opcode {
	case "DECQ", "DECL", "INCQ", "INCL":
		v, isNumber = 1, true
	}
	if !isNumber {
		var s temp
		if name, at, ok := argument(in.Operands[0]); ok && in.Opcode[3:] == "Q" {
			s = t.newTemp(general)
			t.emit(inst{op: load64Arg, dst: []temp{s}, text: name, i: at})
		} else {
			s = t.gen(in.Operands[0])
		}
		o := withRegister[in.Opcode]
		if t.isLanes(in.Operands[0]) {
			o = or // of eight bytes; nothing else takes lanes
		}
		if in.Opcode[:3] == "XOR" && s == d {
			t.emit(inst{op: movImm, dst: []temp{d}})
			return
		}
		if o == nil || looks(next) {
			fail("no translation with a register")
		}
		t.emit(inst{op: o, dst: []temp{d}, src: []temp{d, s}})
		return
	}
	o := withNumber[in.Opcode]
	if looks(next) {
		o = map[*op]*op{subImm: subsImm, subW: subsImmW}[o]
		t.flags = flags{set: true, left: true}
	}
	if o == nil {
		fail("no translation with a number")
	}
	t.emit(inst{op: o, dst: []temp{d}, src: []temp{d}, i: v})
}

func zeroExtend(t *translator, in, next *ir.Instruction) {
	from, d := in.Operands[0], []temp{t.gen(in.Operands[1])}
	k := 0
	if in.Opcode == "MOVWLZX" {
		k = 1
	}
	if isGen(from) {
		t.emit(inst{op: [...]*op{zero8, zero16}[k], dst: d, src: []temp{t.gen(from)}})
		return
	}
	base, disp := t.address(from)
	t.emit(inst{op: [...]*op{load8, load16}[k], dst: d, src: []temp{base}, i: disp})
}

func complement(t *translator, in, next *ir.Instruction) {
	d := t.gen(in.Operands[0])
	t.emit(inst{op: mvnW, dst: []temp{d}, src: []temp{d}})
}

func test(t *translator, in, next *ir.Instruction) {
	if !looks(next) {
		fail("no jump follows")
	}
	b := t.gen(in.Operands[1])
	if v, ok := number(in.Operands[0]); ok && in.Opcode == "TESTL" {
		t.emit(inst{op: tstW, src: []temp{b}, i: v})
		t.flags = flags{set: true, left: true}
		return
	}
	if t.gen(in.Operands[0]) != b {
		fail("not a test for zero")
	}
	t.flags = flags{set: true, zero: []temp{b}, is32: in.Opcode == "TESTL" && !t.isLanes(in.Operands[0])}
}

func compare(t *translator, in, next *ir.Instruction) {
	if !looks(next) {
		fail("no jump follows")
	}
	s := t.gen(in.Operands[0])
	t.flags = flags{set: true}
	v, ok := number(in.Operands[1])
	switch {
	case t.isLanes(in.Operands[0]): // all of them, see keepsLanes
		t.emit(inst{op: cmnOne, src: []temp{s}})
		t.flags.left = true
	case ok && in.Opcode == "CMPL":
		t.emit(inst{op: cmpW, src: []temp{s}, i: v})
	case ok:
		t.emit(inst{op: cmpImm, src: []temp{s}, i: v})
	case in.Opcode == "CMPQ":
		t.emit(inst{op: cmp, src: []temp{s, t.gen(in.Operands[1])}})
	default:
		fail("no translation")
	}
}

func jumpIf(t *translator, in, next *ir.Instruction) {
	f := t.flags
	t.flags = flags{}
	o := conditions[in.Opcode]
	equal := o.form == conditions["JZ"].form
	if !f.set || (f.left || f.zero != nil) && !equal && o.form != conditions["JNZ"].form {
		fail("not after the flags that it looks at")
	}
	if f.zero != nil {
		k := 0
		if f.is32 {
			k = 1
		}
		o = cbnz[k]
		if equal {
			o = cbz[k]
		}
	}
	t.emit(inst{op: o, src: f.zero, text: target(in)})
}

// lowestBit gives 32 for zero, as TZCNT does; BSF gives nothing then.
func lowestBit(t *translator, in, next *ir.Instruction) {
	r := t.do(rbitW, general, t.gen(in.Operands[0]))
	t.emit(inst{op: clzW, dst: []temp{t.gen(in.Operands[1])}, src: []temp{r}})
}
