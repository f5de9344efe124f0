package neon

import (
	"fmt"
	"strings"
)

// An op is one instruction. Vector arithmetic has a word: the Go assembler knows
// few of these instructions, so all are written as words, with the form beside
// them. D, N and M in a form stand for the numbers of registers, P for the one
// after N, and I for the immediate; a word has them at bits 0, 5 and 16. Other
// instructions have a form in the assembler's own syntax: {d0} and {d1} are
// registers written, {s0} to {s2} registers read, {i} is the immediate and {t} the
// text, a symbol or a label.
type op struct {
	form string
	word uint32
	imm  func(int64) uint32 // the immediate's place in a word

	tied    bool // the register written is also read, as the first source
	effect  bool // does more than write registers
	jump    bool // goes to the label in the text
	ends    bool // what follows is reached by jumps only
	move    bool // copies S0 to D0
	isLabel bool
}

func shiftLeft(bits int64) func(int64) uint32 {
	return func(i int64) uint32 { return uint32(bits+i) << 16 }
}

func shiftRight(bits int64) func(int64) uint32 {
	return func(i int64) uint32 { return uint32(2*bits-i) << 16 }
}

// byteImm is the immediate of MOVI and MVNI: three bits at 16, five at 5.
func byteImm(i int64) uint32 { return uint32(i)>>5<<16 | uint32(i)&31<<5 }

// words are all instructions with a word.
var words []*op

func ternary(form string, word uint32) *op { return immediate(form, word, nil) }

func tied(form string, word uint32) *op {
	o := ternary(form, word)
	o.tied = true
	return o
}

func immediate(form string, word uint32, imm func(int64) uint32) *op {
	o := &op{form: form, word: word, imm: imm}
	words = append(words, o)
	return o
}

// The vector instructions, in the syntax of GNU's disassembler.
var (
	fadd   = ternary("fadd vD.4s, vN.4s, vM.4s", 0x4e20d400)
	fsub   = ternary("fsub vD.4s, vN.4s, vM.4s", 0x4ea0d400)
	fmul   = ternary("fmul vD.4s, vN.4s, vM.4s", 0x6e20dc00)
	fdiv   = ternary("fdiv vD.4s, vN.4s, vM.4s", 0x6e20fc00)
	fsqrt  = ternary("fsqrt vD.4s, vN.4s", 0x6ea1f800)
	fdivS  = ternary("fdiv sD, sN, sM", 0x1e201800)
	fmulS  = ternary("fmul sD, sN, sM", 0x1e200800)
	fcmeq  = ternary("fcmeq vD.4s, vN.4s, vM.4s", 0x4e20e400)
	fcmgt  = ternary("fcmgt vD.4s, vN.4s, vM.4s", 0x6ea0e400)
	fmaxnm = ternary("fmaxnm vD.4s, vN.4s, vM.4s", 0x4e20c400)
	fminnm = ternary("fminnm vD.4s, vN.4s, vM.4s", 0x4ea0c400)
	fcmge  = ternary("fcmge vD.4s, vN.4s, vM.4s", 0x6e20e400)
	frintn = ternary("frintn vD.4s, vN.4s", 0x4e218800)
	fcvtzs = ternary("fcvtzs vD.4s, vN.4s", 0x4ea1b800)
	fcvtns = ternary("fcvtns vD.4s, vN.4s", 0x4e21a800)
	fcvtn  = ternary("fcvtn vD.4h, vN.4s", 0x0e216800)
	fcvtn2 = tied("fcvtn2 vD.8h, vN.4s", 0x4e216800)
	fcvtl  = ternary("fcvtl vD.4s, vN.4h", 0x0e217800)
	fcvtl2 = ternary("fcvtl2 vD.4s, vN.8h", 0x4e217800)

	add4s    = ternary("add vD.4s, vN.4s, vM.4s", 0x4ea08400)
	add16b   = ternary("add vD.16b, vN.16b, vM.16b", 0x4e208400)
	sub4s    = ternary("sub vD.4s, vN.4s, vM.4s", 0x6ea08400)
	mul4s    = ternary("mul vD.4s, vN.4s, vM.4s", 0x4ea09c00)
	mul8h    = ternary("mul vD.8h, vN.8h, vM.8h", 0x4e609c00)
	cmeq4s   = ternary("cmeq vD.4s, vN.4s, vM.4s", 0x6ea08c00)
	cmgt4s   = ternary("cmgt vD.4s, vN.4s, vM.4s", 0x4ea03400)
	smax4s   = ternary("smax vD.4s, vN.4s, vM.4s", 0x4ea06400)
	smin4s   = ternary("smin vD.4s, vN.4s, vM.4s", 0x4ea06c00)
	smax16b  = ternary("smax vD.16b, vN.16b, vM.16b", 0x4e206400)
	smin16b  = ternary("smin vD.16b, vN.16b, vM.16b", 0x4e206c00)
	umin16b  = ternary("umin vD.16b, vN.16b, vM.16b", 0x6e206c00)
	addp16b  = ternary("addp vD.16b, vN.16b, vM.16b", 0x4e20bc00)
	addp4s   = ternary("addp vD.4s, vN.4s, vM.4s", 0x4ea0bc00)
	smull4s  = ternary("smull vD.4s, vN.4h, vM.4h", 0x0e60c000)
	smullHi  = ternary("smull2 vD.4s, vN.8h, vM.8h", 0x4e60c000)
	addv8b   = ternary("addv bD, vN.8b", 0x0e31b800)
	cnt8b    = ternary("cnt vD.8b, vN.8b", 0x0e205800)
	saddlp8h = ternary("saddlp vD.4s, vN.8h", 0x4e602800)

	// Less than zero, so all of an element takes its sign.
	signs4s  = ternary("cmlt vD.4s, vN.4s, #0", 0x4ea0a800)
	signs8h  = ternary("cmlt vD.8h, vN.8h, #0", 0x4e60a800)
	signs16b = ternary("cmlt vD.16b, vN.16b, #0", 0x4e20a800)

	and = ternary("and vD.16b, vN.16b, vM.16b", 0x4e201c00)
	bic = ternary("bic vD.16b, vN.16b, vM.16b", 0x4e601c00)
	orr = ternary("orr vD.16b, vN.16b, vM.16b", 0x4ea01c00)
	eor = ternary("eor vD.16b, vN.16b, vM.16b", 0x6e201c00)
	mvn = ternary("mvn vD.16b, vN.16b", 0x6e205800)
	bit = tied("bit vD.16b, vN.16b, vM.16b", 0x6ea01c00) // D = M ? N : D
	bif = tied("bif vD.16b, vN.16b, vM.16b", 0x6ee01c00) // D = M ? D : N
	bsl = tied("bsl vD.16b, vN.16b, vM.16b", 0x6e601c00) // D = D ? N : M

	sqxtn4h   = ternary("sqxtn vD.4h, vN.4s", 0x0e614800)
	sqxtn8h   = tied("sqxtn2 vD.8h, vN.4s", 0x4e614800)
	sqxtn8b   = ternary("sqxtn vD.8b, vN.8h", 0x0e214800)
	sqxtn16b  = tied("sqxtn2 vD.16b, vN.8h", 0x4e214800)
	sqxtun4h  = ternary("sqxtun vD.4h, vN.4s", 0x2e612800)
	sqxtun8h  = tied("sqxtun2 vD.8h, vN.4s", 0x6e612800)
	sqxtun8b  = ternary("sqxtun vD.8b, vN.8h", 0x2e212800)
	sqxtun16b = tied("sqxtun2 vD.16b, vN.8h", 0x6e212800)
	xtn8b     = ternary("xtn vD.8b, vN.8h", 0x0e212800)
	uxtl8h    = ternary("uxtl vD.8h, vN.8b", 0x2f08a400)
	uxtl8hHi  = ternary("uxtl2 vD.8h, vN.16b", 0x6f08a400)
	uxtl4s    = ternary("uxtl vD.4s, vN.4h", 0x2f10a400)
	uxtl4sHi  = ternary("uxtl2 vD.4s, vN.8h", 0x6f10a400)
	sxtl8h    = ternary("sxtl vD.8h, vN.8b", 0x0f08a400)
	sxtl8hHi  = ternary("sxtl2 vD.8h, vN.16b", 0x4f08a400)

	zip1s   = ternary("zip1 vD.4s, vN.4s, vM.4s", 0x4e803800)
	zip2s   = ternary("zip2 vD.4s, vN.4s, vM.4s", 0x4e807800)
	zip1d   = ternary("zip1 vD.2d, vN.2d, vM.2d", 0x4ec03800)
	zip2d   = ternary("zip2 vD.2d, vN.2d, vM.2d", 0x4ec07800)
	uzp2h   = ternary("uzp2 vD.8h, vN.8h, vM.8h", 0x4e405800)
	rev64s  = ternary("rev64 vD.4s, vN.4s", 0x4ea00800)
	ext8    = ternary("ext vD.16b, vN.16b, vM.16b, #8", 0x6e004000|8<<11)
	dupS    = ternary("dup vD.4s, vN.s[0]", 0x4e040400)
	dupW    = ternary("dup vD.4s, wN", 0x4e040c00)
	dupX    = ternary("dup vD.2d, xN", 0x4e080c00)
	insS    = tied("mov vD.s[0], vN.s[0]", 0x6e040400)
	tbl2    = ternary("tbl vD.16b, {vN.16b, vP.16b}, vM.16b", 0x4e002000) // P = N + 1
	tbl1    = ternary("tbl vD.16b, {vN.16b}, vM.16b", 0x4e000000)
	toX     = ternary("fmov xD, dN", 0x9e660000)
	toW     = ternary("fmov wD, sN", 0x1e260000)
	fromW   = ternary("fmov sD, wN", 0x1e270000) // zero above
	toH     = ternary("umov wD, vN.h[0]", 0x0e023c00)
	moveVec = ternary("mov vD.16b, vN.16b", 0x4ea01c00)

	shl4s  = immediate("shl vD.4s, vN.4s, #I", 0x4f005400, shiftLeft(32))
	shl8h  = immediate("shl vD.8h, vN.8h, #I", 0x4f005400, shiftLeft(16))
	sshr4s = immediate("sshr vD.4s, vN.4s, #I", 0x4f000400, shiftRight(32))
	toWord = immediate("mov wD, vN.s[I]", 0x0e043c00, func(i int64) uint32 { return uint32(i) << 19 })
	ushr4s = immediate("ushr vD.4s, vN.4s, #I", 0x6f000400, shiftRight(32))

	movi = [4]*op{
		immediate("movi vD.4s, #I", 0x4f000400, byteImm),
		immediate("movi vD.4s, #I, lsl #8", 0x4f002400, byteImm),
		immediate("movi vD.4s, #I, lsl #16", 0x4f004400, byteImm),
		immediate("movi vD.4s, #I, lsl #24", 0x4f006400, byteImm),
	}
	mvni = [4]*op{
		immediate("mvni vD.4s, #I", 0x6f000400, byteImm),
		immediate("mvni vD.4s, #I, lsl #8", 0x6f002400, byteImm),
		immediate("mvni vD.4s, #I, lsl #16", 0x6f004400, byteImm),
		immediate("mvni vD.4s, #I, lsl #24", 0x6f006400, byteImm),
	}
)

// encode gives the word of an instruction and what it says. The registers are
// numbers; a tied register comes once.
func (o *op) encode(d int, src []int, imm int64) (uint32, string) {
	word := o.word | uint32(d)
	var pairs []string
	name := func(letter string, n int) {
		for _, file := range "vbswxd" {
			pairs = append(pairs, string(file)+letter, fmt.Sprintf("%c%d", file, n))
		}
	}
	name("D", d)
	if len(src) > 0 {
		word |= uint32(src[0]) << 5
		name("N", src[0])
		name("P", src[0]+1)
	}
	if len(src) > 1 {
		word |= uint32(src[1]) << 16
		name("M", src[1])
	}
	if o.imm != nil {
		word |= o.imm(imm)
		pairs = append(pairs, "[I]", fmt.Sprintf("[%d]", imm))
		text := fmt.Sprintf("#%d", imm)
		if strings.HasPrefix(o.form, "m") { // MOVI and MVNI show their bits
			text = fmt.Sprintf("#%#x", imm)
		}
		pairs = append(pairs, "#I", text)
	}
	if o.move { // is ORR of a register with itself
		word |= uint32(src[0]) << 16
	}
	return word, strings.NewReplacer(pairs...).Replace(o.form)
}

func init() { moveVec.move = true }
