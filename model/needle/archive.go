package needle

import (
	"fmt"
	"math"
	"strings"

	"quern/formats/cact"
	"quern/internal/digest"
	"quern/model"
	"quern/tensor"
	"quern/tensor/cq"
	"quern/tensor/view"
)

// Options say how a checkpoint becomes an archive.
type Options struct {
	Bits  *Bits
	Group int // 0 means 128
	// Books replaces standard codebooks; widths that it lacks keep theirs.
	Books map[cq.Width][]float32
}

// DefaultGroup is the group of published archives.
const DefaultGroup = 128

// ToArchive turns a checkpoint into the tensors of an archive, in file order and
// without a tokenizer: matrices transposed to [out, in] and quantized, the rest in
// F16.
func ToArchive(m *model.Model, opt Options) (*model.Model, error) {
	k, err := ConfigOf(m)
	if err != nil {
		return nil, err
	}
	if opt.Group == 0 {
		opt.Group = DefaultGroup
	}
	a := &model.Archive{Header: k.Header(), Group: opt.Group, Trained: uint32(k.KVWindow)}
	if k.Speech != nil {
		a.Languages, a.Pieces = k.Speech.Languages, k.Speech.Pieces
	}
	b := &archiver{m: m, k: k, opt: opt, used: map[string]bool{}, codecs: map[cq.Width]*cq.Codec{}}
	if err := b.codebooks(a); err != nil {
		return nil, err
	}
	if a.Heads, err = b.heads(); err != nil {
		return nil, err
	}
	specs := a.Header.Tensors(b.rank(), a.Heads)
	var names []string
	for _, s := range specs {
		if s.Kind == cact.CQ {
			names = append(names, s.Name)
		}
		if err := b.add(s); err != nil {
			return nil, err
		}
	}
	if n := opt.Bits.unused(names); n != "" {
		return nil, fmt.Errorf("%w: no matrix has a name that begins with %q; names are such as embedding, attn.q_proj, mhc_phi_pre and engram0.tables", ErrBits, n)
	}
	out, err := m.WithArchive(a, b.tensors, b.plan)
	if err != nil {
		return nil, err
	}
	left, err := b.left()
	if err != nil {
		return nil, err
	}
	return out.WithNotes(left...), nil
}

// archiver gathers the tensors.
type archiver struct {
	m       *model.Model
	k       *Config
	opt     Options
	used    map[string]bool
	codecs  map[cq.Width]*cq.Codec
	tensors []*tensor.Tensor
	plan    []model.PlanInfo
	plain   bool // nothing is quantized or cast
}

// Reference gives what the tensors of an archive are made from, under their names
// and in their shapes: a checkpoint's weights in its own types, an archive's own,
// read back.
func Reference(m *model.Model) ([]*tensor.Tensor, error) {
	if m.Form == model.Cact {
		return decoded(m)
	}
	k, err := ConfigOf(m)
	if err != nil {
		return nil, err
	}
	b := &archiver{m: m, k: k, used: map[string]bool{}, plain: true}
	h := k.Header()
	heads, err := b.heads()
	if err != nil {
		return nil, err
	}
	for _, s := range h.Tensors(b.rank(), heads) {
		if err := b.add(s); err != nil {
			return nil, err
		}
	}
	return b.tensors, nil
}

// decoded reads the matrices of a model in Cact form back.
func decoded(m *model.Model) ([]*tensor.Tensor, error) {
	a := m.Archive
	shapes := map[string]tensor.Shape{}
	for _, s := range a.Header.Tensors(RankOf(m), a.Heads) {
		shapes[s.Name] = s.Shape
	}
	var out []*tensor.Tensor
	for i, t := range m.Tensors {
		w, isCQ := cq.WidthOf(t.Type)
		switch {
		case t.Name == cact.NameTokenizer:
		case isCQ && i+1 < len(m.Tensors):
			book, err := cact.Codebook(a.Codebooks, w, a.Group)
			if err != nil {
				return nil, err
			}
			c, err := cq.New(w, a.Group, book)
			if err != nil {
				return nil, err
			}
			d, err := cact.Decode(t, m.Tensors[i+1], shapes[t.Name], c)
			if err != nil {
				return nil, err
			}
			out = append(out, d)
		case i > 0 && t.Name == cact.NormsName(m.Tensors[i-1].Name):
		default:
			out = append(out, t)
		}
	}
	return out, nil
}

// RankOf is the rank of the conditioning of a model in Cact form.
func RankOf(m *model.Model) int64 {
	if t := m.Tensor("layer00.cond_v"); t != nil {
		return t.Shape.RowLen()
	}
	return cact.ConditionRank
}

// codebooks fills in the header's entries and makes the codecs.
func (b *archiver) codebooks(a *model.Archive) error {
	at := 0
	for _, w := range []cq.Width{cq.W2, cq.W3, cq.W4, cq.W158, cq.W1} {
		book := b.opt.Books[w]
		c, err := cq.New(w, b.opt.Group, book)
		if err != nil {
			return fmt.Errorf("codebook of %s bits: %w", w, err)
		}
		if book != nil && w != cq.W2 && w != cq.W3 && w != cq.W4 {
			return fmt.Errorf("%w: a codebook of %s bits; archives hold those of 2, 3 and 4", cq.ErrCodebook, w)
		}
		b.codecs[w] = c
		if w <= cq.W4 && w >= cq.W2 {
			at += copy(a.Codebooks[at:], c.Book())
		}
	}
	return nil
}

// tensor finds a tensor of the checkpoint and marks it as used.
func (b *archiver) tensor(name string) (*tensor.Tensor, error) {
	t := b.m.Tensor(name)
	if t == nil {
		return nil, fmt.Errorf("%w: %s is missing", model.ErrTensors, name)
	}
	b.used[name] = true
	return t, nil
}

// rank is that of the conditioning of generation 3.
func (b *archiver) rank() int64 {
	if t := b.m.Tensor(blockPrefix + "hadamard_mlp/cond_v"); t != nil && len(t.Shape) == 3 {
		return t.Shape[2]
	}
	return cact.ConditionRank
}

// add makes one tensor of the archive.
func (b *archiver) add(s cact.Spec) error {
	t, err := b.source(s)
	if err != nil {
		return err
	}
	if !t.Shape.Equal(s.Shape) {
		return fmt.Errorf("%w: %s would be %v, the config asks for %v", model.ErrTensors, s.Name, t.Shape, s.Shape)
	}
	t = t.With(func(n *tensor.Tensor) { n.Name = s.Name })
	if b.plain {
		b.tensors = append(b.tensors, t)
		return nil
	}
	switch s.Kind {
	case cact.CQ:
		w, why := b.opt.Bits.Of(s.Name)
		if isHead(s.Name) {
			w, why = cq.W4, "head"
		}
		if w == cq.W1 && b.k.Generation == 2 {
			return fmt.Errorf("tensor %s: %w: 1 bit in generation 2; 1.58 is the least there", s.Name, cq.ErrWidth)
		}
		index, norms, err := Encode(t, b.codecs[w])
		if err != nil {
			return err
		}
		info := model.PlanInfo{From: t.Type, Reason: why}
		b.tensors, b.plan = append(b.tensors, index, norms), append(b.plan, info, model.PlanInfo{From: t.Type, Reason: "norms"})
		return nil
	case cact.F16:
		from := t.Type
		if t, err = half(t, s.Name); err != nil {
			return err
		}
		b.tensors, b.plan = append(b.tensors, t), append(b.plan, model.PlanInfo{From: from, Reason: "as it stands"})
		return nil
	}
	b.tensors, b.plan = append(b.tensors, t), append(b.plan, model.PlanInfo{From: t.Type, Reason: "made from the config"})
	return nil
}

// inLayer says what the tensors of a layer are made from, but for those of its
// Hadamard layer.
var inLayer = map[string]string{
	"norm_in": "ZCRMSNorm_0/scale", "post_norm": "post_attn_norm/scale", "pre_hada": "pre_hada_norm/scale", "attn_gate": "attn_gate",
	"q_norm": "self_attn/q_norm/scale", "k_norm": "self_attn/k_norm/scale", "q_proj": "self_attn/q_proj/kernel", "k_proj": "self_attn/k_proj/kernel",
	"v_proj": "self_attn/v_proj/kernel", "gate_proj": "self_attn/gate_proj/kernel", "out_proj": "self_attn/out_proj/kernel",
	"q_taps": "self_attn/q_taps", "k_taps": "self_attn/k_taps", "v_taps": "self_attn/v_taps",
}

// source gives the weights of a tensor of the archive, in its shape.
func (b *archiver) source(s cact.Spec) (*tensor.Tensor, error) {
	if t, ok, err := b.speech(s); ok || err != nil {
		return t, err
	}
	head, rest, dotted := strings.Cut(s.Name, ".")
	switch {
	case s.Name == cact.NameEmbedding:
		return b.tensor(nameEmbedding)
	case s.Name == cact.NameFinalNorm:
		return b.tensor("stack/final_norm/scale")
	case s.Name == "hada_p1":
		return b.permutation(s.Name, 11), nil
	case s.Name == "hada_p2":
		return b.permutation(s.Name, 13), nil
	case s.Name == cact.NameManifest:
		return b.manifest(s), nil
	case strings.HasPrefix(s.Name, "mhc_phi_"):
		t, err := b.tensor("stack/" + s.Name)
		if err != nil {
			return nil, err
		}
		if t, err = view.Transpose(t); err != nil {
			return nil, err
		}
		return b.reshape(t, s.Shape)
	case strings.HasPrefix(s.Name, "mhc_"):
		return b.tensor("stack/" + s.Name)
	case dotted && strings.HasPrefix(head, "layer"):
		return b.ofLayer(s, head, rest)
	case dotted && strings.HasPrefix(head, "engram"):
		return b.ofEngram(s, "engrams_"+strings.TrimPrefix(head, "engram")+"/", rest)
	}
	return b.ofHead(s, head, rest)
}

func (b *archiver) ofLayer(s cact.Spec, head, rest string) (*tensor.Tensor, error) {
	path, ok := inLayer[rest]
	if !ok {
		path = "hadamard_mlp/" + rest
	}
	return b.stacked(blockPrefix+path, head, "layer", b.k.Layers, s)
}

func (b *archiver) ofEngram(s cact.Spec, prefix, rest string) (*tensor.Tensor, error) {
	switch rest {
	case "tables":
		t, err := b.tensor(prefix + "embedding")
		if err != nil {
			return nil, err
		}
		return b.reshape(t, s.Shape)
	case "taps":
		return b.tensor(prefix + "taps")
	}
	t, err := b.tensor(prefix + rest + "/kernel")
	if err != nil {
		return nil, err
	}
	return view.Transpose(t)
}

// reshape gives the same values other axes; another number of values is an error
// of the model.
func (b *archiver) reshape(t *tensor.Tensor, shape tensor.Shape) (*tensor.Tensor, error) {
	have, err := t.Shape.Values()
	if err != nil {
		return nil, fmt.Errorf("tensor %s: %w", t.Name, err)
	}
	if want, err := shape.Values(); err != nil || want != have {
		return nil, fmt.Errorf("%w: %s is %v, the config asks for %v", model.ErrTensors, t.Name, t.Shape, shape)
	}
	return view.Span(t, 0, shape)
}

// permutation makes the places that a Hadamard layer of generation 3 shuffles to,
// as floats. A model that can be cut to half its width shuffles within each half.
func (b *archiver) permutation(name string, seed uint32) *tensor.Tensor {
	n := int(cact.PowerOfTwo(uint32(b.k.DModel)))
	var p []int32
	if len(b.k.LadderWidths) > 0 {
		p = cq.Permutation(seed, n/2)
		for _, v := range cq.Permutation(seed+977, n-n/2) {
			p = append(p, v+int32(n/2))
		}
	} else {
		p = cq.Permutation(seed, n)
	}
	x := make([]float32, n)
	for i, v := range p {
		x[i] = float32(v)
	}
	return constant(name, tensor.F32, tensor.Shape{int64(n)}, x)
}

// constant makes a tensor of values at hand.
func constant(name string, typ tensor.Type, shape tensor.Shape, x []float32) *tensor.Tensor {
	b := make([]byte, 0, 4*len(x))
	for _, v := range x {
		b = appendFloat(b, typ, v)
	}
	return Bytes(name, typ, shape, b)
}

// Bytes makes a tensor of bytes at hand.
func Bytes(name string, typ tensor.Type, shape tensor.Shape, b []byte) *tensor.Tensor {
	t := &tensor.Tensor{Name: name, Type: typ, Shape: shape, Key: tensor.Derive("bytes", fmt.Sprintf("%s %v %s", typ, shape, digest.Of(b)))}
	t.Src = &tensor.Section{Blob: tensor.BytesBlob(name, b), RowBytes: t.RowBytes()}
	return t
}

func appendFloat(b []byte, typ tensor.Type, v float32) []byte {
	if typ == tensor.F16 {
		return le.AppendUint16(b, toF16(v))
	}
	return le.AppendUint32(b, math.Float32bits(v))
}
