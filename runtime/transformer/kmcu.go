package transformer

import (
	"fmt"
	"strconv"
	"strings"

	"quern/formats/kmcu"
	infer "quern/runtime"
	"quern/runtime/num"
	"quern/tensor"
)

// fromKMCU takes the settings of a Llama model from a header. The container
// keeps the checkpoint's order of queries and keys.
func fromKMCU(f *kmcu.File) (*params, error) {
	h := &f.Header
	if int64(h.Layers) > int64(len(f.Tensors)) {
		return nil, fmt.Errorf("%w: %d layers in %d tensors", infer.ErrModel, h.Layers, len(f.Tensors))
	}
	p := &params{
		arch: "llama", vocab: int(h.Vocab), hidden: int(h.Dim), layers: int(h.Layers), heads: int(h.Heads), kvHeads: int(h.KVHeads),
		headDim: int(h.HeadDim), ffn: int(h.FFNDim), context: int(h.MaxSeq), eps: h.NormEps, embedScale: 1,
		attnScale: 1 / num.Sqrt(float32(h.HeadDim)),
		sliding:   make([]bool, h.Layers),
	}
	p.global = &ropeParams{dims: p.headDim, neox: true, base: float64(h.RopeTheta), scale: 1, attn: 1}
	return p, nil
}

// kmcuRoles are the names of a layer's tensors in both formats.
var kmcuRoles = map[string]string{
	"in_ln": "attn_norm", "q": "attn_q", "k": "attn_k", "v": "attn_v", "o": "attn_output",
	"post_ln": "ffn_norm", "gate": "ffn_gate", "up": "ffn_up", "down": "ffn_down",
}

// kmcuTensors gives the tensors their GGUF names. Matrices whose rows are padded,
// or run through blocks, have a stride of their own; it is checked here against
// the true shape.
func kmcuTensors(f *kmcu.File) ([]*tensor.Tensor, func(t *tensor.Tensor, cols int) int, error) {
	var out []*tensor.Tensor
	strides := map[*tensor.Tensor]int{}
	want := map[string]kmcu.TensorSpec{}
	for _, s := range f.Header.Tensors() {
		want[s.Name] = s
	}
	for i := range f.Tensors {
		e := &f.Tensors[i]
		if w, ok := want[e.Name]; !ok || w.Rows != e.Rows || w.Cols != e.Cols {
			return nil, nil, fmt.Errorf("%w: tensor %s of %d x %d is none of the header's model", infer.ErrModel, e.Name, e.Rows, e.Cols)
		}
		name := ""
		switch e.Name {
		case "tok_embed":
			name = "token_embd"
		case "final_norm":
			name = "output_norm"
		case "lm_head":
			name = "output"
		default:
			no, role, _ := strings.Cut(strings.TrimPrefix(e.Name, "L"), ".")
			if _, err := strconv.Atoi(no); err != nil || kmcuRoles[role] == "" {
				return nil, nil, fmt.Errorf("%w: tensor %s", infer.ErrModel, e.Name)
			}
			name = "blk." + no + "." + kmcuRoles[role]
		}
		t := e.Tensor.With(func(t *tensor.Tensor) { t.Name = name + ".weight" })
		if e.Type == tensor.KMCUQ4 {
			strides[t] = int(t.Shape.RowLen())
			if f.Align == kmcu.AlignNone {
				strides[t] = int(e.Cols)
			}
		}
		out = append(out, t)
	}
	return out, func(t *tensor.Tensor, _ int) int { return strides[t] }, nil
}
