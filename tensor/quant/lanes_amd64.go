//go:build !noasm

package quant

// lanes is the scratch of a search over eight groups at once: element i of an
// array of values holds value i of each group. The kernels know the offsets.
// One lanes serves one goroutine.
type lanes struct {
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

// affine is fitAffine for eight groups of size values each, with the weights of
// the k-quants. It fills g from group at on, or gives false for values that only
// the scalar search handles.
func (s *lanes) affine(g *groups, at int, x, weights []float32, sigma2 float32, size int, fit *affineFit, n int32) bool {
	x = x[:8*size]
	transposeAVX2(&s.x[0], &x[0], 4*size, size)
	switch {
	case weights != nil:
		weights = weights[:8*size]
		transposeAVX2(&s.w[0], &weights[0], 4*size, size)
		weighImportanceAVX2(&s.x[0][0], size, sigma2)
	case fit.absolute:
		weighAbsAVX2(&s.x[0][0], size)
	default:
		weighMeanAVX2(&s.x[0][0], size, 1/float32(size))
	}
	s.numerators(fit, n)
	search := fitAffineAVX2
	if fit.absolute {
		search = fitAffineAbsAVX2
	}
	if !search(&s.x[0][0], size, &s.candidates[0], int(fit.steps)+1) {
		return false
	}
	copy(g.scales[at:], s.scales[:])
	copy(g.mins[at:], s.mins[:])
	copy(g.by[at:], s.by[:])
	copy(g.from[at:], s.from[:])
	for i, w := range s.sumW {
		g.sums[at+i] = 0 + w // sum starts at 0, which takes the sign of -0
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
