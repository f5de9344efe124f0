package gates_test

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"quern/internal/digest"
	"quern/pipeline"
	infer "quern/runtime"
	"quern/runtime/generate"
)

// TestTokens follows the golden's greedy tokens, from text, from ids and from
// files.
func TestTokens(t *testing.T) {
	g := readGolden(t)
	// The first four are those of the text.
	const prompt = "Once upon a time"
	if !slices.Equal(g.Greedy[1:5], g.Cases[prompt]) {
		t.Fatalf("%v and %v", g.Greedy[:5], g.Cases[prompt])
	}
	rest := g.Greedy[5:45]
	type answer struct {
		Prompt string  `json:"prompt,omitempty"`
		IDs    []int32 `json:"prompt_tokens,omitempty"`
		Tokens []int32 `json:"tokens"`
		Text   string  `json:"text"`
	}
	one := write(t, "one.json", answer{IDs: g.Greedy[:1], Tokens: g.Greedy[1:30], Text: "Once"})
	two := []answer{{Prompt: prompt, Tokens: rest[:3]}, {IDs: g.Greedy[:5], Tokens: rest}}
	b := bench{outputs: f32, sources: []string{fmt.Sprintf("one: {file: %q}", one), fmt.Sprintf("two: {file: %q}", write(t, "two.json", two))}}
	res, _ := b.passes(t,
		"tokens: {prompt: "+prompt+", expect: "+ids(rest)+"}", "tokens: {ids: "+ids(g.Greedy[:1])+", expect: "+ids(g.Greedy[1:20])+"}",
		"tokens: {file: one}", "tokens: {file: two}")
	if n := len(res.Gates); n != 5 {
		t.Errorf("%d results", n)
	}
	if r := res.Gates[0]; r.Value != 40 || r.Limit != 40 {
		t.Errorf("%+v", r)
	}
	b.sources = nil
	wrong := slices.Clone(rest)
	wrong[12] ^= 1
	r := b.fails(t, "tokens: {prompt: "+prompt+", expect: "+ids(wrong)+"}",
		fmt.Sprintf(`x.gguf: answer to "Once upon a time" has 12 of 40 golden tokens, then %d (`, rest[12]), fmt.Sprintf(" in place of %d (", wrong[12]))
	if r.Value != 12 {
		t.Errorf("%+v", r)
	}
	b.refuses(t, pipeline.ErrRecipe, "tokens: {ids: [512], expect: [1]}", "no such token")
	for content, says := range map[string]string{
		`{"tokens": [1]}`: "neither prompt nor prompt_tokens", `[]`: "the list is empty", `[{"prompt": "a"}]`: "answer 1 has no tokens", `[1]`: "no golden tokens", ``: "no golden tokens",
	} {
		bad := bench{sources: []string{fmt.Sprintf("bad: {file: %q}", write(t, "bad.json", []byte(content)))}}
		bad.refuses(t, pipeline.ErrSource, "tokens: {file: bad}", "source bad", says)
	}
	bench{}.refuses(t, pipeline.ErrRecipe, "tokens: {file: base}", "source base is a model")
}

// TestLogits compares with the golden's float64 logits, and with a digest.
func TestLogits(t *testing.T) {
	g := readGolden(t)
	b := bench{outputs: f32, sources: []string{fmt.Sprintf("golden: {file: %q}", abs(t, "golden/runtime/stories260k-logits.safetensors"))}}
	res, dir := b.passes(t, "logits: {file: golden, max-abs: 2e-4}")
	if r := res.Gates[0]; !(r.Value > 0 && r.Value < 2e-4) || !strings.Contains(r.Text, "differ from the golden ones by ") {
		t.Errorf("%+v", r)
	}
	b.fails(t, "logits: {file: golden}", "logits of x.gguf differ from the golden ones by ", " beyond the limit of 0", "for id ", "after token ")
	b.refuses(t, pipeline.ErrSource, "logits: {file: golden, ids: [1, 2]}", "112 other ids than the gate's 2")

	s, err := open(t, filepath.Join(dir, "x.gguf")).NewSession(infer.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var rows []byte
	list := g.Greedy[:6]
	err = s.Eval(t.Context(), list, []int{0, 1, 2, 3, 4, 5}, func(_ int, logits []float32) error {
		rows = infer.AppendLogits(rows, logits)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	sum := digest.Of(rows)
	b.sources = nil
	b.passes(t, "logits: {ids: "+ids(list)+", sha256: "+sum.Hex()+"}")
	other := hex.EncodeToString(append([]byte{sum[0] ^ 1}, sum[1:]...))
	b.fails(t, "logits: {ids: "+ids(list)+", sha256: "+other+"}", "logits of x.gguf have SHA-256 "+sum.Hex()+", the golden is "+other)
	// Other weights, and these in other arithmetic.
	exact := bench{steps: q4_0}.fails(t, "logits: {ids: "+ids(list)+", sha256: "+sum.Hex()+"}", "the golden is")
	q8 := bench{steps: q4_0}.fails(t, "logits: {ids: "+ids(list)+", sha256: "+sum.Hex()+", act: q8}", "the golden is")
	if exact.Text == q8.Text {
		t.Error(q8.Text)
	}
	for name, says := range map[string]string{"models/stories260k/model.safetensors": "no tensor is called logits", "models/README.md": "source bad"} {
		bad := bench{sources: []string{fmt.Sprintf("bad: {file: %q}", abs(t, name))}}
		bad.refuses(t, pipeline.ErrSource, "logits: {file: bad}", says)
	}
}

// TestLoops counts as quern loops does.
func TestLoops(t *testing.T) {
	const p = "text: text, answers: 4, tokens: 96, prompt: 4"
	b := bench{}
	res, dir := b.passes(t, "loops: {"+p+", max: 100 %}", "loops: {"+p+", max: 100 %, temperature: 0.9, seed: 3, top-k: 0, top-p: 1, min-p: 0, repeat-penalty: 1.2}")
	m := open(t, filepath.Join(dir, "x.gguf"))
	opt := generate.LoopOptions{Answers: 4, Tokens: 96, Prompt: 4}
	greedy, err := generate.TestLoops(t.Context(), m, string(evalText(t)), opt)
	if err != nil {
		t.Fatal(err)
	}
	opt.Sampling = generate.Sampling{Temperature: 0.9, Seed: 3, TopP: 1, RepeatPenalty: 1.2}
	drawn, err := generate.TestLoops(t.Context(), m, string(evalText(t)), opt)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := res.Gates[0].Value, res.Gates[1].Value; a != greedy.Share || b != drawn.Share {
		t.Errorf("%v and %v, want %v and %v", a, b, greedy.Share, drawn.Share)
	}
	// A model that repeats itself: every weight of its matrices is lost.
	broken := bench{base: flat(t)}
	r := broken.fails(t, "loops: {"+p+", max: 50 %}", "4 of 4 answers of x.gguf fall into a loop", " 50 % beyond the limit of 50 %")
	if r.Value != 1 {
		t.Errorf("%+v", r)
	}
	b.refuses(t, pipeline.ErrRecipe, "loops: {text: text, max: 0, answers: 10000}", "source text", "too short")
	// Beside a baseline: the source does no better than its own F16, the broken one
	// loops as often as the broken source and more often than a good model.
	res, _ = b.passes(t, "loops: {"+p+", max-increase: 0 %}")
	if r := res.Gates[0]; r.Value != 0 || !strings.Contains(r.Text, " of 4 of the source, within the limit of 0 %") {
		t.Errorf("%+v", r)
	}
	broken.passes(t, "loops: {"+p+", max-increase: 0 %}")
	broken.sources = []string{fmt.Sprintf("good: {dir: %q}", abs(t, "models/stories260k"))}
	r = broken.fails(t, "loops: {"+p+", baseline: good, max-increase: 5 %}", "4 of 4 answers of x.gguf fall into a loop", " of 4 of baseline good, ", " beyond the limit of 5 %")
	if doc, err := json.Marshal(r); err != nil || !strings.Contains(string(doc), `"settings":{"answers":4,"tokens":96,"prompt":4,"act":"exact"`) {
		t.Errorf("%s, %v", doc, err)
	}
	b.refuses(t, pipeline.ErrRecipe, "loops: {text: text, baseline: text, max-increase: 1 %}", "source text is no model")
}

// TestTokenizer is case 47 of docs/pitfalls.md: forty strings, by the source's
// tokenizer.json where it has one, and strings of a file.
func TestTokenizer(t *testing.T) {
	g := readGolden(t)
	text := "{"
	for i, s := range []string{"hello world", "caf\u00e9 na\u00efve", "don't"} {
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprintf("%q: %s", s, ids(g.Cases[s]))
	}
	right := write(t, "right.json", []byte(text+"}"))
	wrong := write(t, "wrong.json", []byte(text+`, "<s>": [1], "two": [3]}`))
	b := bench{sources: []string{fmt.Sprintf("cases: {file: %q}", write(t, "all.json", g.Cases)), fmt.Sprintf("right: {file: %q}", right)}}
	res, _ := b.passes(t, "tokenizer: {}", "tokenizer: {file: cases}", "tokenizer: {file: right}")
	if r := res.Gates[0]; r.Value != 0 || !strings.Contains(r.Text, "for 0 of 4") {
		t.Errorf("%+v", r)
	}
	b.sources = []string{fmt.Sprintf("wrong: {file: %q}", wrong)}
	b.fails(t, "tokenizer: {file: wrong}", "x.gguf gives other ids for 2 of 5 golden strings, the first is \"<s>\"", " where [1] is right, 2 beyond the limit of 0")
	b.fails(t, "tokenizer: {file: wrong, parse-special: true}", "for 1 of 5 golden strings, the first is \"two\"")
	b.passes(t, "tokenizer: {file: wrong, max: 2}")
	for content, says := range map[string]string{`{}`: "it is empty", `[]`: "a mapping", `{"a": [1], "a": [2]}`: "\"a\" comes twice", `{"a": 1}`: "\"a\"", `{"a": [1]} 1`: "behind the mapping"} {
		bad := bench{sources: []string{fmt.Sprintf("bad: {file: %q}", write(t, "bad.json", []byte(content)))}}
		bad.refuses(t, pipeline.ErrSource, "tokenizer: {file: bad}", "source bad", says)
	}
}
