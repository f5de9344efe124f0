package repack

import (
	"errors"
	"fmt"

	"quern/tensor"
)

// ErrValue marks blocks that a layout cannot hold.
var ErrValue = errors.New("a value that the layout does not have")

// Pack interleaves plain rows of rowLen values, as many groups of GroupRows as
// src holds. dst has GroupBytes for each of them and shares no memory with src.
func (l *Layout) Pack(dst, src []byte, rowLen int64) error {
	return l.each(dst, src, rowLen, func(bundle, rows []byte, row int) error {
		if l.coder.pack != nil {
			return l.coder.pack(bundle, rows, row)
		}
		at := 0
		for _, f := range l.fields {
			n := f.size * l.rows
			f.pack(bundle[at:at+n], rows, row, l.rows)
			at += n
		}
		return nil
	})
}

// Unpack gives back the plain rows that Pack was given, rounded as it rounded
// them.
func (l *Layout) Unpack(dst, src []byte, rowLen int64) error {
	return l.each(src, dst, rowLen, func(bundle, rows []byte, row int) error {
		l.unbundle(bundle, rows, row)
		return nil
	})
}

// Unbundle gives the blocks of whole bundles of one group that follow each
// other. Those of the group's first row begin dst, those of the next row begin
// row bytes further.
func (l *Layout) Unbundle(dst []byte, row int, bundles []byte) {
	step := l.blocks * int(l.typ.BlockBytes())
	for at := 0; len(bundles) >= l.size; at, bundles = at+step, bundles[l.size:] {
		l.unbundle(bundles[:l.size], dst[at:], row)
	}
}

func (l *Layout) unbundle(bundle, rows []byte, row int) {
	switch {
	case l.coder.unpack != nil:
		l.coder.unpack(bundle, rows, row)
		return
	case l.words:
		l.unbundle32(bundle, rows, row)
		return
	}
	at := 0
	for _, f := range l.fields {
		n := f.size * l.rows
		f.unpack(bundle[at:at+n], rows, row, l.rows)
		at += n
	}
}

// each goes over the bundles of whole groups. rows begins at a block of a
// group's first row; the same block of the next row is row bytes further.
func (l *Layout) each(packed, plain []byte, rowLen int64, do func(bundle, rows []byte, row int) error) error {
	rb, err := tensor.RowBytes(l.typ, rowLen)
	if err != nil {
		return fmt.Errorf("layout %s: %w", l.name, err)
	}
	if len(plain) == 0 && len(packed) == 0 {
		return nil
	}
	size, err := l.GroupBytes(rowLen)
	if err != nil {
		return err
	}
	row, groups := int(rb), int64(len(packed))/size
	group := row * l.rows
	if int64(len(packed)) != groups*size || len(plain)/group != int(groups) || len(plain)%group != 0 {
		return fmt.Errorf("%w: layout %s: %d packed and %d plain bytes are no groups of %d rows of %d bytes", tensor.ErrRange, l.name, len(packed), len(plain), l.rows, row)
	}
	step := l.blocks * int(l.typ.BlockBytes())
	for g := 0; len(plain) > 0; g, packed, plain = g+1, packed[size:], plain[group:] {
		for x := range row / step {
			if err := do(packed[x*l.size:(x+1)*l.size], plain[x*step:group], row); err != nil {
				return fmt.Errorf("layout %s: group %d, bundle %d: %w", l.name, g, x, err)
			}
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
	case quads:
		f.packWords(out, rows, row, n, transpose4)
	case planes:
		f.packWords(out, rows, row, n, toPlanes)
	case lookups:
		for t := range 2 * f.size {
			for r := range n / 2 {
				out[t*n/2+r] = f.bits4(rows, row, r, t) | f.bits4(rows, row, r+n/2, t)<<4
			}
		}
	case lookups2:
		for t := range f.size {
			for r := range n / 2 {
				low, high := f.pair4(rows, row, r, t), f.pair4(rows, row, r+n/2, t)
				out[t*n+r] = low&15 | high&15<<4
				out[t*n+n/2+r] = low>>4 | high>>4<<4
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
	case turns:
		if !f.unpackRuns(in, rows, row, n) {
			f.unpackBytes(in, rows, row, n)
		}
	case flipped:
		f.unpackBytes(in, rows, row, n)
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
	case quads:
		f.unpackWords(in, rows, row, n, transpose4)
	case planes:
		f.unpackWords(in, rows, row, n, fromPlanes)
	case lookups:
		for t := range 2 * f.size {
			for r := range n {
				v := in[t*n/2+r%(n/2)] >> (r / (n / 2) * 4) & 15
				p := &rows[r*row+f.at+t/2]
				if t%2 == 0 {
					*p = v
				} else {
					*p |= v << 4
				}
			}
		}
	case lookups2:
		for r := range n {
			clear(rows[r*row+f.at:][:f.size])
			for t := range f.size {
				shift := r / (n / 2) * 4
				f.setPair4(rows, row, r, t, in[t*n+r%(n/2)]>>shift&15, in[t*n+n/2+r%(n/2)]>>shift&15)
			}
		}
	case scales6:
		f.unpackScales6(in, rows, row)
	}
}

// unpackBytes is unpack for chunks of each row in turn, of any size.
func (f field) unpackBytes(in, rows []byte, row, n int) {
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
