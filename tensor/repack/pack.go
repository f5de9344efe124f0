package repack

import (
	"fmt"

	"quern/tensor"
)

// Pack interleaves plain rows of rowLen values, as many groups of GroupRows as
// src holds. dst has the length of src and shares no memory with it.
func (l *Layout) Pack(dst, src []byte, rowLen int64) error {
	return l.each(dst, src, rowLen, func(bundle, rows []byte, row int) {
		at := 0
		for _, f := range l.fields {
			n := f.size * l.rows
			f.pack(bundle[at:at+n], rows, row, l.rows)
			at += n
		}
	})
}

// Unpack gives back the plain rows that Pack was given.
func (l *Layout) Unpack(dst, src []byte, rowLen int64) error {
	return l.each(src, dst, rowLen, func(bundle, rows []byte, row int) {
		at := 0
		for _, f := range l.fields {
			n := f.size * l.rows
			f.unpack(bundle[at:at+n], rows, row, l.rows)
			at += n
		}
	})
}

// each goes over the bundles of whole groups. rows begins at a block of a
// group's first row; the same block of the next row is row bytes further.
func (l *Layout) each(packed, plain []byte, rowLen int64, do func(bundle, rows []byte, row int)) error {
	rb, err := tensor.RowBytes(l.typ, rowLen)
	if err != nil {
		return fmt.Errorf("layout %s: %w", l.name, err)
	}
	if len(packed) != len(plain) {
		return fmt.Errorf("%w: layout %s: buffers of %d and %d bytes", tensor.ErrRange, l.name, len(packed), len(plain))
	}
	if len(plain) == 0 {
		return nil
	}
	row := int(rb)
	group := row * l.rows
	if row == 0 || len(plain)%group != 0 {
		return fmt.Errorf("%w: layout %s: %d bytes are no groups of %d rows of %d bytes", tensor.ErrRange, l.name, len(plain), l.rows, row)
	}
	block := int(l.typ.BlockBytes())
	bundle := block * l.rows
	for ; len(plain) > 0; packed, plain = packed[group:], plain[group:] {
		for x := range row / block {
			do(packed[x*bundle:(x+1)*bundle], plain[x*block:group], row)
		}
	}
	return nil
}

// pack fills out with one field of n blocks, which lie row bytes apart.
func (f field) pack(out, rows []byte, row, n int) {
	switch f.order {
	case turns, flipped:
		for c := 0; c < f.size; c += f.chunk {
			for r := range n {
				src := rows[r*row+f.at+c:]
				copy(out[:f.chunk], src[:f.chunk])
				if f.order == flipped {
					flip(out[:f.chunk])
				}
				out = out[f.chunk:]
			}
		}
	case nibbles:
		for t := range 2 * f.size {
			for r := 0; r < n; r += 2 {
				low := rows[r*row+f.at+t/2] >> (4 * (t % 2)) & 15
				high := rows[(r+1)*row+f.at+t/2] >> (4 * (t % 2)) & 15
				out[t*n/2+r/2] = low | high<<4
			}
		}
	case scales6:
		var s, m [8]byte
		for b := range 8 {
			for r := range 8 {
				s[r], m[r] = scaleMin(rows[r*row+f.at:][:12], b)
			}
			g := out[12*b:][:12]
			for r := range 4 {
				g[r] = s[r] | s[r+4]>>4<<6
				g[4+r] = m[r] | m[r+4]>>4<<6
				g[8+r] = s[r+4]&15 | m[r+4]&15<<4
			}
		}
	}
}

// unpack spreads one field over n blocks: the inverse of pack.
func (f field) unpack(in, rows []byte, row, n int) {
	switch f.order {
	case turns, flipped:
		for c := 0; c < f.size; c += f.chunk {
			for r := range n {
				dst := rows[r*row+f.at+c:]
				copy(dst[:f.chunk], in[:f.chunk])
				if f.order == flipped {
					flip(dst[:f.chunk])
				}
				in = in[f.chunk:]
			}
		}
	case nibbles:
		for t := range 2 * f.size {
			for r := range n {
				v := in[t*n/2+r/2] >> (4 * (r % 2)) & 15
				p := &rows[r*row+f.at+t/2]
				if t%2 == 0 {
					*p = v
				} else {
					*p |= v << 4
				}
			}
		}
	case scales6:
		for r := range 8 {
			var s, m [8]byte
			q := r % 4
			for b := range 8 {
				g := in[12*b:][:12]
				if r < 4 {
					s[b], m[b] = g[q]&63, g[4+q]&63
				} else {
					s[b] = g[8+q]&15 | g[q]>>6<<4
					m[b] = g[8+q]>>4 | g[4+q]>>6<<4
				}
			}
			put := rows[r*row+f.at:][:12]
			for j := range 4 {
				put[j] = s[j] | s[j+4]>>4<<6
				put[4+j] = m[j] | m[j+4]>>4<<6
				put[8+j] = s[j+4]&15 | m[j+4]&15<<4
			}
		}
	}
}

// flip turns the unsigned nibbles of q4_0, which stand for value + 8, into
// signed ones and back.
func flip(b []byte) {
	for i := range b {
		b[i] ^= 0x88
	}
}

// scaleMin takes scale and minimum of sub-block b out of the 12 bytes of a q4_K
// or q5_K block.
func scaleMin(sc []byte, b int) (s, m byte) {
	if b < 4 {
		return sc[b] & 63, sc[b+4] & 63
	}
	return sc[b+4]&15 | sc[b-4]>>6<<4, sc[b+4]>>4 | sc[b]>>6<<4
}
