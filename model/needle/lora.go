package needle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	"quern/formats/safetensors"
	"quern/model"
	"quern/tensor"
	"quern/tensor/quant"
)

// ErrAdapter marks a file that is no adapter, or one for another model.
var ErrAdapter = errors.New("bad LoRA adapter")

// Adapter is a LoRA adapter: low-rank changes of some kernels.
type Adapter struct {
	Name  string
	Scale float64
	// Parts are the kernels by path, with A [..., in, rank] and B
	// [..., rank, out].
	Parts map[string]AdapterPart
	// Of a speech model: Languages are those of the model and of the adapter, Pieces
	// are new in its vocabulary, and Rows are embeddings, of the pieces and then of
	// the new languages.
	Languages, Pieces []string
	Rows              *tensor.Tensor
}

// AdapterPart is the change of one kernel.
type AdapterPart struct{ A, B *tensor.Tensor }

// FromAdapter reads an opened adapter file: tensors lora/PATH/A and lora/PATH/B,
// and the metadata's scale.
func FromAdapter(f *safetensors.File) (*Adapter, error) {
	a := &Adapter{Name: f.Name, Parts: map[string]AdapterPart{}}
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%s: %w: "+format, append([]any{f.Name, ErrAdapter}, args...)...)
	}
	scaled := false
	for _, kv := range f.Metadata {
		switch kv.Key {
		case "scale":
			if err := json.Unmarshal([]byte(kv.Value), &a.Scale); err != nil {
				return nil, bad("scale is %q, want a number", kv.Value)
			}
			scaled = true
		case "languages", "pieces":
			to := &a.Languages
			if kv.Key == "pieces" {
				to = &a.Pieces
			}
			if err := json.Unmarshal([]byte(kv.Value), to); err != nil && kv.Value != "" {
				return nil, bad("%s is %.40q, want a list of texts", kv.Key, kv.Value)
			}
		}
	}
	if !scaled {
		return nil, bad("its metadata has no scale")
	}
	return a, a.add(f.Tensors, "lora/")
}

// add takes tensors PREFIX PATH/A and PREFIX PATH/B.
func (a *Adapter) add(ts []*tensor.Tensor, prefix string) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%s: %w: "+format, append([]any{a.Name, ErrAdapter}, args...)...)
	}
	for _, t := range ts {
		if t.Name == "rows" {
			a.Rows = t
			continue
		}
		path, isLora := strings.CutPrefix(t.Name, prefix)
		i := strings.LastIndexByte(path, '/')
		if !isLora || i <= 0 || path[i:] != "/A" && path[i:] != "/B" {
			return bad("tensor %s; %sPATH/A and %sPATH/B are wanted", t.Name, prefix, prefix)
		}
		p := a.Parts[path[:i]]
		if path[i+1] == 'A' {
			p.A = t
		} else {
			p.B = t
		}
		a.Parts[path[:i]] = p
	}
	if len(a.Parts) == 0 {
		return bad("it has no tensors")
	}
	return nil
}

// Merge adds an adapter to a checkpoint: kernel += scale * A @ B, layer by layer,
// rounded to the kernel's type as the exporter does. The confidence head, which does
// not know the new weights, is left out.
func Merge(m *model.Model, a *Adapter) (*model.Model, error) {
	if m.Form != model.Needle {
		return nil, fmt.Errorf("%w: the model is in %s form, adapters are for Needle checkpoints", model.ErrForm, m.Form)
	}
	m, err := addVocabulary(m, a)
	if err != nil {
		return nil, err
	}
	paths := make([]string, 0, len(a.Parts))
	for p := range a.Parts {
		paths = append(paths, p)
	}
	slices.Sort(paths)
	merged := map[string]*tensor.Tensor{}
	for _, path := range paths {
		t := m.Tensor(path)
		if t == nil {
			return nil, fmt.Errorf("%s: %w: it changes %s, which the model does not have", a.Name, ErrAdapter, path)
		}
		n, err := merge(t, a.Parts[path], a.Scale)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", a.Name, err)
		}
		merged[path] = n
	}
	var ts []*tensor.Tensor
	dropped := false
	for _, t := range m.Tensors {
		if strings.HasPrefix(t.Name, "confidence_head/") {
			dropped = true
			continue
		}
		if n := merged[t.Name]; n != nil {
			t = n
		}
		ts = append(ts, t)
	}
	out := m.WithTensors(ts).WithNotes(model.Note{Subject: a.Name, Text: fmt.Sprintf("merged into %d kernels", len(paths))})
	if dropped {
		out = out.WithNotes(model.Note{Subject: "confidence_head", Text: "left out: it was not trained with the adapter"})
	}
	return out, nil
}

// merge checks shapes and links the sum.
func merge(t *tensor.Tensor, p AdapterPart, scale float64) (*tensor.Tensor, error) {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s: "+format, append([]any{ErrAdapter, t.Name}, args...)...)
	}
	if p.A == nil || p.B == nil {
		return nil, bad("one of A and B is missing")
	}
	k := len(t.Shape)
	if k < 2 || len(p.A.Shape) != k || len(p.B.Shape) != k || !p.A.Shape[:k-1].Equal(t.Shape[:k-1]) || !p.B.Shape[:k-2].Equal(t.Shape[:k-2]) ||
		p.B.Shape[k-1] != t.Shape[k-1] || p.A.Shape[k-1] != p.B.Shape[k-2] || p.A.Shape[k-1] == 0 {
		return nil, bad("A is %v and B %v for a kernel of %v", p.A.Shape, p.B.Shape, t.Shape)
	}
	if p.A.Shape[k-1] > 4096 {
		return nil, bad("a rank of %d", p.A.Shape[k-1])
	}
	s := &sum{t: t, a: p.A, b: p.B, scale: float32(scale), in: t.Shape[k-2], out: t.Shape[k-1], rank: p.A.Shape[k-1]}
	var err error
	for _, c := range []struct {
		t  *tensor.Tensor
		to *quant.Decoder
	}{{t, &s.td}, {p.A, &s.ad}, {p.B, &s.bd}} {
		if !c.t.Type.IsFloat() {
			return nil, bad("%s is %s", c.t.Name, c.t.Type)
		}
		if *c.to, err = quant.DecoderFor(c.t.Type); err != nil {
			return nil, err
		}
	}
	if s.enc, err = quant.For(t.Type); err != nil {
		return nil, fmt.Errorf("tensor %s: %w", t.Name, err)
	}
	return t.With(func(n *tensor.Tensor) {
		n.Src = s
		n.Origin = slices.Concat(t.Origin, p.A.Origin, p.B.Origin)
		n.Key = tensor.Derive("lora.v1", fmt.Sprintf("scale %x", math.Float32bits(s.scale)), t.Key, p.A.Key, p.B.Key)
	}), nil
}

// sum is a kernel with its change added.
type sum struct {
	t, a, b       *tensor.Tensor
	scale         float32
	in, out, rank int64
	td, ad, bd    quant.Decoder
	enc           quant.Codec

	mu    sync.Mutex
	slice int64     // the layer whose B is at hand, counted from 1
	layer []float32 // [rank, out]
}

// second gives B of a layer. Rows are asked for layer by layer, so one is kept.
func (s *sum) second(ctx context.Context, slice int64) ([]float32, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.slice == slice+1 {
		return s.layer, nil
	}
	raw := make([]byte, s.rank*s.b.RowBytes())
	if err := s.b.ReadRows(ctx, raw, slice*s.rank, s.rank); err != nil {
		return nil, err
	}
	b := make([]float32, s.rank*s.out)
	s.bd.Decode(b, raw)
	s.slice, s.layer = slice+1, b
	return b, nil
}

// ReadRows adds: products are summed over the rank in order, each fused with the
// sum before it.
func (s *sum) ReadRows(ctx context.Context, dst []byte, first, n int64) error {
	if err := s.t.ReadRows(ctx, dst, first, n); err != nil {
		return err
	}
	raw := make([]byte, n*s.a.RowBytes())
	if err := s.a.ReadRows(ctx, raw, first, n); err != nil {
		return err
	}
	a := make([]float32, n*s.rank)
	s.ad.Decode(a, raw)
	per := s.t.RowBytes()
	row, delta, rounded := make([]float32, s.out), make([]float32, s.out), make([]byte, per)
	for i := range n {
		b, err := s.second(ctx, (first+i)/s.in)
		if err != nil {
			return err
		}
		clear(delta)
		for r, x := range a[i*s.rank : (i+1)*s.rank] {
			for j, y := range b[int64(r)*s.out : int64(r+1)*s.out] {
				delta[j] = float32(float64(float64(x)*float64(y)) + float64(delta[j]))
			}
		}
		for j := range delta {
			delta[j] = float32(delta[j] * s.scale)
		}
		// The change is rounded to the kernel's type before it is added.
		s.enc.EncodeRow(rounded, delta, nil)
		s.td.Decode(delta, rounded)
		out := dst[i*per : (i+1)*per]
		s.td.Decode(row, out)
		for j := range row {
			row[j] += delta[j]
		}
		s.enc.EncodeRow(out, row, nil)
	}
	return nil
}
