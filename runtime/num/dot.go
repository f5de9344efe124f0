package num

// Dot is the inner product of two vectors of one length, in the order that the
// package's documentation gives.
func Dot(a, b []float32) float32 {
	var d [1]float32
	Dots(d[:], 1, Matrix{a, 1, len(a)}, Matrix{b, 1, len(a)}, len(a))
	return d[0]
}

// A Matrix is rows of float32: row i starts at Data[i*Stride].
type Matrix struct {
	Data   []float32
	Rows   int
	Stride int
}

// Row is the first n values of row i.
func (m Matrix) Row(i, n int) []float32 { return m.Data[i*m.Stride:][:n] }

// Dots writes the inner products of the first n values of all rows of w and x:
// dst[c*ld+r] is row r of w with row c of x. Each is what Dot gives.
func Dots(dst []float32, ld int, w, x Matrix, n int) {
	if w.Rows <= 0 || x.Rows <= 0 {
		return
	}
	// One check each, so that the kernels need none.
	_ = dst[(x.Rows-1)*ld+w.Rows-1]
	_ = w.Data[:(w.Rows-1)*w.Stride+n]
	_ = x.Data[:(x.Rows-1)*x.Stride+n]
	if n <= 0 {
		for c := range x.Rows {
			clear(dst[c*ld:][:w.Rows])
		}
		return
	}
	dots(dst, ld, w, x, n)
}

func dotsScalar(dst []float32, ld int, w, x Matrix, n int) {
	for c := range x.Rows {
		b := x.Row(c, n)
		for r := range w.Rows {
			dst[c*ld+r] = dotScalar(w.Row(r, n), b)
		}
	}
}

func dotScalar(a, b []float32) float32 {
	var s [8]float32
	for len(a) >= 8 && len(b) >= 8 {
		s[0] += float32(a[0] * b[0])
		s[1] += float32(a[1] * b[1])
		s[2] += float32(a[2] * b[2])
		s[3] += float32(a[3] * b[3])
		s[4] += float32(a[4] * b[4])
		s[5] += float32(a[5] * b[5])
		s[6] += float32(a[6] * b[6])
		s[7] += float32(a[7] * b[7])
		a, b = a[8:], b[8:]
	}
	for i := range a {
		s[i&7] += float32(a[i] * b[i])
	}
	return tree(&s)
}

func tree(s *[8]float32) float32 {
	return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]))
}

// WeightedSum writes to dst the sum of p[t] times row t of v, over the first
// len(dst) values of the rows, adding in the order of t, from zero.
func WeightedSum(dst, p []float32, v Matrix) {
	clear(dst)
	AddWeighted(dst, p, v)
}

// AddWeighted is WeightedSum that goes on from what dst holds.
func AddWeighted(dst, p []float32, v Matrix) {
	p = p[:v.Rows]
	if len(dst) == 0 || len(p) == 0 {
		return
	}
	_ = v.Data[:(v.Rows-1)*v.Stride+len(dst)]
	addWeighted(dst, p, v)
}

func addWeightedScalar(dst, p []float32, v Matrix) {
	for t, a := range p {
		row := v.Row(t, len(dst))
		for i := range dst {
			dst[i] += float32(a * row[i])
		}
	}
}

// AddScaled adds a times x to dst; they have one length.
func AddScaled(dst, x []float32, a float32) {
	x = x[:len(dst)]
	for i, v := range x {
		dst[i] += float32(a * v)
	}
}
