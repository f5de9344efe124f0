package cq

// pairwise adds as NumPy's add.reduce does: up to 128 values in eight running
// sums, longer runs as two halves, the first a multiple of 8 long.
func pairwise[T float32 | float64](a []T) T {
	n := len(a)
	if n < 8 {
		var s T
		for _, v := range a {
			s += v
		}
		return s
	}
	if n > 128 {
		h := n / 2
		h -= h % 8
		return pairwise(a[:h]) + pairwise(a[h:])
	}
	r0, r1, r2, r3, r4, r5, r6, r7 := a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7]
	i := 8
	for ; i+8 <= n; i += 8 {
		b := a[i : i+8 : i+8]
		r0 += b[0]
		r1 += b[1]
		r2 += b[2]
		r3 += b[3]
		r4 += b[4]
		r5 += b[5]
		r6 += b[6]
		r7 += b[7]
	}
	s := ((r0 + r1) + (r2 + r3)) + ((r4 + r5) + (r6 + r7))
	for _, v := range a[i:] {
		s += v
	}
	return s
}
