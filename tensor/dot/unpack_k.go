package dot

import "encoding/binary"

// Unpacking of the k-quants, of IQ4_XS and of the ternary types: superblocks of
// 256 values.

// pairs writes 256 codes of 2 bits, four that lie 32 apart to a byte.
func pairs(dst, src []byte) {
	dst, src = dst[:256], src[:64]
	for i := 0; i < 64; i += 8 {
		q := binary.LittleEndian.Uint64(src[i:])
		at := i>>5*128 + i&31
		for k := range 4 {
			put(dst, at+32*k, q>>(2*k)&(3*everyByte))
		}
	}
}

func unpackQ2_K(t *tile, i int, src []byte) {
	for u := 0; len(src) >= 84; u, src = u+1, src[84:] {
		t.d[u*lanes+i], t.m[u*lanes+i] = f16(src[80:]), f16(src[82:])
		pairs(t.row(i, 256*u), src[16:80])
		for j, b := range src[:16] {
			t.scale(i, 16*u+j, int32(b&15))
			t.corr[i*tileWidth/16+16*u+j] = int16(b >> 4)
		}
	}
}

func unpackQ3_K(t *tile, i int, src []byte) {
	for u := 0; len(src) >= 110; u, src = u+1, src[110:] {
		t.d[u*lanes+i] = f16(src[108:])
		out := t.row(i, 256*u)
		pairs(out, src[32:96])
		for v := range out[:256] {
			out[v] |= src[v&31] >> (v >> 5) & 1 << 2
		}
		sc := src[96:108]
		for j := range 16 {
			low, high := sc[j&7]>>(j>>3*4)&15, sc[8+j&3]>>(j>>2*2)&3
			t.biasedScale(i, 16*u+j, int32(low|high<<4)-32, 4)
		}
	}
}

// sixes reads the scales and minima of 8 blocks of 32, 6 bits each.
func (t *tile) sixes(i, u int, sc []byte) {
	for j := range 8 {
		var s, m byte
		if j < 4 {
			s, m = sc[j]&63, sc[j+4]&63
		} else {
			s, m = sc[j+4]&15|sc[j-4]>>6<<4, sc[j+4]>>4|sc[j]>>6<<4
		}
		at := 16*u + 2*j
		t.scale(i, at, int32(s))
		t.scale(i, at+1, int32(s))
		corr := t.corr[i*tileWidth/16+at:]
		corr[0], corr[1] = int16(m), int16(m)
	}
}

// nibbles64 writes 256 codes of 4 bits: low nibbles of 32 bytes, then high.
func nibbles64(dst, src []byte) {
	for p := range 4 {
		out := dst[64*p : 64*p+64]
		for l, b := range src[32*p : 32*p+32] {
			out[l], out[l+32] = b&15, b>>4
		}
	}
}

func unpackQ4_K(t *tile, i int, src []byte) {
	for u := 0; len(src) >= 144; u, src = u+1, src[144:] {
		t.d[u*lanes+i], t.m[u*lanes+i] = f16(src), f16(src[2:])
		t.sixes(i, u, src[4:16])
		nibbles64(t.row(i, 256*u), src[16:144])
	}
}

func unpackQ5_K(t *tile, i int, src []byte) {
	for u := 0; len(src) >= 176; u, src = u+1, src[176:] {
		t.d[u*lanes+i], t.m[u*lanes+i] = f16(src), f16(src[2:])
		t.sixes(i, u, src[4:16])
		out := t.row(i, 256*u)
		nibbles64(out, src[48:176])
		for v := range out[:256] {
			out[v] |= src[16+v&31] >> (v >> 5) & 1 << 4
		}
	}
}

func unpackQ6_K(t *tile, i int, src []byte) {
	for u := 0; len(src) >= 210; u, src = u+1, src[210:] {
		t.d[u*lanes+i] = f16(src[208:])
		out := t.row(i, 256*u)
		for v := range out[:256] {
			h, l := v>>7, v&127
			low := src[64*h+l&63] >> (l >> 6 * 4) & 15
			high := src[128+32*h+l&31] >> (l >> 5 * 2) & 3
			out[v] = low | high<<4
		}
		for j, s := range src[192:208] {
			t.biasedScale(i, 16*u+j, int32(int8(s)), 32)
		}
	}
}

func unpackIQ4_XS(t *tile, i int, src []byte) {
	for u := 0; len(src) >= 136; u, src = u+1, src[136:] {
		t.d[u*lanes+i] = f16(src)
		high := uint16(src[2]) | uint16(src[3])<<8
		for b := range 8 {
			s := int32(src[4+b/2]>>(b&1*4)&15) | int32(high>>(2*b)&3)<<4
			t.scale(i, 16*u+2*b, s-32)
			t.scale(i, 16*u+2*b+1, s-32)
			nibbles(t.row(i, 256*u+32*b), src[8+16*b:], iq4Codes)
		}
	}
}

// ternary sets the scales of a superblock whose values have none: 1 each.
func (t *tile) ternary(i, u int, d float32) {
	t.d[u*lanes+i] = d
	for j := range 16 {
		t.biasedScale(i, 16*u+j, 1, 1)
	}
}

func unpackTQ1_0(t *tile, i int, src []byte) {
	for u := 0; len(src) >= 54; u, src = u+1, src[54:] {
		t.ternary(i, u, f16(src[52:]))
		out := t.row(i, 256*u)
		trits(out, src[:32], 32, 5)
		trits(out[160:], src[32:48], 16, 5)
		b := uint64(binary.LittleEndian.Uint32(src[48:]))
		for k := range 4 {
			var q uint64
			q, b = nextTrits(b)
			binary.LittleEndian.PutUint32(out[240+4*k:], uint32(q))
		}
	}
}

// trits writes n trits of each byte; those of one byte lie stride apart.
func trits(out, src []byte, stride, n int) {
	for m := 0; m < len(src); m += 8 {
		b := binary.LittleEndian.Uint64(src[m:])
		for k := range n {
			var q uint64
			q, b = nextTrits(b)
			put(out, m+k*stride, q)
		}
	}
}

// nextTrits gives the first trit of 8 bytes, and the bytes without it: the upper
// and the lower byte of three times each.
func nextTrits(b uint64) (trits, rest uint64) {
	const even = 0x00ff00ff00ff00ff
	x, y := b&even*3, b>>8&even*3
	return x>>8&even | y&(even<<8), x&even | y&even<<8
}

func unpackTQ2_0(t *tile, i int, src []byte) {
	for u := 0; len(src) >= 66; u, src = u+1, src[66:] {
		t.ternary(i, u, f16(src[64:]))
		pairs(t.row(i, 256*u), src[:64])
	}
}
