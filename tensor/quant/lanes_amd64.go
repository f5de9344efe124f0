//go:build !noasm

package quant

// laneGroups is a search over eight groups at once: element i of an array of
// values holds value i of each group. The kernels know the offsets.
type laneGroups struct {
	x, w, codes [32][8]float32
	scales      [8]float32
	mins        [8]float32
	by          [8]float32 // code = clamp(nearest(by*(x-from)))
	from        [8]float32
	sumW, sumX  [8]float32
	high        [8]float32
	lowest      [8]float32
	best        [8]float32
	alive       [8]float32
	low         [8]float32
}

// lanes is the scratch of the searches in lanes. One serves one goroutine.
type lanes struct {
	sets [2]laneGroups

	fit        *affineFit // whose candidates these are, for n
	n          int32
	candidates [38]float32
}

// numerators fills candidates with n and what fitAffine divides by the range
// in each step.
func (s *lanes) numerators(fit *affineFit, n int32) {
	if s.fit == fit && s.n == n {
		return
	}
	s.fit, s.n = fit, n
	s.candidates[0] = float32(n)
	for is := int32(0); is <= fit.steps; is++ {
		s.candidates[1+is] = fit.rmin + float32(fit.rdelta*float32(is)) + float32(n)
	}
}

// load puts eight groups of size values, and their weights as the k-quants
// have them, into a set.
func (s *lanes) load(set int, x, weights []float32, sigma2 float32, size int, fit *affineFit) {
	g := &s.sets[set]
	x = x[:8*size]
	transposeAVX2(&g.x[0], &x[0], 4*size, size)
	switch {
	case weights != nil:
		weights = weights[:8*size]
		transposeAVX2(&g.w[0], &weights[0], 4*size, size)
		weighImportanceAVX2(&g.x[0][0], size, sigma2)
	case fit.absolute:
		weighAbsAVX2(&g.x[0][0], size)
	default:
		weighMeanAVX2(&g.x[0][0], size, 1/float32(size))
	}
}

// affine is fitAffine for the groups of one or two sets. It gives false for
// values that only the scalar search handles.
func (s *lanes) affine(sets, size int, fit *affineFit, n int32) bool {
	s.numerators(fit, n)
	if fit.absolute {
		return fitAffineAbsAVX2(&s.sets[0].x[0][0], sets, size, &s.candidates[0], int(fit.steps)+1)
	}
	return fitAffineAVX2(&s.sets[0].x[0][0], sets, size, &s.candidates[0], int(fit.steps)+1)
}

// store gives the outcome for the groups of a set, from group at on.
func (s *lanes) store(g *groups, at, set int) {
	from := &s.sets[set]
	copy(g.scales[at:], from.scales[:])
	copy(g.mins[at:], from.mins[:])
	copy(g.by[at:], from.by[:])
	copy(g.from[at:], from.from[:])
	for i, w := range from.sumW {
		g.sums[at+i] = 0 + w // the scalar sum starts at 0, which takes the sign of -0
	}
}

// affine16 searches the 16 groups of a superblock of Q2_K.
func (s *lanes) affine16(g *groups, x, weights []float32, sigma2 float32, fit *affineFit, n int32) bool {
	s.load(0, x, weights, sigma2, 16, fit)
	s.load(1, x[128:], after(weights, 128), sigma2, 16, fit)
	if !s.affine(2, 16, fit, n) {
		return false
	}
	s.store(g, 0, 0)
	s.store(g, 8, 1)
	return true
}

// affine8 searches the 8 groups of each of one or two superblocks of Q4_K and
// Q5_K.
func (s *lanes) affine8(g *[2]groups, x, weights []float32, fit *affineFit, n int32) bool {
	sets := len(x) / 256
	for i := range sets {
		var sigma2 float32
		if weights != nil {
			sigma2 = 2 * sumSquares(x[256*i:256*i+256]) / 256
		}
		s.load(i, x[256*i:], after(weights, 256*i), sigma2, 32, fit)
	}
	if !s.affine(sets, 32, fit, n) {
		return false
	}
	for i := range sets {
		s.store(&g[i], 0, i)
	}
	return true
}

// recode is the scalar recode for a superblock, and gives groups whose scale is
// zero the codes of the search. d and m hold a number for each 16 values.
func (s *lanes) recode(l *[256]uint8, x []float32, g *groups, d, m *[16]float32, size int, n int32) {
	recodeAVX2(&l[0], &x[:256][0], &d[0], &m[0], 0, n)
	for b := range 256 / size {
		if d[b*size/16] != 0 {
			continue
		}
		for i := b * size; i < (b+1)*size; i++ {
			l[i] = uint8(clamp(nearest(float32(g.by[b]*(x[i]-g.from[b]))), 0, n))
		}
	}
}
