package dot

import (
	"fmt"

	"quern/tensor"
	"quern/tensor/quant"
)

// Decode fills dst with the values of whole blocks of type t. The values are
// those of package quant's decoder, made in vector code where there is some; of
// NaNs the bits may differ.
func Decode(t tensor.Type, dst []float32, src []byte, s *Scratch) error {
	d, err := quant.DecoderFor(t)
	if err != nil {
		return err
	}
	if n, err := tensor.RowBytes(t, int64(len(dst))); err != nil || n != int64(len(src)) {
		return fmt.Errorf("%w: %d values of %s in %d bytes", ErrSize, len(dst), t, len(src))
	}
	decode(d, dst, src, s)
	return nil
}

// decode is Decode for sizes that fit.
func decode(d quant.Decoder, dst []float32, src []byte, s *Scratch) {
	t := d.Type()
	if !vectorDecodes(t) {
		d.Decode(dst, src)
		return
	}
	if s.tile == nil {
		s.tile = new(tile)
	}
	f, perBlock := families[t], int(t.BlockValues())
	for len(dst) > 0 {
		n := min(len(dst), tileWidth)
		size := n / perBlock * f.block
		unpackRows(t, s.tile, 1, n/perBlock, src, 0, size)
		expandRow(f, dst[:n], s.tile)
		dst, src = dst[n:], src[size:]
	}
}
