package repack

import (
	"encoding/binary"
	"fmt"

	"quern/tensor/quant"
)

// Q2_0 blocks have a scale and 64 two-bit codes, value j in bits 2(j%4) of byte
// j/4. A ternary model uses codes 0, 1 and 2 alone: -d, 0 and d.
const (
	q2Block = 18
	q2Codes = 2 // where the codes begin
)

// code is code v of a row's block.
func code(block []byte, v int) byte { return block[q2Codes+v/4] >> (v % 4 * 2) & 3 }

// base3 has five codes to a byte: 1.875 bits a weight with the scales, which stay
// as they are.
//
//	d (2) x 8
//	3 runs of 32 bytes: byte 4r+j of run k has values 20k+4n+j of row r, n = 0 to 4
//	8 bytes: byte 4w+j has value 60+j of row 2n+w, n = 0 to 3, and a code 0
//
// A byte of codes t0 to t4 is (81*t0 + 27*t1 + 9*t2 + 3*t3 + t4)*256/243, rounded
// up. Code n is what 3 times the low byte of 3^n times the byte has above its low
// byte: two multiplications and no division. Four bytes that follow each other
// give four values of one row that do.
var base3 = coder{pack: packBase3, unpack: unpackBase3}

func packBase3(bundle, rows []byte, row int) error {
	for r := range 8 {
		block := rows[r*row:][:q2Block]
		copy(bundle[2*r:], block[:2])
		for v := range 64 {
			if code(block, v) == 3 {
				return fmt.Errorf("%w: row %d of the group, value %d: code 3 is not ternary; leave the layout out, or take q2_0_8x4", ErrValue, r, v)
			}
		}
		for k := range 3 {
			for j := range 4 {
				var q int
				for n := range 5 {
					q = 3*q + int(code(block, 20*k+4*n+j))
				}
				bundle[16+32*k+4*r+j] = byte((q*256 + 242) / 243)
			}
		}
	}
	for w := range 2 {
		for j := range 4 {
			var q int
			for n := range 4 {
				q = 3*q + int(code(rows[(2*n+w)*row:], 60+j))
			}
			bundle[112+4*w+j] = byte((3*q*256 + 242) / 243)
		}
	}
	return nil
}

func unpackBase3(bundle, rows []byte, row int) {
	for r := range 8 {
		block := rows[r*row:][:q2Block]
		copy(block[:2], bundle[2*r:])
		clear(block[2:])
		put := func(v int, c byte) { block[q2Codes+v/4] |= c << (v % 4 * 2) }
		for k := range 3 {
			for j := range 4 {
				b := uint(bundle[16+32*k+4*r+j])
				for n := range 5 {
					put(20*k+4*n+j, byte(b*3>>8))
					b = b * 3 & 0xff
				}
			}
		}
		for j := range 4 {
			b := uint(bundle[112+r%2*4+j])
			for range r / 2 {
				b = b * 3 & 0xff
			}
			put(60+j, byte(b*3>>8))
		}
	}
}

// merged128 has the codes of two blocks under one scale, 2.125 bits a weight: the
// one number in place of two is where it rounds.
//
//	d (2) x 8
//	8 runs of 32 bytes: bits 2k of byte 4r+j of run c are value 16c+4k+j of row r
var merged128 = coder{pack: packMerged, unpack: unpackMerged, lossy: true}

func packMerged(bundle, rows []byte, row int) error {
	for r := range 8 {
		a, b := rows[r*row:][:q2Block], rows[r*row+q2Block:][:q2Block]
		binary.LittleEndian.PutUint16(bundle[2*r:], mergeScales(a, b))
		for c := range 8 {
			half := a
			if c >= 4 {
				half = b
			}
			w := binary.LittleEndian.Uint32(half[q2Codes+c%4*4:])
			binary.LittleEndian.PutUint32(bundle[16+32*c+4*r:], transpose4(w))
		}
	}
	return nil
}

func unpackMerged(bundle, rows []byte, row int) {
	for r := range 8 {
		a, b := rows[r*row:][:q2Block], rows[r*row+q2Block:][:q2Block]
		copy(a[:2], bundle[2*r:])
		copy(b[:2], bundle[2*r:])
		for c := range 8 {
			half := a
			if c >= 4 {
				half = b
			}
			w := binary.LittleEndian.Uint32(bundle[16+32*c+4*r:])
			binary.LittleEndian.PutUint32(half[q2Codes+c%4*4:], transpose4(w))
		}
	}
}

// mergeScales gives the scale that two blocks have the least square error with,
// as F16 bits: the mean of theirs, each weighed by the squares of its codes. Equal
// scales stay as they are, and so does the one of a block beside one that is all
// zero.
func mergeScales(a, b []byte) uint16 {
	da, db := binary.LittleEndian.Uint16(a), binary.LittleEndian.Uint16(b)
	na, nb := energy(a), energy(b)
	switch {
	case da == db || nb == 0:
		return da
	case na == 0:
		return db
	}
	sum := float32(float32(na)*quant.FromF16(da)) + float32(float32(nb)*quant.FromF16(db))
	mean := sum / float32(na+nb)
	if mean != mean {
		return 0x7e00 // which NaN arithmetic gives depends on the machine
	}
	return quant.ToF16(mean)
}

// energy is the sum of squares of a block's values, in units of its scale.
func energy(block []byte) int {
	sum := 0
	for v := range 64 {
		c := int(code(block, v)) - 1
		sum += c * c
	}
	return sum
}
