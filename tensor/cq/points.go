package cq

import (
	"encoding/binary"
	"fmt"

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
	var idx [256]byte
	for at := 0; at+g <= len(dst); at += g {
		norm := quant.FromF16(binary.LittleEndian.Uint16(norms[at/g*2:]))
		var points [maxLevels]float32
		for k, v := range c.book {
			points[k] = float32(v * norm)
		}
		out, src := dst[at:at+g], index[at/g*step:][:step]
		if c.width == W4 {
			for i, b := range src {
				out[2*i], out[2*i+1] = points[b&15], points[b>>4]
			}
			continue
		}
		unpack(idx[:g], src, c.width)
		for i, k := range idx[:g] {
			if int(k) >= c.width.Levels() {
				return fmt.Errorf("%w: column %d", ErrCrumb, at+i)
			}
			out[i] = points[k]
		}
	}
	return nil
}
