package dot

import (
	"encoding/binary"
	"math/bits"

	"quern/tensor"
	"quern/tensor/quant"
)

// Unpacking of the types that store runs of values as entries of a codebook.
// Their scales are fractions with a fixed denominator, which goes into d: a
// product with a power of two is exact for a scale that was F16.

// signed writes values with signs, those of a set bit negative.
func signed(dst []byte, values []int8, signs byte) {
	for j, v := range values {
		if signs>>j&1 == 1 {
			v = -v
		}
		dst[j] = byte(v)
	}
}

// evenSigns completes 7 signs so that the number of negative ones is even.
func evenSigns(s uint32) byte {
	s &= 127
	return byte(s | uint32(bits.OnesCount32(s)&1)<<7)
}

// scale2 sets the scale of two blocks of 16.
func (t *tile) scale2(i, j int, s int32) {
	t.scale(i, j, s)
	t.scale(i, j+1, s)
}

func unpackIQ2_XXS(t *tile, i int, src []byte) {
	grid := quant.Codebook(tensor.IQ2_XXS)
	for u := 0; len(src) >= 66; u, src = u+1, src[66:] {
		t.d[u*lanes+i] = float32(f16(src) * 0.125)
		for b := range 8 {
			e := src[2+8*b : 10+8*b]
			word := binary.LittleEndian.Uint32(e[4:])
			t.scale2(i, 16*u+2*b, int32(word>>28)*2+1)
			for l := range 4 {
				signed(t.row(i, 256*u+32*b+8*l), grid[8*int(e[l]):][:8], evenSigns(word>>(7*l)))
			}
		}
	}
}

func unpackIQ2_XS(t *tile, i int, src []byte) {
	grid := quant.Codebook(tensor.IQ2_XS)
	for u := 0; len(src) >= 74; u, src = u+1, src[74:] {
		t.d[u*lanes+i] = float32(f16(src) * 0.125)
		for r := range 32 {
			q := binary.LittleEndian.Uint16(src[2+2*r:])
			signed(t.row(i, 256*u+8*r), grid[8*int(q&511):][:8], evenSigns(uint32(q>>9)))
		}
		for j := range 16 {
			t.scale(i, 16*u+j, int32(src[66+j/2]>>(j&1*4)&15)*2+1)
		}
	}
}

func unpackIQ2_S(t *tile, i int, src []byte) {
	grid := quant.Codebook(tensor.IQ2_S)
	for u := 0; len(src) >= 82; u, src = u+1, src[82:] {
		t.d[u*lanes+i] = float32(f16(src) * 0.125)
		for r := range 32 {
			e := int(src[2+r]) | int(src[66+r/4]>>(r%4*2)&3)<<8
			signed(t.row(i, 256*u+8*r), grid[8*e:][:8], src[34+r])
		}
		for j := range 16 {
			t.scale(i, 16*u+j, int32(src[74+j/2]>>(j&1*4)&15)*2+1)
		}
	}
}

func unpackIQ3_XXS(t *tile, i int, src []byte) {
	grid := quant.Codebook(tensor.IQ3_XXS)
	for u := 0; len(src) >= 98; u, src = u+1, src[98:] {
		t.d[u*lanes+i] = float32(f16(src) * 0.25)
		for b := range 8 {
			word := binary.LittleEndian.Uint32(src[66+4*b:])
			t.scale2(i, 16*u+2*b, int32(word>>28)*2+1)
			for k := range 8 {
				e := int(src[2+8*b+k])
				signed(t.row(i, 256*u+32*b+4*k), grid[4*e:][:4], evenSigns(word>>(k/2*7))>>(k%2*4))
			}
		}
	}
}

func unpackIQ3_S(t *tile, i int, src []byte) {
	grid := quant.Codebook(tensor.IQ3_S)
	for u := 0; len(src) >= 110; u, src = u+1, src[110:] {
		t.d[u*lanes+i] = f16(src)
		for b := range 8 {
			s := int32(src[106+b/2]>>(b&1*4)&15)*2 + 1
			t.biasedScale(i, 16*u+2*b, s, 16)
			t.biasedScale(i, 16*u+2*b+1, s, 16)
		}
		out := t.row(i, 256*u)
		for r := range 64 {
			e := int(src[2+r]) | int(src[66+r/8]>>(r%8)&1)<<8
			signed(out[4*r:], grid[4*e:][:4], src[74+r/2]>>(r%2*4))
		}
		for v := range out[:256] {
			out[v] += 16
		}
	}
}

// shifted writes a run of an IQ1 grid as codes of eighths, an eighth up or down,
// 16 too high.
func shifted(dst []byte, values []int8, down bool) {
	shift := int8(16 + 1)
	if down {
		shift = 16 - 1
	}
	for j, v := range values {
		dst[j] = byte(8*v + shift)
	}
}

func unpackIQ1_S(t *tile, i int, src []byte) {
	grid := quant.Codebook(tensor.IQ1_S)
	for u := 0; len(src) >= 50; u, src = u+1, src[50:] {
		t.d[u*lanes+i] = float32(f16(src) * 0.125)
		for b := range 8 {
			qh := binary.LittleEndian.Uint16(src[34+2*b:])
			s := int32(qh>>12&7)*2 + 1
			t.biasedScale(i, 16*u+2*b, s, 16)
			t.biasedScale(i, 16*u+2*b+1, s, 16)
			for l := range 4 {
				e := int(src[2+4*b+l]) | int(qh>>(3*l)&7)<<8
				shifted(t.row(i, 256*u+32*b+8*l), grid[8*e:][:8], qh>>15 == 1)
			}
		}
	}
}

func unpackIQ1_M(t *tile, i int, src []byte) {
	grid := quant.Codebook(tensor.IQ1_M)
	for u := 0; len(src) >= 56; u, src = u+1, src[56:] {
		var sc [4]uint16
		var d uint16
		for k := range sc {
			sc[k] = binary.LittleEndian.Uint16(src[48+2*k:])
			d |= sc[k] >> 12 << (4 * k)
		}
		t.d[u*lanes+i] = float32(quant.FromF16(d) * 0.125)
		for b := range 16 {
			t.biasedScale(i, 16*u+b, int32(sc[b/4]>>(b%4*3)&7)*2+1, 16)
			for h := range 2 {
				qh := src[32+b] >> (4 * h)
				e := int(src[2*b+h]) | int(qh&7)<<8
				shifted(t.row(i, 256*u+16*b+8*h), grid[8*e:][:8], qh&8 != 0)
			}
		}
	}
}
