package kmcu

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"quern/tensor"
)

// Header is what the first 128 bytes say about the model. Counts and offsets of
// tensors follow from the directory.
type Header struct {
	Layers, Dim, Heads, KVHeads, HeadDim, FFNDim uint32
	Vocab, MaxSeq                                uint32
	BOS, EOS                                     uint32
	// Tied says that the output head is the embedding and no lm_head is stored.
	Tied               bool
	RopeTheta, NormEps float32
}

// TensorSpec describes a tensor of a file. Cols is the true column count, which
// blocks may pad.
type TensorSpec struct {
	Name string
	Type tensor.Type // tensor.F32 or tensor.KMCUQ4
	Rows int64
	Cols int64
}

// maxLayers bounds the list of tensors that a header asks for. It is far over
// every model that a microcontroller could hold.
const maxLayers = 1 << 16

// maxTensors is what so many layers have.
const maxTensors = 9*maxLayers + 3

// field is a u32 of the header with its place and name.
type field struct {
	off  int
	name string
	at   *uint32
}

func (h *Header) fields() []field {
	return []field{
		{8, "n_layers", &h.Layers}, {12, "dim", &h.Dim}, {16, "n_heads", &h.Heads}, {20, "n_kv_heads", &h.KVHeads},
		{24, "head_dim", &h.HeadDim}, {28, "ffn_dim", &h.FFNDim}, {32, "vocab_size", &h.Vocab}, {36, "max_seq", &h.MaxSeq},
		{40, "bos_id", &h.BOS}, {44, "eos_id", &h.EOS},
	}
}

// Places of the fields that Header does not hold.
const (
	offTied   = 48
	offCount  = 52
	offDir    = 56
	offData   = 60
	offTheta  = 64
	offEps    = 68
	offParams = 72
	offZeros  = 76
)

// check gives the offset and the name of the first field that makes no sense.
func (h *Header) check() (off int64, name string, err error) {
	for _, f := range h.fields()[:8] {
		if *f.at == 0 {
			return int64(f.off), f.name, fmt.Errorf("it is 0")
		}
	}
	switch {
	case h.Layers > maxLayers:
		return 8, "n_layers", fmt.Errorf("%d, at most %d are allowed", h.Layers, maxLayers)
	case h.Heads%h.KVHeads != 0:
		return 20, "n_kv_heads", fmt.Errorf("%d heads do not divide among %d", h.Heads, h.KVHeads)
	case h.HeadDim%2 != 0:
		return 24, "head_dim", fmt.Errorf("%d is odd, rotary embeddings turn pairs", h.HeadDim)
	case uint64(h.Heads)*uint64(h.HeadDim) > math.MaxUint32:
		return 24, "head_dim", fmt.Errorf("%d heads of %d values overflow", h.Heads, h.HeadDim)
	case h.BOS >= h.Vocab:
		return 40, "bos_id", fmt.Errorf("token %d of a vocabulary of %d", h.BOS, h.Vocab)
	case h.EOS >= h.Vocab:
		return 44, "eos_id", fmt.Errorf("token %d of a vocabulary of %d", h.EOS, h.Vocab)
	case !(h.RopeTheta > 0) || h.RopeTheta > math.MaxFloat32:
		return offTheta, "rope_theta", fmt.Errorf("%v is not a positive number", h.RopeTheta)
	case !(h.NormEps >= 0) || h.NormEps > math.MaxFloat32:
		return offEps, "norm_eps", fmt.Errorf("%v is not a number of 0 or more", h.NormEps)
	}
	return 0, "", nil
}

// Tensors lists what a file of this model holds, in file order: norms in F32,
// matrices in KMCUQ4.
func (h *Header) Tensors() []TensorSpec {
	dim, ffn, vocab := int64(h.Dim), int64(h.FFNDim), int64(h.Vocab)
	q := int64(h.Heads) * int64(h.HeadDim)
	kv := int64(h.KVHeads) * int64(h.HeadDim)
	out := []TensorSpec{{"tok_embed", tensor.KMCUQ4, vocab, dim}}
	for i := range h.Layers {
		p := fmt.Sprintf("L%d.", i)
		out = append(out,
			TensorSpec{p + "in_ln", tensor.F32, 1, dim},
			TensorSpec{p + "q", tensor.KMCUQ4, q, dim},
			TensorSpec{p + "k", tensor.KMCUQ4, kv, dim},
			TensorSpec{p + "v", tensor.KMCUQ4, kv, dim},
			TensorSpec{p + "o", tensor.KMCUQ4, dim, q},
			TensorSpec{p + "post_ln", tensor.F32, 1, dim},
			TensorSpec{p + "gate", tensor.KMCUQ4, ffn, dim},
			TensorSpec{p + "up", tensor.KMCUQ4, ffn, dim},
			TensorSpec{p + "down", tensor.KMCUQ4, dim, ffn})
	}
	out = append(out, TensorSpec{"final_norm", tensor.F32, 1, dim})
	if !h.Tied {
		out = append(out, TensorSpec{"lm_head", tensor.KMCUQ4, vocab, dim})
	}
	return out
}

// tensorCount is len(h.Tensors()) without making the list.
func (h *Header) tensorCount() int64 {
	n := 2 + 9*int64(h.Layers)
	if !h.Tied {
		n++
	}
	return n
}

// checkModel holds tensors against the header's model: names, order and shapes.
// Matrices may also be F32.
func (h *Header) checkModel(list []TensorSpec) error {
	if want := h.tensorCount(); int64(len(list)) != want {
		return fmt.Errorf("%w: %d tensors, %d layers with tied_embed %v have %d", ErrModel, len(list), h.Layers, h.Tied, want)
	}
	for i, want := range h.Tensors() {
		got := list[i]
		if got.Name != want.Name {
			if !slices.ContainsFunc(list, func(t TensorSpec) bool { return t.Name == want.Name }) {
				return fmt.Errorf("%w: tensor %s is missing, %q stands at its place", ErrModel, want.Name, got.Name)
			}
			return fmt.Errorf("%w: tensor %d is %q, %s is expected here", ErrModel, i, got.Name, want.Name)
		}
		if got.Rows != want.Rows || got.Cols != want.Cols {
			return fmt.Errorf("%w: tensor %s is %d x %d, the header asks for %d x %d", ErrModel, got.Name, got.Rows, got.Cols, want.Rows, want.Cols)
		}
		if want.Type == tensor.F32 && got.Type != tensor.F32 {
			return fmt.Errorf("%w: tensor %s is %s, norms are F32", ErrModel, got.Name, got.Type)
		}
	}
	return nil
}

// sizeOf is the size of a tensor's data in bytes.
func (t TensorSpec) sizeOf(a Align) (int64, error) {
	if t.Rows <= 0 || t.Cols <= 0 || t.Rows > math.MaxUint32 || t.Cols > math.MaxUint32 {
		return 0, fmt.Errorf("%d x %d: both must be from 1 to 2^32-1", t.Rows, t.Cols)
	}
	if t.Rows > math.MaxUint32/t.Cols {
		return 0, fmt.Errorf("%d x %d are more than 2^32-1 values", t.Rows, t.Cols)
	}
	switch {
	case t.Type == tensor.F32:
		return t.Rows * t.Cols * 4, nil
	case t.Type != tensor.KMCUQ4:
		return 0, fmt.Errorf("%w: KMCU has no type %s", tensor.ErrUnknownType, t.Type)
	case a == AlignNone:
		return ceilBlocks(t.Rows*t.Cols) * blockBytes, nil
	}
	return t.Rows * ceilBlocks(t.Cols) * blockBytes, nil
}

// Shape is that of the tensor's stored values: a q4 matrix counts its padding,
// [rows, cols rounded up to 32], and in the flat form has one block a row. A
// norm is a vector.
func (t TensorSpec) Shape(a Align) tensor.Shape {
	switch {
	case t.Type == tensor.F32 && t.Rows == 1:
		return tensor.Shape{t.Cols}
	case t.Type == tensor.F32:
		return tensor.Shape{t.Rows, t.Cols}
	case a == AlignNone:
		return tensor.Shape{ceilBlocks(t.Rows * t.Cols), blockValues}
	}
	return tensor.Shape{t.Rows, ceilBlocks(t.Cols) * blockValues}
}

func ceilBlocks(n int64) int64 { return (n + blockValues - 1) / blockValues }

// padTo rounds n up to a multiple of a.
func padTo(n, a int64) int64 { return (n + a - 1) / a * a }

var le = binary.LittleEndian
