package hub

import (
	"fmt"
	"slices"
	"sort"
)

// Range is a run of bytes of a file.
type Range struct {
	Off, Len int64
}

// span is the half-open interval [lo, hi).
type span struct{ lo, hi int64 }

func (s span) len() int64     { return s.hi - s.lo }
func (s span) String() string { return fmt.Sprintf("[%d,%d)", s.lo, s.hi) }

func (s span) clip(o span) span { return span{max(s.lo, o.lo), min(s.hi, o.hi)} }

// spans is a set of bytes: sorted, disjoint, not touching, none empty.
type spans []span

// find gives the index of the first span that ends after off.
func (s spans) find(off int64) int {
	return sort.Search(len(s), func(i int) bool { return s[i].hi > off })
}

// add returns the union with x.
func (s spans) add(x span) spans {
	if x.lo >= x.hi {
		return s
	}
	// Touching neighbours are merged too, so the search is for hi >= lo.
	i := sort.Search(len(s), func(i int) bool { return s[i].hi >= x.lo })
	j := i
	for j < len(s) && s[j].lo <= x.hi {
		x.lo, x.hi = min(x.lo, s[j].lo), max(x.hi, s[j].hi)
		j++
	}
	return slices.Replace(s, i, j, x)
}

// remove returns the set without x.
func (s spans) remove(x span) spans {
	if x.lo >= x.hi {
		return s
	}
	i := s.find(x.lo)
	j := i
	var keep []span
	for j < len(s) && s[j].lo < x.hi {
		if s[j].lo < x.lo {
			keep = append(keep, span{s[j].lo, x.lo})
		}
		if s[j].hi > x.hi {
			keep = append(keep, span{x.hi, s[j].hi})
		}
		j++
	}
	return slices.Replace(s, i, j, keep...)
}

// missing returns the parts of x that the set does not hold.
func (s spans) missing(x span) []span {
	var out []span
	for i := s.find(x.lo); x.lo < x.hi; i++ {
		if i == len(s) || s[i].lo >= x.hi {
			return append(out, x)
		}
		if s[i].lo > x.lo {
			out = append(out, span{x.lo, s[i].lo})
		}
		x.lo = s[i].hi
	}
	return out
}

// has reports whether all of x is in the set.
func (s spans) has(x span) bool {
	if x.lo >= x.hi {
		return true
	}
	i := s.find(x.lo)
	return i < len(s) && s[i].lo <= x.lo && s[i].hi >= x.hi
}

// prefix is how many bytes from off on are in the set without a gap.
func (s spans) prefix(off int64) int64 {
	if i := s.find(off); i < len(s) && s[i].lo <= off {
		return s[i].hi - off
	}
	return 0
}

// total counts the bytes.
func (s spans) total() int64 {
	var n int64
	for _, x := range s {
		n += x.len()
	}
	return n
}

// within counts the bytes of the set inside x.
func (s spans) within(x span) int64 {
	n := x.len()
	for _, m := range s.missing(x) {
		n -= m.len()
	}
	return n
}

// inside returns the part of the set inside x.
func (s spans) inside(x span) spans {
	var out spans
	for i := s.find(x.lo); i < len(s) && s[i].lo < x.hi; i++ {
		out = append(out, s[i].clip(x))
	}
	return out
}
