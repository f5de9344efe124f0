package cq

import "encoding/binary"

// pack writes one byte an index as the bit stream of a row. len(index) is a
// multiple of 8 and dst has room for len(index)/8*bits bytes.
func pack(dst, index []byte, w Width) {
	le := binary.LittleEndian
	switch w {
	case W4:
		for i := 0; i+8 <= len(index); i += 8 {
			x := le.Uint64(index[i:])
			x = (x | x>>4) & 0x00ff00ff00ff00ff
			x = (x | x>>8) & 0x0000ffff0000ffff
			le.PutUint32(dst[i/2:], uint32(x|x>>16))
		}
	case W3:
		for i := 0; i+8 <= len(index); i += 8 {
			x := le.Uint64(index[i:])
			x = (x | x>>5) & 0x003f003f003f003f
			x = (x | x>>10) & 0x00000fff00000fff
			x |= x >> 20
			d := dst[i/8*3:]
			d[0], d[1], d[2] = byte(x), byte(x>>8), byte(x>>16)
		}
	case W2, W158:
		for i := 0; i+8 <= len(index); i += 8 {
			x := le.Uint64(index[i:])
			if w == W158 {
				// 0, 1, 2 become 3, 0, 1: one less, in two bits.
				x = (x + 0x0303030303030303) & 0x0303030303030303
			}
			x = (x | x>>6) & 0x000f000f000f000f
			x = (x | x>>12) & 0x000000ff000000ff
			le.PutUint16(dst[i/4:], uint16(x|x>>24))
		}
	case W1:
		for i := 0; i+8 <= len(index); i += 8 {
			x := le.Uint64(index[i:])
			x |= x >> 7
			x |= x >> 14
			dst[i/8] = byte(x | x>>28)
		}
	}
}

// unpack reads a row's bit stream into one byte an index, len(index) a multiple
// of 8. The crumb 2 of a ternary row, which stands for nothing, gives 3.
func unpack(index, src []byte, w Width) {
	le := binary.LittleEndian
	switch w {
	case W4:
		for i := 0; i+8 <= len(index); i += 8 {
			x := uint64(le.Uint32(src[i/2:]))
			x = (x | x<<16) & 0x0000ffff0000ffff
			x = (x | x<<8) & 0x00ff00ff00ff00ff
			le.PutUint64(index[i:], (x|x<<4)&0x0f0f0f0f0f0f0f0f)
		}
	case W3:
		for i := 0; i+8 <= len(index); i += 8 {
			b := src[i/8*3 : i/8*3+3]
			x := uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16
			x = (x | x<<20) & 0x00000fff00000fff
			x = (x | x<<10) & 0x003f003f003f003f
			le.PutUint64(index[i:], (x|x<<5)&0x0707070707070707)
		}
	case W2, W158:
		for i := 0; i+8 <= len(index); i += 8 {
			x := uint64(le.Uint16(src[i/4:]))
			x = (x | x<<24) & 0x000000ff000000ff
			x = (x | x<<12) & 0x000f000f000f000f
			x = (x | x<<6) & 0x0303030303030303
			if w == W158 {
				x = (x + 0x0101010101010101) & 0x0303030303030303
			}
			le.PutUint64(index[i:], x)
		}
	case W1:
		for i := 0; i+8 <= len(index); i += 8 {
			x := uint64(src[i/8])
			x = (x | x<<28) & 0x0000000f0000000f
			x = (x | x<<14) & 0x0003000300030003
			le.PutUint64(index[i:], (x|x<<7)&0x0101010101010101)
		}
	}
}
