package num

import "quern/tensor/quant"

// A HalfMatrix is rows of F16, two bytes each, the lower first: row i starts at
// value i*Stride.
type HalfMatrix struct {
	Data   []byte
	Rows   int
	Stride int
}

// value is value j of row i.
func (m HalfMatrix) value(i, j int) float32 {
	at := 2 * (i*m.Stride + j)
	return quant.FromF16(uint16(m.Data[at]) | uint16(m.Data[at+1])<<8)
}

// DotsHalf is Dots for rows w of F16.
func DotsHalf(dst []float32, ld int, w HalfMatrix, x Matrix, n int) {
	if w.Rows <= 0 || x.Rows <= 0 {
		return
	}
	_ = dst[(x.Rows-1)*ld+w.Rows-1]
	_ = w.Data[:2*((w.Rows-1)*w.Stride+n)]
	_ = x.Data[:(x.Rows-1)*x.Stride+n]
	dotsHalf(dst, ld, w, x, n)
}

func dotsHalfScalar(dst []float32, ld int, w HalfMatrix, x Matrix, n int) {
	for c := range x.Rows {
		b := x.Row(c, n)
		for r := range w.Rows {
			var s [8]float32
			for i, v := range b {
				s[i&7] += float32(w.value(r, i) * v)
			}
			dst[c*ld+r] = tree(&s)
		}
	}
}

// AddWeightedHalf is AddWeighted for rows v of F16.
func AddWeightedHalf(dst, p []float32, v HalfMatrix) {
	p = p[:v.Rows]
	if len(dst) == 0 || len(p) == 0 {
		return
	}
	_ = v.Data[:2*((v.Rows-1)*v.Stride+len(dst))]
	addWeightedHalf(dst, p, v)
}

func addWeightedHalfScalar(dst, p []float32, v HalfMatrix) {
	for t, a := range p {
		for i := range dst {
			dst[i] += float32(a * v.value(t, i))
		}
	}
}
