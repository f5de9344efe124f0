package neon

// plain is an instruction in the assembler's syntax.
func plain(form string) *op { return &op{form: form} }

// effect is an instruction that stores, or sets the condition flags.
func effect(form string) *op { return &op{form: form, effect: true} }

// branch is a conditional jump.
func branch(form string) *op { return &op{form: form, jump: true} }

// Names that end in W are of 32-bit instructions, which clear the upper half.
var (
	label = &op{form: "{t}:", isLabel: true}
	ret   = &op{form: "RET", ends: true}
	jmp   = &op{form: "JMP {t}", jump: true, ends: true}

	movGen = &op{form: "MOVD {s0}, {d0}", move: true}
	movImm = plain("MOVD ${i}, {d0}")
	movSym = plain("MOVD ${t}<>+{i}(SB), {d0}")
	zero32 = plain("MOVWU {s0}, {d0}")
	add    = plain("ADD {s1}, {s0}, {d0}")
	addImm = plain("ADD ${i}, {s0}, {d0}")
	subImm = plain("SUB ${i}, {s0}, {d0}")
	sub    = plain("SUB {s1}, {s0}, {d0}")
	addW   = plain("ADDW ${i}, {s0}, {d0}")
	subW   = plain("SUBW ${i}, {s0}, {d0}")
	subWW  = plain("SUBW {s1}, {s0}, {d0}")
	andW   = plain("ANDW ${i}, {s0}, {d0}")
	or     = plain("ORR {s1}, {s0}, {d0}")
	orW    = plain("ORRW {s1}, {s0}, {d0}")
	eorW   = plain("EORW {s1}, {s0}, {d0}")
	eorImm = plain("EORW ${i}, {s0}, {d0}")
	andWW  = plain("ANDW {s1}, {s0}, {d0}")
	addWW  = plain("ADDW {s1}, {s0}, {d0}")
	lslW   = plain("LSLW ${i}, {s0}, {d0}")
	lslX   = plain("LSL ${i}, {s0}, {d0}")
	lslWW  = plain("LSLW {s1}, {s0}, {d0}")
	lsrW   = plain("LSRW ${i}, {s0}, {d0}")
	zero8  = plain("MOVBU {s0}, {d0}")
	zero16 = plain("MOVHU {s0}, {d0}")
	mvnW   = plain("MVNW {s0}, {d0}")
	rbitW  = plain("RBITW {s0}, {d0}")
	clzW   = plain("CLZW {s0}, {d0}")
	scaled = [9]*op{1: plain("ADD {s1}, {s0}, {d0}"), 2: plain("ADD {s1}<<1, {s0}, {d0}"), 4: plain("ADD {s1}<<2, {s0}, {d0}"), 8: plain("ADD {s1}<<3, {s0}, {d0}")}

	subsImm  = effect("SUBS ${i}, {s0}, {d0}")
	cmpW     = effect("CMPW ${i}, {s0}")
	subsImmW = effect("SUBSW ${i}, {s0}, {d0}")
	cmp      = effect("CMP {s1}, {s0}")
	cmpImm   = effect("CMP ${i}, {s0}")
	tstW     = effect("TSTW ${i}, {s0}")
	cmnOne   = effect("CMN $1, {s0}")
	cbz      = [2]*op{branch("CBZ {s0}, {t}"), branch("CBZW {s0}, {t}")}
	cbnz     = [2]*op{branch("CBNZ {s0}, {t}"), branch("CBNZW {s0}, {t}")}

	load64     = plain("MOVD {i}({s0}), {d0}")
	load32     = plain("MOVWU {i}({s0}), {d0}")
	load16     = plain("MOVHU {i}({s0}), {d0}")
	load8      = plain("MOVBU {i}({s0}), {d0}")
	load64Arg  = plain("MOVD {t}+{i}(FP), {d0}")
	load32Arg  = plain("MOVWU {t}+{i}(FP), {d0}")
	loadFArg   = plain("FMOVS {t}+{i}(FP), F{d0}")
	loadF      = plain("FMOVS {i}({s0}), F{d0}")
	loadQ      = plain("FMOVQ {i}({s0}), F{d0}")
	loadPair   = plain("FLDPQ {i}({s0}), (F{d0}, F{d1})")
	loadSlot   = plain("FMOVQ {slot}(SP), F{d0}")
	storeSlot  = effect("FMOVQ F{s0}, {slot}(SP)")
	loadEach   = plain("VLD1R ({s0}), [V{d0}.S4]")
	store32    = effect("MOVW {s1}, {i}({s0})")
	store16    = effect("MOVH {s1}, {i}({s0})")
	store8     = effect("MOVB {s1}, {i}({s0})")
	storeF     = effect("FMOVS F{s1}, {i}({s0})")
	store8Arg  = effect("MOVB {s0}, {t}+{i}(FP)")
	store32Arg = effect("MOVW {s0}, {t}+{i}(FP)")
	store64Arg = effect("MOVD {s0}, {t}+{i}(FP)")
	storeQ     = effect("FMOVQ F{s1}, {i}({s0})")
	storePair  = effect("FSTPQ (F{s1}, F{s2}), {i}({s0})")
	conditions = map[string]*op{
		"JZ":  branch("BEQ {t}"),
		"JE":  branch("BEQ {t}"),
		"JNZ": branch("BNE {t}"),
		"JNE": branch("BNE {t}"),
		"JBE": branch("BLS {t}"),
		"JAE": branch("BHS {t}"),
		"JB":  branch("BLO {t}"),
		"JA":  branch("BHI {t}"),
		"JLE": branch("BLE {t}"),
		"JL":  branch("BLT {t}"),
		"JLT": branch("BLT {t}"),
		"JGE": branch("BGE {t}"),
		"JG":  branch("BGT {t}"),
	}
)
