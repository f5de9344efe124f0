package transformer

import (
	"fmt"

	infer "quern/runtime"
	"quern/runtime/num"
)

// ropeParams say how queries and keys are turned by their position.
type ropeParams struct {
	dims int // values of a head that are turned; the rest stay
	// neox pairs value j with j+dims/2, as checkpoints do; else pairs are
	// neighbours, as in Llama's GGUF files, whose rows are permuted for it.
	neox bool
	base float64
	// scale is 1 for none: the factor by which positions shrink.
	scale float64
	// factors divide the angles pair by pair (llama3, longrope), or nil.
	factors []float32
	// ext mixes YaRN's interpolated and plain angles; 0 for no YaRN.
	ext                float64
	attn               float64 // factor of both sine and cosine
	betaFast, betaSlow float64
	fractional         bool // the ends of the mix are not rounded to whole pairs
	original           int  // context before YaRN
}

// ropeFor is how a text that has room for context tokens is turned: longrope has
// two lists of factors, for texts beyond the original context and others, and
// dynamic scaling raises the base as far as the text goes beyond the model's.
func (p *params) ropeFor(context int) ropeParams {
	g := *p.global
	if p.long != nil {
		g.factors = p.short
		if context > g.original {
			g.factors = p.long
		}
	}
	if f := p.dynamic; f > 0 && context > p.context && p.context > 0 && g.dims > 2 {
		beyond := float64(f*float64(context))/float64(p.context) - (f - 1)
		g.base = float64(g.base * num.Pow64(beyond, float64(g.dims)/float64(g.dims-2)))
	}
	return g
}

// rope holds what does not depend on the position.
type rope struct {
	dims int
	neox bool
	// freq is each pair's angle for one position, with all factors; interp the
	// same without what YaRN does to it.
	freq []float64
	mag  float64 // factor of sine and cosine
}

// newRope works the angles out in float64. With f = base^(-2j/dims)/factor of
// pair j:
//
//	angle = position * f * scale                          linear and none
//	angle = position * f * (scale*(1-mix) + mix)          YaRN
//	mix   = ext * (1 - clamp((j-low)/max(0.001, high-low), 0, 1))
//	low, high = dims*ln(original/(2 pi beta)) / (2 ln base) for beta fast, slow,
//	            rounded down and up unless fractional, kept in 0 to dims-1
//
// YaRN also multiplies sines and cosines by 1 + ln(1/scale)/10, which llama.cpp
// divides attn by when the model sets it.
func newRope(p ropeParams) (*rope, error) {
	switch {
	case p.dims <= 0 || p.dims%2 != 0:
		return nil, fmt.Errorf("%w: rotary embeddings of %d values, want pairs", infer.ErrModel, p.dims)
	case !(p.base > 0) || p.base > 1e30 || !(p.scale > 0) || p.scale > 1e30:
		return nil, fmt.Errorf("%w: rotary embeddings of base %g and scale %g", infer.ErrModel, p.base, p.scale)
	case p.ext != 0 && (p.base <= 1 || p.original <= 0 || !(p.betaFast > 0) || !(p.betaSlow > 0)):
		return nil, fmt.Errorf("%w: YaRN with base %g, original context %d, beta %g and %g", infer.ErrModel, p.base, p.original, p.betaFast, p.betaSlow)
	case p.factors != nil && len(p.factors) != p.dims/2:
		return nil, fmt.Errorf("%w: %d factors for %d rotated pairs", infer.ErrModel, len(p.factors), p.dims/2)
	}
	r := &rope{dims: p.dims, neox: p.neox, mag: p.attn, freq: make([]float64, p.dims/2)}
	var low, high float64
	if p.ext != 0 {
		at := func(beta float64) float64 {
			const twoPi = 6.283185307179586476925286766559
			return float64(p.dims) * num.Log64(float64(p.original)/float64(beta*twoPi)) / (2 * num.Log64(p.base))
		}
		if low, high = at(p.betaFast), at(p.betaSlow); !p.fractional {
			low, high = floor(low), -floor(-high)
		}
		if low < 0 {
			low = 0
		}
		if top := float64(p.dims - 1); high > top {
			high = top
		}
		r.mag = float64(r.mag * (1 + float64(0.1*num.Log64(1/p.scale))))
	}
	for j := range r.freq {
		f := num.Pow64(p.base, -float64(2*j)/float64(p.dims))
		if p.factors != nil {
			f /= float64(p.factors[j])
		}
		s := p.scale
		if p.ext != 0 {
			width := high - low
			if width < 0.001 {
				width = 0.001
			}
			y := (float64(j) - low) / width
			if y < 0 {
				y = 0
			}
			if y > 1 {
				y = 1
			}
			mix := float64((1 - y) * p.ext)
			s = float64(s*(1-mix)) + mix
		}
		r.freq[j] = float64(f * s)
	}
	return r, nil
}

// floor is for magnitudes below 2^62.
func floor(x float64) float64 {
	n := float64(int64(x))
	if n > x {
		n--
	}
	return n
}

// pairs is the number of values that are turned with another.
func (r *rope) pairs() int { return r.dims / 2 }

// table fills cos and sin, dims/2 values each, for a position.
func (r *rope) table(cos, sin []float32, position int) {
	for j, f := range r.freq {
		s, c := num.SinCos64(float64(float64(position) * f))
		cos[j], sin[j] = float32(c*r.mag), float32(s*r.mag)
	}
}

// turn rotates one head.
func (r *rope) turn(x, cos, sin []float32) {
	half := r.dims / 2
	step, apart := 2, 1
	if r.neox {
		step, apart = 1, half
	}
	for j := range half {
		a, b := x[step*j], x[step*j+apart]
		x[step*j] = float32(a*cos[j]) - float32(b*sin[j])
		x[step*j+apart] = float32(a*sin[j]) + float32(b*cos[j])
	}
}
