package needle

import (
	"context"
	"fmt"

	"quern/formats/cact"
	infer "quern/runtime"
	"quern/runtime/num"
)

// Codes of the heads, as archives have them. In generation 2 the first is called
// contrastive.
const (
	headEmbedding  = 1
	headConfidence = 2
	headRouter     = 3
)

// head pools the states that a text has before and after every layer into a few
// numbers.
type head struct {
	code        int
	probes      []float32 // generation 2 (probes, d), else (layers+1, probes, d)
	count       int       // probes of a row
	query       []float32 // (queries, d)
	queries     int
	gain        []float32 // (layers+1, probes)
	rowBias     []float32 // (queries, layers+1, probes)
	proj        *matrix   // (out, pooled)
	bias        []float32 // (out)
	calibration []float32 // of a router
}

func (g *gatherer) head(p *shape, h cact.Head) head {
	at := h.Key + "."
	out := head{code: int(h.Code), count: int(h.Probes), queries: int(h.Queries), proj: g.matrix(at + "proj"), bias: g.vector(at + "bias")}
	out.probes = g.all(at + "probes")
	if p.generation == 2 {
		return out
	}
	out.query, out.gain, out.rowBias = g.all(at+"query"), g.vector(at+"gain"), g.vector(at+"row_bias")
	if h.Code == headRouter {
		out.calibration = g.vector(at + "calibration")
	}
	return out
}

// all decodes a matrix wholly.
func (g *gatherer) all(name string) []float32 {
	m := g.matrix(name)
	if g.err != nil {
		return nil
	}
	out := make([]float32, m.rows*m.cols)
	for i := range m.rows {
		if err := m.row(out[i*m.cols:][:m.cols], i); err != nil {
			g.err = err
			return nil
		}
	}
	return out
}

// Reading is what the heads of a model say of a text. Those that the model lacks
// are nil.
type Reading struct {
	// Embedding is a vector of length 1.
	Embedding []float32
	// Confidence is one logit: its sigmoid is the confidence.
	Confidence []float32
	// Router has a logit for each way to go; Calibration is what the archive says
	// of its use.
	Router, Calibration []float32
}

// Read runs a text through the model and asks its heads. All attention is causal;
// opt is as for a session.
func (m *Model) Read(ctx context.Context, tokens []int32, opt infer.SessionOptions, more Options) (*Reading, error) {
	if len(m.w.heads) == 0 {
		return nil, fmt.Errorf("%s: %w: the model has no heads", m.name, infer.ErrUnsupported)
	}
	if len(tokens) == 0 {
		return nil, fmt.Errorf("%s: no tokens to read", m.name)
	}
	s, err := m.newSession(opt, more)
	if err != nil {
		return nil, err
	}
	pools := make([]*pool, len(m.w.heads))
	for i := range m.w.heads {
		pools[i] = newPool(m.p, &m.w.heads[i])
	}
	s.cells = func(_, row int, x []float32) {
		for _, q := range pools {
			q.add(row, x)
		}
	}
	if err := s.Eval(ctx, tokens, nil, nil); err != nil {
		return nil, err
	}
	var out Reading
	for _, q := range pools {
		y, err := q.result(ctx, s)
		if err != nil {
			return nil, err
		}
		switch q.h.code {
		case headEmbedding:
			num.Scale(y, 1/num.Sqrt(num.Dot(y, y)+1e-12))
			out.Embedding = y
		case headConfidence:
			out.Confidence = y
		case headRouter:
			out.Router, out.Calibration = y, q.h.calibration
		}
	}
	return &out, nil
}

// pool is the attention of probes over the states of a text, one state at a time:
// for each probe the sum of states weighted by e^(score - greatest so far), and the
// sum of these weights.
type pool struct {
	p    *shape
	h    *head
	most []float64   // (rows, probes)
	sum  []float64   // (rows, probes)
	acc  [][]float64 // (rows, probes) of d
}

func newPool(p *shape, h *head) *pool {
	n := len(h.probes) / p.d
	q := &pool{p: p, h: h, most: make([]float64, n), sum: make([]float64, n), acc: make([][]float64, n)}
	for i := range q.acc {
		q.acc[i] = make([]float64, p.d)
	}
	return q
}

// add shows a state of row 0 (before layer 0) to layers. In generation 2 every
// probe looks at all rows, later ones have probes for each.
func (q *pool) add(row int, x []float32) {
	if q.p.generation == 2 {
		row = 0
	}
	root := num.Sqrt(float32(q.p.d))
	for k := row * q.h.count; k < (row+1)*q.h.count; k++ {
		score := float64(num.Dot(x, q.h.probes[k*q.p.d:][:q.p.d]) / root)
		acc := q.acc[k]
		if q.sum[k] == 0 {
			q.most[k] = score
		}
		if score > q.most[k] {
			by := num.Exp64(q.most[k] - score)
			q.most[k] = score
			q.sum[k] = float64(q.sum[k] * by)
			for i, v := range acc {
				acc[i] = float64(v * by)
			}
		}
		w := num.Exp64(score - q.most[k])
		q.sum[k] += w
		for i, v := range x {
			acc[i] += float64(w * float64(v))
		}
	}
}

// result gives the head's outputs.
func (q *pool) result(ctx context.Context, s *session) ([]float32, error) {
	d, n := q.p.d, len(q.acc)
	pooled := make([]float32, n*d)
	for k, acc := range q.acc {
		for i, v := range acc {
			pooled[k*d+i] = float32(v / q.sum[k])
		}
	}
	if q.p.generation == 3 {
		pooled = q.ask(pooled)
	}
	out := make([]float32, q.h.proj.rows)
	if err := s.multiply(ctx, whole(out, q.h.proj, s.enter(pooled, 1, len(pooled), false))); err != nil {
		return nil, err
	}
	num.Add(out, q.h.bias)
	return out, nil
}

// ask mixes the pooled vectors of all rows and probes, once a query.
func (q *pool) ask(r []float32) []float32 {
	d, n := q.p.d, len(q.acc)
	for k := range n {
		v := r[k*d:][:d]
		num.RMSNorm(v, v, nil, eps)
		num.Scale(v, q.h.gain[k])
	}
	out := make([]float32, q.h.queries*d)
	u := make([]float32, n)
	all := num.Matrix{Data: r, Rows: n, Stride: d}
	root := num.Sqrt(float32(d))
	for j := range q.h.queries {
		num.Dots(u, n, all, num.Matrix{Data: q.h.query[j*d:], Rows: 1, Stride: d}, d)
		for k := range u {
			u[k] = u[k]/root + q.h.rowBias[j*n+k]
		}
		num.Softmax(u)
		num.WeightedSum(out[j*d:][:d], u, all)
	}
	return out
}

// Heads lists the codes of the heads that the model has.
func (m *Model) Heads() []int {
	var out []int
	for _, h := range m.w.heads {
		out = append(out, h.code)
	}
	return out
}
