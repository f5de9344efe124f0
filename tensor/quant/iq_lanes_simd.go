//go:build (amd64 || arm64) && !noasm

package quant

// latticeLanes is the search of latticeFit with neighbours, values or candidates
// in lanes. It holds one superblock. The kernels know the offsets down to terms.
type latticeLanes struct {
	x, w, root   [256]float32
	starts       [8][candidateRow]uint32 // dir entries by run and candidate
	keys         [8][candidateRow]uint32 // of the entries
	ids, scales  [32]float32             // candidates: codes a unit of x, and the inverse
	sumqx, sumq2 [32]float32             // of candidates
	tops, lows   [32]float32             // of eight values
	signs        [32]uint8
	// For the candidates: of runs of 8, the terms of the 3 codes of each value; of
	// runs of 4, the 8 levels times the scale.
	terms [24][candidateRow]float32

	fit        *latticeFit
	lists      *laneLists
	trials     int
	numerators [32]float32
}

func newLatticeLanes(f *latticeFit) *latticeLanes {
	s := &latticeLanes{fit: f, lists: f.lists(), trials: int(2*f.steps + 1)}
	span := float32(2*f.top + 1)
	for t := range s.numerators {
		is := min(t-f.steps, f.steps)
		s.numerators[t] = span + float32(float32(is)*f.step)
	}
	return s
}

// load takes a superblock. It gives false for values that only the scalar search
// handles.
func (s *latticeLanes) load(x, weights []float32, sigma2, base float32) bool {
	x = x[:256]
	var ok bool
	if weights != nil {
		ok = latticeImportanceSIMD(&s.x[0], &x[0], &weights[:256][0], sigma2)
	} else {
		ok = latticeWeighSIMD(&s.x[0], &x[0], base)
	}
	if !ok {
		return false
	}
	parity := 0
	if s.fit.parity {
		parity = 1
	}
	latticeFoldSIMD(&s.x[0], &x[0], parity)
	return true
}

// settle finds the keys of entries under the first candidates.
func (s *latticeLanes) settle(at, trials int) {
	l := s.lists
	dir, lists, rows := &l.dir[0], &l.lists[0], &l.rows[0]
	switch {
	case s.fit.grid.dim == 4:
		latticeSettle4x8SIMD(&s.x[0], 4*at, trials, dir, lists, rows)
	case s.fit.group == 16:
		latticeSettle8x2SIMD(&s.x[0], 4*at, trials, dir, lists, rows)
	default:
		latticeSettle8x4SIMD(&s.x[0], 4*at, trials, dir, lists, rows)
	}
}

// sums sets sumqx and sumq2 for all candidates.
func (s *latticeLanes) sums(at int) {
	switch {
	case s.fit.group == 16:
		latticeSums8x2For3SIMD(&s.x[0], 4*at)
	case s.fit.grid.dim == 8:
		latticeSums8x4For2SIMD(&s.x[0], 4*at)
	case s.trials > 24:
		latticeSums4x8For4SIMD(&s.x[0], 4*at)
	default:
		latticeSums4x8For3SIMD(&s.x[0], 4*at)
	}
}

// Scales that the searches in lanes take: far from where an operation overflows
// or a product of a value and a candidate leaves the range of the rounding.
const (
	latticeLeast = 1.0 / (1 << 60)
	latticeMost  = 1 << 42
	latticeRange = 1 << 16
)

func usual(scale, amax float32) bool {
	return scale >= latticeLeast && scale <= latticeMost && amax <= float32(scale*latticeRange)
}

// fitGroup is latticeFit.fit for group i of the superblock; g gets its entries and
// signs. Able is false for what only the scalar search handles.
func (s *latticeLanes) fitGroup(g *latticeGroup, i int) (scale float32, ok, able bool) {
	f := s.fit
	at, runs := i*f.group, f.group/f.grid.dim
	top, low := s.tops[at/8], s.lows[at/8]
	for k := at/8 + 1; k < (at+f.group)/8; k++ {
		if s.tops[k] > top {
			top = s.tops[k]
		}
		if s.lows[k] < low {
			low = s.lows[k]
		}
	}
	if top < f.eps || top == 0 {
		return 0, false, true
	}
	ref, amax := top, top
	if -low > amax {
		amax = -low
	}
	if f.positive {
		var unused [32]uint8
		scale = fitPositive(f.top+2, s.x[at:at+f.group], s.w[at:at+f.group], unused[:], true)
		ref = float32(scale * float32(f.top+1))
		if ref <= 0 {
			return 0, false, true
		}
	}
	if !usual(ref, amax) {
		return 0, false, false
	}
	latticeCandidatesSIMD(&s.x[0], &s.numerators[0], (s.trials+7)/8, ref)
	s.settle(at, s.trials)
	s.sums(at)
	var best float32
	found := -1
	for t, sumqx := range s.sumqx[:s.trials] {
		sumq2 := s.sumq2[t]
		if sumq2 > 0 && sumqx*sumqx > best*sumq2 {
			scale = sumqx / sumq2
			best = float32(scale * sumqx)
			found = t
		}
	}
	if found < 0 {
		return 0, false, false
	}
	var keys [8]uint32
	var again [8]bool
	any := f.positive
	for r := range runs {
		keys[r] = s.keys[r][found]
		off := !s.lists.onGrid(f.grid, s.starts[r][found])
		again[r] = off || f.refitAll
		any = any || off
	}
	if any && scale > 0 {
		if !usual(scale, amax) {
			return 0, false, false
		}
		s.ids[0], s.scales[0] = 1/scale, scale
		s.settle(at, 1)
		for r := range runs {
			if again[r] {
				keys[r] = s.keys[r][0]
			}
		}
		if sumqx, sumq2 := s.fitted(at, &keys); sumq2 > 0 {
			scale = sumqx / sumq2
		}
	}
	copy(g.signs[:], s.signs[at/8:(at+f.group)/8])
	if scale < 0 {
		scale = -scale
		for k := range g.signs {
			g.signs[k] = ^g.signs[k]
		}
	}
	for r, k := range keys[:runs] {
		g.entries[r] = uint16(f.grid.index[k])
	}
	return scale, true, true
}

// fitted gives the sums of the least squares scale of a group's entries.
func (s *latticeLanes) fitted(at int, keys *[8]uint32) (sumqx, sumq2 float32) {
	g := s.fit.grid
	for r, k := range keys[:s.fit.group/g.dim] {
		v := at + r*g.dim
		x, w := s.x[v:v+g.dim], s.w[v:v+g.dim]
		for i, wi := range w {
			q := oddLevels[k&7&(1<<g.codeBits-1)]
			k >>= g.codeBits
			sumqx += float32(float32(wi*x[i]) * q)
			sumq2 += float32(float32(wi*q) * q)
		}
	}
	return sumqx, sumq2
}
