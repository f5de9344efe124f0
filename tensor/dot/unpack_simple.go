package dot

import (
	"encoding/binary"

	"quern/tensor/quant"
)

// Unpacking of the types with units of 32 values. The layouts are drawn in
// package quant, one file a type.

// f16 reads a scale.
func f16(b []byte) float32 { return quant.FromF16(binary.LittleEndian.Uint16(b)) }

// nibbles writes the low nibbles of 16 bytes, then the high ones, through a
// table.
func nibbles(dst, src []byte, table *[16]byte) {
	dst, src = dst[:32], src[:16]
	for j, b := range src {
		dst[j], dst[j+16] = table[b&15], table[b>>4]
	}
}

// bytes16 makes a table of codes with a bias.
func bytes16(bias int, v ...int) *[16]byte {
	var t [16]byte
	for i := range t {
		t[i] = byte(v[i] + bias)
	}
	return &t
}

var (
	plainCodes = bytes16(0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
	q4Codes    = bytes16(8, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15) // q-8+16
	iq4Codes   = bytes16(0, -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
	fp4Codes   = bytes16(0, 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)
	mxfp4Codes = bytes16(16, 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)
)

func unpackQ4_0(t *tile, i int, src []byte) {
	for u := 0; len(src) >= 18; u, src = u+1, src[18:] {
		t.d[u*lanes+i] = f16(src)
		nibbles(t.row(i, 32*u), src[2:], q4Codes)
	}
}

func unpackKMCUQ4(t *tile, i int, src []byte) {
	for u := 0; len(src) >= 18; u, src = u+1, src[18:] {
		t.d[u*lanes+i] = f16(src)
		out := t.row(i, 32*u)
		for j, b := range src[2:18] {
			out[2*j], out[2*j+1] = q4Codes[b&15], q4Codes[b>>4]
		}
	}
}

func unpackQ4_1(t *tile, i int, src []byte) {
	for u := 0; len(src) >= 20; u, src = u+1, src[20:] {
		t.d[u*lanes+i], t.m[u*lanes+i] = f16(src), f16(src[2:])
		nibbles(t.row(i, 32*u), src[4:], plainCodes)
	}
}

// fives writes 32 codes of 5 bits: a word of high bits, then nibbles.
func fives(dst, src []byte) {
	nibbles(dst, src[4:], plainCodes)
	high := binary.LittleEndian.Uint32(src)
	for j := range dst[:32] {
		dst[j] |= byte(high>>j&1) << 4
	}
}

func unpackQ5_0(t *tile, i int, src []byte) {
	for u := 0; len(src) >= 22; u, src = u+1, src[22:] {
		t.d[u*lanes+i] = f16(src)
		fives(t.row(i, 32*u), src[2:])
	}
}

func unpackQ5_1(t *tile, i int, src []byte) {
	for u := 0; len(src) >= 24; u, src = u+1, src[24:] {
		t.d[u*lanes+i], t.m[u*lanes+i] = f16(src), f16(src[2:])
		fives(t.row(i, 32*u), src[4:])
	}
}

func unpackQ8_0(t *tile, i int, src []byte) {
	for u := 0; len(src) >= 34; u, src = u+1, src[34:] {
		t.d[u*lanes+i] = f16(src)
		copy(t.row(i, 32*u), src[2:34])
	}
}

func unpackIQ4_NL(t *tile, i int, src []byte) {
	for u := 0; len(src) >= 18; u, src = u+1, src[18:] {
		t.d[u*lanes+i] = f16(src)
		nibbles(t.row(i, 32*u), src[2:], iq4Codes)
	}
}

func unpackMXFP4(t *tile, i int, src []byte) {
	for u := 0; len(src) >= 17; u, src = u+1, src[17:] {
		t.d[u*lanes+i] = quant.HalfE8M0(src[0])
		nibbles(t.row(i, 32*u), src[1:], mxfp4Codes)
	}
}

func unpackNVFP4(t *tile, i int, src []byte) {
	for u := 0; len(src) >= 36; u, src = u+2, src[36:] {
		for h := range 2 {
			at := (u+h)*lanes + i
			t.d[at], t.m[at] = quant.HalfUE4M3(src[2*h]), quant.HalfUE4M3(src[2*h+1])
		}
		out := t.row(i, 32*u)
		for s := range 4 {
			for j, b := range src[4+8*s : 12+8*s] {
				out[16*s+j], out[16*s+j+8] = fp4Codes[b&15], fp4Codes[b>>4]
			}
		}
	}
}

func unpackQ1_0(t *tile, i int, src []byte) {
	for u := 0; len(src) >= 18; u, src = u+4, src[18:] {
		d := f16(src)
		for k := range 4 {
			t.d[(u+k)*lanes+i] = d
		}
		out := t.row(i, 32*u)[:128]
		for j, b := range src[2:18] {
			put(out, 8*j, 15*everyByte+2*everyByte&bitMasks[b]) // 16-1, 16+1
		}
	}
}

// fourPairs are the 4 codes of 2 bits of a byte, less 1, with a bias of 16.
var fourPairs = func() (m [256]uint32) {
	for b := range m {
		for j := range 4 {
			m[b] |= uint32(b>>(2*j)&3+15) << (8 * j)
		}
	}
	return m
}()

func unpackQ2_0(t *tile, i int, src []byte) {
	for u := 0; len(src) >= 18; u, src = u+2, src[18:] {
		d := f16(src)
		t.d[u*lanes+i], t.d[(u+1)*lanes+i] = d, d
		out := t.row(i, 32*u)[:64]
		for j := 0; j < 16; j += 2 {
			put(out, 4*j, uint64(fourPairs[src[2+j]])|uint64(fourPairs[src[3+j]])<<32)
		}
	}
}
