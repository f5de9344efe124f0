package quant

// Searches for the scale of a group of values, shared by the k-quants and by
// the importance-weighted forms of the older types. Each is the sequence of
// float32 operations that ggml performs; reordering a sum changes bytes.

// fitSymmetric finds a scale for codes -n..n-1, stored in l with n added, that
// minimises the weighted squared error among 19 candidates around max/n. w nil
// stands for x*x.
func fitSymmetric(n int32, x, w []float32, l []uint8) float32 {
	extreme, amax := argAbs(x)
	if amax < groupEps {
		clear(l[:len(x)])
		return 0
	}
	pass := func(s float32) (sumlx, suml2 float32) {
		for i, v := range x {
			q := float32(clamp(nearest(float32(s*v)), -n, n-1))
			wi := float32(v * v)
			if w != nil {
				wi = w[i]
			}
			sumlx += float32(float32(wi*v) * q)
			suml2 += float32(float32(wi*q) * q)
		}
		return sumlx, suml2
	}
	store := func(s float32) {
		for i, v := range x {
			l[i] = uint8(clamp(nearest(float32(s*v)), -n, n-1) + n)
		}
	}
	at := -float32(n) / extreme
	sumlx, suml2 := pass(at)
	var scale float32
	if suml2 != 0 {
		scale = sumlx / suml2
	}
	best := float32(scale * sumlx)
	for is := int32(-9); is <= 9; is++ {
		if is == 0 {
			continue
		}
		s := -(float32(n) + float32(0.1*float32(is))) / extreme
		sumlx, suml2 := pass(s)
		if suml2 > 0 && sumlx*sumlx > best*suml2 {
			at = s
			scale = sumlx / suml2
			best = float32(scale * sumlx)
		}
	}
	store(at)
	return scale
}

// affineFit holds the constants of one use of fitAffine.
type affineFit struct {
	rmin, rdelta float32 // candidates (rmin + rdelta*is + n) / range
	steps        int32
	absolute     bool // error is |delta|, not its square
	ordered      bool // an empty range is max <= min, not max == min
}

// importanceFit is what every importance-weighted use has in common.
var importanceFit = affineFit{rmin: -0.9, rdelta: 0.05, steps: 36, ordered: true}

// fitAffine finds scale and m >= 0 for codes l of 0..n so that scale*l - m
// approximates x with weights w: a first guess from the range, then a least
// squares fit for each of steps+1 ways to round.
func fitAffine(fit *affineFit, n int32, x, w []float32, l []uint8) (scale, m float32) {
	lo, hi := x[0], x[0]
	sumW := w[0]
	sumX := float32(sumW * x[0])
	for i := 1; i < len(x); i++ {
		if x[i] < lo {
			lo = x[i]
		}
		if x[i] > hi {
			hi = x[i]
		}
		sumW += w[i]
		sumX += float32(w[i] * x[i])
	}
	if lo > 0 {
		lo = 0
	}
	if hi == lo || fit.ordered && hi < lo {
		clear(l[:len(x)])
		return 0, -lo
	}
	delta := func(d float32) float32 {
		if fit.absolute {
			return abs32(d)
		}
		return float32(d * d)
	}
	iscale := float32(n) / (hi - lo)
	scale = 1 / iscale
	var best float32
	for i, v := range x {
		l[i] = uint8(clamp(nearest(float32(iscale*(v-lo))), 0, n))
		d := delta(float32(scale*float32(l[i])) + lo - v)
		best += float32(w[i] * d)
	}
	var auxBuf [32]uint8
	aux := auxBuf[:len(x)]
	for is := int32(0); is <= fit.steps; is++ {
		iscale = (fit.rmin + float32(fit.rdelta*float32(is)) + float32(n)) / (hi - lo)
		var sumL, sumL2, sumXL float32
		for i, v := range x {
			q := clamp(nearest(float32(iscale*(v-lo))), 0, n)
			aux[i] = uint8(q)
			wl := float32(w[i] * float32(q))
			sumL += float32(wl)
			sumL2 += float32(wl * float32(q))
			sumXL += float32(wl * v)
		}
		det := float32(sumW*sumL2) - float32(sumL*sumL)
		if !(det > 0) {
			continue
		}
		ts := (float32(sumW*sumXL) - float32(sumX*sumL)) / det
		tm := (float32(sumL2*sumX) - float32(sumL*sumXL)) / det
		if tm > 0 {
			tm = 0
			ts = sumXL / sumL2
		}
		var e float32
		for i, v := range x {
			d := delta(float32(ts*float32(aux[i])) + tm - v)
			e += float32(w[i] * d)
		}
		if e < best {
			copy(l, aux)
			best = e
			scale = ts
			lo = tm
		}
	}
	return scale, -lo
}

// fitPositive finds a scale for codes 0..n of values that are not negative: the
// best of nine roundings, then up to five sweeps that move single codes.
func fitPositive(n int32, x, w []float32, l []uint8, fast bool) float32 {
	var hi float32
	for _, v := range x {
		if v > hi {
			hi = v
		}
	}
	if hi < groupEps {
		clear(l[:len(x)])
		return 0
	}
	iscale := float32(n) / hi
	scale := 1 / iscale
	var best float32
	for i, v := range x {
		l[i] = uint8(nearest(float32(iscale * v)))
		d := v - float32(scale*float32(l[i]))
		best += float32(float32(w[i]*d) * d)
	}
	var by, mse [8]float32
	for i := range by {
		is := int32(i) - 4
		if is >= 0 {
			is++
		}
		by[i] = (float32(0.1*float32(is)) + float32(n)) / hi
	}
	if fast {
		positiveTrialsFast(&mse, &by, n, x, w)
	} else {
		positiveTrials(&mse, &by, n, x, w)
	}
	for i, e := range mse {
		if e < best {
			best = e
			iscale = by[i]
		}
	}
	var sumlx, suml2 float32
	for i, v := range x {
		q := nearest(float32(iscale * v))
		if q > n {
			q = n
		}
		l[i] = uint8(q)
		sumlx += float32(float32(w[i]*v) * float32(q))
		suml2 += float32(float32(w[i]*float32(q)) * float32(q))
	}
	for sweep := 0; sweep < 5; sweep++ {
		changed := false
		for i, v := range x {
			wi, li := w[i], float32(l[i])
			slx := sumlx - float32(float32(wi*v)*li)
			sl2 := suml2 - float32(float32(wi*li)*li)
			if !(slx > 0 && sl2 > 0) {
				continue
			}
			q := nearest(v * sl2 / slx)
			if q > n {
				q = n
			}
			if q == int32(l[i]) {
				continue
			}
			slx += float32(float32(wi*v) * float32(q))
			sl2 += float32(float32(wi*float32(q)) * float32(q))
			if float32(slx*slx)*suml2 > float32(sumlx*sumlx)*sl2 {
				l[i] = uint8(q)
				sumlx, suml2 = slx, sl2
				changed = true
			}
		}
		if !changed {
			break
		}
	}
	if suml2 > 0 {
		return sumlx / suml2
	}
	return 0
}

// positiveTrials gives the errors of eight ways to round.
func positiveTrials(mse, by *[8]float32, n int32, x, w []float32) {
	for k, ti := range by {
		ts := 1 / ti
		var e float32
		for i, v := range x {
			q := nearest(float32(ti * v))
			if q > n {
				q = n
			}
			d := v - float32(ts*float32(q))
			e += float32(float32(w[i]*d) * d)
		}
		mse[k] = e
	}
}
