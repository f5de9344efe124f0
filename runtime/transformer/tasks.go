package transformer

import (
	"quern/runtime/num"
	"quern/tensor/dot"
)

// tasks are the phases of a layer, which workers share by rows or by pieces. They lie in
// the session, one of each kind: a function for each phase of each layer would leave
// more garbage with every token than its activations take.
type tasks struct {
	norm   normTask
	add    addTask
	place  placeTask
	attend attendTask
	act    actTask
	pack   packTask
}

// normTask normalizes rows of x by w to out.
type normTask struct {
	s         *session
	out, x, w []float32
}

func (a *normTask) row(t int) error {
	h := a.s.m.p.hidden
	a.s.ops.norm(a.out[t*h:][:h], a.x[t*h:][:h], a.w, a.s.m.p.eps)
	return nil
}

// addTask adds rows of out, normalized by post if there is one, to the session's x.
type addTask struct {
	s         *session
	out, post []float32
}

func (a *addTask) row(t int) error {
	h := a.s.m.p.hidden
	row := a.out[t*h:][:h]
	if a.post != nil {
		a.s.ops.norm(row, row, a.post, a.s.m.p.eps)
	}
	num.Add(a.s.buf.x[t*h:][:h], row)
	return nil
}

// placeTask turns queries and keys of a span's tokens to their positions and keeps keys
// and values.
type placeTask struct {
	s       *session
	layer   int
	sp      span
	q, k, v []float32
}

func (a *placeTask) row(i int) error {
	t := a.sp.first + i
	s, p, l := a.s, a.s.m.p, &a.s.m.w.layers[a.layer]
	qn, kn := p.heads*p.headDim, p.kvHeads*p.headDim
	q, k, v := a.q[t*qn:][:qn], a.k[t*kn:][:kn], a.v[t*kn:][:kn]
	s.place(q, l.qNorm, a.layer, t)
	s.place(k, l.kNorm, a.layer, t)
	a.sp.text.caches[a.layer].set(a.sp.at+i, k, v)
	return nil
}

// attendTask is attention of a span's tokens, a piece for each head and block of queries.
type attendTask struct {
	s     *session
	layer int
	sp    span
}

func (a *attendTask) piece(i int, sc *scratch) error {
	heads := a.s.m.p.heads
	h, first := i%heads, i/heads*queries
	a.s.attend(a.layer, h, a.sp, first, min(queries, a.sp.n-first), sc)
	return nil
}

// actTask applies the activation function to rows of gate and multiplies them with up.
type actTask struct {
	gate, up []float32
	ffn      int
	act      func(x, g []float32)
}

func (a *actTask) row(t int) error {
	g, u := a.gate[t*a.ffn:][:a.ffn], a.up[t*a.ffn:][:a.ffn]
	a.act(g, u)
	return nil
}

// packTask rounds rows of activations to 8 bits.
type packTask struct {
	to *dot.Batch
	in activations
}

func (a *packTask) row(t int) error { return a.to.SetRow(t, a.in.row(t)) }
