package cq

import "math"

// randomState is NumPy's legacy RandomState: the Mersenne Twister MT19937 seeded
// by a whole number, with the stream of numbers that its randn and permutation
// draw. NumPy has frozen that stream.
type randomState struct {
	key  [624]uint32
	pos  int
	kept float64 // the second of a pair of normals
	has  bool
}

func newRandomState(seed uint32) *randomState {
	r := &randomState{pos: len(new(randomState).key)}
	for i := range r.key {
		r.key[i] = seed
		seed = 1812433253*(seed^seed>>30) + uint32(i) + 1
	}
	return r
}

// uint32 gives the next word of the twister.
func (r *randomState) uint32() uint32 {
	const n, m = len(r.key), 397
	if r.pos == n {
		for i := range r.key {
			y := r.key[i]&0x80000000 | r.key[(i+1)%n]&0x7fffffff
			v := r.key[(i+m)%n] ^ y>>1
			if y&1 != 0 {
				v ^= 0x9908b0df
			}
			r.key[i] = v
		}
		r.pos = 0
	}
	y := r.key[r.pos]
	r.pos++
	y ^= y >> 11
	y ^= y << 7 & 0x9d2c5680
	y ^= y << 15 & 0xefc60000
	return y ^ y>>18
}

// float64 draws from [0, 1) with 53 bits.
func (r *randomState) float64() float64 {
	a, b := r.uint32()>>5, r.uint32()>>6
	return (float64(float64(a)*(1<<26)) + float64(b)) / (1 << 53)
}

// normal draws a standard normal by the polar method, which makes two at a time.
func (r *randomState) normal() float64 {
	if r.has {
		r.has = false
		return r.kept
	}
	for {
		x := float64(2*r.float64()) - 1
		y := float64(2*r.float64()) - 1
		d := float64(x*x) + float64(y*y)
		if d >= 1 || d == 0 {
			continue
		}
		f := math.Sqrt(float64(-2*ln(d)) / d)
		r.kept, r.has = float64(f*x), true
		return float64(f * y)
	}
}

// below draws a whole number from 0 to top by masking and rejecting.
func (r *randomState) below(top uint32) uint32 {
	if top == 0 {
		return 0
	}
	mask := top
	for _, s := range []uint{1, 2, 4, 8, 16} {
		mask |= mask >> s
	}
	for {
		if v := r.uint32() & mask; v <= top {
			return v
		}
	}
}

// Permutation gives numpy.random.RandomState(seed).permutation(n) for n under
// 2^31.
func Permutation(seed uint32, n int) []int32 {
	r := newRandomState(seed)
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(i)
	}
	for i := n - 1; i > 0; i-- {
		j := r.below(uint32(i))
		out[i], out[j] = out[j], out[i]
	}
	return out
}
