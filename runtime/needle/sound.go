package needle

import (
	"context"
	"math"

	"quern/runtime/num"
)

// features gives n frames of a sound, (n, mels): logarithms of the energy in
// mel bands, of which each band has mean 0 and deviation 1 over the sound. Sums are
// float64.
func (e *hearing) features(samples []float32, n int) []float32 {
	a := &e.audio
	win, hop, mels := int(a.Win), int(a.Hop), int(a.Mels)
	window := hann(win)
	dft := newDFT(int(a.FFT))
	bins := int(a.FFT)/2 + 1
	all := make([]float64, n*mels)
	re, im := make([]float64, a.FFT), make([]float64, a.FFT)
	for t := range n {
		clear(re)
		clear(im)
		// The sound has half a window of silence in front.
		for j := range win {
			if at := t*hop + j - win/2; at >= 0 && at < len(samples) {
				re[j] = float64(float64(samples[at]) * window[j])
			}
		}
		dft.transform(re, im)
		row := all[t*mels:][:mels]
		for k := range bins {
			power := float64(re[k]*re[k]) + float64(im[k]*im[k])
			for b := range row {
				row[b] += float64(power * float64(e.mel[k*mels+b]))
			}
		}
		for b, v := range row {
			row[b] = num.Log64(v + 1.0/(1<<24))
		}
	}
	out := make([]float32, n*mels)
	for b := range mels {
		var mean, sum float64
		for t := range n {
			mean += all[t*mels+b]
		}
		mean /= float64(n)
		for t := range n {
			d := all[t*mels+b] - mean
			sum += float64(d * d)
		}
		dev := math.Sqrt(sum/float64(max(n-1, 1))) + 1e-5
		for t := range n {
			out[t*mels+b] = float32((all[t*mels+b] - mean) / dev)
		}
	}
	return out
}

// hann is the symmetric Hann window, rounded to float32 as the exporter's is.
func hann(n int) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = 1
		if n > 1 {
			_, c := num.SinCos64(math.Pi * float64(2*i+1-n) / float64(n-1))
			out[i] = float64(float32(0.5 + float64(0.5*c)))
		}
	}
	return out
}

// dft is a discrete Fourier transform of n points: by halves while n is even, the
// rest as a sum over all.
type dft struct {
	n        int
	cos, sin []float64 // of -2 pi k/n
	re, im   []float64
}

func newDFT(n int) *dft {
	d := &dft{n: n, cos: make([]float64, n), sin: make([]float64, n), re: make([]float64, n), im: make([]float64, n)}
	for k := range n {
		d.sin[k], d.cos[k] = num.SinCos64(-2 * math.Pi * float64(k) / float64(n))
	}
	return d
}

// transform replaces n complex points.
func (d *dft) transform(re, im []float64) { d.run(re, im, d.re, d.im, 1) }

// run transforms the points of re and im, whose twiddles lie step apart; tr and ti
// are room.
func (d *dft) run(re, im, tr, ti []float64, step int) {
	n := len(re)
	if n == 1 {
		return
	}
	if n%2 != 0 {
		for k := range n {
			var a, b float64
			for j := range n {
				w := j * k % n * step
				a += float64(re[j]*d.cos[w]) - float64(im[j]*d.sin[w])
				b += float64(re[j]*d.sin[w]) + float64(im[j]*d.cos[w])
			}
			tr[k], ti[k] = a, b
		}
		copy(re, tr[:n])
		copy(im, ti[:n])
		return
	}
	h := n / 2
	for i := range h {
		tr[i], ti[i] = re[2*i], im[2*i]
		tr[h+i], ti[h+i] = re[2*i+1], im[2*i+1]
	}
	d.run(tr[:h], ti[:h], re[:h], im[:h], 2*step)
	d.run(tr[h:n], ti[h:n], re[h:n], im[h:n], 2*step)
	for k := range h {
		c, s := d.cos[k*step], d.sin[k*step]
		a := float64(tr[h+k]*c) - float64(ti[h+k]*s)
		b := float64(tr[h+k]*s) + float64(ti[h+k]*c)
		re[k], im[k] = tr[k]+a, ti[k]+b
		re[h+k], im[h+k] = tr[k]-a, ti[k]-b
	}
}

// stem takes frames of mel bands through the convolutions of 3 by 3 that halve time
// and bands, and gives states (n, d).
func (s *session) stem(ctx context.Context, e *hearing, x []float32, frames int) ([]float32, int, error) {
	a := &e.audio
	c, bands := int(a.Stem), int(a.Mels)
	y, n, bands := halve(x, e.first, frames, bands, 1, c)
	for i, dw := range e.depth {
		for j, v := range y {
			y[j] = num.SiLU(v)
		}
		z, m, f := halve(y, dw, n, bands, c, c)
		n, bands = m, f
		y = make([]float32, n*bands*c)
		if err := s.multiply(ctx, whole(y, e.point[i], s.enter(z, n*bands, c, false))); err != nil {
			return nil, 0, err
		}
	}
	// Channels before bands, as the last matrix has them.
	flat := make([]float32, n*bands*c)
	for t := range n {
		for f := range bands {
			for k := range c {
				flat[(t*c+k)*bands+f] = num.SiLU(y[(t*bands+f)*c+k])
			}
		}
	}
	out := make([]float32, n*s.m.p.d)
	return out, n, s.multiply(ctx, whole(out, e.out, s.enter(flat, n, bands*c, s.opt.Round8)))
}

// halve is a convolution of 3 by 3, of stride 2, with zeros around x of (n, bands,
// in): (n/2, bands/2, channels), rounded up. in is 1, or each channel has its own.
func halve(x, w []float32, n, bands, in, channels int) (out []float32, m, f int) {
	m, f = (n+1)/2, (bands+1)/2
	out = make([]float32, m*f*channels)
	for t := range m {
		for b := range f {
			y := out[(t*f+b)*channels:][:channels]
			for i := range 9 {
				r, q := 2*t+i/3-1, 2*b+i%3-1
				if r < 0 || r >= n || q < 0 || q >= bands {
					continue
				}
				from := x[(r*bands+q)*in:][:in]
				for k, g := range w[i*channels:][:channels] {
					v := from[0]
					if in > 1 {
						v = from[k]
					}
					y[k] += float32(g * v)
				}
			}
		}
	}
	return out, m, f
}

// sinusoid is the code of a position: sines, then cosines, of d/2 frequencies.
func sinusoid(d, position int) []float32 {
	half := d / 2
	out := make([]float32, 2*half)
	step := num.Log64(10000) / float64(half-1)
	for j := range half {
		s, c := num.SinCos64(float64(float64(position) * num.Exp64(-float64(step*float64(j)))))
		out[j], out[half+j] = float32(s), float32(c)
	}
	return out
}
