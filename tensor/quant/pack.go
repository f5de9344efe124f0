package quant

import "encoding/binary"

// Packing of a superblock's codes, eight bytes at a time. No code has bits that
// would reach the next byte, but for those that are masked.

const everyByte = 0x0101010101010101

// packHalves writes 32 bytes: the low nibbles of l[0:32], and l[32:64] above.
func packHalves(dst, l []uint8) {
	dst, l = dst[:32], l[:64]
	for i := 0; i < 32; i += 8 {
		lo, hi := binary.LittleEndian.Uint64(l[i:]), binary.LittleEndian.Uint64(l[i+32:])
		binary.LittleEndian.PutUint64(dst[i:], lo&(15*everyByte)|hi&(15*everyByte)<<4)
	}
}

// packPlanes writes bit number bit of code v to bit v/32 of byte v%32.
func packPlanes(dst []byte, l *[256]uint8, bit int) {
	dst = dst[:32]
	for i := 0; i < 32; i += 8 {
		v := (*[232]uint8)(l[i : i+232])
		plane := func(at int) uint64 { return binary.LittleEndian.Uint64(v[at:at+8]) >> (bit & 7) & everyByte }
		binary.LittleEndian.PutUint64(dst[i:], plane(0)|plane(32)<<1|plane(64)<<2|plane(96)<<3|
			plane(128)<<4|plane(160)<<5|plane(192)<<6|plane(224)<<7)
	}
}

// packPairs writes 2-bit codes, four values that lie 32 apart to a byte.
func packPairs(dst []byte, l *[256]uint8) {
	dst = dst[:64]
	for i := 0; i < 64; i += 8 {
		at := i>>5*128 + i&31
		v := (*[104]uint8)(l[at : at+104])
		pair := func(at int) uint64 { return binary.LittleEndian.Uint64(v[at:at+8]) & (3 * everyByte) }
		binary.LittleEndian.PutUint64(dst[i:], pair(0)|pair(32)<<2|pair(64)<<4|pair(96)<<6)
	}
}
