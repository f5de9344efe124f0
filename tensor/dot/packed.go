package dot

import (
	"fmt"

	"quern/tensor/repack"
)

// NewPacked gives the kernel for weights in a repacked layout, in rows of width
// values. Mul takes whole groups of them as package repack makes them. Results
// equal those of the plain type's kernel to the last bit: integers are exact
// in any order, and units are still taken in row order.
func NewPacked(l *repack.Layout, width int, f Format) (*Kernel, error) {
	k, err := New(l.Type(), width, f)
	if err != nil {
		return nil, err
	}
	group, err := l.GroupBytes(int64(width))
	if err != nil {
		return nil, err
	}
	if bundles[l.String()] == nil {
		return nil, fmt.Errorf("%w: there are no products in layout %s", ErrSize, l)
	}
	k.layout, k.unbundle, k.lookup = l, bundles[l.String()], lookups[l.String()]
	k.plainBytes, k.rowBytes = k.rowBytes, int(group/l.GroupRows())
	return k, nil
}

// Rows is the number of rows that Mul takes at least and in multiples of: 1, or
// the rows of a layout's group.
func (k *Kernel) Rows() int {
	if k.layout == nil {
		return 1
	}
	return int(k.layout.GroupRows())
}

// unpackTile fills rows 0 to n-1 of the tile with blocks first to first+count-1 of
// rows r to r+n-1 of w.
func (k *Kernel) unpackTile(t *tile, w []byte, r, n, first, count int, s *Scratch) {
	f := k.family
	if k.layout == nil {
		ahead := count * f.block
		if (first+count)*f.block == k.rowBytes {
			ahead = lanes*k.rowBytes - first*f.block
		}
		unpackRows(k.typ, t, n, count, w[r*k.rowBytes+first*f.block:], k.rowBytes, ahead)
		return
	}
	l := k.layout
	rows, per, size := int(l.GroupRows()), l.BundleBlocks(), l.BundleBytes()
	if rows <= lanes && vectorUnpacks(k.typ) {
		// Vector code takes plain rows. Putting bytes in order is cheap beside
		// taking them apart.
		stride := count * f.block
		if len(s.plain) < lanes*stride {
			s.plain = make([]byte, lanes*stride)
		}
		for i := 0; i < n; i += rows {
			at := (r+i)/rows*rows*k.rowBytes + first/per*size
			l.Unbundle(s.plain[i*stride:], stride, w[at:][:count/per*size])
		}
		unpackRows(k.typ, t, n, count, s.plain, stride, stride)
		return
	}
	for i := range n {
		at := (r+i)/rows*rows*k.rowBytes + first/per*size
		for x := range count / per {
			k.unbundle(t, i, x*per*f.units, w[at+x*size:][:size], (r+i)%rows)
		}
	}
}

// group puts the group that begins at row r in order.
func (k *Kernel) group(w []byte, r int, s *Scratch) []byte {
	rows := k.Rows()
	if len(s.plain) < rows*k.plainBytes {
		s.plain = make([]byte, rows*k.plainBytes)
	}
	k.layout.Unbundle(s.plain, k.plainBytes, w[r*k.rowBytes:][:rows*k.rowBytes])
	return s.plain
}
