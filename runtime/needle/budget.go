package needle

import "quern/formats/cact"

const kvGroup = 32 // values of a cached vector that share a scale

// Budget is the memory that a device needs to run a model, in bytes.
type Budget struct {
	// Weights are mapped as the file has them.
	Weights int64
	// Positions is how many tokens the KV cache holds at once.
	Positions int64
	// KV is the cache at the file's width, with a float32 scale for 32 values: keys
	// and values of every layer for as many positions as it looks back on.
	KV int64
	// Engram is what engram sites keep of the positions they look back on, in the
	// same form.
	Engram int64
	// Activations are one token's float32 vectors, of which all that are alive at
	// once are counted, and its logits.
	Activations int64
	// Heard is what a speech model needs for 30 seconds of sound: the encoder's
	// float32 vectors of all frames, and what the decoder's layers keep of them in
	// the cache's form.
	Heard int64
}

// Total is the sum.
func (b Budget) Total() int64 { return b.Weights + b.KV + b.Engram + b.Activations + b.Heard }

// Budget counts what running the model one token at a time takes.
func (m *Model) Budget() Budget { return m.p.budget(&m.header, m.info.Bytes) }

// BudgetOf does so for a model of which only the header and the bytes of its
// weights are known. A header that no model fits gives zeros.
func BudgetOf(h *cact.Header, weights int64) Budget {
	p, err := newShape(h)
	if err != nil {
		return Budget{}
	}
	return p.budget(h, weights)
}

func (p *shape) budget(h *cact.Header, weights int64) Budget {
	b := Budget{Weights: weights, Positions: int64(p.window)}
	if b.Positions == 0 {
		b.Positions = int64(p.context)
	}
	bits := int64(h.KVBits)
	vector := func(n int) int64 { return (int64(n)*bits+7)/8 + int64(n/kvGroup)*4 }
	for i := range p.layers {
		n := b.Positions
		if s := int64(p.sees(i, int(b.Positions))); s > 0 {
			n = min(n, s)
		}
		b.KV += n * (vector(p.kvHeads*p.qk) + vector(p.kvHeads*p.v))
	}
	local := b.Positions
	if p.sliding > 0 {
		local = min(local, int64(p.sliding))
	}
	b.Engram = int64(len(h.Sites)) * local * vector(p.d)
	d, wide := int64(p.d), int64(p.d)*int64(p.lanes)
	// The lanes before and after, what goes into a block and through it, and the
	// widest of: the flattened lanes; attention with its scores; a Hadamard layer.
	stack := 2*wide + 2*d
	attention := int64(p.heads)*int64(p.qk+2*p.v) + int64(p.kvHeads)*int64(p.qk+p.v) + 2*d + b.Positions
	b.Activations = 4 * (stack + max(wide, attention, 3*int64(p.hada)) + int64(p.out))
	if a := h.Audio; a != nil {
		frames := mostSeconds * int64(a.Rate) / int64(a.Hop)
		for range a.Stages {
			frames = (frames + 1) / 2
		}
		lanes := int64(a.EncLanes) * d
		hidden := max(lanes, 2*d, int64(p.heads)*int64(p.qk+2*p.v)+int64(p.kvHeads)*int64(p.qk+p.v)+d+frames)
		b.Heard = 4*frames*(2*lanes+2*d+hidden) + frames*int64(p.layers)*(vector(p.heads*p.qk)+vector(p.heads*p.v))
	}
	return b
}
