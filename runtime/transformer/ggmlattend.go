package transformer

import (
	"context"

	"quern/runtime/ggmlnum"
	"quern/runtime/num"
)

// llama.cpp's flash attention takes queries in tiles where there are at least so many of a text, and of a single query it shares the
// positions between threads, of which its tools are said to have two, where the cache has room for so many.
const (
	tiledQueries    = 64
	sharedPositions = 512
	sharingThreads  = 2
	cachePad        = 256
)

// attendGGML is attention of a span as ggml computes it with flash attention.
func attendGGML(ctx context.Context, s *session, layer int, sp span) error {
	p, d := s.m.p, s.m.p.headDim
	scale := p.attnScale
	if p.scalesQuery {
		num.Scale(s.buf.q[sp.first*p.heads*d:][:sp.n*p.heads*d], scale)
		scale = 1
	}
	if sp.n >= tiledQueries && d%8 == 0 {
		return s.attendTiled(ctx, layer, sp, scale)
	}
	return s.attendSingle(ctx, layer, sp, scale)
}

// tiledRows is how many queries a worker takes at once, with all heads that share keys.
const tiledRows = 32

func (s *session) attendTiled(ctx context.Context, layer int, sp span, scale float32) error {
	p, d, c := s.m.p, s.m.p.headDim, &sp.text.caches[layer]
	group := p.heads / p.kvHeads
	blocks := (sp.n + tiledRows - 1) / tiledRows
	return s.team.each(ctx, p.kvHeads*blocks, func(task int, sc *scratch) error {
		// The last queries see the most: they come first.
		kv, first := task%p.kvHeads, (blocks-1-task/p.kvHeads)*tiledRows
		count := min(tiledRows, sp.n-first)
		a := &sc.attend
		a.Reset(count*group, d, scale, p.attnSoftcap)
		head := func(r int, x []float32) []float32 {
			return x[((sp.first+first+r/group)*p.heads+kv*group+r%group)*d:][:d]
		}
		for r := range count * group {
			a.Query(r, head(r, s.buf.q))
		}
		start := sp.at + first
		for tile := p.visible(layer, start) / ggmlnum.TilePositions; tile*ggmlnum.TilePositions < start+count; tile++ {
			low := tile * ggmlnum.TilePositions
			keys, values, n := c.halves(kv, low, sp.at+sp.n)
			a.Tile(keys, values, n, func(r int) ggmlnum.View {
				pos := start + r/group
				return ggmlnum.View{From: max(p.visible(layer, pos)-low, 0), To: min(pos+1-low, n)}
			})
		}
		for r := range count * group {
			a.Result(head(r, s.buf.att), r)
		}
		return nil
	})
}

func (s *session) attendSingle(ctx context.Context, layer int, sp span, scale float32) error {
	p, d, c := s.m.p, s.m.p.headDim, &sp.text.caches[layer]
	group := p.heads / p.kvHeads
	room := (s.context + cachePad - 1) / cachePad * cachePad
	padded := min((sp.at+sp.n+cachePad-1)/cachePad*cachePad, room)
	shared := sp.n == 1 && len(s.spans) == 1 && padded >= sharedPositions
	return s.team.each(ctx, p.heads*sp.n, func(task int, sc *scratch) error {
		h, t := task%p.heads, task/p.heads
		at := ((sp.first+t)*p.heads + h) * d
		pos := sp.at + t
		a := &sc.single
		see := func(from, to int) {
			for from < to {
				keys, values, n := c.halves(h/group, from, to)
				a.See(keys, values, n)
				from += n
			}
		}
		a.Reset(s.buf.q[at:][:d], scale, p.attnSoftcap)
		low := p.visible(layer, pos)
		if !shared {
			see(low, pos+1)
			a.Result(s.buf.att[at:][:d])
			return nil
		}
		part := (padded + sharingThreads - 1) / sharingThreads
		sc.join.Reset(d)
		for from := 0; from <= pos; from += part {
			a.Clear()
			see(max(from, low), min(from+part, pos+1))
			sc.join.Add(a)
		}
		sc.join.Result(s.buf.att[at:][:d])
		return nil
	})
}

// halves gives the keys and values of a head from a position on, as far as they lie in one chunk and before to.
func (c *cache) halves(head, from, to int) (keys, values []byte, n int) {
	i, at, n := c.run(head, from, to)
	chunk := &c.halfChunks[i]
	return chunk.keys[2*at:][:2*n*c.dim], chunk.values[2*at:][:2*n*c.dim], n
}

// ggmlRope is ggml's rotation as a session has it.
type ggmlRope struct {
	*ggmlnum.Rope
	half int
}

func newGGMLRope(p ropeParams) (rotation, error) {
	if _, err := newRope(p); err != nil {
		return nil, err
	}
	return ggmlRope{ggmlnum.NewRope(ggmlnum.RopeOptions{Dims: p.dims, NeoX: p.neox, Base: float32(p.base), Scale: float32(p.scale), Attn: float32(p.attn),
		Factors: p.factors, Ext: float32(p.ext), BetaFast: float32(p.betaFast), BetaSlow: float32(p.betaSlow), Original: p.original}), p.dims / 2}, nil
}

func (r ggmlRope) pairs() int                             { return r.half }
func (r ggmlRope) table(cos, sin []float32, position int) { r.Table(cos, sin, position) }
func (r ggmlRope) turn(x, cos, sin []float32)             { r.Turn(x, cos, sin) }
