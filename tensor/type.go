package tensor

import (
	"fmt"
	"strings"
)

// Type is the storage type of a tensor's values: how a row of numbers is laid
// out in bytes. The zero Type is invalid.
type Type uint16

// Scalar types come from safetensors and NumPy, block types from ggml v0.5.0
// (llama.cpp) unless the comment says otherwise.
const (
	Invalid Type = iota
	F64
	F32
	F16
	BF16
	F8E4M3 // 1-4-3 float without infinities (safetensors F8_E4M3)
	F8E5M2 // 1-5-2 float (safetensors F8_E5M2)
	I64
	I32
	I16
	I8
	U64
	U32
	U16
	U8
	Bool

	Q1_0
	Q2_0
	Q4_0
	Q4_1
	Q5_0
	Q5_1
	Q8_0
	Q2_K
	Q3_K
	Q4_K
	Q5_K
	Q6_K
	TQ1_0
	TQ2_0
	IQ1_S
	IQ1_M
	IQ2_XXS
	IQ2_XS
	IQ2_S
	IQ3_XXS
	IQ3_S
	IQ4_NL
	IQ4_XS
	MXFP4
	NVFP4

	// KMCUQ4 is the 4-bit block of the KMCU container: 32 values, fp16 scale,
	// low nibble the even element. It is not ggml's Q4_0.
	KMCUQ4

	// CQ4 to CQ1 are the packed codebook indices of .cact archives, without the
	// norms that their groups have beside them: package cq.
	CQ4
	CQ3
	CQ2
	CQ1_58
	CQ1
)

// typeRow describes one Type. Block is the number of values that share a
// scale and never cross a row; Bytes is the size of one block.
type typeRow struct {
	name  string
	block int64
	bytes int64
	ggml  int32 // ggml_type id, -1 when ggml has none
	st    string
}

// typeTable is the only place that knows sizes. A test ties each row of a
// block type to the bytes its encoder emits.
var typeTable = [...]typeRow{
	Invalid: {"invalid", 0, 0, -1, ""},
	F64:     {"F64", 1, 8, 28, "F64"},
	F32:     {"F32", 1, 4, 0, "F32"},
	F16:     {"F16", 1, 2, 1, "F16"},
	BF16:    {"BF16", 1, 2, 30, "BF16"},
	F8E4M3:  {"F8_E4M3", 1, 1, -1, "F8_E4M3"},
	F8E5M2:  {"F8_E5M2", 1, 1, -1, "F8_E5M2"},
	I64:     {"I64", 1, 8, 27, "I64"},
	I32:     {"I32", 1, 4, 26, "I32"},
	I16:     {"I16", 1, 2, 25, "I16"},
	I8:      {"I8", 1, 1, 24, "I8"},
	U64:     {"U64", 1, 8, -1, "U64"},
	U32:     {"U32", 1, 4, -1, "U32"},
	U16:     {"U16", 1, 2, -1, "U16"},
	U8:      {"U8", 1, 1, -1, "U8"},
	Bool:    {"BOOL", 1, 1, -1, "BOOL"},

	Q1_0:    {"Q1_0", 128, 18, 41, ""},
	Q2_0:    {"Q2_0", 64, 18, 42, ""},
	Q4_0:    {"Q4_0", 32, 18, 2, ""},
	Q4_1:    {"Q4_1", 32, 20, 3, ""},
	Q5_0:    {"Q5_0", 32, 22, 6, ""},
	Q5_1:    {"Q5_1", 32, 24, 7, ""},
	Q8_0:    {"Q8_0", 32, 34, 8, ""},
	Q2_K:    {"Q2_K", 256, 84, 10, ""},
	Q3_K:    {"Q3_K", 256, 110, 11, ""},
	Q4_K:    {"Q4_K", 256, 144, 12, ""},
	Q5_K:    {"Q5_K", 256, 176, 13, ""},
	Q6_K:    {"Q6_K", 256, 210, 14, ""},
	TQ1_0:   {"TQ1_0", 256, 54, 34, ""},
	TQ2_0:   {"TQ2_0", 256, 66, 35, ""},
	IQ1_S:   {"IQ1_S", 256, 50, 19, ""},
	IQ1_M:   {"IQ1_M", 256, 56, 29, ""},
	IQ2_XXS: {"IQ2_XXS", 256, 66, 16, ""},
	IQ2_XS:  {"IQ2_XS", 256, 74, 17, ""},
	IQ2_S:   {"IQ2_S", 256, 82, 22, ""},
	IQ3_XXS: {"IQ3_XXS", 256, 98, 18, ""},
	IQ3_S:   {"IQ3_S", 256, 110, 21, ""},
	IQ4_NL:  {"IQ4_NL", 32, 18, 20, ""},
	IQ4_XS:  {"IQ4_XS", 256, 136, 23, ""},
	MXFP4:   {"MXFP4", 32, 17, 39, ""},
	NVFP4:   {"NVFP4", 64, 36, 40, ""},

	KMCUQ4: {"KMCU_Q4", 32, 18, -1, ""},

	CQ4:    {"CQ4", 2, 1, -1, ""},
	CQ3:    {"CQ3", 8, 3, -1, ""},
	CQ2:    {"CQ2", 4, 1, -1, ""},
	CQ1_58: {"CQ1.58", 4, 1, -1, ""},
	CQ1:    {"CQ1", 8, 1, -1, ""},
}

// Types lists every valid type in table order.
func Types() []Type {
	out := make([]Type, 0, len(typeTable)-1)
	for t := Invalid + 1; int(t) < len(typeTable); t++ {
		out = append(out, t)
	}
	return out
}

// Valid reports whether t is a row of the type table.
func (t Type) Valid() bool { return t > Invalid && int(t) < len(typeTable) }

func (t Type) row() typeRow {
	if int(t) < len(typeTable) {
		return typeTable[t]
	}
	return typeTable[Invalid]
}

// String gives the type's name as recipes, reports and ggml write it.
func (t Type) String() string {
	if !t.Valid() {
		return fmt.Sprintf("Type(%d)", uint16(t))
	}
	return typeTable[t].name
}

// BlockValues is the number of values in one block, 1 for scalar types.
func (t Type) BlockValues() int64 { return t.row().block }

// BlockBytes is the size of one block in bytes.
func (t Type) BlockBytes() int64 { return t.row().bytes }

// IsFloat reports whether t stores IEEE-like floats of 16 bits or more, the
// types that stages compute on.
func (t Type) IsFloat() bool { return t == F64 || t == F32 || t == F16 || t == BF16 }

// IsBlock reports whether values of t share scales in blocks.
func (t Type) IsBlock() bool { return t.row().block > 1 }

// GGML gives the ggml_type id, or false when ggml has no such type.
func (t Type) GGML() (int32, bool) {
	if r := t.row(); r.ggml >= 0 {
		return r.ggml, true
	}
	return 0, false
}

// Safetensors gives the safetensors dtype string, or false.
func (t Type) Safetensors() (string, bool) {
	r := t.row()
	return r.st, r.st != ""
}

// FromGGML maps a ggml_type id to a Type.
func FromGGML(id int32) (Type, bool) {
	if id < 0 {
		return Invalid, false
	}
	for t := range typeTable {
		if typeTable[t].ggml == id && typeTable[t].block > 0 {
			return Type(t), true
		}
	}
	return Invalid, false
}

// FromSafetensors maps a safetensors dtype string to a Type.
func FromSafetensors(s string) (Type, bool) {
	if s == "" {
		return Invalid, false
	}
	for t := range typeTable {
		if typeTable[t].st == s {
			return Type(t), true
		}
	}
	return Invalid, false
}

// ParseType reads a type name without regard to letter case.
func ParseType(s string) (Type, error) {
	for t := range typeTable {
		if t > 0 && strings.EqualFold(typeTable[t].name, s) {
			return Type(t), nil
		}
	}
	return Invalid, fmt.Errorf("%w %q", ErrUnknownType, s)
}
