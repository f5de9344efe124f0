package device

import (
	"fmt"
	"strings"

	"quern/model"
	"quern/tensor"
)

// remember counts what is kept of the tokens seen: keys and values as wide as
// the tensors that make them, and the states of recurrent layers, which are
// float32 and as large for one token as for many.
func (a *Account) remember(f *File, st settings, kv tensor.Type) error {
	var width, state int64 // values a token, values in all
	lists := perLayer(f, st)
	for _, p := range f.Parts {
		if !strings.HasPrefix(p.Name, "blk.") || len(p.Shape) != 2 {
			continue
		}
		block, err := blockOf(p.Name)
		if err != nil {
			return err
		}
		switch _, rest, _ := model.Block(p.Name); rest {
		case "attn_k.weight", "attn_v.weight":
			width += p.Shape[0]
		case "attn_qkv.weight":
			width += lists(block)
		case "attn_kv_a_mqa.weight": // the compressed keys and values of latent attention
			width += p.Shape[0]
		case "ssm_conv1d.weight":
			state += p.Shape[0] * max(p.Shape[1]-1, 0)
			state += st.int("ssm.inner_size", 0) * st.int("ssm.state_size", 0)
		}
		if width < 0 || width > 1<<40 || state < 0 || state > 1<<40 {
			return fmt.Errorf("tensor %s: %w: keys and values of %d values a token, a state of %d", p.Name, model.ErrForm, width, state)
		}
	}
	block, bytes := int64(kv.BlockValues()), int64(kv.BlockBytes())
	perToken := (width + block - 1) / block * bytes
	if perToken > (1<<62)/max(a.Context, 1) {
		return fmt.Errorf("%w: a context of %d tokens of %d bytes", ErrSpec, a.Context, perToken)
	}
	a.KV = perToken*a.Context + 4*state
	if w := st.int("attention.sliding_window", 0); w > 0 && w < a.Context {
		a.Notes = append(a.Notes, fmt.Sprintf("layers that see only %d tokens are counted with the whole context", w))
	}
	return nil
}

// perLayer gives the width of keys and values together where one tensor makes
// queries, keys and values. In hybrids such a tensor belongs to a recurrent layer,
// which keeps neither.
func perLayer(f *File, st settings) func(block int) int64 {
	recurrent := map[int]bool{}
	for _, p := range f.Parts {
		if strings.HasSuffix(p.Name, ".ssm_conv1d.weight") {
			if b, err := blockOf(p.Name); err == nil {
				recurrent[b] = true
			}
		}
	}
	heads := st.int("attention.head_count", 0)
	size := int64(0)
	if heads > 0 {
		size = st.int("embedding_length", 0) / heads
	}
	kv, _ := st.meta.Int32s(st.arch + ".attention.head_count_kv")
	one := st.int("attention.head_count_kv", heads)
	keys, values := st.int("attention.key_length", size), st.int("attention.value_length", size)
	return func(block int) int64 {
		if recurrent[block] {
			return 0
		}
		if block < len(kv) {
			return int64(kv[block]) * (keys + values)
		}
		return one * (keys + values)
	}
}

// share gives memory out and says what is left on flash.
func (a *Account) share(s Spec) {
	base := a.Work + a.KV + a.Weights
	a.Needed = base
	if a.Experts != nil {
		a.Needed += a.Experts.Bytes
	}
	left := s.RAM - base
	switch e := a.Experts; {
	case left < 0:
		// The rest of the weights comes from flash for every token, and experts with it.
		a.Streamed = min(-left, a.Weights)
		if a.Work+a.KV > s.RAM {
			a.Notes = append(a.Notes, "keys, values and activations alone are more than the memory; a shorter context or a smaller type of keys and values helps")
		}
		if e != nil {
			for _, n := range e.Sizes {
				a.Streamed += e.Used * n
			}
		}
		a.Resident = min(s.RAM, base)
	case e != nil:
		var each int64
		for _, n := range e.Sizes {
			each += n
		}
		e.Pool = min(e.Count, left/max(each, 1))
		if e.Pool < e.Used {
			e.Pool = 0
			a.Notes = append(a.Notes, fmt.Sprintf("what is left of the memory does not hold the %d experts a layer that a token uses", e.Used))
		}
		for _, n := range e.Sizes {
			// Uniform use: of the experts that a token uses, those outside of the pool.
			a.Streamed += e.Used * (e.Count - e.Pool) * n / e.Count
		}
		a.Resident = base + e.Pool*each
	default:
		a.Resident = base
	}
	if a.Streamed > 0 && s.Flash > 0 {
		a.Ceiling = float64(s.Flash) / float64(a.Streamed)
	}
	a.MapFits = s.MapLimit == 0 || a.Map <= s.MapLimit
}
