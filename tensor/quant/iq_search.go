package quant

// latticeFit is the search that the IQ2 and IQ3 encoders share: for a group of
// magnitudes find a scale and grid entries. Each candidate scale rounds the
// magnitudes to codes, moves runs of codes that are no entry to the best
// neighbour, and fits the scale to what came out.
type latticeFit struct {
	grid     *grid
	lists    func() *laneLists // the grid's
	parity   bool              // the number of signs is even in each run of 8
	group    int               // values that share a scale
	top      int32             // highest code
	steps    int               // candidates -steps..steps
	step     float32           // their spacing, in units of the code
	eps      float32           // magnitude under which the group is zero
	positive bool              // start from fitPositive (IQ2_XXS)
	refitAll bool              // refit every run at the end, not only those moved
}

// latticeSearch is the search of one row's groups.
type latticeSearch struct {
	*latticeFit
	latticeGroup // the group searched last

	x, weights   []float32 // of a superblock
	sigma2, base float32
	lanes        *latticeLanes // nil for the scalar search
	inLanes      bool          // the superblock is there
}

func newLatticeSearch(f *latticeFit, fast bool) *latticeSearch {
	s := &latticeSearch{latticeFit: f}
	if fast {
		s.lanes = newLatticeLanes(f)
	}
	return s
}

// load takes a superblock with its importance, or none. Weights are as in
// weigh.
func (s *latticeSearch) load(x, weights []float32, sigma2, base float32) {
	s.x, s.weights, s.sigma2, s.base = x, part(weights, 0, len(x)), sigma2, base
	s.inLanes = s.lanes != nil && s.lanes.load(x, weights, sigma2, base)
}

// search fits group i of the superblock.
func (s *latticeSearch) search(i int) (scale float32, ok bool) {
	if s.inLanes {
		if scale, ok, able := s.lanes.fitGroup(&s.latticeGroup, i); able {
			return scale, ok
		}
	}
	x := s.x[i*s.group : (i+1)*s.group]
	s.weigh(x, part(s.weights, i*s.group, s.group), s.sigma2, s.base)
	s.fold(x, s.parity)
	return s.fit(&s.latticeGroup)
}

// latticeGroup holds one group during a search. Arrays have room for 32 values.
type latticeGroup struct {
	x, w, root [32]float32 // magnitudes, weights and roots of the weights
	codes      [32]uint8
	entries    [8]uint16 // of the runs
	signs      [4]uint8  // bit i of byte k: value 8k+i is negative
}

// fold splits src into magnitudes and signs. With parity, where only seven
// signs of eight are stored, the number of negative values must be even: the
// value that matters least is kept with the wrong sign, as a negative
// magnitude.
func (g *latticeGroup) fold(src []float32, parity bool) {
	for k := 0; 8*k < len(src); k++ {
		var s uint8
		flips := 0
		x := g.x[8*k : 8*k+8]
		for i := range x {
			v := src[8*k+i]
			if v >= 0 {
				x[i] = v
			} else {
				x[i] = -v
				flips++
				s |= 1 << i
			}
		}
		if parity {
			if flips&1 == 1 {
				least := 0
				var lowest float32
				for i := range x {
					v := src[8*k+i]
					if a := float32(g.w[8*k+i] * v * v); i == 0 || a < lowest {
						least, lowest = i, a
					}
				}
				x[least] = -x[least]
				s ^= 1 << least
			}
			s &= 127
		}
		g.signs[k] = s
	}
}

// weigh sets the weights of a group: by importance when qw is given, else base
// + x*x.
func (g *latticeGroup) weigh(src, qw []float32, sigma2, base float32) {
	if qw != nil {
		importance(g.w[:len(src)], src, qw, sigma2)
	} else {
		for i, v := range src {
			g.w[i] = float32(base) + float32(v*v)
		}
	}
	for i := range src {
		g.root[i] = sqrt32(g.w[i])
	}
}

// code rounds a magnitude to a code.
func (f *latticeFit) code(id, x float32) uint8 {
	return uint8(clamp(nearest(float32(0.5*(float32(id*x)-1))), 0, f.top))
}

// fitted gives the sums of the least squares scale of the group's codes.
func (f *latticeFit) fitted(g *latticeGroup, codes *[32]uint8) (sumqx, sumq2 float32) {
	for i := range f.group {
		w, q := g.w[i], oddLevels[codes[i]]
		sumqx += float32(float32(w*g.x[i]) * q)
		sumq2 += float32(float32(w*q) * q)
	}
	return sumqx, sumq2
}

// settle moves the run of codes at v to an entry and reports whether it was one.
func (f *latticeFit) settle(g *latticeGroup, codes *[32]uint8, v int, scale float32) bool {
	run := codes[v : v+f.grid.dim]
	key := f.grid.key(run)
	if f.grid.index[key] >= 0 {
		return true
	}
	copy(run, f.grid.entry(f.grid.nearestEntry(key, g.x[v:], g.root[v:], scale, &oddLevels)))
	return false
}

// fit searches the group's scale, which is never negative, and sets its
// entries. Signs are turned when the scale came out negative. A group that is
// zero reports false and has no entries.
func (f *latticeFit) fit(g *latticeGroup) (scale float32, ok bool) {
	top := g.x[0]
	for _, v := range g.x[1:f.group] {
		if !(top > v) {
			top = v
		}
	}
	if top < f.eps || top == 0 {
		return 0, false
	}
	runs, dim := f.group/f.grid.dim, f.grid.dim
	span := float32(2*f.top + 1)
	ref := top
	g.codes = [32]uint8{}
	if f.positive {
		var unused [32]uint8
		scale = fitPositive(f.top+2, g.x[:f.group], g.w[:f.group], unused[:], false)
		ref = float32(scale * float32(f.top+1))
		if ref <= 0 {
			return 0, false
		}
	} else {
		scale = top / span
	}
	var onGrid, aux [8]bool
	for k := range onGrid {
		onGrid[k] = !f.refitAll
	}
	var best float32
	var codes [32]uint8
	for is := -f.steps; is <= f.steps; is++ {
		id := (span + float32(float32(is)*f.step)) / ref
		for i := range f.group {
			codes[i] = f.code(id, g.x[i])
		}
		for k := range runs {
			aux[k] = f.settle(g, &codes, k*dim, 1/id)
		}
		sumqx, sumq2 := f.fitted(g, &codes)
		if sumq2 > 0 && sumqx*sumqx > best*sumq2 {
			scale = sumqx / sumq2
			best = float32(scale * sumqx)
			g.codes, onGrid = codes, aux
		}
	}
	moved := false
	for k := range runs {
		moved = moved || !onGrid[k]
	}
	if (moved || f.positive) && scale > 0 {
		id := 1 / scale
		for k := range runs {
			if onGrid[k] && !f.refitAll {
				continue
			}
			for i := k * dim; i < (k+1)*dim; i++ {
				g.codes[i] = f.code(id, g.x[i])
			}
			f.settle(g, &g.codes, k*dim, scale)
		}
		if sumqx, sumq2 := f.fitted(g, &g.codes); sumq2 > 0 {
			scale = sumqx / sumq2
		}
	}
	if scale < 0 {
		scale = -scale
		for k := range g.signs {
			g.signs[k] = ^g.signs[k]
		}
	}
	for k := range runs {
		g.entries[k] = uint16(max(f.grid.index[f.grid.key(g.codes[k*dim:])], 0))
	}
	return scale, true
}

// scaleCodes gives the step d of group scales that are coded as (2l+1)*d for l
// of 0..n, and the codes. ok is false when all scales are zero.
func scaleCodes(codes []uint8, scales []float32, n int32) (d float32, ok bool) {
	var top float32
	for _, s := range scales {
		if s > top {
			top = s
		}
	}
	if top == 0 {
		return 0, false
	}
	d = top / float32(2*n+1)
	id := 1 / d
	for i, s := range scales {
		codes[i] = uint8(clamp(nearest(float32(0.5*(float32(id*s)-1))), 0, n))
	}
	return d, true
}

// parity8 completes seven sign bits so that their number is even.
func parity8(s uint8) uint8 {
	p := s
	p ^= p >> 4
	p ^= p >> 2
	p ^= p >> 1
	return s | p&1<<7
}

// place writes an entry's values times d, negative where a sign bit is set.
func place(dst []float32, values []float32, d float32, signs uint8) {
	for i, v := range values {
		dst[i] = float32(d * v)
		if signs>>i&1 == 1 {
			dst[i] = -dst[i]
		}
	}
}

// onesFor gives weights of one for encoders that cannot do without.
func onesFor(weights []float32, n int) []float32 {
	if weights != nil {
		return weights
	}
	ones := make([]float32, n)
	for i := range ones {
		ones[i] = 1
	}
	return ones
}
