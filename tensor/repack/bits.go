package repack

import "encoding/binary"

// packWords rearranges the bits of each 4 bytes of a row and takes them from
// each row in turn.
func (f field) packWords(out, rows []byte, row, n int, order func(uint32) uint32) {
	for c := 0; c < f.size; c += 4 {
		for r := range n {
			binary.LittleEndian.PutUint32(out, order(binary.LittleEndian.Uint32(rows[r*row+f.at+c:])))
			out = out[4:]
		}
	}
}

// unpackWords is the inverse, if order is.
func (f field) unpackWords(in, rows []byte, row, n int, order func(uint32) uint32) {
	for c := 0; c < f.size; c += 4 {
		for r := range n {
			binary.LittleEndian.PutUint32(rows[r*row+f.at+c:], order(binary.LittleEndian.Uint32(in)))
			in = in[4:]
		}
	}
}

// transpose4 puts the two-bit value 4k+j of 16 into bits 2k of byte j, where value
// 4j+k was. It is its own inverse.
func transpose4(w uint32) uint32 {
	var out uint32
	for j := range 4 {
		x := w >> (2 * j) & 0x03030303
		x = (x | x>>6) & 0x000f000f
		out |= (x | x>>12) & 0xff << (8 * j)
	}
	return out
}

// toPlanes puts bit 4k+j of 32 into bit k of byte j.
func toPlanes(w uint32) uint32 {
	var out uint32
	for j := range 4 {
		x := w >> j & 0x11111111
		x = (x | x>>3) & 0x03030303
		x = (x | x>>6) & 0x000f000f
		out |= (x | x>>12) & 0xff << (8 * j)
	}
	return out
}

// fromPlanes is the inverse of toPlanes.
func fromPlanes(w uint32) uint32 {
	var out uint32
	for j := range 4 {
		x := w >> (8 * j) & 0xff
		x = (x | x<<12) & 0x000f000f
		x = (x | x<<6) & 0x03030303
		x = (x | x<<3) & 0x11111111
		out |= x << j
	}
	return out
}

// bits4 are one-bit values 4t to 4t+3 of a row.
func (f field) bits4(rows []byte, row, r, t int) byte {
	return rows[r*row+f.at+t/2] >> (t % 2 * 4) & 15
}

// pair4 are two-bit values 4t to 4t+3 of a row of q2_K: the low bits, and the high
// bits above them. Such values stand four to a byte, 32 apart.
func (f field) pair4(rows []byte, row, r, t int) byte {
	w := binary.LittleEndian.Uint32(rows[r*row+f.at+t/32*32+t%8*4:]) >> (t % 32 / 8 * 2)
	low, high := w&0x01010101, w>>1&0x01010101
	// The product brings bit 8j of a word to bit 24+j; no two bits meet.
	return byte(low*0x01020408>>24)&15 | byte(high*0x01020408>>24)&15<<4
}

// setPair4 is the inverse, on bytes that were zero.
func (f field) setPair4(rows []byte, row, r, t int, low, high byte) {
	out := rows[r*row+f.at+t/32*32+t%8*4:][:4]
	for j := range out {
		out[j] |= (low>>j&1 | high>>j&1<<1) << (t % 32 / 8 * 2)
	}
}
