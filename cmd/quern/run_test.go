package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"quern/formats/imatrix"
	"quern/formats/safetensors"
	"quern/internal/testmodel"
	infer "quern/runtime"
	"quern/runtime/load"
	"quern/tensor"
)

type runGolden struct {
	Greedy     []int32 `json:"greedy_from_bos"`
	Text       string  `json:"text"`
	Perplexity float64 `json:"perplexity"`
}

func goldenOf(t *testing.T, name string) runGolden {
	t.Helper()
	var all map[string]json.RawMessage
	check(t, json.Unmarshal(mustRead(t, filepath.Join(testmodel.Root(), "golden/runtime/golden.json")), &all))
	var g runGolden
	check(t, json.Unmarshal(all[name], &g))
	return g
}

func storiesModel() string { return filepath.Join(testmodel.Root(), "models/stories260k") }

func evalStories() string { return filepath.Join(testmodel.Root(), "golden/runtime/eval-stories.txt") }

func TestRunTellsTheStory(t *testing.T) {
	b := newBench(t)
	g := goldenOf(t, "stories260k")
	if got := b.ok("run", storiesModel(), "-n", "199").out; strings.TrimSpace(got) != g.Text {
		t.Errorf("text %q, want %q", got, g.Text)
	}
	if got := b.ok("run", storiesModel(), "-n", "199", "--tokens").out; got != joinIDs(g.Greedy[1:])+"\n" {
		t.Errorf("tokens %s", got)
	}
	var doc runDoc
	b.ok("run", storiesModel(), "--prompt-tokens", joinIDs(g.Greedy[:50]), "-n", "20", "--json").json(t, &doc)
	if !slices.Equal(doc.Tokens, g.Greedy[50:70]) || doc.Stop != "length" || !slices.Equal(doc.Prompt, g.Greedy[:50]) || doc.Text == "" || doc.Speed <= 0 {
		t.Errorf("%+v", doc)
	}
	// Two chunks of 64 positions, of which 70 are used, 5 layers, 4 heads of 8 values, keys and values of 4 bytes.
	if m := doc.Memory; m.KeysAndValues != 2*64*5*4*8*2*4 || m.Weights < 1e6 || (m.Peak < m.KeysAndValues && runtime.GOOS == "linux") {
		t.Errorf("memory %+v", m)
	}
	b.ok("run", storiesModel(), "-p", "Once upon a time", "-n", "3", "--act", "q8", "--json").json(t, &doc)
	if m := doc.Memory; m.KeysAndValues != (5+3)*5*4*8*2*2 {
		t.Errorf("memory with q8 %+v", m)
	}
	b.ok("run", storiesModel(), "-p", "Once upon a time", "-n", "3", "--json").json(t, &doc)
	if !slices.Equal(doc.Prompt, []int32{1, 403, 407, 261, 378}) {
		t.Errorf("prompt %v", doc.Prompt)
	}
	// Chance, and the same chance again.
	draw := func(seed string) string {
		return b.ok("run", storiesModel(), "-n", "40", "--temperature", "1", "--seed", seed).out
	}
	if a, again, other := draw("1"), draw("1"), draw("2"); a != again || a == other {
		t.Errorf("seeds 1, 1, 2: %q, %q, %q", a, again, other)
	}
}

func TestRunWithoutTokenizer(t *testing.T) {
	b := newBench(t)
	file := filepath.Join(testmodel.Root(), "golden/kmcu/stories260k.kmcu")
	out := b.ok("run", file, "--prompt-tokens", "1", "-n", "8", "--tokens").out
	if len(strings.Split(out, ",")) != 8 {
		t.Errorf("ids %q", out)
	}
	b.fails(exitUsage, []string{"no tokenizer", "--prompt-tokens"}, "run", file, "-p", "Once")
	b.fails(exitUsage, []string{"--tokens"}, "run", file, "--prompt-tokens", "1")
	// Or it borrows one.
	if got := b.ok("run", file, "-n", "8", "--tokenizer", storiesModel()).out; !strings.HasPrefix(got, " Once upon a time") {
		t.Errorf("text %q", got)
	}
	var doc pplDoc
	b.ok("ppl", file, "-f", evalStories(), "-c", "128", "--chunks", "2", "--tokenizer", storiesModel(), "--base", storiesModel(), "--json").json(t, &doc)
	if doc.Scored != 126 || doc.Perplexity.Perplexity > 12 || doc.Divergence.Mean <= 0 {
		t.Errorf("%+v %+v", doc, doc.Divergence)
	}
	b.fails(exitSource, []string{"none"}, "run", file, "--tokenizer", b.path("none"))
}

func TestLogits(t *testing.T) {
	b := newBench(t)
	out := b.path("new", "logits.safetensors")
	var doc logitsDoc
	b.ok("logits", storiesModel(), "--tokens", "1,403,407", "-o", out, "--json").json(t, &doc)
	blob, err := tensor.OpenFile(out)
	check(t, err)
	defer blob.Close()
	f, err := safetensors.Open(t.Context(), "logits", blob, safetensors.Options{})
	check(t, err)
	if x := f.Tensors[0]; x.Name != "logits" || !x.Shape.Equal(tensor.Shape{3, 512}) || f.Metadata[0].Value != "1,403,407" {
		t.Errorf("%+v %v", x, f.Metadata)
	}
	data := mustRead(t, out)
	sum := sha256.Sum256(data[len(data)-3*512*4:])
	if doc.SHA256 != hex.EncodeToString(sum[:]) || doc.Top[0].ID != 261 || doc.Top[0].Text == "" || len(doc.Top) != 5 {
		t.Errorf("%+v", doc)
	}
	for _, jobs := range []string{"1", "7"} {
		if got := b.ok("logits", storiesModel(), "--tokens", "1,403,407", "--jobs", jobs).out; !strings.Contains(got, doc.SHA256) {
			t.Errorf("%s jobs: %s", jobs, got)
		}
	}
	for _, c := range []struct {
		code  int
		words []string
		args  []string
	}{
		{exitUsage, []string{"--tokens"}, []string{}},
		{exitUsage, []string{"no token id", "x"}, []string{"--tokens", "1,x"}},
		{exitUsage, []string{"--act"}, []string{"--tokens", "1", "--act", "fast"}},
		{exitUsage, []string{"--jobs"}, []string{"--tokens", "1", "--jobs", "-1"}},
	} {
		b.fails(c.code, c.words, append([]string{"logits", storiesModel()}, c.args...)...)
	}
	b.fails(exitSource, []string{"none"}, "logits", b.path("none"), "--tokens", "1")
}

// TestLogitsInGGMLsOrder: a text goes through a model as a whole, as in llama.cpp.
func TestLogitsInGGMLsOrder(t *testing.T) {
	b := newBench(t)
	ids := make([]int32, 150)
	want := make([]int, len(ids))
	for i := range ids {
		ids[i], want[i] = int32(1+i*i%500), i
	}
	var doc logitsDoc
	b.ok("logits", storiesModel(), "--tokens", joinIDs(ids), "--act", "q8", "--order", "ggml", "--json").json(t, &doc)
	m, err := load.Open(t.Context(), storiesModel())
	check(t, err)
	defer m.Close()
	s, err := m.NewSession(infer.SessionOptions{Context: len(ids), Act: infer.Q8, Order: infer.OrderGGML})
	check(t, err)
	h := sha256.New()
	check(t, s.Eval(t.Context(), ids, want, func(_ int, logits []float32) error {
		h.Write(infer.AppendLogits(nil, logits))
		return nil
	}))
	if sum := hex.EncodeToString(h.Sum(nil)); doc.SHA256 != sum || doc.Order != "ggml" {
		t.Errorf("%s in the order %s, want %s", doc.SHA256, doc.Order, sum)
	}
}

func TestTokenize(t *testing.T) {
	b := newBench(t)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"hello world"}, "1,281,306,414,263,304,341\n"},
		{[]string{"hello world", "--plain"}, "281,306,414,263,304,341\n"},
		{[]string{"", "--plain"}, "\n"},
	} {
		if got := b.ok(append([]string{"tokenize", storiesModel()}, c.args...)...).out; got != c.want {
			t.Errorf("%q: %q", c.args, got)
		}
	}
	b.write("text", "hello world")
	if got := b.ok("tokenize", storiesModel(), "-f", b.path("text"), "--pieces").out; strings.Count(got, "\n") != 7 || !strings.Contains(got, `281  " h`) {
		t.Errorf("pieces %q", got)
	}
	b.fails(exitUsage, []string{"a text"}, "tokenize", storiesModel())
	b.fails(exitUsage, []string{"a text"}, "tokenize", storiesModel(), "a", "-f", b.path("text"))
}

func TestPPL(t *testing.T) {
	b := newBench(t)
	g := goldenOf(t, "stories260k")
	var doc pplDoc
	b.ok("ppl", storiesModel(), "-f", evalStories(), "-c", "256", "--json").json(t, &doc)
	if d := doc.Perplexity.Perplexity - g.Perplexity; d > 1e-4 || d < -1e-4 || doc.Scored != 889 || doc.BitsPerByte < 1 || doc.Error <= 0 {
		t.Errorf("%+v", doc)
	}
	moe := filepath.Join(testmodel.Root(), "models/stories-moe")
	r := b.ok("ppl", storiesModel(), "-f", evalStories(), "-c", "64", "--chunks", "2", "--base", moe)
	if !strings.Contains(r.out, "divergence") || !strings.Contains(r.err, "chunk 2 of 2") {
		t.Errorf("%s%s", r.out, r.err)
	}
	b.write("short", "Once upon a time")
	b.fails(exitUsage, []string{"too short"}, "ppl", storiesModel(), "-f", b.path("short"))
	b.fails(exitSource, []string{"none"}, "ppl", storiesModel(), "-f", b.path("none"))
	b.fails(exitUsage, []string{"--file"}, "ppl", storiesModel())
}

func TestLoops(t *testing.T) {
	b := newBench(t)
	args := []string{"loops", storiesModel(), "-f", evalStories(), "--answers", "3", "-n", "120"}
	var doc loopsDoc
	b.ok(append(args, "--json")...).json(t, &doc)
	if len(doc.Answers) != 3 || doc.Answers[2].Tokens == 0 || doc.Share != float64(doc.Looped)/3 {
		t.Errorf("%+v", doc)
	}
	// Greedy answers of so small a model do loop.
	b.write("once", "Once upon a time there")
	r := b.run("loops", filepath.Join(testmodel.Root(), "models/stories-moe"), "-f", b.path("once"), "--answers", "1", "--prompt-length", "4", "-n", "195", "--max", "0")
	if r.code != exitVerify || !strings.Contains(r.err, "fall into a loop") || !strings.Contains(r.out, "repeats 15 tokens from token 134 to 195") {
		t.Errorf("exit code %d\n%s%s", r.code, r.out, r.err)
	}
}

func TestImatrix(t *testing.T) {
	b := newBench(t)
	out := b.path("stories.imatrix.gguf")
	b.ok("imatrix", storiesModel(), "-f", evalStories(), "-c", "128", "--chunks", "2", "-o", out)
	blob, err := tensor.OpenFile(out)
	check(t, err)
	defer blob.Close()
	m, err := imatrix.Read(t.Context(), out, blob, imatrix.Options{})
	check(t, err)
	if m.Chunks != 2 || m.ChunkSize != 128 || len(m.Entries) != 35 || !slices.Equal(m.Datasets, []string{"eval-stories.txt"}) {
		t.Errorf("%d chunks of %d, %d entries of %q", m.Chunks, m.ChunkSize, len(m.Entries), m.Datasets)
	}
	b.fails(exitUsage, []string{"--out"}, "imatrix", storiesModel(), "-f", evalStories())
	b.fails(exitUsage, []string{"too short"}, "imatrix", storiesModel(), "-f", evalStories(), "-c", "2000", "-o", out)
	// The older file is still whole.
	if st, err := os.Stat(out); err != nil || st.Size() != blob.Size() {
		t.Errorf("%v, %v", st, err)
	}
}

// TestUnusedTokensAreNeverDrawn: rows behind the vocabulary have logits like any
// other, and no token.
func TestUnusedTokensAreNeverDrawn(t *testing.T) {
	b := newBench(t)
	b.model("stories260k", "model")
	b.ok("build", b.recipe("steps:\n  - pad: {vocab: 1000}\noutputs:\n  - {format: gguf, file: r.gguf}\n"), "-o", b.dir, "--no-store")
	var doc runDoc
	b.ok("run", b.path("r.gguf"), "-n", "200", "--temperature", "1000", "--top-k", "0", "--top-p", "1", "--min-p", "0", "--ignore-end", "--json").json(t, &doc)
	seen := map[int32]bool{}
	for _, id := range doc.Tokens {
		if seen[id] = true; id >= 512 {
			t.Fatalf("%d was drawn, of 512 tokens", id)
		}
	}
	if len(doc.Tokens) != 200 || len(seen) < 100 {
		t.Errorf("%d tokens, %d different ones: this is no chance", len(doc.Tokens), len(seen))
	}
}

// TestDivergenceIsThatOfLlamaPerplexity: llama-perplexity v0.5.0 with --kl-divergence,
// a float32 cache and no flash attention, on the same two models in F32 (the second
// after Q4_0), gave these numbers; its file of the first one's probabilities rounds
// them to 16 bits.
func TestDivergenceIsThatOfLlamaPerplexity(t *testing.T) {
	b := newBench(t)
	b.ok("quantize", storiesModel(), b.path("f32.gguf"), "F32")
	b.ok("quantize", b.path("f32.gguf"), b.path("q4.gguf"), "Q4_0", "--pure")
	var doc pplDoc
	b.ok("ppl", b.path("q4.gguf"), "-f", evalStories(), "-c", "128", "--base", storiesModel(), "--json").json(t, &doc)
	for _, c := range []struct {
		what            string
		got, want, near float64
	}{
		{"mean", doc.Divergence.Mean, 0.112310, 2e-6},
		{"maximum", doc.Divergence.Max, 1.401230, 1e-4},
		{"same top", 100 * doc.Divergence.SameTop, 80.612, 5e-4},
	} {
		if math.Abs(c.got-c.want) > c.near {
			t.Errorf("%s: %.7f, llama-perplexity says %.7f", c.what, c.got, c.want)
		}
	}
}
