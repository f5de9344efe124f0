package transformer

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"

	infer "quern/runtime"
	"quern/tensor"
)

// weights are a decoder's tensors by what they do.
type weights struct {
	embed  *matrix
	norm   []float32
	output *matrix
	// ids says which token each row of a pruned head stands for; nil when the
	// head has a row a token.
	ids    []int32
	layers []layer
}

// linear is a matrix with its bias, which may be nil.
type linear struct {
	*matrix
	bias []float32
}

type layer struct {
	attnNorm, qNorm, kNorm, postAttn []float32
	q, k, v, o                       linear
	qkv                              linear       // in place of q, k and v
	linear                           *linearLayer // in place of attention
	ffnNorm, postFFN                 []float32

	gate, up, down linear // dense

	router linear // mixture of experts
	// choice is added to the experts' scores when they are chosen, not when they
	// are weighed, in the order that they had before from; nil for none.
	choice []float32
	// from says which number each expert had before they were ordered by use; nil
	// where they were not.
	from       []uint32
	expGate    *matrix
	expUp      *matrix
	expDown    *matrix
	sharedGate *matrix // one row: how much of the shared expert counts; nil: all
	shGate     *matrix // shared expert, nil for none
	shUp       *matrix
	shDown     *matrix
}

// finder looks tensors up by name and keeps the first error.
type finder struct {
	ctx     context.Context
	tensors map[string]*tensor.Tensor
	// stride gives the stored row length of a matrix, 0 for the true one.
	stride func(t *tensor.Tensor, cols int) int
	err    error
}

func (f *finder) fail(err error) {
	if f.err == nil {
		f.err = err
	}
}

func (f *finder) find(name string, needed bool) *tensor.Tensor {
	t := f.tensors[name]
	if t == nil && needed {
		f.fail(fmt.Errorf("%w: tensor %s is missing", infer.ErrModel, name))
	}
	return t
}

func (f *finder) vector(name string, n int, needed bool) []float32 {
	t := f.find(name, needed)
	if t == nil || f.err != nil {
		return nil
	}
	x, err := readVector(f.ctx, t, n)
	if err != nil {
		f.fail(err)
	}
	return x
}

func (f *finder) matrix(name string, parts, rows, cols int, needed bool) *matrix {
	t := f.find(name, needed)
	if t == nil || f.err != nil {
		return nil
	}
	stride := 0
	if f.stride != nil {
		stride = f.stride(t, cols)
	}
	m, err := newMatrix(t, parts, rows, cols, stride)
	if err != nil {
		f.fail(err)
	}
	return m
}

// linear finds NAME.weight and, where there is one, NAME.bias.
func (f *finder) linear(name string, rows, cols int) linear {
	return linear{f.matrix(name+".weight", 1, rows, cols, true), f.vector(name+".bias", rows, false)}
}

func (f *finder) weights(p *params) (*weights, error) {
	w := &weights{
		embed: f.matrix("token_embd.weight", 1, p.vocab, p.hidden, true),
		norm:  f.vector("output_norm.weight", p.hidden, true),
	}
	w.ids = f.outputIDs(p.vocab)
	rows := p.vocab
	if w.ids != nil {
		rows = len(w.ids)
	}
	if w.output = f.matrix("output.weight", 1, rows, p.hidden, w.ids != nil); w.output == nil {
		w.output = w.embed
	}
	for i := 0; i < p.layers && f.err == nil; i++ {
		w.layers = append(w.layers, f.layer(p, i, "blk."+strconv.Itoa(i)+"."))
	}
	return w, f.err
}

func (f *finder) layer(p *params, i int, at string) layer {
	gemma := p.arch == "gemma3" || p.arch == "gemma2"
	l := layer{
		attnNorm: f.vector(at+"attn_norm.weight", p.hidden, true),
		postAttn: f.vector(at+"post_attention_norm.weight", p.hidden, gemma),
		postFFN:  f.vector(at+"post_ffw_norm.weight", p.hidden, gemma),
	}
	if p.linear != nil && p.linear.layers[i] {
		l.linear = f.linearLayer(p, at)
	} else {
		f.attention(p, at, &l)
	}
	if p.arch == "qwen35" {
		// Its name is that of another norm elsewhere.
		l.ffnNorm, l.postAttn = f.vector(at+"post_attention_norm.weight", p.hidden, true), nil
	} else {
		l.ffnNorm = f.vector(at+"ffn_norm.weight", p.hidden, true)
	}
	if p.experts == 0 || i < p.denseLead {
		l.gate = f.linear(at+"ffn_gate", p.ffn, p.hidden)
		l.up = f.linear(at+"ffn_up", p.ffn, p.hidden)
		l.down = f.linear(at+"ffn_down", p.hidden, p.ffn)
		return l
	}
	l.router = f.linear(at+"ffn_gate_inp", p.experts, p.hidden)
	l.choice = f.vector(at+"exp_probs_b.bias", p.experts, false)
	l.expGate = f.matrix(at+"ffn_gate_exps.weight", p.experts, p.expertFFN, p.hidden, true)
	l.expUp = f.matrix(at+"ffn_up_exps.weight", p.experts, p.expertFFN, p.hidden, true)
	l.expDown = f.matrix(at+"ffn_down_exps.weight", p.experts, p.hidden, p.expertFFN, true)
	if p.sharedFFN > 0 {
		l.shGate = f.matrix(at+"ffn_gate_shexp.weight", 1, p.sharedFFN, p.hidden, true)
		l.shUp = f.matrix(at+"ffn_up_shexp.weight", 1, p.sharedFFN, p.hidden, true)
		l.shDown = f.matrix(at+"ffn_down_shexp.weight", 1, p.hidden, p.sharedFFN, true)
		if t := f.tensors[at+"ffn_gate_inp_shexp.weight"]; t != nil {
			row := *t
			row.Shape = tensor.Shape{1, int64(p.hidden)}
			if t.Shape.RowLen() != int64(p.hidden) || t.Shape.Rows() != 1 {
				f.fail(fmt.Errorf("%w: tensor %s is %v, want %d values", infer.ErrModel, t.Name, t.Shape, p.hidden))
				return l
			}
			m, err := newMatrix(&row, 1, 1, p.hidden, 0)
			if err != nil {
				f.fail(err)
			}
			l.sharedGate = m
		}
	}
	return l
}

// renumbered says which number each expert of the layer had before.
func (l *layer) renumbered(from []uint32) {
	l.from = from
	if l.choice == nil {
		return
	}
	choice := make([]float32, len(from))
	for e, f := range from {
		choice[f] = l.choice[e]
	}
	l.choice = choice
}

// attention finds the weights of the usual kind of attention.
func (f *finder) attention(p *params, at string, l *layer) {
	q, kv := p.heads*p.headDim, p.kvHeads*p.headDim
	if p.fused {
		l.qkv = f.linear(at+"attn_qkv", q+2*kv, p.hidden)
	} else {
		rows := q
		if p.gatedQuery {
			rows *= 2
		}
		l.q = f.linear(at+"attn_q", rows, p.hidden)
		l.k = f.linear(at+"attn_k", kv, p.hidden)
		l.v = f.linear(at+"attn_v", kv, p.hidden)
	}
	l.o = f.linear(at+"attn_output", p.hidden, q)
	normed := slices.Contains([]string{"gemma3", "qwen3", "qwen3moe", "qwen35", "bailingmoe2"}, p.arch)
	l.qNorm = f.vector(at+"attn_q_norm.weight", p.headDim, normed)
	l.kNorm = f.vector(at+"attn_k_norm.weight", p.headDim, normed)
}

// outputIDs reads the list of a pruned head: the ids that its rows stand for,
// ascending or not, none twice.
func (f *finder) outputIDs(vocab int) []int32 {
	const name = "output_ids"
	t := f.tensors[name]
	if t == nil || f.err != nil {
		return nil
	}
	n := t.Shape.RowLen()
	if t.Type != tensor.I32 || t.Shape.Rows() != 1 || n < 1 || n > int64(vocab) {
		f.fail(fmt.Errorf("%w: tensor %s is %s %v, want a list of 1 to %d I32", infer.ErrModel, name, t.Type, t.Shape, vocab))
		return nil
	}
	b := make([]byte, t.Bytes())
	if err := t.ReadRows(f.ctx, b, 0, 1); err != nil {
		f.fail(fmt.Errorf("tensor %s: %w", name, err))
		return nil
	}
	ids, seen := make([]int32, n), make([]bool, vocab)
	for i := range ids {
		id := int32(binary.LittleEndian.Uint32(b[4*i:]))
		if id < 0 || int(id) >= vocab || seen[id] {
			f.fail(fmt.Errorf("%w: tensor %s: id %d at place %d is outside the vocabulary of %d or there twice", infer.ErrModel, name, id, i, vocab))
			return nil
		}
		ids[i], seen[id] = id, true
	}
	return ids
}
