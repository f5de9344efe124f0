package cq

import (
	"encoding/binary"
	"fmt"
	"math/bits"

	"quern/tensor/quant"
)

// PointsRow reads a row without turning its groups back: codebook[index] * norm,
// padding included; len(dst) is Padded of the row's length. Since H is its own
// inverse and symmetric, the inner product of a row with x is that of its points
// with the groups of x put through Rotate, which spares the transform of every row.
// Ternary bits that stand for no level are ErrCrumb.
func (c *Codec) PointsRow(dst []float32, index, norms []byte) error {
	g := c.group
	step := g / 8 * c.width.IndexBits()
	table := c.book
	if c.width == W158 {
		// Crumbs 3, 0, 1 are the levels 0, 1, 2; 2 is none.
		table[0], table[1], table[3] = c.book[1], c.book[2], c.book[0]
	}
	for at := 0; at+g <= len(dst); at += g {
		src := index[at/g*step:]
		if c.width == W158 {
			if i := badCrumb(src[:step]); i >= 0 {
				return fmt.Errorf("%w: column %d", ErrCrumb, at+i)
			}
		}
		lookUp(dst[at:at+g], src, &table, quant.FromF16(binary.LittleEndian.Uint16(norms[at/g*2:])), c.width)
	}
	return nil
}

// badCrumb finds the first crumb 2, or gives -1.
func badCrumb(src []byte) int {
	i := 0
	for ; i+8 <= len(src); i += 8 {
		if x := binary.LittleEndian.Uint64(src[i:]); x>>1&^x&0x5555555555555555 != 0 {
			break
		}
	}
	for ; i < len(src); i++ {
		b := src[i]
		if bad := b >> 1 &^ b & 0x55; bad != 0 {
			return 4*i + bits.TrailingZeros8(bad)/2
		}
	}
	return -1
}

// lookUpScalar writes book[i]*norm for each number i of a bit stream, len(dst) a
// multiple of 8. Ternary rows are taken as crumbs.
func lookUpScalar(dst []float32, src []byte, book *[maxLevels]float32, norm float32, w Width) {
	var table [maxLevels]float32
	for k, v := range book {
		table[k] = float32(v * norm)
	}
	switch w {
	case W4:
		for i, b := range src[:len(dst)/2] {
			dst[2*i], dst[2*i+1] = table[b&15], table[b>>4]
		}
	case W3:
		for i := 0; i+8 <= len(dst); i += 8 {
			x := uint32(src[i/8*3]) | uint32(src[i/8*3+1])<<8 | uint32(src[i/8*3+2])<<16
			for j := range 8 {
				dst[i+j] = table[x>>(3*j)&7]
			}
		}
	case W2, W158:
		for i, b := range src[:len(dst)/4] {
			dst[4*i], dst[4*i+1], dst[4*i+2], dst[4*i+3] = table[b&3], table[b>>2&3], table[b>>4&3], table[b>>6]
		}
	case W1:
		for i, b := range src[:len(dst)/8] {
			for j := range 8 {
				dst[8*i+j] = table[b>>j&1]
			}
		}
	}
}
