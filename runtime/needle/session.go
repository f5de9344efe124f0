package needle

import (
	"context"
	"fmt"
	"math"

	infer "quern/runtime"
	"quern/runtime/num"
	"quern/runtime/parallel"
)

// batch is the number of tokens that go through the layers together.
const batch = 64

// Options are what sessions of Needle models have beyond those of all models. The
// zero value is right for most.
type Options struct {
	// Round8 rounds activations to int8 where they enter quantized matrices, as
	// infer.Q8 asks for too.
	Round8 bool
	// KV8 rounds keys and values to int8 as well, head by head.
	KV8 bool
	// Window is the number of positions that attention looks back on: 0 for that
	// of the file, less than 0 for all.
	Window int
	// Heard is what a speech model has heard, see Model.Hear.
	Heard *Heard
}

// session is one text in the works.
type session struct {
	m       *Model
	jobs    int
	opt     Options
	context int
	window  int
	tokens  []int32 // all tokens seen
	ready   int     // how many of them the states below know of
	layers  []memory
	sites   []history
	freq    []float64
	in      entering
	buf     buffers
	scratch []scratch // one a worker
	// cells, if not nil, is shown the state of each token before layer 0 and after
	// every layer, the mean of its lanes: row is 0 to layers.
	cells func(token, row int, x []float32)
	// whole, if not 0, is the number of positions that all see each other: those of
	// an encoder.
	whole int
}

// memory is what a layer keeps of the tokens before.
type memory struct {
	cache   cache
	q, k, v history // before the convolutions
}

// buffers are the activations of one batch, T tokens.
type buffers struct {
	lanes, next    []float32 // (T, lanes, d)
	flat           []float32 // (T, lanes*d)
	pre, post, res []float32 // (T, lanes), (T, lanes), (T, lanes*lanes)
	u, x           []float32 // (T, d) what enters the block, and flows through it
	normed, out    []float32 // (T, d)
	q, k, v        []float32 // (T, heads*qk), (T, kvHeads*qk), (T, kvHeads*v)
	att, gate      []float32 // (T, heads*v)
	cos, sin       []float32 // (T, qk/2)
	fetched        []float32 // (T, tables*sub)
	keys, values   []float32 // (T, d) of an engram
	turned         []float32
	logits, full   []float32
}

// scratch is one worker's room.
type scratch struct {
	weights, scores, z, t, mean []float32
	sink                        []float64
}

// NewSession starts an empty text. infer.Q8 is W4A8.
func (m *Model) NewSession(opt infer.SessionOptions) (infer.Session, error) {
	return m.NewSessionWith(opt, Options{})
}

// NewSessionWith is NewSession with more options.
func (m *Model) NewSessionWith(opt infer.SessionOptions, more Options) (infer.Session, error) {
	return m.newSession(opt, more)
}

func (m *Model) newSession(opt infer.SessionOptions, more Options) (*session, error) {
	if opt.Order != infer.OrderQuern {
		return nil, fmt.Errorf("%w: order %v; Needle's engine has one of its own", infer.ErrUnsupported, opt.Order)
	}
	switch opt.Act {
	case infer.Exact:
	case infer.Q8:
		more.Round8 = true
	default:
		return nil, fmt.Errorf("%w: arithmetic %v", infer.ErrUnsupported, opt.Act)
	}
	if opt.Observe != nil {
		return nil, fmt.Errorf("%w: importance matrices of Needle models, whose quantization takes none", infer.ErrUnsupported)
	}
	if opt.Routes != nil {
		return nil, fmt.Errorf("%w: choices of experts, of which Needle models have none", infer.ErrUnsupported)
	}
	if m.w.hear != nil && more.Heard == nil {
		return nil, fmt.Errorf("%s: %w: it is a speech model, which needs a sound to write about", m.name, infer.ErrUnsupported)
	}
	if more.Heard != nil && more.Heard.m != m {
		return nil, fmt.Errorf("%s: %w: what another model has heard", m.name, infer.ErrUnsupported)
	}
	s := &session{m: m, jobs: parallel.Jobs(opt.Jobs), opt: more, context: opt.Context, window: m.p.window, freq: m.p.frequencies()}
	if s.context <= 0 {
		s.context = max(m.p.context, 1)
	}
	if more.Window > 0 {
		s.window = more.Window
	} else if more.Window < 0 {
		s.window = 0
	}
	s.scratch = make([]scratch, s.jobs)
	s.forget()
	return s, nil
}

// forget empties what the session knows of the tokens.
func (s *session) forget() {
	p := s.m.p
	s.ready = 0
	if s.layers == nil {
		s.layers, s.sites = make([]memory, p.layers), make([]history, len(s.m.w.sites))
	}
	for i := range s.layers {
		m := &s.layers[i]
		if p.taps > 0 {
			m.q.reset(p.taps-1, p.heads*p.qk)
			m.k.reset(p.taps-1, p.kvHeads*p.qk)
			m.v.reset(p.taps-1, p.kvHeads*p.v)
		}
	}
	for i := range s.sites {
		s.sites[i].reset((p.convTaps-1)*p.dilation, p.d)
	}
}

// Len is the number of tokens seen.
func (s *session) Len() int { return len(s.tokens) }

// Room is the number of tokens that still fit.
func (s *session) Room() int { return s.context - len(s.tokens) }

// CacheBytes is what keys and values of the text take at present, and of a speech
// model those of the sound.
func (s *session) CacheBytes() int64 {
	n := 0
	for i := range s.layers {
		n += len(s.layers[i].cache.keys) + len(s.layers[i].cache.values)
	}
	if h := s.opt.Heard; h != nil {
		for i := range h.layers {
			n += len(h.layers[i].keys) + len(h.layers[i].values)
		}
	}
	return 4 * int64(n)
}

// Rewind forgets all but the first n tokens. The convolutions need what went
// before, so the next Eval goes through the n tokens again.
func (s *session) Rewind(n int) error {
	if n < 0 || n > len(s.tokens) {
		return fmt.Errorf("rewind to %d tokens of %d", n, len(s.tokens))
	}
	if n < len(s.tokens) {
		s.tokens = s.tokens[:n]
		s.forget()
	}
	return nil
}

// Eval appends tokens, see infer.Session.
func (s *session) Eval(ctx context.Context, tokens []int32, want []int, each func(i int, logits []float32) error) (err error) {
	if err := infer.CheckEval(s, s.m.p.vocab, tokens, want); err != nil {
		return err
	}
	before := len(s.tokens)
	s.tokens = append(s.tokens, tokens...)
	defer func() {
		if err != nil {
			s.tokens = s.tokens[:before]
			s.forget()
		}
	}()
	for s.ready < len(s.tokens) {
		end := min(s.ready+batch, len(s.tokens))
		if s.ready < before { // once more after a rewind
			end = min(end, before)
		}
		n := end - s.ready
		if err := s.forward(ctx, n); err != nil {
			return err
		}
		k := 0
		for k < len(want) && want[k] < end-before {
			k++
		}
		if err := s.head(ctx, s.ready-before, want[:k], each); err != nil {
			return err
		}
		want = want[k:]
		s.ready = end
	}
	return nil
}

// each shares n pieces among the workers.
func (s *session) each(ctx context.Context, n int, f func(i int, sc *scratch) error) error {
	return parallel.Each(ctx, s.jobs, n, func(i, w int) error { return f(i, &s.scratch[w]) })
}

// multiply computes products, sharing the rows of all of them among the workers.
func (s *session) multiply(ctx context.Context, list ...product) error {
	total := 0
	for _, p := range list {
		total += (p.n + p.m.piece() - 1) / p.m.piece()
	}
	return s.each(ctx, total, func(i int, sc *scratch) error {
		for j := range list {
			p := &list[j]
			piece := p.m.piece()
			if n := (p.n + piece - 1) / piece; i >= n {
				i -= n
				continue
			}
			return p.compute(i*piece, min(piece, p.n-i*piece), &sc.weights)
		}
		return nil
	})
}

// forward takes the next n tokens through all layers; their lanes are left in
// buf.lanes.
func (s *session) forward(ctx context.Context, n int) error {
	p, b := s.m.p, &s.buf
	d, wide := p.d, p.lanes*p.d
	lanes := grow(&b.lanes, n*wide)
	scale := num.Sqrt(float32(d))
	for t, id := range s.tokens[s.ready:][:n] {
		first := lanes[t*wide:][:d]
		if err := s.m.w.embed.row(first, int(id)); err != nil {
			return err
		}
		num.Scale(first, scale)
		for j := 1; j < p.lanes; j++ {
			copy(lanes[t*wide+j*d:], first)
		}
		if s.cells != nil {
			s.cells(s.ready+t, 0, first)
		}
	}
	half := p.qk / 2
	cos, sin := grow(&b.cos, n*half), grow(&b.sin, n*half)
	for t := range n {
		angles(cos[t*half:][:half], sin[t*half:][:half], s.freq, s.ready+t)
	}
	for i := range p.layers {
		if err := s.layer(ctx, i, n); err != nil {
			return err
		}
		if s.cells != nil {
			mean := grow(&s.scratch[0].mean, d)
			for t := range n {
				s.mean(mean, t)
				s.cells(s.ready+t, i+1, mean)
			}
		}
	}
	return nil
}

// mean writes the mean of a token's lanes.
func (s *session) mean(dst []float32, t int) {
	p := s.m.p
	lanes := s.buf.lanes[t*p.lanes*p.d:][:p.lanes*p.d]
	copy(dst, lanes[:p.d])
	for j := 1; j < p.lanes; j++ {
		num.Add(dst, lanes[j*p.d:][:p.d])
	}
	by := float32(p.lanes)
	for i, v := range dst {
		dst[i] = v / by
	}
}

// logitValues bounds the logits that are computed at once: 16 MiB.
const logitValues = 4 << 20

// head gives the wanted logits of the batch whose first token is the first-th of
// the call.
func (s *session) head(ctx context.Context, first int, want []int, each func(i int, logits []float32) error) error {
	p, b := s.m.p, &s.buf
	group := min(max(logitValues/p.out, 1), batch)
	for len(want) > 0 {
		some := want[:min(group, len(want))]
		want = want[len(some):]
		x := grow(&b.normed, len(some)*p.d)
		for j, i := range some {
			row := x[j*p.d:][:p.d]
			s.mean(row, i-first)
			num.RMSNorm(row, row, s.m.w.norm, eps)
		}
		in := s.enter(x, len(some), p.d, s.opt.Round8)
		logits := grow(&b.logits, len(some)*p.out)
		if err := s.multiply(ctx, product{dst: logits, ld: p.out, m: s.m.w.embed, n: p.out, in: in}); err != nil {
			return err
		}
		for j, i := range some {
			row := logits[j*p.out:][:p.out]
			if p.out < p.vocab {
				full := grow(&b.full, p.vocab)
				for k := copy(full, row); k < len(full); k++ {
					full[k] = float32(math.Inf(-1))
				}
				row = full
			}
			if err := each(i, row); err != nil {
				return err
			}
		}
	}
	return nil
}

var _ infer.Session = (*session)(nil)
