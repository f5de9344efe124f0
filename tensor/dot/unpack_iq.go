package dot

import (
	"encoding/binary"
	"sync"

	"quern/tensor"
	"quern/tensor/quant"
)

// Unpacking of the types that store runs of values as entries of a codebook, 8
// codes of a byte at a time. Their scales are fractions with a fixed denominator,
// which goes into d: a product with a power of two is exact for a scale that was
// F16.

const everyByte = 0x0101010101010101

// entries8 and entries4 give a codebook as words of one run each. Every value
// has something added and is multiplied before.
func entries8(t tensor.Type, times, plus int) func() []uint64 {
	return sync.OnceValue(func() []uint64 {
		values := quant.Codebook(t)
		out := make([]uint64, len(values)/8)
		for i, v := range values {
			out[i/8] |= uint64(uint8(int(v)*times+plus)) << (i % 8 * 8)
		}
		return out
	})
}

func entries4(t tensor.Type) func() []uint32 {
	return sync.OnceValue(func() []uint32 {
		values := quant.Codebook(t)
		out := make([]uint32, len(values)/4)
		for i, v := range values {
			out[i/4] |= uint32(uint8(v)) << (i % 4 * 8)
		}
		return out
	})
}

var (
	entriesIQ2XXS = entries8(tensor.IQ2_XXS, 1, 0)
	entriesIQ2XS  = entries8(tensor.IQ2_XS, 1, 0)
	entriesIQ2S   = entries8(tensor.IQ2_S, 1, 0)
	entriesIQ3XXS = entries4(tensor.IQ3_XXS)
	entriesIQ3S   = entries4(tensor.IQ3_S)
	entriesIQ1    = entries8(tensor.IQ1_S, 8, 16) // eighths, 16 too high
)

// bitMasks has 0xff in byte i of entry s for bit i of s.
var bitMasks = func() (m [256]uint64) {
	for s := range m {
		for i := range 8 {
			m[s] |= uint64(s>>i&1) * 0xff << (8 * i)
		}
	}
	return m
}()

// evenMasks is bitMasks for 7 signs, whose eighth makes the number of negative
// ones even.
var evenMasks = func() (m [128]uint64) {
	for s := range m {
		parity := s ^ s>>4
		parity ^= parity >> 2
		parity ^= parity >> 1
		m[s] = bitMasks[s|parity&1<<7]
	}
	return m
}()

// negate changes the signs of the bytes under a mask, none of which is 0.
func negate(v, mask uint64) uint64 { return (v ^ mask) + mask&everyByte }

// put writes 8 codes.
func put(dst []byte, at int, v uint64) { binary.LittleEndian.PutUint64(dst[at:], v) }

// scale2 sets the scale of two blocks of 16.
func (t *tile) scale2(i, j int, s int32) {
	t.scale(i, j, s)
	t.scale(i, j+1, s)
}

func unpackIQ2_XXS(t *tile, i int, src []byte) {
	grid := entriesIQ2XXS()
	for u := 0; len(src) >= 66; u, src = u+1, src[66:] {
		t.d[u*lanes+i] = float32(f16(src) * 0.125)
		out := t.row(i, 256*u)[:256]
		for b := range 8 {
			e := src[2+8*b : 10+8*b]
			word := binary.LittleEndian.Uint32(e[4:])
			t.scale2(i, 16*u+2*b, int32(word>>28)*2+1)
			for l := range 4 {
				put(out, 32*b+8*l, negate(grid[e[l]], evenMasks[word>>(7*l)&127]))
			}
		}
	}
}

// nibbleScales sets 16 scales, a nibble each, odd numbers.
func (t *tile) nibbleScales(i, j int, src []byte) {
	for k, b := range src[:8] {
		t.scale(i, j+2*k, int32(b&15)*2+1)
		t.scale(i, j+2*k+1, int32(b>>4)*2+1)
	}
}

func unpackIQ2_XS(t *tile, i int, src []byte) {
	grid := entriesIQ2XS()
	for u := 0; len(src) >= 74; u, src = u+1, src[74:] {
		t.d[u*lanes+i] = float32(f16(src) * 0.125)
		out := t.row(i, 256*u)[:256]
		for r := range 32 {
			q := binary.LittleEndian.Uint16(src[2+2*r:])
			put(out, 8*r, negate(grid[q&511], evenMasks[q>>9]))
		}
		t.nibbleScales(i, 16*u, src[66:74])
	}
}

func unpackIQ2_S(t *tile, i int, src []byte) {
	grid := entriesIQ2S()
	for u := 0; len(src) >= 82; u, src = u+1, src[82:] {
		t.d[u*lanes+i] = float32(f16(src) * 0.125)
		out := t.row(i, 256*u)[:256]
		for r := range 32 {
			e := int(src[2+r]) | int(src[66+r/4]>>(r%4*2)&3)<<8
			put(out, 8*r, negate(grid[e], bitMasks[src[34+r]]))
		}
		t.nibbleScales(i, 16*u, src[74:82])
	}
}

func unpackIQ3_XXS(t *tile, i int, src []byte) {
	grid := entriesIQ3XXS()
	for u := 0; len(src) >= 98; u, src = u+1, src[98:] {
		t.d[u*lanes+i] = float32(f16(src) * 0.25)
		out := t.row(i, 256*u)[:256]
		for b := range 8 {
			word := binary.LittleEndian.Uint32(src[66+4*b:])
			t.scale2(i, 16*u+2*b, int32(word>>28)*2+1)
			e := src[2+8*b : 10+8*b]
			for l := range 4 {
				v := uint64(grid[e[2*l]]) | uint64(grid[e[2*l+1]])<<32
				put(out, 32*b+8*l, negate(v, evenMasks[word>>(7*l)&127]))
			}
		}
	}
}

func unpackIQ3_S(t *tile, i int, src []byte) {
	grid := entriesIQ3S()
	for u := 0; len(src) >= 110; u, src = u+1, src[110:] {
		t.d[u*lanes+i] = f16(src)
		for b := range 8 {
			s := int32(src[106+b/2]>>(b&1*4)&15)*2 + 1
			t.biasedScale(i, 16*u+2*b, s, 16)
			t.biasedScale(i, 16*u+2*b+1, s, 16)
		}
		out := t.row(i, 256*u)[:256]
		for r := range 32 {
			high := int(src[66+r/4]) >> (r % 4 * 2)
			v := uint64(grid[int(src[2+2*r])|high&1<<8]) | uint64(grid[int(src[3+2*r])|high&2<<7])<<32
			mask := bitMasks[src[74+r]]
			// 16 and more for positive values, 16 and less for negative ones.
			put(out, 8*r, (16*everyByte+v)&^mask|(16*everyByte-v)&mask)
		}
	}
}

// shifted moves a run of an IQ1 grid an eighth up, or down for a set bit.
func shifted(v uint64, down uint64) uint64 { return v + everyByte - 2*everyByte*(down&1) }

func unpackIQ1_S(t *tile, i int, src []byte) {
	grid := entriesIQ1()
	for u := 0; len(src) >= 50; u, src = u+1, src[50:] {
		t.d[u*lanes+i] = float32(f16(src) * 0.125)
		out := t.row(i, 256*u)[:256]
		for b := range 8 {
			qh := uint64(binary.LittleEndian.Uint16(src[34+2*b:]))
			s := int32(qh>>12&7)*2 + 1
			t.biasedScale(i, 16*u+2*b, s, 16)
			t.biasedScale(i, 16*u+2*b+1, s, 16)
			for l := range 4 {
				e := uint64(src[2+4*b+l]) | qh>>(3*l)&7<<8
				put(out, 32*b+8*l, shifted(grid[e], qh>>15))
			}
		}
	}
}

func unpackIQ1_M(t *tile, i int, src []byte) {
	grid := entriesIQ1()
	for u := 0; len(src) >= 56; u, src = u+1, src[56:] {
		var sc [4]uint16
		var d uint16
		for k := range sc {
			sc[k] = binary.LittleEndian.Uint16(src[48+2*k:])
			d |= sc[k] >> 12 << (4 * k)
		}
		t.d[u*lanes+i] = float32(quant.FromF16(d) * 0.125)
		out := t.row(i, 256*u)[:256]
		for b := range 16 {
			t.biasedScale(i, 16*u+b, int32(sc[b/4]>>(b%4*3)&7)*2+1, 16)
			for h := range 2 {
				qh := uint64(src[32+b]) >> (4 * h)
				put(out, 16*b+8*h, shifted(grid[uint64(src[2*b+h])|qh&7<<8], qh>>3))
			}
		}
	}
}
