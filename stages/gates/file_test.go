package gates_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"quern/formats/safetensors"
	"quern/internal/digest"
	"quern/internal/testmodel"
	"quern/model"
	"quern/pipeline"
	"quern/recipes"
	infer "quern/runtime"
	"quern/runtime/score"
	"quern/stages/gates"
	"quern/tensor"
	"quern/tokenizer"
)

// flat is the folder of stories260k with a head of zeros: every token is as likely
// as any other, and greedy answers are one token over and over.
func flat(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "flat")
	if err := os.CopyFS(dir, os.DirFS(abs(t, "models/stories260k"))); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "model.safetensors")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := safetensors.Open(t.Context(), path, tensor.BytesBlob(path, b), safetensors.Options{})
	if err != nil {
		t.Fatal(err)
	}
	norm := f.Tensor("model.norm.weight")
	at := norm.Src.(*tensor.Section).Offset
	clear(b[at : at+norm.Bytes()])
	if err := errors.Join(os.Chmod(path, 0o644), os.WriteFile(path, b, 0o644)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestTokenizerOfJSON: the ids are held against what the source's tokenizer.json
// says. That of tiny-llama-hf puts no space before a text, which the GGUF file that
// the real converter makes of it cannot say: exactly what the gate is for.
func TestTokenizerOfJSON(t *testing.T) {
	files, err := testmodel.Build("tiny-llama-hf")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, b := range files {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b := bench{base: dir}
	b.fails(t, "tokenizer: {}", "for 48 of 48 golden strings", `the first is "Hello world": [346 306 `)
	// A convert step of its own does not make the file its own measure.
	b.steps = "convert: {outtype: f32}"
	b.fails(t, "tokenizer: {}", "for 48 of 48 golden strings")
	b.steps = ""
	const rule = `"normalizers":[`
	text := strings.Replace(string(files["tokenizer.json"]), rule, rule+`{"type":"Prepend","prepend":"\u2581"},`, 1)
	if err := os.WriteFile(filepath.Join(dir, "tokenizer.json"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	// It has merges in another order than the scores of a GGUF file, which three of
	// the strings tell.
	if res, _ := b.passes(t, "tokenizer: {max: 3}"); res.Gates[0].Value != 3 {
		t.Errorf("%+v", res.Gates)
	}
	b.fails(t, "tokenizer: {max: 2}", "for 3 of 48 golden strings", "1 beyond the limit of 2")
}

// input is what a gate gets of a file that stands somewhere, or of its bytes.
func input(t testing.TB, name string, content []byte, sources ...*pipeline.Source) pipeline.GateInput {
	t.Helper()
	blob := tensor.BytesBlob(name, content)
	text := &pipeline.Source{Name: "text", Content: tensor.BytesBlob("text", evalText(t)), Files: []pipeline.SourceFile{{Path: "text"}}}
	return pipeline.GateInput{Layout: &pipeline.Layout{File: name}, File: blob, Output: name, Set: []pipeline.WrittenFile{{Name: name, Blob: blob}},
		Reference: &model.Model{Form: model.KMCU, Name: "nothing"}, Sources: append(sources, text)}
}

func read(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(testdata, filepath.FromSlash(path)))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func number(v float64) *float64 { return &v }

func share(v float64) *recipes.Share { s := recipes.Share(v); return &s }

// TestKMCU runs a file of ids with its source's tokenizer; none of it has a
// tokenizer that could be wrong.
func TestKMCU(t *testing.T) {
	b := bench{outputs: "{format: kmcu, file: x.kmcu}"}
	g := readGolden(t)
	res, _ := b.passes(t, "perplexity: {text: text, context: 64, chunks: 4, max-increase: 15 %}", "kl-divergence: {text: text, context: 64, chunks: 4, max: 1}",
		"tokens: {prompt: Once upon a time, expect: "+ids(g.Greedy[5:8])+"}", "tokens: {ids: [1], expect: "+ids(g.Greedy[1:5])+"}", "loops: {text: text, max: 100 %, answers: 2, tokens: 30}")
	if r := res.Gates[0]; !(r.Value > 0) {
		t.Errorf("%+v", r)
	}
	// llama.cpp's order, which the baseline has and the file has not, does not come between.
	b.passes(t, "perplexity: {text: text, context: 64, chunks: 4, act: q8, max-increase: 15 %}", "kl-divergence: {text: text, context: 64, chunks: 4, act: q8, max: 1}")
	b.refuses(t, pipeline.ErrRecipe, "tokenizer: {}", "x.kmcu", "holds no tokenizer", "output:")
	// With both, the gate can say which it is for.
	b.outputs = "{format: kmcu, file: x.kmcu}\n  - {format: gguf, file: y.gguf}"
	res, _ = b.passes(t, "tokenizer: {output: y.gguf}", "perplexity: {text: text, context: 64, chunks: 2, max: 100}")
	var outputs []string
	for _, r := range res.Gates {
		outputs = append(outputs, r.Gate+" "+r.Output)
	}
	if got := strings.Join(outputs, ", "); got != "perplexity x.kmcu, tokenizer y.gguf, perplexity y.gguf" {
		t.Error(got)
	}
}

// TestShards: all shards of a file are one model, and are judged once.
func TestShards(t *testing.T) {
	gates := []string{"perplexity: {text: text, context: 64, chunks: 2, max: 100}", "tokenizer: {}", "tokens: {ids: [1], expect: [403]}"}
	whole, _ := bench{}.passes(t, gates...)
	split, dir := bench{outputs: "{format: gguf, file: sub/x.gguf, split-max-tensors: 20}"}.passes(t, gates...)
	if left, err := os.ReadDir(filepath.Join(dir, "sub")); err != nil || len(left) != 3 {
		t.Fatalf("%v, %v", left, err)
	}
	if len(split.Gates) != len(whole.Gates) {
		t.Fatalf("%+v", split.Gates)
	}
	for i, r := range split.Gates {
		if w := whole.Gates[i]; r.Value != w.Value || r.Output != "sub/x.gguf" {
			t.Errorf("%+v, want %+v", r, w)
		}
	}
}

// TestNeedle runs an archive with the tokenizer that it holds.
func TestNeedle(t *testing.T) {
	in := input(t, "n.cact", read(t, "cact/needle2-a-w4.cact"))
	m := open(t, filepath.Join(testdata, "cact/needle2-a-w4.cact"))
	want, err := score.Measure(t.Context(), m, evalText(t), score.Options{Context: 16, Chunks: 2})
	if err != nil {
		t.Fatal(err)
	}
	res, err := gates.NewPerplexity(recipes.PerplexityGate{Text: "text", Context: 16, Chunks: 2, Max: number(1)}).Check(t.Context(), in)
	if err != nil || len(res) != 1 || res[0].Pass || res[0].Value != want.Perplexity {
		t.Errorf("%+v, %v, want %v", res, err, want.Perplexity)
	}
	// Nothing says what its source was.
	p := recipes.PerplexityGate{Text: "text", Context: 16, Chunks: 2, Baseline: "source", MaxIncrease: share(0.01)}
	if _, err := gates.NewPerplexity(p).Check(t.Context(), in); !errors.Is(err, pipeline.ErrRecipe) || !strings.Contains(err.Error(), "the source cannot be run") {
		t.Error(err)
	}
	golden := &pipeline.Source{Name: "golden", Files: []pipeline.SourceFile{{Path: "golden"}}}
	tok, err := m.Tokenizer()
	if err != nil {
		t.Fatal(err)
	}
	for _, right := range []bool{true, false} {
		list, err := tok.Encode("a b", tokenizer.EncodeOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if !right {
			list[0]++
		}
		doc, err := json.Marshal(map[string][]int32{"a b": list})
		if err != nil {
			t.Fatal(err)
		}
		golden.Content = tensor.BytesBlob("golden", doc)
		in := input(t, "n.cact", read(t, "cact/needle2-a-w4.cact"), golden)
		res, err := gates.NewTokenizer(recipes.TokenizerGate{File: "golden"}).Check(t.Context(), in)
		if err != nil || len(res) != 1 || res[0].Pass != right {
			t.Errorf("%v: %+v, %v", right, res, err)
		}
	}
}

// TestNeedleBuild judges an archive beside the checkpoint and the SentencePiece model
// that it was made of, and one whose tokenizer comes out of another archive.
func TestNeedleBuild(t *testing.T) {
	const p = "text: text, context: 32, chunks: 2, "
	for _, tok := range []string{"models/stories260k/tokenizer.model", "cact/needle2-a-w4.cact"} {
		b := bench{base: abs(t, "cact/needle2-a.safetensors"), steps: "quantize: {type: CQ4, group: 128}", outputs: "{format: cact, generation: 2, file: n.cact}",
			sources: []string{fmt.Sprintf("tokenizer: {file: %q}", abs(t, tok))}}
		res, _ := b.passes(t, "perplexity: {"+p+"max-increase: 30 %}", "kl-divergence: {"+p+"max: 1}", "tokenizer: {}", "tokens: {prompt: Once, expect: [403]}", "tensors: {min-snr-db: 15}")
		// A few weights have gone, so that the archive is not its own baseline.
		if r := res.Gates[0]; r.Value == 0 || r.NotComparable {
			t.Errorf("%+v", r)
		}
		if r := res.Gates[1]; !(r.Value > 0) {
			t.Errorf("%+v", r)
		}
		b.fails(t, "kl-divergence: {"+p+"max: 0}", "from the source is 0.", "beyond the limit of 0 nats")
	}
}

// TestNeedleArithmetic: what judges an archive computes as Needle's engine does unless
// the recipe says otherwise; what compares with goldens computes as the commands do
// that make them, and other formats are judged by exact arithmetic.
func TestNeedleArithmetic(t *testing.T) {
	needle := bench{base: abs(t, "cact/needle2-a.safetensors"), outputs: "{format: cact, generation: 2, file: n.cact}",
		sources: []string{fmt.Sprintf("tokenizer: {file: %q}", abs(t, "models/stories260k/tokenizer.model"))}}
	const p = "text: text, context: 32, chunks: 2, "
	list := func(act string) []string {
		return []string{"perplexity: {" + p + "max: 1e9, max-increase: 900 %" + act + "}", "bits-per-byte: {" + p + "max: 1e9" + act + "}", "kl-divergence: {" + p + "max: 9" + act + "}",
			"loops: {text: text, max: 100 %, answers: 2, tokens: 8, prompt: 4" + act + "}"}
	}
	results := func(b bench, act string) string {
		t.Helper()
		res, _ := b.passes(t, list(act)...)
		doc, err := json.Marshal(res.Gates)
		if err != nil {
			t.Fatal(err)
		}
		return string(doc)
	}
	exact, q8 := results(needle, ", act: exact"), results(needle, ", act: q8")
	if exact == q8 || strings.Contains(q8, `"act":"exact"`) {
		t.Errorf("exact:\n%s\nq8:\n%s", exact, q8)
	}
	if got := results(needle, ""); got != q8 {
		t.Errorf("archive:\n%s\nwant:\n%s", got, q8)
	}
	if got, want := results(bench{}, ""), results(bench{}, ", act: exact"); got != want {
		t.Errorf("GGUF:\n%s\nwant:\n%s", got, want)
	}
	_, dir := needle.passes(t, "tensors: {min-snr-db: 15}")
	s, err := open(t, filepath.Join(dir, "n.cact")).NewSession(infer.SessionOptions{Context: 1})
	if err != nil {
		t.Fatal(err)
	}
	var rows []byte
	if err := s.Eval(t.Context(), []int32{403}, []int{0}, func(_ int, logits []float32) error {
		rows = infer.AppendLogits(rows, logits)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	sum := digest.Of(rows).Hex()
	needle.passes(t, "logits: {ids: [403], sha256: "+sum+"}")
	needle.fails(t, "logits: {ids: [403], act: q8, sha256: "+sum+"}", "SHA-256")
}

// TestBrokenFile: a file that cannot be run fails its gates.
func TestBrokenFile(t *testing.T) {
	_, dir := bench{}.passes(t, "tensors: {min-snr-db: 30}")
	whole, err := os.ReadFile(filepath.Join(dir, "x.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	list := []pipeline.Gate{
		gates.NewPerplexity(recipes.PerplexityGate{Text: "text", Context: 16, Chunks: 2, Max: number(100)}),
		gates.NewDivergence(recipes.DivergenceGate{Text: "text", Context: 16, Chunks: 2, Baseline: "source", Max: number(100)}),
		gates.NewTokens(recipes.TokensGate{IDs: []int32{1}, Expect: []int32{403}}),
		gates.NewLogits(recipes.LogitsGate{IDs: []int32{1}, SHA256: strings.Repeat("0", 64)}),
		gates.NewTokenizer(recipes.TokenizerGate{}),
	}
	for what, b := range map[string][]byte{
		"cut": whole[:len(whole)/2], "no model": []byte("nothing at all"), "empty": {},
		"a missing tensor": bytes.Replace(whole, []byte("blk.0.attn_q.weight"), []byte("blk.0.attn_x.weight"), 1),
	} {
		for _, g := range list {
			if what == "cut" || what == "a missing tensor" {
				if g.Name() == "tokenizer" {
					continue // its header is whole
				}
			}
			res, err := g.Check(t.Context(), input(t, "x.gguf", b))
			if err != nil || len(res) != 1 || res[0].Pass || res[0].Output != "x.gguf" || !strings.Contains(res[0].Text, "x.gguf cannot be run: ") {
				t.Errorf("%s: %s: %+v, %v", what, g.Name(), res, err)
			}
		}
	}
}

// TestJobsDoNotMatter is case 128 of docs/pitfalls.md: results are equal to the
// last digit for any number of workers, so that limits need no allowance.
func TestJobsDoNotMatter(t *testing.T) {
	const p = "text: text, context: 64, chunks: 2, "
	var first []byte
	for _, jobs := range []int{1, 2, 7} {
		for _, act := range []string{"exact", "q8"} {
			b := bench{steps: q4_0, jobs: jobs}
			res, _ := b.passes(t, "perplexity: {"+p+"max: 100, max-increase: 100 %, act: "+act+"}", "bits-per-byte: {"+p+"max: 100, act: "+act+"}",
				"kl-divergence: {"+p+"max: 100, min-top-1: 0, act: "+act+"}", "loops: {text: text, max: 100 %, answers: 2, tokens: 40, temperature: 1, act: "+act+"}", "tokenizer: {}")
			doc, err := json.Marshal(res.Gates)
			if err != nil {
				t.Fatal(err)
			}
			if act == "exact" && first == nil {
				first = doc
			}
			if act == "exact" && !bytes.Equal(doc, first) {
				t.Errorf("jobs %d:\n%s\n%s", jobs, doc, first)
			}
			if act == "q8" && bytes.Equal(doc, first) {
				t.Error("8-bit activations change nothing")
			}
		}
	}
}

// TestSharedScores: a model is run once over a text, whatever gates ask. Another
// file under the same name would give another score.
func TestSharedScores(t *testing.T) {
	p := recipes.ScoreGate{Text: "text", Context: 16, Chunks: 2, Max: number(0)}
	memo := &pipeline.Memo{}
	check := func(g pipeline.Gate, file string, memo *pipeline.Memo) float64 {
		t.Helper()
		in := input(t, "n.cact", read(t, "cact/"+file))
		in.Memo = memo
		res, err := g.Check(t.Context(), in)
		if err != nil || len(res) != 1 {
			t.Fatalf("%+v, %v", res, err)
		}
		return res[0].Value
	}
	ppl, bpb := gates.NewPerplexity(recipes.PerplexityGate(p)), gates.NewBitsPerByte(recipes.BitsPerByteGate(p))
	first := check(ppl, "needle2-a-w4.cact", memo)
	if kept := check(ppl, "needle2-b-w4.cact", memo); kept != first {
		t.Errorf("%v, then %v", first, kept)
	}
	if a, b := check(bpb, "needle2-b-w4.cact", memo), check(bpb, "needle2-a-w4.cact", nil); a != b {
		t.Errorf("%v, alone %v", a, b)
	}
	p.Chunks++
	if other := check(gates.NewPerplexity(recipes.PerplexityGate(p)), "needle2-a-w4.cact", memo); other == first {
		t.Error("another number of chunks gives the same score")
	}
	if a, b := check(ppl, "needle2-a-w4.cact", nil), check(ppl, "needle2-b-w4.cact", nil); a != first || a == b {
		t.Errorf("%v and %v", a, b)
	}
}
