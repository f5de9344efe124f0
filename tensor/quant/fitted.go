package quant

// fittedCodes are the codes lo..hi of a type of 32 values whose scale, and
// minimum when lo is 0, are searched by importance: Q4_0, Q4_1, Q5_0 and Q5_1.
type fittedCodes struct{ lo, hi int32 }

// encode writes blocks of d, then m when there is a minimum, and the codes. The
// importance of a value depends on the mean square of the whole row.
func (f fittedCodes) encode(dst []byte, src, weights []float32, fast bool) {
	var l [256]uint8
	s := newLanes(fast)
	sigma2 := sumSquares(src) / float32(len(src))
	for len(src) >= 32 {
		var g groups
		n := min(len(src)/32*32, 256)
		if s == nil || !s.fitted(&g, &l, src[:n], weights[:n], sigma2, f) {
			f.search(&g, &l, src[:n], weights, sigma2)
		}
		for b := range n / 32 {
			q := (*[32]uint8)(l[32*b : 32*b+32])
			putScale(dst, g.scales[b])
			dst = dst[2:]
			if f.lo == 0 {
				putScale(dst, -g.mins[b])
				dst = dst[2:]
			}
			if f.hi-f.lo > 15 {
				packFive(dst[:20], q)
				dst = dst[20:]
			} else {
				packNibbles(dst[:16], q)
				dst = dst[16:]
			}
		}
		src, weights = src[n:], weights[n:]
	}
}

// search is the scalar search over the blocks of x.
func (f fittedCodes) search(g *groups, l *[256]uint8, x, weights []float32, sigma2 float32) {
	var w [32]float32
	for b := range len(x) / 32 {
		xb, lb := x[32*b:32*b+32], l[32*b:32*b+32]
		importance(w[:], xb, weights[32*b:], sigma2)
		if f.lo == 0 {
			g.scales[b], g.mins[b] = fitAffine(&importanceFit, f.hi, xb, w[:], lb)
		} else {
			g.scales[b] = fitSymmetric(-f.lo, xb, w[:], lb)
		}
	}
}
