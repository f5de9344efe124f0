package hub

import (
	"cmp"
	"slices"
)

// planLimits bound how ranges are put together.
type planLimits struct {
	// segment is the most bytes of one request.
	segment int64
	// big ranges get requests of their own, so that the order of reading is
	// kept where it matters.
	big int64
	// gap is the number of unwanted bytes that may be fetched to save
	// requests.
	gap int64
}

// maxGap is the longest gap worth reading over: about what a connection
// transfers while a new request is under way.
const maxGap = 1 << 20

// wantWhole reports whether so little of a file is left out that all of it is
// fetched, which lets its digest be checked: less than 1 % of what is needed.
func wantWhole(size int64, needed spans) bool {
	n := needed.total()
	return n > 0 && (size-n) < (n+99)/100
}

// planSegments turns wanted ranges of one file, in the order of reading, into
// disjoint requests sorted by offset. Neighbours are put together: touching
// ones always, others over the smallest gaps while the gap budget lasts. With
// whole, the requests cover the file. gapUsed counts the unwanted bytes.
func planSegments(items []span, size int64, whole bool, lim planLimits) (segs []span, gapUsed int64) {
	sorted := make([]span, 0, len(items))
	for _, x := range items {
		if x = x.clip(span{0, size}); x.lo < x.hi {
			sorted = append(sorted, x)
		}
	}
	slices.SortFunc(sorted, func(a, b span) int { return cmp.Or(cmp.Compare(a.lo, b.lo), cmp.Compare(a.hi, b.hi)) })
	atoms := sorted[:0]
	for _, x := range sorted {
		if n := len(atoms); n > 0 {
			x.lo = max(x.lo, atoms[n-1].hi)
		}
		if x.lo < x.hi {
			atoms = append(atoms, x)
		}
	}
	if len(atoms) == 0 {
		return nil, 0
	}
	big := make([]bool, len(atoms))
	for i, x := range atoms {
		big[i] = x.len() >= lim.big
	}
	if whole {
		atoms[0].lo = 0
		for i := range atoms {
			end := size
			if i+1 < len(atoms) {
				end = atoms[i+1].lo
			}
			atoms[i].hi = end
		}
	} else {
		gapUsed = fillGaps(atoms, big, lim)
	}
	for i, x := range atoms {
		if n := len(segs); n > 0 && i > 0 && !big[i] && !big[i-1] && segs[n-1].hi == x.lo && x.hi-segs[n-1].lo <= lim.segment {
			segs[n-1].hi = x.hi
			continue
		}
		segs = append(segs, x)
	}
	return cutLong(segs, lim.segment), gapUsed
}

// fillGaps lengthens small ranges up to their small neighbours, over the
// shortest gaps first. It returns the bytes that this adds.
func fillGaps(atoms []span, big []bool, lim planLimits) int64 {
	var gaps []int // index of the range before the gap
	for i := 0; i+1 < len(atoms); i++ {
		g := atoms[i+1].lo - atoms[i].hi
		if g > 0 && g <= maxGap && !big[i] && !big[i+1] {
			gaps = append(gaps, i)
		}
	}
	gap := func(i int) int64 { return atoms[i+1].lo - atoms[i].hi }
	slices.SortStableFunc(gaps, func(a, b int) int { return cmp.Compare(gap(a), gap(b)) })
	var used int64
	for _, i := range gaps {
		g := gap(i)
		if used+g > lim.gap {
			break
		}
		used += g
		atoms[i].hi = atoms[i+1].lo
	}
	return used
}

// cutLong cuts what is longer than one request into equal parts.
func cutLong(segs []span, limit int64) []span {
	out := make([]span, 0, len(segs))
	for _, x := range segs {
		n := (x.len() + limit - 1) / limit
		for k := int64(0); k < n; k++ {
			// x.len()/n first: the product of length and k may overflow.
			step, rest := x.len()/n, x.len()%n
			lo := x.lo + k*step + min(k, rest)
			hi := lo + step
			if k < rest {
				hi++
			}
			out = append(out, span{lo, hi})
		}
	}
	return out
}

// plan makes jobs of all pending needs, in their order. It is called with
// e.mu held.
func (e *engine) plan() {
	pending := e.pending
	e.pending = nil
	items := map[*remote][]span{}
	var order []*remote
	for _, n := range pending {
		if items[n.f] == nil {
			order = append(order, n.f)
		}
		items[n.f] = append(items[n.f], n.x)
		if e.mem != nil {
			e.mem.claim(n.f, n.x)
		}
	}
	segs := map[*remote][]span{}
	for _, f := range order {
		segs[f] = f.planNew(items[f], e.limits)
	}
	// A request's turn is that of the first range that touches it.
	taken := map[*remote][]bool{}
	for _, n := range pending {
		list := segs[n.f]
		if taken[n.f] == nil {
			taken[n.f] = make([]bool, len(list))
		}
		i, _ := slices.BinarySearchFunc(list, n.x.lo, func(s span, lo int64) int {
			if s.hi <= lo {
				return -1
			}
			return 1
		})
		for ; i < len(list) && list[i].lo < n.x.hi; i++ {
			if !taken[n.f][i] {
				taken[n.f][i] = true
				e.enqueue(n.f, list[i], false)
			}
		}
	}
	for _, f := range order {
		for i, s := range segs[f] {
			if len(taken[f]) == 0 || !taken[f][i] {
				e.enqueue(f, s, false)
			}
		}
	}
}

// planNew gives the requests for newly declared ranges of a file.
func (f *remote) planNew(items []span, lim planLimits) []span {
	if !f.whole && !f.digest.IsZero() && wantWhole(f.size, f.needs) {
		f.whole = true
		if f.eng.mem != nil {
			f.eng.mem.hashWhole(f)
		}
	}
	if f.whole && len(items) == 0 {
		// Otherwise the ranges grow over the gaps between them: each stays a request of
		// its own, in its turn.
		items = f.planned.missing(span{0, f.size})
	}
	lim.gap = f.needs.total()/100 - f.gapUsed
	raw, used := planSegments(items, f.size, f.whole, lim)
	f.gapUsed += used
	var out []span
	for _, s := range raw {
		out = append(out, f.planned.missing(s)...)
		f.planned = f.planned.add(s)
	}
	return out
}
