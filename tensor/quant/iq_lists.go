package quant

import "sync"

// laneLists are the neighbours of a grid's keys as the searches in lanes read
// them. Each key has a short list for runs that were surely rounded to their
// nearest codes: a neighbour is left out when an earlier one has in every place
// a code between the key's and its own. As terms grow away from the nearest
// code, and float32 sums keep order, the earlier one is never farther. A key
// that is an entry has itself for the only neighbour.
//
//	dir    of the short lists, then of the long ones, by key in base levels:
//	       first group of 8 << 8 | groups beyond first
//	lists  groups of 8 keys, each for one lane of a list that runs down the
//	       lanes: of n groups lane l has neighbours l*n .. l*n+n-1, the last
//	       repeated at the end
type laneLists struct {
	dir     []uint32
	lists   []uint16
	entries uint32 // the groups before are those of entries
}

// newLaneLists makes the lists for codes 0..levels-1. Every list has at least
// first groups.
func newLaneLists(g *grid, levels, first int) *laneLists {
	keys := 1
	for range g.dim {
		keys *= levels
	}
	l := &laneLists{dir: make([]uint32, 2*keys)}
	packed := make([]int, keys) // the grid's key
	at := make([]uint8, g.dim)
	for k := range packed {
		r := k
		for i := range at {
			at[i] = uint8(r % levels)
			r /= levels
		}
		packed[k] = g.key(at)
		if g.index[packed[k]] >= 0 {
			l.dir[k] = l.add([]uint16{uint16(packed[k])}, first)
			l.dir[keys+k] = l.dir[k]
		}
	}
	l.entries = uint32(len(l.lists) / 8)
	add := func(list []uint16) uint32 {
		for i, e := range list {
			list[i] = uint16(g.key(g.entry(int(e))))
		}
		return l.add(list, first)
	}
	var long, short []uint16
	for k, key := range packed {
		if g.index[key] < 0 {
			long = g.nearest(long[:0], key)
			short = g.undominated(append(short[:0], long...), key)
			l.dir[k], l.dir[k+keys] = add(short), add(long)
		}
	}
	return l
}

// add appends a list and gives its dir entry.
func (l *laneLists) add(keys []uint16, first int) uint32 {
	at := len(l.lists) / 8
	groups := max((len(keys)+7)/8, first)
	l.lists = appendLanes(l.lists, keys, groups)
	return uint32(at<<8 | groups - first)
}

// appendLanes appends a list of keys that runs down the lanes of groups.
func appendLanes(dst, keys []uint16, groups int) []uint16 {
	for j := range groups {
		for lane := range 8 {
			dst = append(dst, keys[min(lane*groups+j, len(keys)-1)])
		}
	}
	return dst
}

var (
	listsIQ2XXS = sync.OnceValue(func() *laneLists { return newLaneLists(gridIQ2XXS(), 3, 2) })
	listsIQ2XS  = sync.OnceValue(func() *laneLists { return newLaneLists(gridIQ2XS(), 3, 2) })
	listsIQ2S   = sync.OnceValue(func() *laneLists { return newLaneLists(gridIQ2S(), 3, 2) })
	listsIQ3XXS = sync.OnceValue(func() *laneLists { return newLaneLists(gridIQ3XXS(), 8, 1) })
	listsIQ3S   = sync.OnceValue(func() *laneLists { return newLaneLists(gridIQ3S(), 8, 1) })
)
