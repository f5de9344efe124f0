package transformer

import (
	"context"
	"fmt"

	infer "quern/runtime"
	"quern/runtime/num"
)

// linearParams are the settings of linear attention (Gated DeltaNet), which most
// layers of Qwen3.5 have.
//
// A layer keeps a state S of keyDim by valueDim values a value head, and the last
// kernel-1 rows of its projection. For each token, with q, k, v the parts of
// silu(convolution(qkv(n))) and value head h using key head h mod keyHeads:
//
//	q, k  = q/|q|/sqrt(keyDim), k/|k|           |x| = sqrt(sum of squares + eps)
//	S    *= exp(a * softplus(alpha(n) + dt))    a < 0
//	d     = (v - S'k) * sigmoid(beta(n))
//	S    += k d'
//	o     = norm(S'q) * silu(gate(n))
//
// and out(o) is added to the states.
type linearParams struct {
	layers               []bool
	keyHeads, valueHeads int
	keyDim, valueDim     int
	kernel               int
}

func (l *linearParams) keyRows() int   { return l.keyHeads * l.keyDim }
func (l *linearParams) valueRows() int { return l.valueHeads * l.valueDim }
func (l *linearParams) joint() int     { return 2*l.keyRows() + l.valueRows() }

// linearLayer are the weights of one such layer.
type linearLayer struct {
	qkv, gate, alpha, beta, out *matrix
	conv                        []float32 // (channels, kernel)
	a, dt, norm                 []float32
}

// linearState is what a layer knows of the tokens before.
type linearState struct {
	state []float32 // (valueHeads, keyDim, valueDim)
	tail  []float32 // (kernel-1, channels) the last rows of the projection
}

// linearBuffers are those of a batch of T tokens.
type linearBuffers struct {
	qkv   []float32 // (kernel-1 + T, channels)
	mixed []float32 // (T, channels) after the convolution
	gate  []float32 // (T, valueRows)
	alpha []float32 // (T, valueHeads)
	beta  []float32
}

// linearKeys reads the settings.
func (p *params) linearKeys(k *keys) {
	l := &linearParams{
		keyHeads: k.int("ssm.group_count", 0), valueHeads: k.int("ssm.time_step_rank", 0),
		keyDim: k.int("ssm.state_size", 0), kernel: k.int("ssm.conv_kernel", 0),
	}
	inner := k.int("ssm.inner_size", 0)
	interval := k.int("full_attention_interval", 4)
	switch {
	case k.err != nil:
		return
	case l.keyHeads > 1<<20 || l.valueHeads > 1<<20 || l.keyDim > 1<<20 || l.keyHeads < 1 || l.valueHeads < 1 || l.valueHeads%l.keyHeads != 0 || l.keyDim < 1 || l.kernel < 1 || l.kernel > 1<<10:
		k.keep(fmt.Errorf("%w: linear attention of %d key heads of %d, %d value heads, kernel %d", infer.ErrModel, l.keyHeads, l.keyDim, l.valueHeads, l.kernel))
		return
	case inner < 1 || inner%l.valueHeads != 0 || interval < 1:
		k.keep(fmt.Errorf("%w: ssm.inner_size %d for %d value heads, full_attention_interval %d", infer.ErrModel, inner, l.valueHeads, interval))
		return
	}
	l.valueDim = inner / l.valueHeads
	l.layers = make([]bool, len(p.sliding))
	for i := range l.layers {
		l.layers[i] = (i+1)%interval != 0
	}
	const listed = "attention.recurrent_layers"
	if k.has(listed) {
		v, _ := k.meta.Get(k.arch + "." + listed)
		kinds, ok := v.Any().([]bool)
		if !ok || len(kinds) < len(l.layers) {
			k.keep(fmt.Errorf("%w: %s is no list of %d true or false", infer.ErrModel, listed, len(l.layers)))
			return
		}
		copy(l.layers, kinds)
	}
	p.linear = l
}

// linearLayer finds the weights.
func (f *finder) linearLayer(p *params, at string) *linearLayer {
	l := p.linear
	return &linearLayer{
		qkv:   f.matrix(at+"attn_qkv.weight", 1, l.joint(), p.hidden, true),
		gate:  f.matrix(at+"attn_gate.weight", 1, l.valueRows(), p.hidden, true),
		alpha: f.matrix(at+"ssm_alpha.weight", 1, l.valueHeads, p.hidden, true),
		beta:  f.matrix(at+"ssm_beta.weight", 1, l.valueHeads, p.hidden, true),
		out:   f.matrix(at+"ssm_out.weight", 1, p.hidden, l.valueRows(), true),
		conv:  f.table(at+"ssm_conv1d.weight", l.joint(), l.kernel),
		a:     f.vector(at+"ssm_a", l.valueHeads, true),
		dt:    f.vector(at+"ssm_dt.bias", l.valueHeads, true),
		norm:  f.vector(at+"ssm_norm.weight", l.valueDim, true),
	}
}

// table reads a small matrix of floats whole.
func (f *finder) table(name string, rows, cols int) []float32 {
	m := f.matrix(name, 1, rows, cols, true)
	if m == nil || f.err != nil {
		return nil
	}
	var s scratch
	d, err := m.decode(f.ctx, 0, 0, rows, &s)
	if err != nil {
		f.fail(err)
		return nil
	}
	out := make([]float32, 0, rows*cols)
	for i := range rows {
		out = append(out, d.Row(i, cols)...)
	}
	return out
}

// linearAttention is attention for such a layer: it adds its block to the states
// of n new tokens.
func (s *session) linearAttention(ctx context.Context, i, n int) error {
	p, b, w, l := s.m.p, &s.buf.linear, s.m.w.layers[i].linear, s.m.p.linear
	in, err := s.norm(ctx, s.buf.x, s.m.w.layers[i].attnNorm, n)
	if err != nil {
		return err
	}
	st := &s.linear[i]
	if st.state == nil {
		st.state = make([]float32, l.valueHeads*l.keyDim*l.valueDim)
		st.tail = make([]float32, (l.kernel-1)*l.joint())
	}
	for _, m := range []*matrix{w.qkv, w.gate, w.alpha, w.beta} {
		s.observe(m, 0, in)
	}
	joint, before := l.joint(), len(st.tail)
	qkv := grow(&b.qkv, before+n*joint)
	gate, alpha, beta := grow(&b.gate, n*l.valueRows()), grow(&b.alpha, n*l.valueHeads), grow(&b.beta, n*l.valueHeads)
	err = s.multiply(ctx, product{dst: qkv[before:], m: w.qkv, in: in}, product{dst: gate, m: w.gate, in: in},
		product{dst: alpha, m: w.alpha, in: in}, product{dst: beta, m: w.beta, in: in})
	if err != nil {
		return err
	}
	copy(qkv, st.tail)
	mixed := grow(&b.mixed, n*joint)
	err = s.team.rows(ctx, n, func(t int) error {
		convolve(mixed[t*joint:][:joint], qkv[t*joint:], w.conv, l.kernel)
		for h := range 2 * l.keyHeads {
			unit(mixed[t*joint+h*l.keyDim:][:l.keyDim], p.eps)
		}
		num.Scale(mixed[t*joint:][:l.keyRows()], 1/num.Sqrt(float32(l.keyDim)))
		for h := range l.valueHeads {
			at := t*l.valueHeads + h
			alpha[at] = num.Exp(float32(w.a[h] * softplus(alpha[at]+w.dt[h])))
			beta[at] = num.Sigmoid(beta[at])
		}
		return nil
	})
	if err != nil {
		return err
	}
	copy(st.tail, qkv[n*joint:])

	att := grow(&s.buf.att, n*l.valueRows())
	err = s.team.each(ctx, l.valueHeads, func(h int, sc *scratch) error {
		state := num.Matrix{Data: st.state[h*l.keyDim*l.valueDim:][:l.keyDim*l.valueDim], Rows: l.keyDim, Stride: l.valueDim}
		d := grow(&sc.values, l.valueDim)
		for t := range n {
			row := mixed[t*joint:][:joint]
			q := row[h%l.keyHeads*l.keyDim:][:l.keyDim]
			k := row[l.keyRows()+h%l.keyHeads*l.keyDim:][:l.keyDim]
			v := row[2*l.keyRows()+h*l.valueDim:][:l.valueDim]
			num.Scale(state.Data, alpha[t*l.valueHeads+h])
			num.WeightedSum(d, k, state)
			for j := range d {
				d[j] = float32((v[j] - d[j]) * beta[t*l.valueHeads+h])
			}
			for j, kj := range k {
				num.AddScaled(state.Row(j, l.valueDim), d, kj)
			}
			o := att[t*l.valueRows()+h*l.valueDim:][:l.valueDim]
			num.WeightedSum(o, q, state)
			num.RMSNorm(o, o, w.norm, p.eps)
			z := gate[t*l.valueRows()+h*l.valueDim:][:l.valueDim]
			num.SiLUMul(z, o)
			copy(o, z)
		}
		return nil
	})
	if err != nil {
		return err
	}
	after := activations{att, n, l.valueRows()}
	s.observe(w.out, 0, after)
	out := grow(&s.buf.out, n*p.hidden)
	if err := s.multiply(ctx, product{dst: out, m: w.out, in: after}); err != nil {
		return err
	}
	return s.add(ctx, out, nil, n)
}

// convolve writes silu of the sum over the last kernel rows, x being the oldest,
// each channel with weights of its own.
func convolve(dst, x, w []float32, kernel int) {
	channels := len(dst)
	for c := range dst {
		sum := float32(0)
		for j := range kernel {
			sum = float32(x[j*channels+c]*w[c*kernel+j]) + sum
		}
		dst[c] = num.SiLU(sum)
	}
}

// unit divides x by its length.
func unit(x []float32, eps float32) {
	num.Scale(x, 1/num.Sqrt(num.Dot(x, x)+eps))
}

// softplus is ln(1 + e^x).
func softplus(x float32) float32 {
	if x > 20 {
		return x
	}
	return float32(num.Log64(1 + num.Exp64(float64(x))))
}

// resume brings the states of linear attention to the session's length: where the
// text was cut, or a run failed in its middle, they are made anew from the tokens.
func (s *session) resume(ctx context.Context) error {
	if s.m.p.linear == nil || s.stateAt == s.n {
		return nil
	}
	for i := range s.linear {
		clear(s.linear[i].state)
		clear(s.linear[i].tail)
	}
	s.stateAt = -1
	for first := 0; first < s.n; first += s.batch {
		if err := s.forwardAt(ctx, first, s.seen[first:min(first+s.batch, s.n)]); err != nil {
			return err
		}
	}
	s.stateAt = s.n
	return nil
}

// forwardAt is forward for tokens that the session has seen.
func (s *session) forwardAt(ctx context.Context, at int, tokens []int32) error {
	s.spans = append(s.spans[:0], span{&s.memory, 0, at, len(tokens)})
	return s.forward(ctx, tokens, nil)
}
