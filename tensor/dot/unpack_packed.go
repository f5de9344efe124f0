package dot

import (
	"encoding/binary"

	"quern/tensor/quant"
)

// Unpacking of bundles of repacked layouts into a tile, a row at a time: row r of
// the bundle's becomes row i of the tile, from unit u on. Package repack has the
// drawings.

// unbundler unpacks one row of a bundle.
type unbundler func(t *tile, i, u int, b []byte, r int)

// turn says where bytes are that are taken chunk by chunk of n rows in turn.
type turn4 struct{ n, chunk int }

// at is where byte c of row r is. Bytes c to c+3 follow it, for c a multiple of 4.
func (t turn4) at(c, r int) int { return (c/t.chunk*t.n+r)*t.chunk + c%t.chunk }

func word(b []byte) uint32            { return binary.LittleEndian.Uint32(b) }
func put4(b []byte, at int, v uint32) { binary.LittleEndian.PutUint32(b[at:], v) }

const everyByte4 = 0x01010101

// bundles is indexed by the name of the layout.
var bundles = map[string]unbundler{
	"q4_0_4x4": bundleQ4_0(turn4{4, 4}), "q4_0_4x8": bundleQ4_0(turn4{4, 8}), "q4_0_8x8": bundleQ4_0(turn4{8, 8}),
	"q4_K_8x4": bundleQ4_K(turn4{8, 4}), "q4_K_8x8": bundleQ4_K(turn4{8, 8}),
	"q5_K_8x4": bundleQ5_K(turn4{8, 4}), "q5_K_8x8": bundleQ5_K(turn4{8, 8}),
	"q6_K_8x4": bundleQ6_K(turn4{8, 4}), "q6_K_8x8": bundleQ6_K(turn4{8, 8}),
	"q2_K_8x8": bundleQ2_K(turn4{8, 8}, 2), "q2_K_8x4": bundleQ2_K(turn4{8, 4}, 1), "q2_K_32_lut": bundleQ2_K32,
	"iq4_nl_4x4": bundleIQ4_NL(turn4{4, 4}), "iq4_nl_8x8": bundleIQ4_NL(turn4{8, 8}),
	"mxfp4_4x4": bundleMXFP4(turn4{4, 4}), "mxfp4_8x8": bundleMXFP4(turn4{8, 8}),
	"q8_0_4x4": bundleQ8_0(turn4{4, 4}), "q8_0_4x8": bundleQ8_0(turn4{4, 8}),
	"q1_0_4x4": bundleQ1_0x4, "q1_0_4x8": bundleQ1_0x8, "q1_0_8x4_planes": bundleQ1_0Planes, "q1_0_32_lut": bundleQ1_0x32,
	"q2_0_8x4": bundleQ2_0, "q2_0_8x4_base3": bundleBase3, "q2_0_8x4_merged128": bundleMerged,
	"tq1_0_8x4": bundleTQ1_0, "tq2_0_8x4": bundleTQ2_0,
}

func bundleQ4_0(turn turn4) unbundler {
	return func(t *tile, i, u int, b []byte, r int) {
		t.d[u*lanes+i] = f16(b[2*r:])
		out, qs := t.row(i, 32*u), b[2*turn.n:]
		for c := 0; c < 16; c += 4 {
			q := word(qs[turn.at(c, r):]) ^ 0x88*everyByte4
			put4(out, c, q&(15*everyByte4)+8*everyByte4)
			put4(out, 16+c, q>>4&(15*everyByte4)+8*everyByte4)
		}
	}
}

// bundleNibbles takes codes through a table.
func bundleNibbles(out, qs []byte, turn turn4, r int, table *[16]byte) {
	for c := range 16 {
		q := qs[turn.at(c, r)]
		out[c], out[16+c] = table[q&15], table[q>>4]
	}
}

func bundleIQ4_NL(turn turn4) unbundler {
	return func(t *tile, i, u int, b []byte, r int) {
		t.d[u*lanes+i] = f16(b[2*r:])
		bundleNibbles(t.row(i, 32*u), b[2*turn.n:], turn, r, iq4Codes)
	}
}

func bundleMXFP4(turn turn4) unbundler {
	return func(t *tile, i, u int, b []byte, r int) {
		t.d[u*lanes+i] = quant.HalfE8M0(b[r])
		bundleNibbles(t.row(i, 32*u), b[turn.n:], turn, r, mxfp4Codes)
	}
}

func bundleQ8_0(turn turn4) unbundler {
	return func(t *tile, i, u int, b []byte, r int) {
		t.d[u*lanes+i] = f16(b[2*r:])
		out, qs := t.row(i, 32*u), b[2*turn.n:]
		for c := 0; c < 32; c += 4 {
			put4(out, c, word(qs[turn.at(c, r):]))
		}
	}
}

// bundleScales reads what bundles of 8 rows begin with where there are minima too:
// d of each row, then dmin of each.
func bundleScales(t *tile, i, u, n int, b []byte, r int) []byte {
	t.d[u*lanes+i], t.m[u*lanes+i] = f16(b[2*r:]), f16(b[2*n+2*r:])
	return b[4*n:]
}

// bundleSixes reads the scales and minima of a row of q4_K and q5_K, in 8 groups
// of 12 bytes.
func bundleSixes(t *tile, i, u int, b []byte, r int) {
	for j := range 8 {
		g := b[12*j:][:12]
		s, m := g[r&3]&63, g[4+r&3]&63
		if r >= 4 {
			s, m = g[8+r&3]&15|g[r&3]>>6<<4, g[8+r&3]>>4|g[4+r&3]>>6<<4
		}
		at := 16*u + 2*j
		t.scale(i, at, int32(s))
		t.scale(i, at+1, int32(s))
		corr := t.corr[i*tileWidth/16+at:]
		corr[0], corr[1] = int16(m), int16(m)
	}
}

func bundleQ4_K(turn turn4) unbundler {
	return func(t *tile, i, u int, b []byte, r int) {
		b = bundleScales(t, i, u, 8, b, r)
		bundleSixes(t, i, u, b, r)
		out, qs := t.row(i, 256*u), b[96:]
		for c := 0; c < 128; c += 4 {
			q, at := word(qs[turn.at(c, r):]), c/32*64+c%32
			put4(out, at, q&(15*everyByte4))
			put4(out, at+32, q>>4&(15*everyByte4))
		}
	}
}

func bundleQ5_K(turn turn4) unbundler {
	return func(t *tile, i, u int, b []byte, r int) {
		b = bundleScales(t, i, u, 8, b, r)
		bundleSixes(t, i, u, b, r)
		out, qh, qs := t.row(i, 256*u), b[96:], b[96+256:]
		for c := 0; c < 128; c += 4 {
			q, h, pair := word(qs[turn.at(c, r):]), word(qh[turn.at(c%32, r):]), c/32
			at := pair*64 + c%32
			put4(out, at, q&(15*everyByte4)|h>>(2*pair)&everyByte4<<4)
			put4(out, at+32, q>>4&(15*everyByte4)|h>>(2*pair+1)&everyByte4<<4)
		}
	}
}

func bundleQ6_K(turn turn4) unbundler {
	return func(t *tile, i, u int, b []byte, r int) {
		t.d[u*lanes+i] = f16(b[2*r:])
		for j := range 16 {
			t.biasedScale(i, 16*u+j, int32(int8(b[16+8*j+r])), 32)
		}
		out, ql, qh := t.row(i, 256*u), b[144:], b[144+1024:]
		for c := 0; c < 128; c += 4 {
			half, k := c/64, c%64
			q, h := word(ql[turn.at(c, r):]), word(qh[turn.at(32*half+k%32, r):])
			at, shift := 128*half+k, k/32*2
			put4(out, at, q&(15*everyByte4)|h>>shift&(3*everyByte4)<<4)
			put4(out, at+64, q>>4&(15*everyByte4)|h>>(shift+4)&(3*everyByte4)<<4)
		}
	}
}

// bundleQ2_K: scales bytes of each row in turn, then codes.
func bundleQ2_K(turn turn4, scales int) unbundler {
	return func(t *tile, i, u int, b []byte, r int) {
		b = bundleScales(t, i, u, 8, b, r)
		for j := range 16 {
			t.affineScale(i, 16*u+j, b[(j/scales*8+r)*scales+j%scales])
		}
		out, qs := t.row(i, 256*u), b[128:]
		for c := 0; c < 64; c += 4 {
			bundlePairs(out, c/32*128+c%32, word(qs[turn.at(c, r):]))
		}
	}
}

// affineScale sets scale and minimum of block j, 4 bits each.
func (t *tile) affineScale(i, j int, b byte) {
	t.scale(i, j, int32(b&15))
	t.corr[i*tileWidth/16+j] = int16(b >> 4)
}

// bundlePairs writes the codes of four bytes of 2 bits: those of a byte lie 32
// apart.
func bundlePairs(out []byte, at int, q uint32) {
	for k := range 4 {
		put4(out, at+32*k, q>>(2*k)&(3*everyByte4))
	}
}

// bundleQ2_K32 has the low bits of four values of 32 rows, then the high bits.
func bundleQ2_K32(t *tile, i, u int, b []byte, r int) {
	b = bundleScales(t, i, u, 32, b, r)
	for j := range 16 {
		t.affineScale(i, 16*u+j, b[32*j+r])
	}
	out, qs, shift := t.row(i, 256*u), b[512+r%16:], r/16*4
	for s := range 64 {
		low, high := bitMasks[qs[32*s]>>shift&15], bitMasks[qs[32*s+16]>>shift&15]
		put4(out, 4*s, uint32(low)&everyByte4|uint32(high)&(2*everyByte4))
	}
}

// oneBit sets the scale of a block of q1_0, which is four units.
func (t *tile) oneBit(i, u int, d float32) {
	for k := range 4 {
		t.d[(u+k)*lanes+i] = d
	}
}

// signs gives codes 15 and 17 of four or eight bits.
func signs(b byte) uint64 { return 15*everyByte + 2*everyByte&bitMasks[b] }

// bundleQ1_0x4 has four values of two rows in a byte.
func bundleQ1_0x4(t *tile, i, u int, b []byte, r int) {
	t.oneBit(i, u, f16(b[2*r:]))
	out, shift := t.row(i, 32*u), r%2*4
	for s := range 32 {
		put4(out, 4*s, uint32(signs(b[8+2*s+r/2]>>shift&15)))
	}
}

// bundleQ1_0x8 has a byte of each row in turn.
func bundleQ1_0x8(t *tile, i, u int, b []byte, r int) {
	t.oneBit(i, u, f16(b[2*r:]))
	out := t.row(i, 32*u)
	for s := range 16 {
		put(out, 8*s, signs(b[8+4*s+r]))
	}
}

// bundleQ1_0Planes: a mask of one bit leaves four values that follow each other.
func bundleQ1_0Planes(t *tile, i, u int, b []byte, r int) {
	t.oneBit(i, u, f16(b[2*r:]))
	out := t.row(i, 32*u)
	for s := range 4 {
		q := word(b[16+32*s+4*r:])
		for k := range 8 {
			put4(out, 32*s+4*k, q>>k&everyByte4<<1+15*everyByte4)
		}
	}
}

// bundleQ1_0x32 has four values of rows r and r+16 in a byte.
func bundleQ1_0x32(t *tile, i, u int, b []byte, r int) {
	t.oneBit(i, u, f16(b[2*r:]))
	out, shift := t.row(i, 32*u), r/16*4
	for s := range 32 {
		put4(out, 4*s, uint32(signs(b[64+16*s+r%16]>>shift&15)))
	}
}

// twoBits sets the scale of a block of q2_0, which is two units.
func (t *tile) twoBits(i, u int, d float32) { t.d[u*lanes+i], t.d[(u+1)*lanes+i] = d, d }

// quads writes 16 codes of 2 bits, less 1, with a bias of 16: a shift leaves four
// that follow each other.
func quads(out []byte, at int, q uint32) {
	for k := range 4 {
		put4(out, at+4*k, q>>(2*k)&(3*everyByte4)+15*everyByte4)
	}
}

func bundleQ2_0(t *tile, i, u int, b []byte, r int) {
	t.twoBits(i, u, f16(b[2*r:]))
	out := t.row(i, 32*u)
	for c := range 4 {
		quads(out, 16*c, word(b[16+32*c+4*r:]))
	}
}

// bundleMerged has the codes of two blocks under one scale.
func bundleMerged(t *tile, i, u int, b []byte, r int) {
	d := f16(b[2*r:])
	t.twoBits(i, u, d)
	t.twoBits(i, u+2, d)
	out := t.row(i, 32*u)
	for c := range 8 {
		quads(out, 16*c, word(b[16+32*c+4*r:]))
	}
}

// trits4 gives the first trits of four bytes, less 1 with a bias of 16, and the
// bytes without them.
func trits4(q uint32) (trits, rest uint32) {
	x, rest64 := nextTrits(uint64(q))
	return uint32(x) + 15*everyByte4, uint32(rest64)
}

func bundleBase3(t *tile, i, u int, b []byte, r int) {
	t.twoBits(i, u, f16(b[2*r:]))
	out := t.row(i, 32*u)
	for k := range 3 {
		q := word(b[16+32*k+4*r:])
		for n := range 5 {
			var x uint32
			x, q = trits4(q)
			put4(out, 20*k+4*n, x)
		}
	}
	x, q := trits4(word(b[112+r%2*4:]))
	for range r / 2 {
		x, q = trits4(q)
	}
	put4(out, 60, x)
}

func bundleTQ1_0(t *tile, i, u int, b []byte, r int) {
	t.ternary(i, u, f16(b[2*r:]))
	out, qs := t.row(i, 256*u), b[16+4*r:]
	for c := range 12 {
		q := uint64(word(qs[32*c:]))
		at, apart := 4*c, 32
		if c >= 8 {
			at, apart = 160+4*(c-8), 16
		}
		for n := range 5 {
			var x uint64
			x, q = nextTrits(q)
			put4(out, at+apart*n, uint32(x))
		}
	}
	q := uint64(word(qs[384:]))
	for n := range 4 {
		var x uint64
		x, q = nextTrits(q)
		put4(out, 240+4*n, uint32(x))
	}
}

func bundleTQ2_0(t *tile, i, u int, b []byte, r int) {
	t.ternary(i, u, f16(b[2*r:]))
	out, qs := t.row(i, 256*u), b[16+4*r:]
	for c := range 16 {
		bundlePairs(out, c/8*128+c%8*4, word(qs[32*c:]))
	}
}
