package recipes

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	testHead = "version: 1\nname: x\nsources:\n  base: {dir: m}\n"
	testOut  = "outputs:\n  - {format: gguf, file: x.gguf}\n"
)

// extended is the language with steps and a gate that name sources and results
// in all ways.
func extended() *language {
	type made struct {
		Text   string
		Corpus []string
		Tokens string
	}
	lang := newLanguage()
	mk := func(name string, makes bool) *object {
		return &object{name: name, makesModel: makes, new: func() any { return new(made) }, fields: []field{
			{key: "text", goName: "Text", kind: kindSource, noDef: "none"},
			{key: "corpus", goName: "Corpus", kind: kindSource, list: true, noDef: "none"},
			{key: "tokens", goName: "Tokens", kind: kindResult, noDef: "none"},
			idField(),
		}}
	}
	lang.steps = append(lang.steps, mk("select", false), mk("gather", true))
	lang.gates = append(lang.gates, mk("probe", false))
	return lang
}

func parseExtended(text string) error {
	c := &checker{lang: extended()}
	c.parse("x", []byte(text), Options{})
	if len(c.errs) == 0 {
		return nil
	}
	c.errs.sort()
	return c.errs
}

func TestReferences(t *testing.T) {
	head := "version: 1\nname: x\nsources:\n  base: {dir: m}\n  text: {file: t}\n  more: {file: u}\n"
	steps := "steps:\n  - select: {id: keep, corpus: [text, more]}\n  - select: {tokens: keep}\n"
	for _, x := range []struct{ name, text, want string }{
		{"all used", head + steps + testOut + "gates:\n  - probe: {text: text, tokens: keep}\n", ""},
		{"gate names a source", head + "steps:\n  - select: {text: more}\n" + testOut + "gates:\n  - probe: {text: text}\n", ""},
		{"result may be a source", head + "steps:\n  - select: {text: more, tokens: text}\n" + testOut, ""},
		{"unused", head + "steps:\n  - select: {text: text}\n" + testOut, "x:6:3: sources.more: unused source"},
		{"misspelt source", head + "steps:\n  - select: {corpus: [txet, more]}\n" + testOut,
			"x:5:3: sources.text: unused source: no step or gate names it\nx:8:23: steps.0.select.corpus.0: nothing has the name \"txet\"; did you mean text?"},
		{"later id", head + "steps:\n  - select: {tokens: keep}\n  - select: {id: keep, corpus: [text, more]}\n" + testOut,
			"x:8:22: steps.0.select.tokens: the step with the id keep comes later"},
		{"own id", head + "steps:\n  - select: {id: keep, tokens: keep, corpus: [text, more]}\n" + testOut,
			"comes later"},
		{"id where a source is needed", head + "steps:\n  - select: {id: keep, corpus: [text, more]}\n  - select: {text: keep}\n" + testOut,
			"x:9:20: steps.1.select.text: keep is the id of a step; a source is needed"},
		{"unknown id", head + steps + testOut + "gates:\n  - probe: {tokens: kep}\n",
			"gates.0.probe.tokens: nothing has the name \"kep\"; did you mean keep?"},
		{"no base", "version: 1\nname: x\nsources:\n  fine: {dir: m}\nsteps:\n  - select: {text: fine}\n" + testOut, "no source is called base"},
		{"a step makes the model", "version: 1\nname: x\nsources:\n  fine: {dir: m}\nsteps:\n  - gather: {text: fine}\n" + testOut, ""},
	} {
		t.Run(x.name, func(t *testing.T) {
			err := parseExtended(x.text)
			switch {
			case x.want == "" && err != nil:
				t.Error(err)
			case x.want != "" && (err == nil || !strings.Contains(err.Error(), x.want)):
				t.Errorf("got %v, want %s", err, x.want)
			}
		})
	}
}

func TestSetDottedNames(t *testing.T) {
	c := &checker{lang: extended()}
	text := "version: 1\nname: x\nsources:\n  base: {dir: m}\n  text: {file: a}\n  text.v2: {file: b}\nsteps:\n  - select: {corpus: [text, text.v2]}\n" + testOut
	r := c.parse("x", []byte(text), Options{Set: []string{"sources.text.v2.file=c", "sources.text.file=d"}})
	if len(c.errs) > 0 {
		t.Fatal(c.errs)
	}
	if got := r.Source("text.v2").Value + r.Source("text").Value; got != "cd" {
		t.Errorf("got %s", got)
	}
}

func TestReadFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "r.yaml")
	if _, err := ReadFile(path, Options{}); !errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrRecipe) {
		t.Errorf("missing file: %v", err)
	}
	if err := os.WriteFile(path, []byte(testHead+testOut), 0o644); err != nil {
		t.Fatal(err)
	}
	r, err := ReadFile(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if r.File != path || r.Dir != dir {
		t.Errorf("file %s, dir %s", r.File, r.Dir)
	}
	if got := r.Path(r.Source("base")); got != filepath.Join(dir, "m") {
		t.Errorf("path %s", got)
	}
	abs := filepath.Join(dir, "elsewhere")
	if got := r.Path(&Source{Value: abs}); got != abs {
		t.Errorf("path %s", got)
	}
}

func TestSizeLimit(t *testing.T) {
	text := testHead + testOut
	long := text + strings.Repeat("#", DefaultMaxBytes-len(text))
	if _, err := Parse("x", []byte(long), Options{}); err != nil {
		t.Errorf("at the limit: %v", err)
	}
	if _, err := Parse("x", []byte(long+"#"), Options{}); err == nil || !strings.Contains(err.Error(), "1048576") {
		t.Errorf("over the limit: %v", err)
	}
	path := filepath.Join(t.TempDir(), "r.yaml")
	if err := os.WriteFile(path, []byte(long+"##"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadFile(path, Options{}); !errors.Is(err, ErrRecipe) {
		t.Errorf("file over the limit: %v", err)
	}
	if _, err := Parse("x", []byte(text), Options{MaxBytes: 10}); !errors.Is(err, ErrRecipe) {
		t.Errorf("own limit: %v", err)
	}
}

func mustParse(t *testing.T, text string) *Recipe {
	t.Helper()
	r, err := Parse("x", []byte(text), Options{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestCanonicalSame: what means the same looks the same.
func TestCanonicalSame(t *testing.T) {
	a := mustParse(t, `version: 1
name: x
sources:
  tokenizer: {file: /abs/tok.model}
  base: {hf: org/name}
steps:
  - tie-head: {force: false}
  - quantize: {type: q4_0, pure: false}
outputs:
  - {format: kmcu, file: x, flash: 2MiB, align: row}
`)
	b := mustParse(t, `# other order, spelling, defaults and place
name: "x"
version: 1
outputs: [{file: x, format: kmcu, flash: 2097152}]
steps: [{tie-head: }, {quantize: {type: Q4_0}}]
sources: {base: {hf: org/name@main}, tokenizer: {file: tok.model}}
`)
	if x, y := string(a.Canonical()), string(b.Canonical()); x != y {
		t.Errorf("%s\n%s", x, y)
	}
	want := `{"version":1,"name":"x","sources":{"base":{"hf":"org/name@main"},"tokenizer":{"file":""}},"steps":[{"tie-head":{}},{"quantize":{"type":"Q4_0"}}],"outputs":[{"format":"kmcu","file":"x","flash":2097152}],"gates":[]}`
	if got := string(a.Canonical()); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

// TestKeysChange: each parameter changed alone changes the canonical form, and
// the step's or output's key unless it is only a name.
func TestKeysChange(t *testing.T) {
	step := func(s string) (string, string) {
		r := mustParse(t, testHead+"steps:\n  - "+s+"\n"+testOut)
		return r.Steps[0].Key(), string(r.Canonical())
	}
	output := func(s string) (string, string) {
		r := mustParse(t, testHead+"outputs:\n  - "+s+"\n")
		return r.Outputs[0].Key(), string(r.Canonical())
	}
	for _, x := range []struct {
		get     func(string) (string, string)
		a, b    string
		sameKey bool
	}{
		{step, "tie-head: {}", "tie-head: {force: true}", false},
		{step, "pad: {ffn: 32}", "pad: {ffn: 64}", false},
		{step, "pad: {ffn: 32}", "pad: {vocab: 32}", false},
		{step, "convert:", "convert: {outtype: f32}", false},
		{step, "convert:", "convert: {model-name: a}", false},
		{step, "quantize: {type: Q8_0}", "quantize: {type: Q4_0}", false},
		{step, "quantize: {type: Q8_0}", "quantize: {preset: Q8_0}", false},
		{step, "quantize: {preset: Q8_0}", "quantize: {preset: Q8_0, pure: true}", false},
		{step, "quantize: {type: Q8_0}", "quantize: {type: Q8_0, fallback: F16}", false},
		{step, "quantize: {type: Q8_0}", "quantize: {type: Q8_0, output-type: F16}", false},
		{step, "quantize: {type: Q8_0}", "quantize: {type: Q8_0, embedding-type: F16}", false},
		{step, "quantize: {type: Q8_0}", "quantize: {type: Q8_0, allow-requantize: true}", false},
		{step, "quantize: {type: Q8_0}", "quantize: {type: Q8_0, rules: [{match: a, type: F16}]}", false},
		{step, "quantize: {type: Q8_0, rules: [{match: a, type: F16}]}", "quantize: {type: Q8_0, rules: [{match: b, type: F16}]}", false},
		{step, "quantize: {type: Q8_0, rules: [{match: a, type: F16}]}", "quantize: {type: Q8_0, rules: [{match: a, type: F32}]}", false},
		{step, "quantize: {type: Q8_0, rules: [{match: a, type: F16}]}", "quantize: {type: Q8_0, rules: [{match: a, role: head, type: F16}]}", false},
		{step, "pad: {ffn: 32}", "pad: {ffn: 32, id: a}", true},
		{output, "{format: gguf, file: a}", "{format: gguf, file: b}", true},
		{output, "{format: gguf, file: a}", "{format: gguf, file: a, outtype: f32}", false},
		{output, "{format: gguf, file: a}", "{format: kmcu, file: a}", false},
		{output, "{format: kmcu, file: a}", "{format: kmcu, file: a, flash: 1MiB}", false},
		{output, "{format: kmcu, file: a}", "{format: kmcu, file: a, align: none}", false},
		{output, "{format: kmcu, file: a}", "{format: kmcu, file: a, max-seq: 8}", false},
	} {
		ak, ac := x.get(x.a)
		bk, bc := x.get(x.b)
		if ac == bc {
			t.Errorf("%s and %s: both %s", x.a, x.b, ac)
		}
		if (ak == bk) != x.sameKey {
			t.Errorf("%s and %s: keys %s and %s", x.a, x.b, ak, bk)
		}
		for _, s := range []string{ak, ac, bk, bc} {
			if !json.Valid([]byte(s)) {
				t.Errorf("not JSON: %s", s)
			}
		}
	}
}

func TestNearest(t *testing.T) {
	keys := []string{"version", "name", "sources", "steps", "outputs", "gates", "min-snr-db"}
	for word, want := range map[string]string{
		"verison": "version", "Name": "name", "source": "sources", "step": "steps", "ouptuts": "outputs",
		"min_snr_db": "min-snr-db", "MIN-SNR-DB": "min-snr-db", "frobnicate": "", "x": "", "": "", "gtaes": "gates",
		strings.Repeat("version", 10000): "",
	} {
		if got := nearest(word, keys); got != want {
			t.Errorf("nearest(%.20q) = %q, want %q", word, got, want)
		}
	}
}

func TestEditDistance(t *testing.T) {
	for _, x := range []struct {
		a, b string
		d    int
	}{{"", "", 0}, {"", "abc", 3}, {"abc", "abc", 0}, {"abc", "acb", 1}, {"abc", "abd", 1}, {"kitten", "sitting", 3}, {"ca", "abc", 3}} {
		if d := editDistance([]rune(x.a), []rune(x.b)); d != x.d {
			t.Errorf("%q %q: %d, want %d", x.a, x.b, d, x.d)
		}
		if d := editDistance([]rune(x.b), []rune(x.a)); d != x.d {
			t.Errorf("%q %q: %d, want %d", x.b, x.a, d, x.d)
		}
	}
}

// TestManyErrors: all faults are kept, the message is cut.
func TestManyErrors(t *testing.T) {
	var b strings.Builder
	b.WriteString(testHead + testOut)
	for i := range 200 {
		fmt.Fprintf(&b, "zz%d: 1\n", i)
	}
	_, err := Parse("x", []byte(b.String()), Options{})
	list, ok := errors.AsType[Errors](err)
	if !ok || len(list) != 200 {
		t.Fatalf("%d errors", len(list))
	}
	for i := 1; i < len(list); i++ {
		if list[i-1].Pos.Line >= list[i].Pos.Line {
			t.Fatalf("not sorted at %d", i)
		}
	}
	if lines := strings.Count(err.Error(), "\n") + 1; lines != maxShown+1 || !strings.HasSuffix(err.Error(), "and 150 more") {
		t.Errorf("%d lines:\n%s", lines, err)
	}
}

// TestPresets: quantize takes every preset of the table.
func TestPresets(t *testing.T) {
	if len(Presets()) < 8 {
		t.Fatal(Presets())
	}
	for _, p := range Presets() {
		r := mustParse(t, testHead+"steps:\n  - quantize: {preset: "+strings.ToLower(p)+"}\n"+testOut)
		if got := r.Steps[0].Params.(Quantize).Preset; got != p {
			t.Errorf("%s became %s", p, got)
		}
	}
}

// TestCanonicalReparses: the canonical form is a recipe of the same meaning,
// once local sources have a path again.
func TestCanonicalReparses(t *testing.T) {
	n := 0
	for _, file := range goldens(t) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		r, err := Parse("x", text, Options{Set: setLines(text)})
		if err != nil {
			continue
		}
		n++
		first := string(r.Canonical())
		again := strings.NewReplacer(`"dir":""`, `"dir":"m"`, `"file":""`, `"file":"m"`, `"gguf":""`, `"gguf":"m"`).Replace(first)
		r, err = Parse("x", []byte(again), Options{})
		if err != nil {
			t.Errorf("%s: %v in %s", file, err, again)
			continue
		}
		if got := string(r.Canonical()); got != first {
			t.Errorf("%s: %s became %s", file, first, got)
		}
	}
	if n < 20 {
		t.Errorf("only %d recipes", n)
	}
}

func TestParseSize(t *testing.T) {
	for s, want := range map[string]int64{"0": 0, "4096": 4096, "64MiB": 64 << 20, "4GiB": 4 << 30, "1.5KB": 1500, "": -1, "2M": -1, "-1": -1, "010": -1, "9223372036854775808": -1, "1.5": -1} {
		got, err := ParseSize(s)
		if (want < 0) != (err != nil) || err == nil && got != want {
			t.Errorf("%q: %d, %v", s, got, err)
		}
	}
}
