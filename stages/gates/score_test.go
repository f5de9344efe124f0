package gates_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"quern/pipeline"
	infer "quern/runtime"
	"quern/runtime/score"
)

const (
	f32  = "{format: gguf, file: x.gguf, outtype: f32}"
	q4_0 = "quantize: {type: Q4_0, fallback: F16}"
)

// TestPerplexityOfTheGolden: the gate's number is the float64 one of the golden,
// and the limit lies where it says.
func TestPerplexityOfTheGolden(t *testing.T) {
	g := readGolden(t)
	b := bench{outputs: f32}
	gate := func(max float64) string {
		return fmt.Sprintf("perplexity: {text: text, context: 256, max: %.6f}", max)
	}
	res, _ := b.passes(t, gate(g.Perplexity+1e-4))
	if v := res.Gates[0].Value; v < g.Perplexity-1e-4 || v > g.Perplexity+1e-4 {
		t.Errorf("%v, the golden is %v", v, g.Perplexity)
	}
	if text := res.Gates[0].Text; !strings.HasPrefix(text, "perplexity of x.gguf is 4.8276 +/- 0.3") || !strings.HasSuffix(text, ", within the limit of 4.82775") {
		t.Error(text)
	}
	r := b.fails(t, gate(4.75), "r.yaml:9:5: perplexity of x.gguf is 4.8276 +/- 0.3", ", 0.07765 beyond the limit of 4.75")
	if r.Value != res.Gates[0].Value || r.Limit != 4.75 || r.Gate != "perplexity" || r.Output != "x.gguf" {
		t.Errorf("%+v", r)
	}
}

// TestScoresAreTheCommands: what the gates find is what quern ppl does with the
// written file.
func TestScoresAreTheCommands(t *testing.T) {
	b := bench{steps: q4_0}
	for act, opt := range map[string]score.Options{"exact": {Context: 64, Chunks: 3}, "q8": {Context: 64, Chunks: 3, Act: 1}} {
		p := "text: text, context: 64, chunks: 3, act: " + act
		res, dir := b.passes(t, "perplexity: {"+p+", max: 100}", "bits-per-byte: {"+p+", max: 100}", "kl-divergence: {"+p+", max: 100, min-top-1: 0}")
		m := open(t, filepath.Join(dir, "x.gguf"))
		// Of 8-bit activations llama.cpp's order is the default.
		if opt.Order = infer.ScoreOrder(opt.Act, m); opt.Order.String() != map[string]string{"exact": "quern", "q8": "ggml"}[act] {
			t.Errorf("%s in the order %v", act, opt.Order)
		}
		want, err := score.Measure(t.Context(), m, evalText(t), opt)
		if err != nil {
			t.Fatal(err)
		}
		if a, b := res.Gates[0].Value, res.Gates[1].Value; a != want.Perplexity || b != want.BitsPerByte {
			t.Errorf("%s: %v and %v, want %v and %v", act, a, b, want.Perplexity, want.BitsPerByte)
		}
		// The source as it converts to F16.
		_, f16 := bench{}.passes(t, "perplexity: {text: text, max: 100}")
		d, err := score.Diverge(t.Context(), open(t, filepath.Join(f16, "x.gguf")), m, evalText(t), opt)
		if err != nil {
			t.Fatal(err)
		}
		if a, b := res.Gates[2].Value, res.Gates[3].Value; a != d.Mean || b != d.SameTop || !(d.Mean > 0) {
			t.Errorf("%s: %v and %v, want %v and %v", act, a, b, d.Mean, d.SameTop)
		}
	}
}

// TestBaselines: against the model that the file was made of, another model and a
// score that was kept.
func TestBaselines(t *testing.T) {
	const p = "text: text, context: 128, "
	// The F16 file is the baseline itself.
	res, f16 := bench{}.passes(t, "perplexity: {"+p+"max-increase: 0%}", "bits-per-byte: {"+p+"max-increase: 0%}", "kl-divergence: {"+p+"max: 0, min-top-1: 100 %}")
	for _, r := range res.Gates[:3] {
		if r.Value != 0 {
			t.Errorf("%+v", r)
		}
	}
	file := filepath.Join(f16, "x.gguf")
	kept, err := score.Measure(t.Context(), open(t, file), evalText(t), score.Options{Context: 128})
	if err != nil {
		t.Fatal(err)
	}
	small := bench{steps: q4_0, sources: []string{
		fmt.Sprintf("f16: {gguf: %q}", file), fmt.Sprintf("folder: {dir: %q}", abs(t, "models/stories260k")),
		fmt.Sprintf("kept: {file: %q}", write(t, "kept.json", kept))}}
	all := func(max string) []string {
		var out []string
		for _, gate := range []string{"perplexity", "bits-per-byte"} {
			for _, base := range []string{"source", "f16", "folder", "kept"} {
				out = append(out, fmt.Sprintf("%s: {%s, baseline: %s, max-increase: %s}", gate, strings.TrimSuffix(p, ", "), base, max))
			}
		}
		return out
	}
	res, dir := small.passes(t, all("15 %")...)
	mine, err := score.Measure(t.Context(), open(t, filepath.Join(dir, "x.gguf")), evalText(t), score.Options{Context: 128})
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range res.Gates {
		want := mine.Perplexity/kept.Perplexity - 1
		if i >= 4 {
			want = mine.BitsPerByte/kept.BitsPerByte - 1
		}
		if r.Value != want || !(want > 0.001) || r.Limit != 0.15 {
			t.Errorf("%+v, want %v", r, want)
		}
	}
	small.sources = small.sources[:0]
	r := small.fails(t, "perplexity: {"+p+"max-increase: 0.1 %}", " of the source, ", " % beyond the limit of 0.1 %", " % above the ")
	if r.Value != res.Gates[0].Value {
		t.Errorf("%+v", r)
	}
	r = small.fails(t, "kl-divergence: {"+p+"max: 0.0001}", "x.gguf from the source is 0.", " nats beyond the limit of 0.0001 nats")
	small.fails(t, fmt.Sprintf("kl-divergence: {%smax: 1, min-top-1: 99.9%%}", p), " % under the limit of 99.9 %", "think the same token the most likely at ")
	if !(r.Value > 0.0001) {
		t.Errorf("%+v", r)
	}
	// Better than the baseline passes, and says so.
	res, _ = bench{sources: []string{fmt.Sprintf("small: {gguf: %q}", filepath.Join(dir, "x.gguf"))}}.passes(t, "perplexity: {"+p+"baseline: small, max-increase: 0%}")
	if r := res.Gates[0]; !(r.Value < 0) || !strings.Contains(r.Text, " % below the ") {
		t.Errorf("%+v", r)
	}
}

// TestNotComparable is case 125 of docs/pitfalls.md: scores of other settings
// neither pass nor fail by a number.
func TestNotComparable(t *testing.T) {
	_, dir := bench{}.passes(t, "perplexity: {text: text, max: 100}")
	kept, err := score.Measure(t.Context(), open(t, filepath.Join(dir, "x.gguf")), evalText(t), score.Options{Context: 64, Chunks: 4})
	if err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(*score.Perplexity){
		"text is":                     func(p *score.Perplexity) { p.Text[3]++ },
		"cut of the text into tokens": func(p *score.Perplexity) { p.Pieces[3]++ },
		"stride":                      func(p *score.Perplexity) { p.Stride = 32 },
		"first position scored":       func(p *score.Perplexity) { p.First = 0 },
		"tokens of the text":          func(p *score.Perplexity) { p.Tokens++ },
		"chunks":                      func(p *score.Perplexity) { p.Chunks-- },
		"context":                     func(p *score.Perplexity) { p.Context = 65 },
		"BOS in each chunk":           func(p *score.Perplexity) { p.BOS = false },
		"arithmetic":                  func(p *score.Perplexity) { p.Act = "q8" },
		"bytes scored":                func(p *score.Perplexity) { p.Bytes-- },
	} {
		p := *kept
		change(&p)
		b := bench{sources: []string{fmt.Sprintf("kept: {file: %q}", write(t, "kept.json", p))}}
		for _, gate := range []string{"perplexity", "bits-per-byte"} {
			r := b.fails(t, gate+": {text: text, context: 64, chunks: 4, baseline: kept, max-increase: 10 %}", "not comparable", what, "baseline kept")
			if !r.NotComparable {
				t.Errorf("%+v", r)
			}
		}
	}
	// A model whose tokenizer puts no BOS before the text.
	other := filepath.Join(t.TempDir(), "other")
	if err := os.CopyFS(other, os.DirFS(abs(t, "models/stories260k"))); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(other, "tokenizer_config.json")
	text, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	text = []byte(strings.Replace(string(text), `"add_bos_token": true`, `"add_bos_token": false`, 1))
	if err := errors.Join(os.Chmod(config, 0o644), os.WriteFile(config, text, 0o644)); err != nil {
		t.Fatal(err)
	}
	b := bench{sources: []string{fmt.Sprintf("other: {dir: %q}", other)}}
	for _, gate := range []string{
		"perplexity: {text: text, context: 64, chunks: 4, baseline: other, max-increase: 10 %}",
		"kl-divergence: {text: text, context: 64, chunks: 4, baseline: other, max: 1}",
	} {
		if r := b.fails(t, gate, "not comparable", "baseline other"); !r.NotComparable {
			t.Errorf("%+v", r)
		} else if doc, err := json.Marshal(r); err != nil || !strings.Contains(string(doc), `"not_comparable":true`) {
			t.Errorf("%s, %v", doc, err)
		}
	}
}

// TestScoreRefuses: wishes that cannot be met are errors of the recipe or of a
// source, and those that a look at the sources shows are found before anything is
// written.
func TestScoreRefuses(t *testing.T) {
	short := fmt.Sprintf("short: {file: %q}", write(t, "short.txt", []byte("Once upon a time")))
	bad := fmt.Sprintf("bad: {file: %q}", write(t, "bad.json", map[string]any{"context": 64, "perplexity": 3}))
	b := bench{sources: []string{short}}
	b.refuses(t, pipeline.ErrRecipe, "perplexity: {text: short, max: 5}", "r.yaml:", "source short", "16 bytes cannot have the 1024 tokens")
	b.refuses(t, pipeline.ErrRecipe, "perplexity: {text: short, context: 9, max: 5}", "source short", "too short")
	b.refuses(t, pipeline.ErrRecipe, "kl-divergence: {text: short, context: 9, max: 5}", "source short", "too short")
	bench{}.refuses(t, pipeline.ErrRecipe, "perplexity: {text: base, max: 5}", "source base is a model")
	b.refuses(t, pipeline.ErrRecipe, "kl-divergence: {text: text, baseline: short, max: 5}", "source short is no model")
	b = bench{sources: []string{bad}}
	b.refuses(t, pipeline.ErrSource, "perplexity: {text: text, baseline: bad, max-increase: 1 %}", "source bad", "chunks is missing")
}
