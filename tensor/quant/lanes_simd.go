//go:build (amd64 || arm64) && !noasm

package quant

import "math"

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

	fit        *affineFit // whose candidates these are, for n; nil for fitSymmetric
	n          int32
	candidates [38]float32
	sigma2     [8]float32
}

// spread fills sigma2 with one number.
func (s *lanes) spread(v float32) *[8]float32 {
	for i := range s.sigma2 {
		s.sigma2[i] = v
	}
	return &s.sigma2
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
	transposeSIMD(&g.x[0], &x[0], 4*size, size)
	switch {
	case weights != nil:
		weights = weights[:8*size]
		transposeSIMD(&g.w[0], &weights[0], 4*size, size)
		weighImportanceSIMD(&g.x[0][0], size, s.spread(sigma2))
	case fit.absolute:
		weighAbsSIMD(&g.x[0][0], size)
	default:
		weighMeanSIMD(&g.x[0][0], size, 1/float32(size))
	}
}

// affine is fitAffine for the groups of one or two sets. It gives false for
// values that only the scalar search handles.
func (s *lanes) affine(sets, size int, fit *affineFit, n int32) bool {
	s.numerators(fit, n)
	if fit.absolute {
		return fitAffineAbsSIMD(&s.sets[0].x[0][0], sets, size, &s.candidates[0], int(fit.steps)+1)
	}
	return fitAffineSIMD(&s.sets[0].x[0][0], sets, size, &s.candidates[0], int(fit.steps)+1)
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

// symmetric16 is fitSymmetric for the 16 groups of a superblock. The weights are
// those of Q6_K when sigma2 is negative, else Q3_K's.
func (s *lanes) symmetric16(g *groups, x, weights []float32, sigma2 float32, n int32) bool {
	for i := range s.sets {
		set := &s.sets[i]
		transposeSIMD(&set.x[0], &x[128*i : 128*i+128][0], 4*16, 16)
		if weights == nil {
			weighSquareSIMD(&set.x[0][0], 16)
			continue
		}
		transposeSIMD(&set.w[0], &weights[128*i : 128*i+128][0], 4*16, 16)
		if sigma2 >= 0 {
			weighImportanceSIMD(&set.x[0][0], 16, s.spread(sigma2))
		}
	}
	if !s.symmetric(2, 16, n) {
		return false
	}
	s.store(g, 0, 0)
	s.store(g, 8, 1)
	return true
}

// symmetric is fitSymmetric for the groups of one or two sets.
func (s *lanes) symmetric(sets, size int, n int32) bool {
	if s.fit != nil || s.n != n {
		s.fit, s.n = nil, n
		s.candidates[0], s.candidates[1] = -float32(n), float32(n-1)
		symmetricNumerators(s.candidates[2:], n)
	}
	for i := range s.sets[:sets] {
		s.sets[i].from = [8]float32{}
	}
	return fitSymmetricSIMD(&s.sets[0].x[0][0], sets, size, &s.candidates[0], 19)
}

// fitted is the search of up to eight blocks of 32, and their codes.
func (s *lanes) fitted(g *groups, l *[256]uint8, x, weights []float32, sigma2 float32, f fittedCodes) bool {
	blocks := len(x) / 32
	var xs, ws [256]float32
	if blocks < 8 {
		copy(xs[:], x)
		copy(ws[:], weights)
		x, weights = xs[:], ws[:]
	}
	s.load(0, x, weights, sigma2, 32, &importanceFit)
	if f.lo == 0 {
		if !s.affine(1, 32, &importanceFit, f.hi) {
			return false
		}
	} else if !s.symmetric(1, 32, -f.lo) {
		return false
	}
	s.store(g, 0, 0)
	for b := range blocks {
		s.found(l[32*b:32*b+32], x[32*b:], g, b, f.lo, f.hi)
	}
	return true
}

// symmetricNumerators gives the 19 numerators of fitSymmetric, the middle one
// first.
func symmetricNumerators(dst []float32, n int32) {
	dst = dst[:19]
	dst[0] = -float32(n)
	at := 1
	for is := int32(-9); is <= 9; is++ {
		if is != 0 {
			dst[at] = -(float32(n) + float32(0.1*float32(is)))
			at++
		}
	}
}

// symmetricScales is fitSymmetric for one group, with candidates in lanes.
func (s *lanes) symmetricScales(n int32, x, w []float32, l []uint8) float32 {
	extreme, amax := argAbs(x)
	if amax < groupEps {
		clear(l[:len(x)])
		return 0
	}
	var by, sumlx, suml2 [3][8]float32
	var flat [24]float32
	symmetricNumerators(flat[:], n)
	for i, v := range flat {
		by[i/8][i%8] = v / extreme
	}
	for i := range by {
		symmetricTrialsSIMD(&sumlx[i], &suml2[i], &by[i], &x[0], &w[:len(x)][0], len(x), -n, n-1)
	}
	at := by[0][0]
	var scale float32
	if suml2[0][0] != 0 {
		scale = sumlx[0][0] / suml2[0][0]
	}
	best := float32(scale * sumlx[0][0])
	for i := 1; i < 19; i++ {
		lx, l2 := sumlx[i/8][i%8], suml2[i/8][i%8]
		if l2 > 0 && lx*lx > best*l2 {
			at = by[i/8][i%8]
			scale = lx / l2
			best = float32(scale * lx)
		}
	}
	for i, v := range x {
		l[i] = uint8(clamp(nearest(float32(at*v)), -n, n-1) + n)
	}
	return scale
}

func positiveTrialsFast(mse, by *[8]float32, n int32, x, w []float32) {
	positiveTrialsSIMD(mse, by, &x[0], &w[:len(x)][0], len(x), n)
}

// sweep16 is fitSweep for the 16 groups of a superblock of Q3_K.
func (s *lanes) sweep16(g *groups, x []float32) bool {
	for i := range s.sets {
		transposeSIMD(&s.sets[i].x[0], &x[128*i : 128*i+128][0], 4*16, 16)
	}
	if !fitSweepSIMD(&s.sets[0].x[0][0], 2) {
		return false
	}
	for i := range s.sets {
		copy(g.scales[8*i:], s.sets[i].scales[:])
	}
	g.swept = true
	return true
}

// iq4 is fitIQ4 for eight blocks, whose sigma2 are in s.
func (s *lanes) iq4(scales *[8]float32, x, weights []float32) bool {
	set := &s.sets[0]
	transposeSIMD(&set.x[0], &x[:256][0], 4*32, 32)
	if weights == nil {
		weighSquareSIMD(&set.x[0][0], 32)
	} else {
		transposeSIMD(&set.w[0], &weights[:256][0], 4*32, 32)
		weighImportanceSIMD(&set.x[0][0], 32, &s.sigma2)
	}
	if !fitIQ4SIMD(&set.x[0][0], 32) {
		return false
	}
	*scales = set.scales
	return true
}

// iq4Super is iq4 for a superblock of IQ4_XS.
func (s *lanes) iq4Super(scales *[8]float32, x, weights []float32, sigma2 float32) bool {
	s.spread(sigma2)
	return s.iq4(scales, x, weights)
}

// iq4Blocks is iq4 for up to 8 blocks of IQ4_NL, and puts them.
func (s *lanes) iq4Blocks(dst []byte, x, weights []float32) bool {
	blocks := len(x) / 32
	var xs, ws [256]float32
	if blocks < 8 {
		copy(xs[:], x)
		x = xs[:]
		if weights != nil {
			copy(ws[:], weights)
			weights = ws[:]
		}
	}
	if weights != nil {
		for b := range s.sigma2 {
			s.sigma2[b] = float32(sumSquares(x[32*b:32*b+32]) * (2.0 / 32))
		}
	}
	var scales, by [8]float32
	if !s.iq4(&scales, x, weights) {
		return false
	}
	for b := range blocks {
		putScale(dst[18*b:], scales[b])
		by[b] = invert(scales[b])
	}
	codesIQ4SIMD(&dst[:18*blocks][2], &x[0], &by[0], blocks, 18)
	return true
}

// iq4Codes writes the nibbles of a superblock's blocks, under one factor each.
func (s *lanes) iq4Codes(dst []byte, x []float32, by *[8]float32) {
	codesIQ4SIMD(&dst[:128][0], &x[:256][0], &by[0], 8, 16)
}

// recode gives a superblock the codes clamp(nearest((x+m)/d), lo, hi) - lo. d and
// m hold a number for each 16 values; where d is zero, groups of size values
// keep the codes of the search.
func (s *lanes) recode(l *[256]uint8, x []float32, g *groups, d, m *[16]float32, size int, lo, hi int32) {
	recodeSIMD(&l[0], &x[:256][0], &d[0], &m[0], lo, hi)
	for b := range 256 / size {
		if d[b*size/16] == 0 {
			s.found(l[b*size:(b+1)*size], x[b*size:], g, b, lo, hi)
		}
	}
}

// found gives group b the codes of its search.
func (s *lanes) found(l []uint8, x []float32, g *groups, b int, lo, hi int32) {
	set := &s.sets[b/8]
	by, from := g.by[b], g.from[b]
	switch {
	case g.swept && math.Float32bits(set.alive[b%8]) != 0:
		for i := range l {
			l[i] = uint8(int32(math.Float32bits(set.codes[i][b%8])) - 1<<22 - lo)
		}
	case g.swept || by == 0:
		clear(l)
	default:
		for i, v := range x[:len(l)] {
			l[i] = uint8(clamp(nearest(float32(by*(v-from))), lo, hi) - lo)
		}
	}
}
