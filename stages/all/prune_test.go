package all_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"quern/formats/gguf"
	"quern/model"
	"quern/model/prune"
	"quern/pipeline"
	"quern/recipes"
	infer "quern/runtime"
	"quern/runtime/load"
	"quern/stages/prunehead"
	"quern/tensor"
)

// pruneBench builds recipes over one model with lists of ids.
type pruneBench struct {
	t   *testing.T
	dir string // of the model
	tmp string
}

func newPruneBench(t *testing.T, model string) *pruneBench {
	return &pruneBench{t: t, dir: folder(t, model), tmp: t.TempDir()}
}

// listFile writes ids to a file and gives its path.
func (b *pruneBench) listFile(ids []int32) string {
	b.t.Helper()
	ids = slices.Clone(ids)
	slices.Sort(ids)
	ids = slices.Compact(ids)
	path := filepath.Join(b.tmp, fmt.Sprintf("%d-%d.txt", len(ids), ids[len(ids)-1]))
	if err := os.WriteFile(path, []byte(strings.Trim(fmt.Sprint(ids), "[]")), 0o644); err != nil {
		b.t.Fatal(err)
	}
	return path
}

// try builds with steps after "steps:"; base is a folder or a GGUF file.
func (b *pruneBench) try(base string, ids []int32, steps, rest string) (string, *pipeline.Result, error) {
	b.t.Helper()
	kind := "dir"
	if strings.HasSuffix(base, ".gguf") {
		kind = "gguf"
	}
	text := fmt.Sprintf("version: 1\nname: pruned\nsources:\n  base: {%s: %q}\n", kind, base)
	if ids != nil {
		text += fmt.Sprintf("  keep: {file: %q}\n", b.listFile(ids))
	}
	if steps != "" {
		text += "steps:\n" + steps
	}
	if rest == "" {
		rest = "outputs:\n  - {format: gguf, file: out.gguf}\n"
	}
	out := b.t.TempDir()
	res, err := build1(b.t.Context(), b.t, text+rest, sourceEnv(), pipeline.BuildOptions{OutDir: out})
	return filepath.Join(out, "out.gguf"), res, err
}

func (b *pruneBench) build(base string, ids []int32, steps, rest string) string {
	b.t.Helper()
	file, _, err := b.try(base, ids, steps, rest)
	if err != nil {
		b.t.Fatal(err)
	}
	return file
}

func prunedFile(t *testing.T, file string) (*gguf.File, []byte) {
	t.Helper()
	data := readAll(t, file)
	f, err := gguf.Open(t.Context(), filepath.Base(file), blobOf(data), gguf.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return f, data
}

func tensorBytes(t *testing.T, f *gguf.File, data []byte, name string) (gguf.Info, []byte) {
	t.Helper()
	for _, x := range f.Tensors {
		if x.Name == name {
			return x, data[x.Offset:][:x.Bytes]
		}
	}
	t.Fatalf("%s has no tensor %s", f.Name, name)
	return gguf.Info{}, nil
}

// picked gives the rows of ids out of the bytes of rows.
func picked(rows []byte, size int, ids []int32) []byte {
	var out []byte
	for _, id := range ids {
		out = append(out, rows[int(id)*size:][:size]...)
	}
	return out
}

func allLogits(t *testing.T, file string, ids []int32) (infer.Model, [][]float32) {
	t.Helper()
	m, err := load.Open(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	s, err := m.NewSession(infer.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := make([]int, len(ids))
	for i := range want {
		want[i] = i
	}
	out := make([][]float32, len(ids))
	if err := s.Eval(t.Context(), ids, want, func(i int, row []float32) error {
		out[i] = slices.Clone(row)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return m, out
}

// keptIDs are those of a vocabulary of 512 that the tests keep.
func keptIDs() []int32 {
	var ids []int32
	for id := int32(0); id < 512; id++ {
		if id%7 != 3 && (id < 300 || id%3 == 0) {
			ids = append(ids, id)
		}
	}
	return ids
}

// TestPruneHead: rows are copied byte for byte in every type; the logits of kept ids
// are the whole model's, all others -Inf. Tied and untied, from a folder and from a
// GGUF file, quantized before and after.
func TestPruneHead(t *testing.T) {
	ids := keptIDs()
	text := []int32{1, 403, 407, 261, 378, 432, 287}
	for _, c := range []struct {
		model, before string // steps before pruning, in a file of their own
		after         string
	}{
		{"stories260k", "", ""},
		{"stories-wide", "", ""},
		{"stories-moe", "", ""},
		{"stories260k", "  - quantize: {type: Q8_0, fallback: F16}\n", ""},
		{"stories-wide", "  - quantize: {preset: Q4_K_M}\n", ""},
		{"stories-wide", "", "  - quantize: {type: Q8_0, output-type: Q6_K}\n"},
		{"stories-moe", "", "  - pad: {ffn: 32}\n  - quantize: {type: Q8_0, rules: [{match: 'ffn_(gate|up|down)_exps', type: Q4_0}]}\n  - reorder: {experts: last, align: 16KiB}\n"},
	} {
		t.Run(c.model+c.before+c.after, func(t *testing.T) {
			b := newPruneBench(t, c.model)
			base := b.dir
			if c.before != "" {
				base = b.build(b.dir, nil, c.before, "")
			}
			whole := b.build(base, nil, c.after, "")
			file := b.build(base, ids, "  - prune-head: {tokens: keep}\n"+c.after, "")
			wf, wdata := prunedFile(t, whole)
			pf, pdata := prunedFile(t, file)

			head, rows := tensorBytes(t, pf, pdata, "output.weight")
			name := "output.weight"
			if !slices.ContainsFunc(wf.Tensors, func(x gguf.Info) bool { return x.Name == name }) {
				name = "token_embd.weight"
				if tied, err := pf.Meta.Bool(prune.KeyTied); err != nil || !tied {
					t.Errorf("%s: %v, %v", prune.KeyTied, tied, err)
				}
			} else if pf.Meta.Has(prune.KeyTied) {
				t.Errorf("the head was not tied, and %s is there", prune.KeyTied)
			}
			old, oldRows := tensorBytes(t, wf, wdata, name)
			if head.TypeName() == old.TypeName() && !bytes.Equal(rows, picked(oldRows, len(oldRows)/512, ids)) {
				t.Error("rows of the head are not those of the whole one")
			}
			if head.TypeName() != old.TypeName() && c.after == "" {
				t.Errorf("the head is %s, it was %s", head.TypeName(), old.TypeName())
			}
			list, _ := tensorBytes(t, pf, pdata, prune.OutputIDs)
			if list.TypeName() != "I32" || fmt.Sprint(list.Shape()) != fmt.Sprintf("[%d]", len(ids)) {
				t.Errorf("%s is %s %v", prune.OutputIDs, list.TypeName(), list.Shape())
			}
			if i := slices.IndexFunc(pf.Tensors, func(x gguf.Info) bool { return x.Name == "output.weight" }); pf.Tensors[i+1].Name != prune.OutputIDs && !strings.Contains(c.after, "quantize") {
				t.Errorf("%s stands behind the head, not %s", pf.Tensors[i+1].Name, prune.OutputIDs)
			}
			_, embd := tensorBytes(t, pf, pdata, "token_embd.weight")
			if _, e := tensorBytes(t, wf, wdata, "token_embd.weight"); !bytes.Equal(embd, e) {
				t.Error("the embedding has changed")
			}

			// The encoder is whole, so every text is read as before.
			for key, v := range wf.Meta.All() {
				if u, ok := pf.Meta.Get(key); strings.HasPrefix(key, "tokenizer.") && (!ok || !u.Equal(v)) {
					t.Errorf("%s has changed", key)
				}
			}
			_, want := allLogits(t, whole, text)
			m, got := allLogits(t, file, text)
			for i := range want {
				for id, v := range got[i] {
					w := want[i][id]
					if !slices.Contains(ids, int32(id)) {
						w = float32(math.Inf(-1))
					}
					if math.Float32bits(v) != math.Float32bits(w) {
						t.Fatalf("position %d: logit %d is %v, want %v", i, id, v, w)
					}
				}
			}
			if m.Info().Vocab != 512 {
				t.Errorf("a vocabulary of %d", m.Info().Vocab)
			}
		})
	}
}

// TestPruneAgain: a pruned file is cut to fewer tokens, or, where the head is the
// embedding's rows, to others; rows that are gone for good are named.
func TestPruneAgain(t *testing.T) {
	const step = "  - prune-head: {tokens: keep}\n"
	ids, fewer, others := keptIDs(), []int32{4, 9, 399, 510}, []int32{3, 4, 10, 399}
	for _, c := range []struct {
		model, quantize string
		tied            bool // so that other rows can be had back
	}{
		{"stories260k", "  - quantize: {type: Q8_0, fallback: F16}\n", true},
		{"stories260k", "  - quantize: {type: Q8_0, output-type: F16, fallback: F16}\n", false},
		{"stories-wide", "  - quantize: {type: Q8_0}\n", false},
	} {
		b := newPruneBench(t, c.model)
		first := b.build(b.dir, ids, step+c.quantize, "")
		for _, list := range [][]int32{fewer, others} {
			want := b.build(b.dir, list, step+c.quantize, "")
			got, _, err := b.try(first, list, step, "")
			if slices.Equal(list, others) && !c.tied {
				if !errors.Is(err, prune.ErrGone) || !strings.Contains(err.Error(), "[3 10]") {
					t.Errorf("%s%s: %v", c.model, c.quantize, err)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			sameModel(t, fmt.Sprintf("%s%s: cut twice to %v", c.model, c.quantize, list), got, want)
		}
	}
	// A head that only claims to be the embedding's rows.
	b := newPruneBench(t, "stories-wide")
	file := b.build(b.dir, ids, step+"  - quantize: {type: Q8_0}\n", "")
	lying := lie(t, file)
	if _, _, err := b.try(lying, others, step, ""); !errors.Is(err, prune.ErrGone) || !errors.Is(err, pipeline.ErrSource) {
		t.Errorf("a head that is not the embedding's: %v", err)
	}
}

// lie gives a file that says of its head that it is tied.
func lie(t *testing.T, file string) string {
	t.Helper()
	f, data := prunedFile(t, file)
	meta := f.Meta.Clone()
	meta.Set(prune.KeyTied, gguf.Scalar(true))
	var specs []gguf.TensorSpec
	ts, err := f.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range ts {
		specs = append(specs, gguf.TensorSpec{Name: x.Name, Type: x.Type, Shape: x.Shape})
	}
	l, err := gguf.NewLayout(meta, specs, gguf.LayoutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	out := make([]byte, l.Size)
	copy(out, l.Header)
	for i, x := range f.Tensors {
		copy(out[l.Tensors[i].Offset:], data[x.Offset:][:x.Bytes])
	}
	path := filepath.Join(t.TempDir(), "lying.gguf")
	if err := os.WriteFile(path, out, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// sameModel compares two files, but for a label that a conversion makes of the number
// of weights.
func sameModel(t *testing.T, what, got, want string) {
	t.Helper()
	g, x := prunedFile(t, got)
	w, y := prunedFile(t, want)
	for i := range w.Tensors {
		name := w.Tensors[i].Name
		if i >= len(g.Tensors) || g.Tensors[i].Name != name {
			t.Fatalf("%s: no tensor %s at place %d", what, name, i)
		}
		_, p := tensorBytes(t, g, x, name)
		if _, q := tensorBytes(t, w, y, name); !bytes.Equal(p, q) {
			t.Errorf("%s: tensor %s differs", what, name)
		}
	}
	for key, v := range w.Meta.All() {
		if u, ok := g.Meta.Get(key); (!ok || !v.Equal(u)) && key != "general.size_label" {
			t.Errorf("%s: %s is %v, want %v", what, key, u, v)
		}
	}
	if g.Meta.Len() != w.Meta.Len() || len(g.Tensors) != len(w.Tensors) {
		t.Errorf("%s: %d keys and %d tensors, want %d and %d", what, g.Meta.Len(), len(g.Tensors), w.Meta.Len(), len(w.Tensors))
	}
}

// TestPruneFaults: lists of other vocabularies, and orders of steps that make no
// sense.
func TestPruneFaults(t *testing.T) {
	b := newPruneBench(t, "stories260k")
	const step = "  - prune-head: {tokens: keep}\n"
	for _, c := range []struct {
		ids   []int32
		steps string
		want  string
	}{
		{[]int32{0, 512}, step, "512"},
		{[]int32{0, 512}, "  - prune-head: {tokens: keep, mode: vocab}\n", "512"},
		{[]int32{0, 5}, step + "  - tie-head: {force: true}\n", "cannot stand in"},
		{[]int32{0, 5}, step + "  - pad: {vocab: 64}\n", "rows"},
		{[]int32{0, 5}, step + "  - prune-head: {tokens: keep, mode: vocab}\n", ""},
		{[]int32{0}, "  - prune-head: {tokens: keep, mode: vocab, multiple-of: 1024}\n", "no more to fill up"},
	} {
		_, _, err := b.try(b.dir, c.ids, c.steps, "")
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: %v", c.steps, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.steps, err)
		}
	}
	// A head that cannot end an answer is worth a word.
	for _, ids := range [][]int32{{0, 5}, {2, 5}} {
		_, res, err := b.try(b.dir, ids, step, "")
		if err != nil {
			t.Fatal(err)
		}
		if says := strings.Contains(strings.Join(res.Warnings, "\n"), `no token that ends an answer (2 "</s>")`); says != (ids[0] == 0) {
			t.Errorf("%v: warnings %q", ids, res.Warnings)
		}
	}
	// What a list says of its vocabulary must hold.
	for head, ok := range map[string]bool{"# quern token list: vocabulary 512\n": true, "# quern token list: vocabulary 513\n": false,
		"# quern token list: vocabulary 512, tokenizer sha256:" + strings.Repeat("ab", 32) + "\n": false} {
		file := filepath.Join(b.tmp, "named.txt")
		if err := os.WriteFile(file, []byte(head+"0\n5\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprintf("version: 1\nname: p\nsources:\n  base: {dir: %q}\n  keep: {file: %q}\nsteps:\n%soutputs:\n  - {format: gguf, file: o.gguf}\n", b.dir, file, step)
		_, err := build1(t.Context(), t, text, sourceEnv(), pipeline.BuildOptions{OutDir: t.TempDir()})
		if (err == nil) != ok {
			t.Errorf("%q: %v", head, err)
		}
	}
	// All tokens: nothing to prune.
	every := make([]int32, 512)
	for i := range every {
		every[i] = int32(i)
	}
	whole := b.build(b.dir, nil, "", "")
	if got := b.build(b.dir, every, step, ""); !bytes.Equal(readAll(t, got), readAll(t, whole)) {
		t.Error("a list of all tokens changed the file")
	}
}

// listed is a prune-head step that has its list in it, for the suite of all stages.
type listed struct {
	st  *prunehead.Stage
	ids string
}

func (l listed) Name() string { return l.st.Name() }

// Plan is the step's with the list as a source.
func (l listed) Plan(ctx context.Context, in *model.Model) (*model.Model, error) {
	return l.st.PlanWith(ctx, in, []*pipeline.Source{{Name: "keep", Content: tensor.BytesBlob("keep", []byte(l.ids)), Files: []pipeline.SourceFile{{Path: "keep"}}}})
}

// pruneStep makes a prune-head step with a list of its own.
func pruneStep(mode, ids string) func() (pipeline.Stage, error) {
	return func() (pipeline.Stage, error) {
		return listed{prunehead.New(recipes.PruneHead{Tokens: "keep", Mode: mode}), ids}, nil
	}
}

// TestPrunedListsAreKeyed is case 34 of docs/pitfalls.md: a list of another length, and
// one of other ids of the same length, make another file though it has the same name.
func TestPrunedListsAreKeyed(t *testing.T) {
	b := newBench(t)
	list := filepath.Join(t.TempDir(), "keep.txt")
	recipe := fmt.Sprintf("version: 1\nname: p\nsources:\n  base: {dir: \"DIR\"}\n  keep: {file: %q}\nsteps:\n  - prune-head: {tokens: keep}\noutputs:\n  - {format: gguf, file: out.gguf}\n", list)
	for i, c := range []struct {
		ids    string
		cached bool
	}{{"0 3 7 15", false}, {"0 3 7 15 16 20", false}, {"0 3 8 15", false}, {"15 7 3 0", true}} {
		if err := os.WriteFile(list, []byte(c.ids), 0o644); err != nil {
			t.Fatal(err)
		}
		res := b.build(recipe)
		if res.Outputs[0].Cached != c.cached {
			t.Errorf("build %d: taken from the store: %v", i, res.Outputs[0].Cached)
		}
		f, data := prunedFile(t, res.Outputs[0].Path)
		x, raw := tensorBytes(t, f, data, prune.OutputIDs)
		want := strings.Fields(c.ids)
		if x.Shape().RowLen() != int64(len(want)) || fmt.Sprint(raw[0]) != "0" && fmt.Sprint(raw[0]) != want[0] {
			t.Errorf("build %d: %v, ids %v", i, x.Shape(), raw)
		}
		if c.ids == "0 3 8 15" && raw[8] != 8 {
			t.Errorf("build %d: ids %v", i, raw)
		}
	}
}
