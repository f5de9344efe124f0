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
		var p uint64
		for b := range 8 {
			p |= binary.LittleEndian.Uint64(l[32*b+i:]) >> bit & everyByte << b
		}
		binary.LittleEndian.PutUint64(dst[i:], p)
	}
}

// packPairs writes 2-bit codes, four values that lie 32 apart to a byte.
func packPairs(dst []byte, l *[256]uint8) {
	dst = dst[:64]
	for i := 0; i < 64; i += 8 {
		var p uint64
		for k := range 4 {
			v := binary.LittleEndian.Uint64(l[i>>5*128+i&31+32*k:])
			p |= v & (3 * everyByte) << (2 * k)
		}
		binary.LittleEndian.PutUint64(dst[i:], p)
	}
}
