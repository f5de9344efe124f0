package quant

import "quern/tensor"

// f16Fields lists, by type, the offsets of a block's F16 scales. They are what
// llama.cpp checks when it loads or writes a file.
var f16Fields = [...][]int{
	tensor.F16:     {0},
	tensor.Q1_0:    {0},
	tensor.Q2_0:    {0},
	tensor.Q4_0:    {0},
	tensor.Q4_1:    {0, 2},
	tensor.Q5_0:    {0},
	tensor.Q5_1:    {0, 2},
	tensor.Q8_0:    {0},
	tensor.Q2_K:    {80, 82},
	tensor.Q3_K:    {108},
	tensor.Q4_K:    {0, 2},
	tensor.Q5_K:    {0, 2},
	tensor.Q6_K:    {208},
	tensor.TQ1_0:   {52},
	tensor.TQ2_0:   {64},
	tensor.IQ1_S:   {0},
	tensor.IQ2_XXS: {0},
	tensor.IQ2_XS:  {0},
	tensor.IQ2_S:   {0},
	tensor.IQ3_XXS: {0},
	tensor.IQ3_S:   {0},
	tensor.IQ4_NL:  {0},
	tensor.IQ4_XS:  {0},
	tensor.KMCUQ4:  {0},
}

// FirstBadBlock gives the index of the first block in data whose scale is Inf
// or NaN (of a scalar type: the first such value), or -1. A block that was
// encoded from finite values is bad when its scale overflowed. Types without
// such values (integers, NVFP4) have no bad blocks.
func FirstBadBlock(t tensor.Type, data []byte) int64 {
	size := int(t.BlockBytes())
	if size == 0 {
		return -1
	}
	bad := func(b []byte) bool { return false }
	switch t {
	case tensor.F64:
		bad = func(b []byte) bool { return b[7]&0x7f == 0x7f && b[6] >= 0xf0 }
	case tensor.F32:
		bad = func(b []byte) bool { return b[3]&0x7f == 0x7f && b[2] >= 0x80 }
	case tensor.BF16:
		bad = func(b []byte) bool { return b[1]&0x7f == 0x7f && b[0] >= 0x80 }
	case tensor.F8E4M3:
		bad = func(b []byte) bool { return b[0]&0x7f == 0x7f }
	case tensor.F8E5M2:
		bad = func(b []byte) bool { return b[0]&0x7c == 0x7c }
	case tensor.MXFP4:
		bad = func(b []byte) bool { return b[0] == 0xff }
	case tensor.IQ1_M:
		// The scale is spread over the top nibbles of four words; its
		// exponent's are in the last two.
		bad = func(b []byte) bool { return b[55]&0x70 == 0x70 && b[53]&0xc0 == 0xc0 }
	default:
		if int(t) >= len(f16Fields) || f16Fields[t] == nil {
			return -1
		}
		return firstBadHalf(data, size, f16Fields[t])
	}
	for i := int64(0); len(data) >= size; i, data = i+1, data[size:] {
		if bad(data[:size]) {
			return i
		}
	}
	return -1
}

// firstBadHalf looks at the exponents of F16 fields in blocks of size bytes.
func firstBadHalf(data []byte, size int, fields []int) int64 {
	first := int64(-1)
	end := len(data) - len(data)%size
	for _, f := range fields {
		// Only the byte that holds the exponent is looked at.
		for i := f + 1; i < end; i += size {
			if data[i]&0x7c == 0x7c {
				first, end = int64(i/size), i
				break
			}
		}
	}
	return first
}
