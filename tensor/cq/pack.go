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
	bits := w.IndexBits()
	mask := byte(1)<<bits - 1
	for i := 0; i+8 <= len(index); i += 8 {
		var x uint64
		for b, v := range src[i/8*bits : i/8*bits+bits] {
			x |= uint64(v) << (8 * b)
		}
		for j := range 8 {
			v := byte(x>>(j*bits)) & mask
			if w == W158 {
				v = (v + 1) & 3
			}
			index[i+j] = v
		}
	}
}
