package quant

import (
	"encoding/binary"
	"sync"
)

// laneLists are the neighbours of a grid's keys as the searches in lanes read
// them. Each key has a short list for runs that were surely rounded to their
// nearest codes: a neighbour is left out when an earlier one has in every place
// a code between the key's and its own. As terms grow away from the nearest
// code, and float32 sums keep order, the earlier one is never farther. A key
// that is an entry has itself for the only neighbour.
//
//	dir    of the short lists, then of the long ones, by key in base levels:
//	       where the list begins << 12 | its length
//	lists  the neighbours in order: where their rows begin
//	rows   of every entry: its key, then a byte for each value with the place of
//	       its code's terms or levels, in units of 8 bytes
type laneLists struct {
	dir   []uint32
	lists []uint16
	rows  []uint32
}

// candidateRow is the room for the candidates of a group.
const candidateRow = 40

// newLaneLists makes the lists for codes 0..levels-1.
func newLaneLists(g *grid, levels int) *laneLists {
	keys := 1
	for range g.dim {
		keys *= levels
	}
	l := &laneLists{dir: make([]uint32, 2*keys)}
	for e := range len(g.codes) / g.dim {
		row := make([]byte, g.dim)
		for i, c := range g.entry(e) {
			row[i] = c * (candidateRow * 4 / 8)
		}
		l.rows = append(l.rows, uint32(g.key(g.entry(e))))
		for ; len(row) > 0; row = row[4:] {
			l.rows = append(l.rows, binary.LittleEndian.Uint32(row))
		}
	}
	packed := make([]int, keys) // the grid's key
	at := make([]uint8, g.dim)
	for k := range packed {
		r := k
		for i := range at {
			at[i] = uint8(r % levels)
			r /= levels
		}
		packed[k] = g.key(at)
		if e := g.index[packed[k]]; e >= 0 {
			l.dir[k] = l.add(g, []uint16{uint16(e)})
			l.dir[keys+k] = l.dir[k]
		}
	}
	var long, short []uint16
	for k, key := range packed {
		if g.index[key] < 0 {
			long = g.nearest(long[:0], key)
			short = g.undominated(append(short[:0], long...), key)
			l.dir[k], l.dir[k+keys] = l.add(g, short), l.add(g, long)
		}
	}
	return l
}

// add appends a list and gives its dir entry.
func (l *laneLists) add(g *grid, list []uint16) uint32 {
	at := len(l.lists)
	for _, e := range list {
		l.lists = append(l.lists, e*uint16(1+g.dim/4))
	}
	return uint32(at<<12 | len(list))
}

// onGrid reports whether a list is that of a key that is an entry.
func (l *laneLists) onGrid(g *grid, dir uint32) bool { return dir>>12 < uint32(len(g.codes)/g.dim) }

// appendLanes appends the keys of a list that runs down the lanes of groups of 8:
// of n groups lane l has neighbours l*n .. l*n+n-1, the last repeated at the end.
func (g *grid) appendLanes(dst, list []uint16, groups int) []uint16 {
	for j := range groups {
		for lane := range 8 {
			e := list[min(lane*groups+j, len(list)-1)]
			dst = append(dst, uint16(g.key(g.entry(int(e)))))
		}
	}
	return dst
}

var (
	listsIQ2XXS = sync.OnceValue(func() *laneLists { return newLaneLists(gridIQ2XXS(), 3) })
	listsIQ2XS  = sync.OnceValue(func() *laneLists { return newLaneLists(gridIQ2XS(), 3) })
	listsIQ2S   = sync.OnceValue(func() *laneLists { return newLaneLists(gridIQ2S(), 3) })
	listsIQ3XXS = sync.OnceValue(func() *laneLists { return newLaneLists(gridIQ3XXS(), 8) })
	listsIQ3S   = sync.OnceValue(func() *laneLists { return newLaneLists(gridIQ3S(), 8) })
)
