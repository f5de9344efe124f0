package needle

import (
	"context"
	"fmt"
	"math"

	"quern/formats/cact"
	infer "quern/runtime"
	"quern/runtime/num"
)

// hearing is the front of a speech model.
type hearing struct {
	audio   cact.Audio
	mel     []float32   // (FFT/2+1, mels)
	first   []float32   // (9, channels), the first convolution
	depth   [][]float32 // (9, channels) of each further one
	point   []*matrix   // (channels, channels), behind it
	out     *matrix     // (d, channels*bands)
	encoder *Model      // the stack behind the stem
	peGate  float32
}

// cross is a decoder layer's attention over what was heard.
type cross struct {
	norm, qNorm, kNorm, postNorm []float32
	q, k, v, gate, out           *matrix
	crossGate                    float32
}

// conv is what an encoder's layer has beyond a layer of text.
type conv struct {
	preHada       []float32 // of the first Hadamard layer
	first         hadamard
	norm, outNorm []float32
	pw1, pw2      *matrix
	dw            []float32 // (kernel, d)
	kernel        int
}

// speech gathers what a speech model has beyond the decoder's own layers.
func (g *gatherer) speech(w *weights, h *cact.Header, rank int) {
	a := h.Audio
	for i := 0; i < int(h.Layers) && g.err == nil; i++ {
		at := fmt.Sprintf("layer%02d.", i)
		c := cross{norm: g.norm(at + "cross_norm"), qNorm: g.norm(at + "cross_q_norm"), kNorm: g.norm(at + "cross_k_norm"),
			postNorm: g.norm(at + "post_cross_norm"), crossGate: g.gate(at + "cross_gate")}
		at += "cross."
		c.q, c.k, c.v, c.gate, c.out = g.matrix(at+"q_proj"), g.matrix(at+"k_proj"), g.matrix(at+"v_proj"), g.matrix(at+"gate_proj"), g.matrix(at+"out_proj")
		w.cross = append(w.cross, c)
	}
	e := &weights{mixer: g.mixer("encoder."), norm: g.norm("encoder.final_norm"), p1: w.p1, p2: w.p2}
	for i := 0; i < int(a.EncLayers) && g.err == nil; i++ {
		at := fmt.Sprintf("encoder%02d.", i)
		e.layers = append(e.layers, layer{
			normIn: g.norm(at + "ZCRMSNorm_0"), qNorm: g.norm(at + "q_norm"), kNorm: g.norm(at + "k_norm"), postNorm: g.norm(at + "post_attn_norm"),
			preHada: g.norm(at + "pre_hada_norm"), q: g.matrix(at + "q_proj"), k: g.matrix(at + "k_proj"), v: g.matrix(at + "v_proj"),
			gate: g.matrix(at + "gate_proj"), out: g.matrix(at + "out_proj"), attnGate: g.gate(at + "attn_gate"), hadamard: g.halved(at+"hadamard_mlp.", rank),
		})
		e.conv = append(e.conv, conv{
			preHada: g.norm(at + "pre_hada_norm_0"), first: g.halved(at+"hadamard_mlp_0.", rank), norm: g.norm(at + "conv_norm"),
			outNorm: g.norm(at + "conv_out_norm"), pw1: g.matrix(at + "pw1"), pw2: g.matrix(at + "pw2"), dw: g.vector(at + "dw"), kernel: int(a.Kernel),
		})
	}
	x := &hearing{audio: *a, mel: g.vector("mel"), first: g.vector("stem.w"), out: g.matrix("stem.out"), peGate: g.gate("pe_gate")}
	for i := uint32(1); i < a.Stages; i++ {
		x.depth = append(x.depth, g.vector(fmt.Sprintf("stem.dw_%d", i)))
		x.point = append(x.point, g.matrix(fmt.Sprintf("stem.pw_%d", i)))
	}
	if g.err != nil {
		return
	}
	// The encoder is a stack of its own: no vocabulary, no window, other lanes.
	eh := *h
	eh.Layers, eh.Lanes, eh.QKVTaps, eh.Sites, eh.SlidingWindow, eh.KVWindow, eh.GlobalMask, eh.Audio = a.EncLayers, a.EncLanes, 0, nil, 0, 0, 0, nil
	p, err := newShape(&eh)
	if err != nil {
		g.err = err
		return
	}
	x.encoder = &Model{p: p, w: e}
	w.hear = x
}

// halved is a Hadamard layer whose result counts half.
func (g *gatherer) halved(at string, rank int) hadamard {
	l := g.hadamard(at, rank)
	for i := range l.d4 {
		l.d4[i] = float32(l.d4[i] * 0.5)
	}
	return l
}

// encoderBlock takes buf.x of n frames through layer i of an encoder: half a Hadamard
// layer, attention, a convolution over time, half a Hadamard layer.
func (s *session) encoderBlock(ctx context.Context, i, n int) error {
	d, b, l, c := s.m.p.d, &s.buf, &s.m.w.layers[i], &s.m.w.conv[i]
	half := func(norm []float32, l *hadamard) error {
		return s.each(ctx, n, func(t int, sc *scratch) error {
			x, h := b.x[t*d:][:d], grow(&sc.mean, d)
			num.RMSNorm(h, x, norm, eps)
			s.m.shuffle(x, h, l, sc)
			return nil
		})
	}
	if err := half(c.preHada, &c.first); err != nil {
		return err
	}
	if err := s.attention(ctx, i, n); err != nil {
		return err
	}
	s.gated(n, l.postNorm, l.attnGate)
	if err := s.convolution(ctx, c, n); err != nil {
		return err
	}
	return half(l.preHada, &l.hadamard)
}

// convolution adds to buf.x of n frames
//
//	pw2 silu(norm(dw * glu(pw1 norm(x))))
//
// where dw runs over time, its middle at the frame itself.
func (s *session) convolution(ctx context.Context, c *conv, n int) error {
	d, b := s.m.p.d, &s.buf
	x := grow(&b.normed, n*d)
	for t := range n {
		num.RMSNorm(x[t*d:][:d], b.x[t*d:][:d], c.norm, eps)
	}
	two := grow(&b.q, n*2*d)
	if err := s.multiply(ctx, whole(two, c.pw1, s.enter(x, n, d, s.opt.Round8))); err != nil {
		return err
	}
	h := grow(&b.att, n*d)
	for t := range n {
		u, g := two[t*2*d:][:d], two[t*2*d+d:][:d]
		for j, v := range u {
			h[t*d+j] = float32(v * sigmoid(g[j]))
		}
	}
	before := (c.kernel - 1) / 2
	for t := range n {
		y := x[t*d:][:d]
		clear(y)
		for j := range c.kernel {
			at := t + j - before
			if at < 0 || at >= n {
				continue
			}
			for k, v := range h[at*d:][:d] {
				y[k] += float32(c.dw[j*d+k] * v)
			}
		}
		num.RMSNorm(y, y, c.outNorm, eps)
		for k, v := range y {
			y[k] = num.SiLU(v)
		}
	}
	out := grow(&b.out, n*d)
	if err := s.multiply(ctx, whole(out, c.pw2, s.enter(x, n, d, s.opt.Round8))); err != nil {
		return err
	}
	num.Add(b.x[:n*d], out)
	return nil
}

// listen adds a layer's attention over what was heard to buf.x of n tokens.
func (s *session) listen(ctx context.Context, i, n int) error {
	p, b, c, mem := s.m.p, &s.buf, &s.m.w.cross[i], &s.opt.Heard.layers[i]
	d, frames := p.d, s.opt.Heard.Frames
	x := grow(&b.normed, n*d)
	for t := range n {
		num.RMSNorm(x[t*d:][:d], b.x[t*d:][:d], c.norm, eps)
	}
	in := s.enter(x, n, d, s.opt.Round8)
	qn, on := p.heads*p.qk, p.heads*p.v
	q, gate := grow(&b.q, n*qn), grow(&b.gate, n*on)
	if err := s.multiply(ctx, whole(q, c.q, in), whole(gate, c.gate, in)); err != nil {
		return err
	}
	normHeads(q, p.qk, c.qNorm)
	if s.opt.Round8 {
		round8Rows(q, p.qk)
	}
	att := grow(&b.att, n*on)
	scale := 1 / num.Sqrt(float32(p.qk))
	err := s.each(ctx, p.heads, func(h int, sc *scratch) error {
		scores := grow(&sc.scores, n*frames)
		num.Dots(scores, frames, num.Matrix{Data: mem.keys[h*frames*p.qk:], Rows: frames, Stride: p.qk},
			num.Matrix{Data: q[h*p.qk:], Rows: n, Stride: qn}, p.qk)
		for t := range n {
			row := scores[t*frames:][:frames]
			num.Scale(row, scale)
			num.Softmax(row)
			num.WeightedSum(att[(t*p.heads+h)*p.v:][:p.v], row, num.Matrix{Data: mem.values[h*frames*p.v:], Rows: frames, Stride: p.v})
		}
		return nil
	})
	if err != nil {
		return err
	}
	for j, g := range gate {
		att[j] = float32(att[j] * sigmoid(g))
	}
	if err := s.multiply(ctx, whole(grow(&b.out, n*d), c.out, s.enter(att, n, on, s.opt.Round8))); err != nil {
		return err
	}
	s.gated(n, c.postNorm, c.crossGate)
	return nil
}

// normHeads normalizes heads of dim values one by one.
func normHeads(x []float32, dim int, norm []float32) {
	for ; len(x) >= dim; x = x[dim:] {
		num.RMSNorm(x[:dim], x[:dim], norm, eps)
	}
}

// Heard is a sound as a speech model's decoder looks at it. It belongs to the model
// and to the arithmetic that it was heard with.
type Heard struct {
	m *Model
	// Frames is the number of states, States the states themselves, Frames times the
	// model's width: what the encoder says.
	Frames int
	States []float32
	layers []cache // keys and values of each layer, (heads, frames, values)
}

// mostSeconds is what speech models are trained for.
const mostSeconds = 30

// maxSound bounds the values of the stem's first stage.
const maxSound = 1 << 27

// IsSpeech reports whether the model writes down what it hears.
func (m *Model) IsSpeech() bool { return m.w.hear != nil }

// SampleRate is the samples a second that a speech model listens to, else 0.
func (m *Model) SampleRate() int {
	if m.w.hear == nil {
		return 0
	}
	return int(m.w.hear.audio.Rate)
}

// Tags gives the ids that stand for the languages of a speech model: from first to
// before end.
func (m *Model) Tags() (first, end int32) {
	if m.w.hear == nil {
		return 0, 0
	}
	return int32(m.w.hear.audio.Text), int32(m.p.vocab)
}

// Hear runs the encoder of a speech model over a sound of up to 30 seconds, given as
// mono samples from -1 to 1 at SampleRate. opt and more are as for the session that
// the result goes into.
func (m *Model) Hear(ctx context.Context, samples []float32, opt infer.SessionOptions, more Options) (*Heard, error) {
	e := m.w.hear
	if e == nil {
		return nil, fmt.Errorf("%s: %w: it is no speech model", m.name, infer.ErrUnsupported)
	}
	rate := int(e.audio.Rate)
	if len(samples) > mostSeconds*rate {
		return nil, fmt.Errorf("%s: %w: a sound of %d seconds; cut it to pieces of up to %d", m.name, infer.ErrUnsupported, len(samples)/rate, mostSeconds)
	}
	for i, v := range samples {
		if v != v || v > math.MaxFloat32 || v < -math.MaxFloat32 {
			return nil, fmt.Errorf("%s: %w: sample %d of the sound is %v", m.name, infer.ErrUnsupported, i, v)
		}
	}
	frames := len(samples) / int(e.audio.Hop)
	if frames == 0 {
		return nil, fmt.Errorf("%s: %w: a sound of %d samples; it needs %d", m.name, infer.ErrUnsupported, len(samples), e.audio.Hop)
	}
	if most := int64(frames) * max(int64(e.audio.Mels), (int64(e.audio.Mels)+3)/4*int64(e.audio.Stem)); most > maxSound {
		return nil, fmt.Errorf("%s: %w: %d frames of a stem with %d channels", m.name, infer.ErrUnsupported, frames, e.audio.Stem)
	}
	opt.Context, opt.Observe = 0, nil
	s, err := e.encoder.newSession(opt, Options{Round8: more.Round8, KV8: more.KV8})
	if err != nil {
		return nil, err
	}
	out := &Heard{m: m}
	x := e.features(samples, frames)
	if out.States, out.Frames, err = s.stem(ctx, e, x, frames); err != nil {
		return nil, err
	}
	if err := s.encode(ctx, out.States, out.Frames); err != nil {
		return nil, err
	}
	return out, s.remembered(ctx, m, out)
}

// encode takes frames through the encoder, in place.
func (s *session) encode(ctx context.Context, x []float32, n int) error {
	p, b := s.m.p, &s.buf
	d, wide := p.d, p.lanes*p.d
	s.whole, s.context = n, n
	lanes := grow(&b.lanes, n*wide)
	for t := range n {
		for j := range p.lanes {
			copy(lanes[t*wide+j*d:][:d], x[t*d:][:d])
		}
	}
	half := p.qk / 2
	cos, sin := grow(&b.cos, n*half), grow(&b.sin, n*half)
	for t := range n {
		angles(cos[t*half:][:half], sin[t*half:][:half], s.freq, t)
	}
	for i := range p.layers {
		if err := s.layer(ctx, i, n); err != nil {
			return err
		}
	}
	for t := range n {
		row := x[t*d:][:d]
		s.mean(row, t)
		num.RMSNorm(row, row, s.m.w.norm, eps)
	}
	return nil
}

// remembered makes the keys and values that the decoder's layers have of the states.
func (s *session) remembered(ctx context.Context, m *Model, out *Heard) error {
	p, n := m.p, out.Frames
	d := p.d
	x := make([]float32, n*d)
	copy(x, out.States)
	for t := range n {
		place := sinusoid(d, t)
		for j, v := range place {
			x[t*d+j] += float32(m.w.hear.peGate * v)
		}
	}
	in := s.enter(x, n, d, s.opt.Round8)
	qn, on := p.heads*p.qk, p.heads*p.v
	k, v := make([]float32, n*qn), make([]float32, n*on)
	for i := range m.w.cross {
		c := &m.w.cross[i]
		if err := s.multiply(ctx, whole(k, c.k, in), whole(v, c.v, in)); err != nil {
			return err
		}
		normHeads(k, p.qk, c.kNorm)
		if s.opt.KV8 {
			round8Rows(k, p.qk)
			round8Rows(v, p.v)
		}
		mem := cache{keys: make([]float32, n*qn), values: make([]float32, n*on), room: n}
		for t := range n {
			for h := range p.heads {
				copy(mem.keys[(h*n+t)*p.qk:][:p.qk], k[(t*p.heads+h)*p.qk:])
				copy(mem.values[(h*n+t)*p.v:][:p.v], v[(t*p.heads+h)*p.v:])
			}
		}
		out.layers = append(out.layers, mem)
	}
	return nil
}
