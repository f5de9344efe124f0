package quantize

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"quern/formats/gguf"
	"quern/formats/imatrix"
	"quern/model"
	"quern/pipeline"
	"quern/recipes"
	"quern/tensor"
	"quern/tensor/quant"
)

var ctx = context.Background()

// f32Tensor has values of its own name.
func f32Tensor(name string, shape ...int64) *tensor.Tensor {
	n := int64(1)
	for _, d := range shape {
		n *= d
	}
	rng := rand.New(rand.NewPCG(uint64(len(name)), uint64(name[len(name)/2])))
	b := make([]byte, 4*n)
	for i := range n {
		binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(float32(rng.NormFloat64())))
	}
	t := &tensor.Tensor{Name: name, Type: tensor.F32, Shape: shape, Key: tensor.Derive("test", name)}
	t.Src = &tensor.Section{Blob: tensor.BytesBlob(name, b), RowBytes: t.RowBytes()}
	return t
}

// experts is a model of one layer, 4 experts and a row of 256.
func experts() *model.Model {
	meta := gguf.NewMetadata(
		gguf.KV{Key: "general.architecture", Value: gguf.Scalar("llama")},
		gguf.KV{Key: "llama.block_count", Value: gguf.Scalar(uint32(1))},
		gguf.KV{Key: "quantize.imatrix.file", Value: gguf.Scalar("of an earlier time")},
		gguf.KV{Key: "last", Value: gguf.Scalar("key")},
	)
	return model.FromGGUF("m.gguf", meta, []*tensor.Tensor{
		f32Tensor("token_embd.weight", 2, 256),
		f32Tensor("output.weight", 2, 256),
		f32Tensor("blk.0.attn_q.weight", 2, 256),
		f32Tensor("blk.0.attn_k.weight", 2, 256),
		f32Tensor("blk.0.ffn_up_exps.weight", 4, 2, 256),
	})
}

// imEntry is an entry of a matrix under construction.
type imEntry struct {
	name   string
	counts []float32
	sums   []float32
}

// even gives weights that rise from 1 on, for n matrices of rows of 256.
func even(name string, n int) imEntry {
	e := imEntry{name: name}
	for range n {
		e.counts = append(e.counts, 1)
	}
	for i := range 256 * n {
		e.sums = append(e.sums, float32(1+i%256))
	}
	return e
}

// flat has the same weight everywhere.
func flat(name string, n int, w float32) imEntry {
	e := even(name, n)
	for i := range e.sums {
		e.sums[i] = w
	}
	return e
}

func putFloats(b []byte, vs []float32) []byte {
	for _, v := range vs {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

// newMatrix writes the GGUF format.
func newMatrix(t *testing.T, list ...imEntry) []byte {
	t.Helper()
	meta := gguf.NewMetadata(
		gguf.KV{Key: "general.type", Value: gguf.Scalar("imatrix")},
		gguf.KV{Key: "imatrix.datasets", Value: gguf.List([]string{strings.Repeat("x", 130), "second"})},
		gguf.KV{Key: "imatrix.chunk_count", Value: gguf.Scalar(uint32(0))},
		gguf.KV{Key: "imatrix.chunk_size", Value: gguf.Scalar(uint32(512))},
	)
	var specs []gguf.TensorSpec
	for _, e := range list {
		k := int64(len(e.counts))
		specs = append(specs, gguf.TensorSpec{Name: e.name + ".in_sum2", Type: tensor.F32, Shape: tensor.Shape{k, int64(len(e.sums)) / k}},
			gguf.TensorSpec{Name: e.name + ".counts", Type: tensor.F32, Shape: tensor.Shape{k, 1}})
	}
	l, err := gguf.NewLayout(meta, specs, gguf.LayoutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, l.Size)
	copy(b, l.Header)
	for i, e := range list {
		copy(b[l.Tensors[2*i].Offset:], putFloats(nil, e.sums))
		copy(b[l.Tensors[2*i+1].Offset:], putFloats(nil, e.counts))
	}
	return b
}

// oldMatrix writes the older format; counts are left out.
func oldMatrix(list ...imEntry) []byte {
	i32 := func(b []byte, v int) []byte { return binary.LittleEndian.AppendUint32(b, uint32(v)) }
	b := i32(nil, len(list))
	for _, e := range list {
		b = append(i32(b, len(e.name)), e.name...)
		b = putFloats(i32(i32(b, 1), len(e.sums)), e.sums)
	}
	return append(i32(i32(b, 5), 5), "a.txt"...)
}

func sourceOf(b []byte) []*pipeline.Source {
	return []*pipeline.Source{
		{Name: "base"},
		{Name: "im", Content: tensor.BytesBlob("im", b), Files: []pipeline.SourceFile{{Path: "some/where/x.imatrix"}}},
	}
}

func planWith(t *testing.T, p recipes.Quantize, b []byte) (*model.Model, error) {
	t.Helper()
	p.Imatrix = "im"
	s, err := New(p)
	if err != nil {
		t.Fatal(err)
	}
	return s.PlanWith(ctx, experts(), sourceOf(b))
}

func mustPlan(t *testing.T, p recipes.Quantize, b []byte) *model.Model {
	t.Helper()
	m, err := planWith(t, p, b)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func notesOf(m *model.Model) string {
	var b strings.Builder
	for _, n := range m.Notes {
		fmt.Fprintln(&b, n)
	}
	return b.String()
}

// full has an entry for all that llama-imatrix collects.
func full() []imEntry {
	return []imEntry{even("blk.0.attn_k.weight", 1), even("blk.0.attn_q.weight", 1), even("blk.0.ffn_up_exps.weight", 4)}
}

// TestUsesWeights holds the list of types against their encoders.
func TestUsesWeights(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	x, a, b := make([]float32, 1024), make([]float32, 1024), make([]float32, 1024)
	for i := range x {
		x[i], a[i], b[i] = float32(rng.NormFloat64()), 1e-3+rng.Float32(), 1e-3+rng.Float32()
		if i%3 == 0 {
			b[i] *= 1000
		}
	}
	for _, typ := range tensor.Types() {
		c, err := quant.For(typ)
		if err != nil || !typ.IsBlock() {
			continue
		}
		n, err := tensor.RowBytes(typ, int64(len(x)))
		if err != nil {
			t.Fatal(err)
		}
		one, two := make([]byte, n), make([]byte, n)
		c.EncodeRow(one, x, a)
		c.EncodeRow(two, x, b)
		if got := !slices.Equal(one, two); got != usesWeights(typ) {
			t.Errorf("%s: weights matter: %t", typ, got)
		}
		if quant.NeedsWeights(typ) && !usesWeights(typ) {
			t.Errorf("%s needs weights and does not use them", typ)
		}
	}
}

func rows(t *testing.T, m *model.Model, name string) []byte {
	t.Helper()
	x := m.Tensor(name)
	b := make([]byte, x.Bytes())
	if err := x.ReadRows(ctx, b, 0, x.Rows()); err != nil {
		t.Fatal(err)
	}
	return b
}

// TestWeightsReachTheRows: each expert is encoded with its own weights, and
// both formats give the same bytes and keys.
func TestWeightsReachTheRows(t *testing.T) {
	list := full()
	e := &list[2]
	for i := range 256 {
		e.sums[2*256+i] = float32(256-i) / 7 // the third expert differs
	}
	p := recipes.Quantize{Preset: "Q4_K_S"}
	now, old, plain := mustPlan(t, p, newMatrix(t, list...)), mustPlan(t, p, oldMatrix(list...)), mustPlan(t, p, oldMatrix(flat("blk.0.attn_q.weight", 1, 1)))
	c, err := quant.For(tensor.Q4_K)
	if err != nil {
		t.Fatal(err)
	}
	src := experts()
	raw := rows(t, src, e.name)
	x := make([]float32, len(raw)/4)
	for i := range x {
		x[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	want := make([]byte, now.Tensor(e.name).Bytes())
	n := len(want) / 8
	for r := range 8 {
		c.EncodeRow(want[r*n:(r+1)*n], x[r*256:(r+1)*256], e.sums[r/2*256:(r/2+1)*256])
	}
	if !slices.Equal(rows(t, now, e.name), want) {
		t.Error("not the rows that the encoder makes with each expert's weights")
	}
	if slices.Equal(rows(t, plain, e.name), want) {
		t.Error("weights change nothing")
	}
	for _, x := range now.Tensors {
		o, p := old.Tensor(x.Name), plain.Tensor(x.Name)
		if x.Key != o.Key || !slices.Equal(rows(t, now, x.Name), rows(t, old, x.Name)) {
			t.Errorf("%s: the formats differ", x.Name)
		}
		if weighted := strings.HasPrefix(x.Name, "blk."); (x.Key != p.Key) != weighted {
			t.Errorf("%s: key changes with its weights: %t", x.Name, x.Key != p.Key)
		}
	}
}

// TestKeys: a tensor's key holds its own weights, no one else's.
func TestKeys(t *testing.T) {
	p := recipes.Quantize{Preset: "Q4_K_S"}
	list := full()
	a := mustPlan(t, p, newMatrix(t, list...))
	list[0].sums[255] = 3
	b := mustPlan(t, p, newMatrix(t, list...))
	for _, x := range a.Tensors {
		if changed := x.Key != b.Tensor(x.Name).Key; changed != (x.Name == list[0].name) {
			t.Errorf("%s: key changed: %t", x.Name, changed)
		}
	}
}

func TestMetadata(t *testing.T) {
	get := func(m *model.Model) []string {
		var out []string
		for k, v := range m.Meta.All() {
			out = append(out, fmt.Sprintf("%s=%v", k, v.Any()))
		}
		return out[2:]
	}
	for _, c := range []struct {
		p    recipes.Quantize
		b    []byte
		want []string
	}{
		{recipes.Quantize{Preset: "Q8_0"}, oldMatrix(full()...), []string{"last=key", "general.quantization_version=2", "general.file_type=7",
			"quantize.imatrix.file=x.imatrix", "quantize.imatrix.dataset=a.txt", "quantize.imatrix.entries_count=3", "quantize.imatrix.chunks_count=5"}},
		// The texts' first name is cut, no chunks are counted.
		{recipes.Quantize{Preset: "Q8_0", ImatrixName: "in/a/folder.dat"}, newMatrix(t, full()...), []string{"last=key", "general.quantization_version=2", "general.file_type=7",
			"quantize.imatrix.file=in/a/folder.dat", "quantize.imatrix.dataset=" + strings.Repeat("x", 127), "quantize.imatrix.entries_count=3"}},
	} {
		if got := get(mustPlan(t, c.p, c.b)); !slices.Equal(got, c.want) {
			t.Errorf("%q\nwant %q", got, c.want)
		}
	}
}

// TestImatrixRefused: what the importance matrix must not be.
func TestImatrixRefused(t *testing.T) {
	limit := int64(1)
	silent := func(n int) []imEntry {
		list := full()
		for i := range n {
			list[2].counts[i] = 0
		}
		return list
	}
	swap := func(i int, e imEntry) []imEntry {
		list := full()
		list[i] = e
		return list
	}
	wide := even("blk.0.attn_q.weight", 1)
	wide.sums = make([]float32, 10240)
	old := func(x string) imEntry { return even("blk.0.ffn_up."+x+".weight", 1) }
	for name, c := range map[string]struct {
		p    recipes.Quantize
		b    []byte
		err  error
		says []string
	}{
		"another width":       {recipes.Quantize{Preset: "Q4_0"}, newMatrix(t, swap(1, wide)...), ErrImatrixFit, []string{"blk.0.attn_q.weight", "10240 wide", "256 values"}},
		"one for all experts": {recipes.Quantize{Preset: "Q4_0"}, newMatrix(t, swap(2, even("blk.0.ffn_up_exps.weight", 1))...), ErrImatrixFit, []string{"256 wide", "4 x 256 = 1024"}},
		"other experts":       {recipes.Quantize{Preset: "Q4_0"}, newMatrix(t, swap(2, imEntry{"blk.0.ffn_up_exps.weight", make([]float32, 2), make([]float32, 1024)})...), ErrImatrixFit, []string{"counts 2 matrices, the tensor has 4"}},
		"another model":       {recipes.Quantize{Preset: "Q4_0"}, newMatrix(t, even("blk.9.attn_q.weight", 1)), ErrImatrixFit, []string{"none of its 1 entries", "blk.9.attn_q.weight"}},
		"old names too many":  {recipes.Quantize{Preset: "Q4_0"}, newMatrix(t, append(full()[:2], old("0"), old("4"))...), ErrImatrixFit, []string{"blk.0.ffn_up.4.weight", "old name"}},
		"old names besides":   {recipes.Quantize{Preset: "Q4_0"}, newMatrix(t, append(full(), old("0"))...), ErrImatrixFit, []string{"blk.0.ffn_up.0.weight", "old name"}},
		"old names, width":    {recipes.Quantize{Preset: "Q4_0"}, newMatrix(t, imEntry{"blk.0.ffn_up.0.weight", []float32{1}, make([]float32, 128)}), ErrImatrixFit, []string{"896 wide", "1024"}},
		"too many unseen":     {recipes.Quantize{Preset: "Q4_0", MaxUnseen: &limit}, newMatrix(t, silent(2)...), ErrImatrixFit, []string{"2 of 4 experts", "(0-1)", "1 are allowed"}},
		"missing is an error": {recipes.Quantize{Preset: "Q4_0", Missing: "error"}, newMatrix(t, full()[1:]...), ErrImatrix, []string{"blk.0.attn_k.weight", "source im", "missing: error"}},
		"unusable without":    {recipes.Quantize{Preset: "IQ2_XS", Missing: "note"}, newMatrix(t, full()[1:]...), ErrImatrix, []string{"blk.0.attn_k.weight", "IQ2_XS is unusable"}},
		"Q2_K of Q2_K_S":      {recipes.Quantize{Preset: "Q2_K_S"}, newMatrix(t, full()[1:]...), ErrImatrix, []string{"Q2_K is unusable"}},
		"a rule's type": {recipes.Quantize{Preset: "Q4_0", Missing: "Q6_K", Rules: []recipes.Rule{{Match: "attn_k", Type: "IQ1_S"}}},
			newMatrix(t, full()[1:]...), ErrImatrix, []string{"IQ1_S is unusable"}},
		"NaN": {recipes.Quantize{Preset: "Q4_0"}, oldMatrix(flat("blk.0.attn_q.weight", 1, float32(math.NaN()))), imatrix.ErrValue, []string{"source im", "blk.0.attn_q.weight", "value 0"}},
	} {
		_, err := planWith(t, c.p, c.b)
		if !errors.Is(err, c.err) {
			t.Errorf("%s: %v, want %v", name, err, c.err)
			continue
		}
		for _, s := range c.says {
			if !strings.Contains(err.Error(), s) {
				t.Errorf("%s: %q does not say %q", name, err, s)
			}
		}
	}
	if _, err := planWith(t, recipes.Quantize{Preset: "Q4_0"}, []byte("????????")); !errors.Is(err, pipeline.ErrSource) {
		t.Errorf("a file that is no matrix is the source's fault: %v", err)
	}
	s, err := New(recipes.Quantize{Preset: "Q4_0", Imatrix: "base"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.PlanWith(ctx, experts(), sourceOf(nil)); err == nil || !strings.Contains(err.Error(), "source base is a model") {
		t.Error(err)
	}
	if _, err := s.Plan(ctx, experts()); err == nil || !strings.Contains(err.Error(), "no source is called base") {
		t.Error(err)
	}
	if s, err = New(recipes.Quantize{Preset: "IQ2_XS"}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Plan(ctx, experts()); !errors.Is(err, ErrImatrix) || !strings.Contains(err.Error(), "imatrix:") {
		t.Error(err)
	}
}

// TestImatrixNotes: what is used all the same and said.
func TestImatrixNotes(t *testing.T) {
	silent := full()
	silent[2].counts[1], silent[2].counts[3] = 0, 0
	narrow := imEntry{"token_embd.weight", []float32{1}, []float32{1, 2}}
	hole := full()
	clear(hole[0].sums[:64])
	for name, c := range map[string]struct {
		p     recipes.Quantize
		b     []byte
		says  string
		types map[string]tensor.Type
	}{
		"unseen": {recipes.Quantize{Preset: "Q4_0"}, newMatrix(t, silent...), "blk.0.ffn_up_exps.weight: no calibration data reached experts 1, 3 of 4", nil},
		"unseen, old format": {recipes.Quantize{Preset: "Q4_0"}, oldMatrix(full()[0], full()[1], flat("blk.0.ffn_up_exps.weight", 4, 1)),
			"no calibration data reached experts 0-3 of 4", nil},
		"unseen matrix": {recipes.Quantize{Preset: "Q4_0"}, oldMatrix(flat("blk.0.attn_q.weight", 1, 1)), "blk.0.attn_q.weight: no calibration data reached it", nil},
		"missing": {recipes.Quantize{Preset: "Q4_0"}, newMatrix(t, full()[2:]...), "im: it has no entry for 2 tensors, which are quantized without weights: blk.0.attn_k.weight, blk.0.attn_q.weight",
			map[string]tensor.Type{"blk.0.attn_k.weight": tensor.Q4_0}},
		"missing, a type": {recipes.Quantize{Preset: "IQ2_XS", Missing: "Q5_K"}, newMatrix(t, full()[1:]...), "",
			map[string]tensor.Type{"blk.0.attn_k.weight": tensor.Q5_K, "blk.0.attn_q.weight": tensor.IQ2_XS, "output.weight": tensor.Q5_K, "token_embd.weight": tensor.Q2_K}},
		"missing, a rule": {recipes.Quantize{Preset: "Q4_0", Missing: "Q5_K", Rules: []recipes.Rule{{Match: "attn_k", Type: "Q3_K"}}}, newMatrix(t, full()[1:]...),
			"no entry for 1 tensors, which are quantized without weights: blk.0.attn_k.weight", map[string]tensor.Type{"blk.0.attn_k.weight": tensor.Q3_K}},
		"missing, no weights wanted": {recipes.Quantize{Preset: "Q8_0", Missing: "error"}, newMatrix(t, full()[1:]...), "", map[string]tensor.Type{"blk.0.attn_k.weight": tensor.Q8_0}},
		"strangers":                  {recipes.Quantize{Preset: "Q4_0"}, newMatrix(t, append(full(), even("blk.7.attn_q.weight", 1), even("blk.1.nextn.weight", 1))...), "im: 2 entries are no tensors of this model and are not used: blk.1.nextn.weight, blk.7.attn_q.weight", nil},
		"embedding":                  {recipes.Quantize{Preset: "Q4_0"}, newMatrix(t, append(full(), narrow)...), "token_embd.weight: the importance matrix has 2 values for rows of 256; they are not used", nil},
		"old names": {recipes.Quantize{Preset: "Q4_0"}, newMatrix(t, even("blk.0.ffn_up.0.weight", 1), even("blk.0.ffn_up.3.weight", 1)),
			"blk.0.ffn_up_exps.weight: no calibration data reached experts 1-2 of 4", nil},
		"dead": {recipes.Quantize{Preset: "Q4_0"}, newMatrix(t, hole...), "blk.0.attn_k.weight (2)", nil},
	} {
		m := mustPlan(t, c.p, c.b)
		if got := notesOf(m); !strings.Contains(got, c.says) || c.says == "" && got != "" {
			t.Errorf("%s: notes %q, want %q", name, got, c.says)
		}
		for n, want := range c.types {
			if got := m.Tensor(n).Type; got != want {
				t.Errorf("%s: %s is %s, want %s", name, n, got, want)
			}
		}
	}
}

// TestOldNames: entries of single experts give the bytes of a stacked entry.
func TestOldNames(t *testing.T) {
	p := recipes.Quantize{Preset: "Q4_0"}
	var list []imEntry
	stacked := imEntry{name: "blk.0.ffn_up_exps.weight", counts: []float32{1, 1, 0, 1}}
	for x := range 4 {
		e := flat(fmt.Sprintf("blk.0.ffn_up.%d.weight", x), 1, 2)
		for i := range 50 {
			e.sums[x*50+i] = 9
		}
		stacked.sums = append(stacked.sums, e.sums...)
		if x != 2 {
			list = append(list, e)
		}
	}
	a, b := mustPlan(t, p, newMatrix(t, stacked)), mustPlan(t, p, oldMatrix(list...))
	if a.Tensor(stacked.name).Key != b.Tensor(stacked.name).Key || !slices.Equal(rows(t, a, stacked.name), rows(t, b, stacked.name)) {
		t.Error("single entries and a stacked one differ")
	}
}

// TestZeroWeights: a matrix of zeros, of one zero group or of next to nothing
// gives finite values in every type.
func TestZeroWeights(t *testing.T) {
	for _, typ := range tensor.Types() {
		if _, err := quant.For(typ); err != nil || !typ.IsBlock() {
			continue
		}
		if _, ok := ftypeOfType(typ); !ok {
			continue
		}
		for _, w := range []float32{0, 1e-11, 1e-38} {
			m := mustPlan(t, recipes.Quantize{Type: typ.String(), Missing: "Q8_0"}, newMatrix(t, flat("blk.0.attn_q.weight", 1, w)))
			x := m.Tensor("blk.0.attn_q.weight")
			d, err := quant.DecoderFor(x.Type)
			if err != nil {
				t.Fatal(err)
			}
			out := make([]float32, 512)
			d.Decode(out, rows(t, m, x.Name))
			for i, v := range out {
				if v != v || math.IsInf(float64(v), 0) {
					t.Fatalf("%s, weights of %g: value %d is %g", typ, w, i, v)
				}
			}
		}
	}
}
