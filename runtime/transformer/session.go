package transformer

import (
	"context"
	"fmt"
	"math"

	infer "quern/runtime"
	"quern/runtime/num"
	"quern/tensor/ggmldot"
)

// smallShare is the part of a model's weights that buffers of a session should take no
// more of where smaller ones are about as fast.
const smallShare = 100

// maxBatch is the most tokens that go through the layers together.
const maxBatch = 128

// batchOf is how many tokens go through the layers of a model together: a multiple of 16, so
// that their activations take no more than a share of what the weights do, and 48 at
// least. Of experts each gets few rows of a batch, so that mixtures need them all. Results do not depend on it.
func (m *Model) batchOf() int {
	p := m.p
	row := 4 * int64(2*p.hidden+2*max((p.heads+p.kvHeads)*p.headDim, p.ffn))
	if p.experts > 0 {
		return maxBatch
	}
	return int(min(max(m.info.Bytes/smallShare/row/16*16, 48), maxBatch))
}

// logitValues bounds the logits that are computed at once: 16 MiB.
const logitValues int64 = 4 << 20

// memory is what a session keeps of a text.
type memory struct {
	n      int // tokens seen
	caches []cache
}

// span is some tokens of a text among those that go through the layers together.
type span struct {
	text *memory
	// first is the row of the first, at its position in the text, n how many there are.
	first, at, n int
}

// session is one text in the works.
type session struct {
	m        *Model
	team     *team
	act      infer.Act
	ops      *operations
	ggml     map[ggmlKey]*ggmldot.Batch // in ggml's order
	packed   []packedBatch
	products products
	tasks    tasks
	observer infer.Observer
	routes   infer.Router
	context  int
	batch    int           // tokens that go through the layers together
	memory                 // the text
	beside   []memory      // texts that are evaluated with others
	spans    []span        // whose tokens are in the layers
	wanted   []int         // the rows of a batch that logits are wanted of
	linear   []linearState // by layer, where the model has such attention
	stateAt  int           // the length of the text that linear's states belong to
	seen     []int32       // the text, where states have to be made anew from it
	global   rotation
	local    rotation
	buf      buffers
}

// buffers are the activations of one batch, T tokens.
type buffers struct {
	x      []float32 // (T, hidden) what flows along the layers
	normed []float32 // (T, hidden) what enters a block; later, but for mixtures, what the block adds to x
	out    []float32 // (T, hidden) what a mixture adds to x
	block  []float32 // what q, k, v and att share with a feed-forward's gate and up
	q      []float32 // (T, heads*headDim)
	att    []float32 // (T, heads*headDim)
	cos    [2][]float32
	sin    [2][]float32 // (T, dims/2), global and local
	logits []float32
	full   []float32 // a row of logits with a place for every id
	moe    moeBuffers
	joint  []float32 // (T, rows) of a matrix for several purposes
	gates  []float32 // (T, heads*headDim)
	linear linearBuffers
	padded []float32 // activations as wide as padded rows
	// rounded are activations after rounding to 8 bits, for each matrix of a call.
	rounded [][]float32
}

// forAttention gives room for q, k, v and what attention makes of them, for n tokens
// of qn values of queries and kn of keys. It lasts until the block ends.
func (b *buffers) forAttention(n, qn, kn int) (q, k, v, att []float32) {
	all := grow(&b.block, 2*n*(qn+kn))
	cut := func(n int) []float32 {
		part := all[:n:n]
		all = all[n:]
		return part
	}
	b.q, k, v, b.att = cut(n*qn), cut(n*kn), cut(n*kn), cut(n*qn)
	return b.q, k, v, b.att
}

// forGated gives room for n values of a gate and as many beside it.
func (b *buffers) forGated(n int) (gate, up []float32) {
	all := grow(&b.block, 2*n)
	return all[:n:n], all[n:]
}

// headRows is how many rows of logits are computed together: those that keep to a share of
// the weights, but 16, below which unpacking the weights anew begins to show, and no more than 64.
func (m *Model) headRows() int {
	rows := m.w.output.rows
	few := max(m.info.Bytes/smallShare/int64(4*rows), 16)
	return int(min(few, max(logitValues/int64(rows), 1), 64))
}

// NewSession starts an empty text.
func (m *Model) NewSession(opt infer.SessionOptions) (infer.Session, error) {
	s := &session{m: m, team: newTeam(opt.Jobs), act: opt.Act, ops: &quernOperations, observer: opt.Observe, routes: opt.Routes, context: opt.Context}
	if s.context <= 0 {
		if s.context = m.p.context; s.context <= 0 {
			s.context = 2048
		}
	}
	if s.act != infer.Exact && s.act != infer.Q8 {
		return nil, fmt.Errorf("%w: arithmetic %v", infer.ErrUnsupported, opt.Act)
	}
	switch {
	case opt.Order == infer.OrderGGML && s.act == infer.Q8 && m.FollowsGGML():
		s.ops, s.ggml = &ggmlOperations, map[ggmlKey]*ggmldot.Batch{}
	case opt.Order != infer.OrderQuern:
		return nil, fmt.Errorf("%w: order %v with %v activations of this model", infer.ErrUnsupported, opt.Order, opt.Act)
	}
	s.batch = s.ops.batch(m)
	if s.routes != nil && m.p.experts == 0 {
		return nil, fmt.Errorf("%w: choices of experts, of which this model has none", infer.ErrUnsupported)
	}
	s.linear = make([]linearState, m.p.layers)
	s.memory = s.newMemory()
	var err error
	if s.global, err = s.ops.rope(m.p.ropeFor(s.context)); err != nil {
		return nil, err
	}
	s.local = s.global
	if m.p.local != nil {
		s.local, err = s.ops.rope(*m.p.local)
	}
	return s, err
}

// newMemory is that of an empty text.
func (s *session) newMemory() memory {
	var m memory
	for range s.m.p.layers {
		m.caches = append(m.caches, newCache(s.act == infer.Q8, s.m.p.kvHeads, s.m.p.headDim, s.context))
	}
	return m
}

// Len is the number of tokens seen.
func (s *session) Len() int { return s.n }

// Room is the number of tokens that still fit.
func (s *session) Room() int { return s.context - s.n }

// CacheBytes is the memory that keys and values have.
func (s *session) CacheBytes() int64 {
	n := int64(0)
	for i := range s.caches {
		n += s.caches[i].bytes()
	}
	return n
}

// Rewind forgets all but the first n tokens.
func (s *session) Rewind(n int) error {
	if n < 0 || n > s.n {
		return fmt.Errorf("rewind to %d tokens of %d", n, s.n)
	}
	s.n = n
	return nil
}

// Eval appends tokens, see infer.Session.
func (s *session) Eval(ctx context.Context, tokens []int32, want []int, each func(i int, logits []float32) error) (err error) {
	if err := infer.CheckEval(s, s.m.p.vocab, tokens, want); err != nil {
		return err
	}
	before := s.n
	defer func() {
		if err != nil {
			s.n = before
		}
	}()
	return s.team.Work(func() error {
		if err := s.resume(ctx); err != nil {
			return err
		}
		for first := 0; first < len(tokens); first += s.batch {
			part := tokens[first:min(first+s.batch, len(tokens))]
			s.stateAt = -1
			s.wanted = s.wanted[:0]
			for len(want) > 0 && want[0] < first+len(part) {
				s.wanted = append(s.wanted, want[0]-first)
				want = want[1:]
			}
			s.spans = append(s.spans[:0], span{&s.memory, 0, s.n, len(part)})
			if err := s.forward(ctx, part, s.wanted); err != nil {
				return err
			}
			if err := s.head(ctx, first, s.wanted, each); err != nil {
				return err
			}
			s.n += len(part)
			s.stateAt = s.n
			if s.m.p.linear != nil {
				s.seen = append(s.seen[:s.n-len(part)], part...)
			}
		}
		return nil
	})
}

// forward takes tokens through all layers; their states are left in buf.x, or only those of the rows that logits are
// wanted of where the order has it so.
func (s *session) forward(ctx context.Context, tokens []int32, want []int) error {
	p, b, n := s.m.p, &s.buf, len(tokens)
	x := grow(&b.x, n*p.hidden)
	grow(&b.block, 2*n*max((p.heads+p.kvHeads)*p.headDim, p.ffn))
	for i, id := range tokens {
		row, err := s.m.w.embed.decode(ctx, 0, int(id), 1, &s.team.scratch[0])
		if err != nil {
			return err
		}
		copy(x[i*p.hidden:][:p.hidden], row.Data)
	}
	if p.embedScale != 1 {
		num.Scale(x, p.embedScale)
	}
	s.angles(n)
	for i := range s.m.w.layers {
		if err := s.attention(ctx, i, n); err != nil {
			return err
		}
		if s.ops.trims && i == p.layers-1 {
			n = len(want)
			for to, from := range want {
				copy(x[to*p.hidden:][:p.hidden], x[from*p.hidden:])
			}
		}
		if n == 0 {
			break
		}
		if err := s.feedForward(ctx, i, n); err != nil {
			return err
		}
	}
	return nil
}

// angles prepares sines and cosines for the positions of n rows.
func (s *session) angles(n int) {
	for i, r := range [...]rotation{s.global, s.local} {
		if i > 0 && r == s.global {
			break
		}
		half := r.pairs()
		cos, sin := grow(&s.buf.cos[i], n*half), grow(&s.buf.sin[i], n*half)
		for _, sp := range s.spans {
			for t := range sp.n {
				row := sp.first + t
				r.table(cos[row*half:][:half], sin[row*half:][:half], sp.at+t)
			}
		}
	}
}

// norm writes the normalized rows of x to buf.normed.
func (s *session) norm(ctx context.Context, x, w []float32, n int) (activations, error) {
	h := s.m.p.hidden
	out := grow(&s.buf.normed, n*h)
	s.tasks.norm = normTask{s, out, x, w}
	return activations{out, n, h}, s.team.byRow(ctx, n, &s.tasks.norm)
}

// add adds what a block gave, normalized once more where the model does, to x.
func (s *session) add(ctx context.Context, out, post []float32, n int) error {
	s.tasks.add = addTask{s, out, post}
	return s.team.byRow(ctx, n, &s.tasks.add)
}

// head gives the logits of rows of the tokens that forward took, as those of so many tokens
// further.
func (s *session) head(ctx context.Context, offset int, want []int, each func(i int, logits []float32) error) error {
	p, b, out := s.m.p, &s.buf, s.m.w.output
	for first := 0; first < len(want); {
		some := want[first:][:s.ops.headRows(s.m, len(want)-first)]
		in := activations{grow(&b.normed, len(some)*p.hidden), len(some), p.hidden}
		for j, row := range some {
			if s.ops.trims {
				row = first + j
			}
			s.ops.norm(in.row(j), b.x[row*p.hidden:][:p.hidden], s.m.w.norm, p.eps)
		}
		first += len(some)
		s.observe(out, 0, in)
		logits := grow(&b.logits, len(some)*out.rows)
		if err := s.multiply(ctx, product{dst: logits, m: out, in: in}); err != nil {
			return err
		}
		for j, row := range some {
			logits := logits[j*out.rows:][:out.rows]
			if p.softcap != 0 {
				s.ops.softcap(logits, p.softcap)
			}
			if ids := s.m.w.ids; ids != nil {
				logits = s.spread(logits, ids)
			}
			if err := each(offset+row, logits); err != nil {
				return err
			}
		}
	}
	return nil
}

// spread puts the logits of a pruned head at their ids.
func (s *session) spread(row []float32, ids []int32) []float32 {
	full := grow(&s.buf.full, s.m.p.vocab)
	for i := range full {
		full[i] = float32(math.Inf(-1))
	}
	for i, id := range ids {
		full[id] = row[i]
	}
	return full
}
