package ggmlnum

import (
	"math"

	"quern/internal/fma"
)

// RopeOptions say how queries and keys are turned by their position.
type RopeOptions struct {
	// Dims is the even number of values of a head that are turned.
	Dims int
	// NeoX pairs value j with j+Dims/2, else pairs are neighbours.
	NeoX bool
	Base float32
	// Scale is the factor of positions, 1 for none, Attn that of sines and cosines.
	Scale, Attn float32
	// Factors divide the angles pair by pair; nil for none.
	Factors []float32
	// Ext mixes YaRN's interpolated and plain angles; 0 for no YaRN.
	Ext, BetaFast, BetaSlow float32
	// Original is the context before YaRN.
	Original int
}

// Rope turns queries and keys. The angle of pair j is position * step^j, by j products in float32.
type Rope struct {
	o    RopeOptions
	step float32
	mix  []float32 // how much of the plain angle each pair takes, with YaRN
	mag  float32
}

// NewRope makes the tables that do not depend on the position.
func NewRope(o RopeOptions) *Rope {
	r := &Rope{o: o, step: Pow(o.Base, -2/float32(o.Dims)), mag: o.Attn}
	if o.Ext == 0 {
		return r
	}
	at := func(beta float32) float32 {
		const pi = float32(math.Pi)
		return float32(float32(o.Dims)*Log(float32(o.Original)/float32(float32(beta*2)*pi))) / float32(2*Log(o.Base))
	}
	low, high := float32(math.Floor(float64(at(o.BetaFast)))), float32(math.Ceil(float64(at(o.BetaSlow))))
	if low < 0 {
		low = 0
	}
	if top := float32(o.Dims - 1); high > top {
		high = top
	}
	width := high - low
	if width < 0.001 {
		width = 0.001
	}
	for j := range o.Dims / 2 {
		y := (float32(j) - low) / width
		if y < 0 {
			y = 0
		}
		if y > 1 {
			y = 1
		}
		r.mix = append(r.mix, float32((1-y)*o.Ext))
	}
	r.mag = float32(o.Attn * fma.F32(0.1, Log(1/o.Scale), 1))
	return r
}

// Table fills cos and sin, Dims/2 values each, for a position.
func (r *Rope) Table(cos, sin []float32, position int) {
	theta := float32(position)
	for j := range r.o.Dims / 2 {
		plain := theta
		if r.o.Factors != nil {
			plain /= r.o.Factors[j]
		}
		angle := float32(r.o.Scale * plain)
		if r.mix != nil {
			angle = fma.F32(angle, 1-r.mix[j], float32(plain*r.mix[j]))
		}
		cos[j], sin[j] = float32(Cos(angle)*r.mag), float32(Sin(angle)*r.mag)
		theta = float32(theta * r.step)
	}
}

// Turn rotates the first Dims values of one head.
func (r *Rope) Turn(x, cos, sin []float32) {
	half := r.o.Dims / 2
	cos, sin = cos[:half], sin[:half]
	if r.o.NeoX {
		turn(x[:half], x[half:2*half], cos, sin)
		return
	}
	// Of an odd number of pairs the compiler left the last one without fused operations.
	for j := range half &^ 1 {
		x[2*j], x[2*j+1] = turned(x[2*j], x[2*j+1], cos[j], sin[j])
	}
	if half%2 == 1 {
		j := half - 1
		a, b := x[2*j], x[2*j+1]
		x[2*j] = float32(a*cos[j]) - float32(b*sin[j])
		x[2*j+1] = float32(a*sin[j]) + float32(b*cos[j])
	}
}

// turned is a pair after a turn.
func turned(a, b, cos, sin float32) (float32, float32) {
	return fma.F32(a, cos, -float32(b*sin)), fma.F32(a, sin, float32(b*cos))
}

func turnScalar(a, b, cos, sin []float32) {
	for j := range a {
		a[j], b[j] = turned(a[j], b[j], cos[j], sin[j])
	}
}
