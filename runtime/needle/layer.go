package needle

import (
	"context"

	"quern/runtime/num"
)

const sinkhornRounds = 20

// layer takes the lanes of n tokens through layer i.
func (s *session) layer(ctx context.Context, i, n int) error {
	p, b, w := s.m.p, &s.buf, s.m.w
	d, lanes := p.d, p.lanes
	wide := lanes * d
	flat := grow(&b.flat, n*wide)
	for t := range n {
		num.RMSNorm(flat[t*wide:][:wide], b.lanes[t*wide:][:wide], nil, eps)
	}
	in := s.enter(flat, n, wide, s.opt.Round8 && p.generation == 3)
	pre, post, res := grow(&b.pre, n*lanes), grow(&b.post, n*lanes), grow(&b.res, n*lanes*lanes)
	err := s.multiply(ctx,
		product{dst: pre, ld: lanes, m: w.phiPre, first: i * lanes, n: lanes, in: in},
		product{dst: post, ld: lanes, m: w.phiPost, first: i * lanes, n: lanes, in: in},
		product{dst: res, ld: lanes * lanes, m: w.phiRes, first: i * lanes * lanes, n: lanes * lanes, in: in})
	if err != nil {
		return err
	}
	u, x := grow(&b.u, n*d), grow(&b.x, n*d)
	for t := range n {
		h := pre[t*lanes:][:lanes]
		for j := range h {
			off := float32(-4)
			if j == i%lanes {
				off = 4
			}
			h[j] = sigmoid(float32(w.aPre[i]*h[j]) + w.bPre[i*lanes+j] + off)
		}
		num.WeightedSum(u[t*d:][:d], h, num.Matrix{Data: b.lanes[t*wide:], Rows: lanes, Stride: d})
	}
	copy(x, u)
	if err := s.block(ctx, i, n); err != nil {
		return err
	}
	next := grow(&b.next, n*wide)
	err = s.each(ctx, n, func(t int, sc *scratch) error {
		y := x[t*d:][:d]
		for c, v := range u[t*d:][:d] {
			y[c] -= v
		}
		h, r := post[t*lanes:][:lanes], res[t*lanes*lanes:][:lanes*lanes]
		s.mixing(i, r, sc)
		for j := range h {
			off := float32(-4)
			if j == i%lanes {
				off = 0
			}
			g := float32(2 * sigmoid(float32(w.aPost[i]*h[j])+w.bPost[i*lanes+j]+off))
			lane := next[t*wide+j*d:][:d]
			num.WeightedSum(lane, r[j*lanes:][:lanes], num.Matrix{Data: b.lanes[t*wide:], Rows: lanes, Stride: d})
			num.AddScaled(lane, y, g)
		}
		return nil
	})
	b.lanes, b.next = b.next, b.lanes
	return err
}

// mixing turns the products of a token with phi_res into the weights by which
// its lanes are mixed: sinkhorn's rounds over rows and columns, of logarithms in
// float64.
func (s *session) mixing(layer int, r []float32, sc *scratch) {
	n := s.m.p.lanes
	m := grow(&sc.sink, n*n)
	for k := range m {
		m[k] = float64(float32(s.m.w.aRes[layer]*r[k]) + s.m.w.bRes[layer*n*n+k])
	}
	for range sinkhornRounds {
		for i := range n {
			balance(m[i*n:], n, 1)
		}
		for j := range n {
			balance(m[j:], n, n)
		}
	}
	for k, v := range m {
		r[k] = float32(num.Exp64(v))
	}
}

// balance takes the logarithm of the sum of exponentials from n values that lie
// step apart.
func balance(m []float64, n, step int) {
	most := m[0]
	for i := 1; i < n; i++ {
		if v := m[i*step]; v > most {
			most = v
		}
	}
	sum := 0.0
	for i := range n {
		sum += num.Exp64(m[i*step] - most)
	}
	total := most + num.Log64(sum)
	for i := range n {
		m[i*step] -= total
	}
}

// block takes buf.x of n tokens through layer i's block.
func (s *session) block(ctx context.Context, i, n int) error {
	if s.m.w.conv != nil {
		return s.encoderBlock(ctx, i, n)
	}
	p, b, l := s.m.p, &s.buf, &s.m.w.layers[i]
	d := p.d
	if site := p.siteOf[i]; site >= 0 {
		if err := s.engram(ctx, site, n); err != nil {
			return err
		}
	}
	if err := s.attention(ctx, i, n); err != nil {
		return err
	}
	s.gated(n, l.postNorm, l.attnGate)
	if s.m.w.cross != nil {
		if err := s.listen(ctx, i, n); err != nil {
			return err
		}
	}
	return s.each(ctx, n, func(t int, sc *scratch) error {
		x, h := b.x[t*d:][:d], grow(&sc.mean, d)
		num.RMSNorm(h, x, l.preHada, eps)
		if p.generation == 2 {
			p.walsh(x, h, &l.hadamard, sc)
		} else {
			s.m.shuffle(x, h, &l.hadamard, sc)
		}
		return nil
	})
}

// gated adds what attention has left in buf.out to buf.x of n tokens, normalized and
// multiplied by a gate.
func (s *session) gated(n int, norm []float32, gate float32) {
	d, b := s.m.p.d, &s.buf
	for t := range n {
		o := b.out[t*d:][:d]
		num.RMSNorm(o, o, norm, eps)
		num.AddScaled(b.x[t*d:][:d], o, gate)
	}
}
