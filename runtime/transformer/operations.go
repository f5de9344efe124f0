package transformer

import (
	"context"

	"quern/runtime/num"
)

// rotation turns queries and keys by their position.
type rotation interface {
	// pairs is the number of values that are turned with another.
	pairs() int
	// table fills cos and sin, a value a pair, for a position.
	table(cos, sin []float32, position int)
	// turn rotates one head.
	turn(x, cos, sin []float32)
}

// operations are how a session does what can be done in more than one order of operations.
type operations struct {
	// batch is the most tokens that go through a model's layers together.
	batch func(m *Model) int
	// trims says that the last feed-forward sees the rows alone that logits are wanted of.
	trims bool
	// headRows is how many of so many rows go through the head together.
	headRows func(m *Model, rows int) int
	// norm is RMS normalization: dst = x / sqrt(mean(x^2)+eps) * w.
	norm func(dst, x, w []float32, eps float32)
	// silu and gelu replace x by the function of it, times g.
	silu, gelu func(x, g []float32)
	// softmax, sigmoid and sum are for the few values of a router.
	softmax func(x []float32)
	sigmoid func(x float32) float32
	sum     func(x []float32) float32
	// softcap bends values to within c.
	softcap func(x []float32, c float32)
	rope    func(p ropeParams) (rotation, error)
	// attend writes what a layer's attention makes of a span's queries in buf.q, and of the cache, to buf.att.
	attend func(ctx context.Context, s *session, layer int, sp span) error
	// prepare brings the activations of products into the form that their kernels take.
	prepare func(ctx context.Context, s *session, list []product) error
}

// quernOperations is quern's own: see package num and docs/runtime.md.
var quernOperations = operations{
	batch:    (*Model).batchOf,
	headRows: func(m *Model, rows int) int { return min(rows, m.headRows()) },
	norm:     num.RMSNorm,
	silu:     num.SiLUMul,
	gelu:     num.GELUMul,
	softmax:  num.Softmax,
	sigmoid:  num.Sigmoid,
	sum: func(x []float32) float32 {
		sum := float32(0)
		for _, v := range x {
			sum += v
		}
		return sum
	},
	softcap: func(x []float32, c float32) {
		for i, v := range x {
			x[i] = float32(num.Tanh(v/c) * c)
		}
	},
	rope:    func(p ropeParams) (rotation, error) { return newRope(p) },
	attend:  attendQuern,
	prepare: prepareQuern,
}
