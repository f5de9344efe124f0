package convert

import (
	"fmt"
	"math"
	"reflect"
	"testing"

	"quern/formats/gguf"
	"quern/internal/pyjson"
)

// What PyYAML makes of plain scalars, by YAML 1.1.
func TestScalars(t *testing.T) {
	cases := map[string]any{
		"yes": true, "Off": false, "n": "n", "y": "y", "true": true, "TRUE": true, "tRUE": "tRUE",
		"~": nil, "null": nil, "Null": nil, "nULL": "nULL",
		"7": int64(7), "-7": int64(-7), "+7": int64(7), "0": int64(0), "010": int64(8), "0x1F": int64(31), "0b101": int64(5), "1_000": int64(1000),
		"1:30": int64(90), "08": "08", "1e5": "1e5", "1.0": 1.0, "1.5e+3": 1500.0, "1.5e3": "1.5e3", ".5": 0.5, "-.inf": math.Inf(-1), "1:30.5": 90.5,
		"1.": 1.0, "v1.0": "v1.0", "1.2.3": "1.2.3",
		"2024-01-31": otherYAML("a date"), "2024-1-31": "2024-1-31", "2001-12-14 21:59:43.10 -5": otherYAML("a date"),
		`"yes"`: "yes", "'7'": "7", "!!str 7": "7", "99999999999999999999": otherYAML("a number of more than 64 bits"),
	}
	for text, want := range cases {
		v, err := parseYAML("k: " + text + "\n")
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		got, _ := v.(*pyjson.Object).Get("k")
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %#v, want %#v", text, got, want)
		}
	}
	if v, err := parseYAML("a: &x {b: 1, c: 2}\nd:\n  <<: *x\n  c: 3\n"); err != nil {
		t.Error(err)
	} else {
		d, _ := v.(*pyjson.Object).Get("d")
		b, _ := d.(*pyjson.Object).Get("b")
		c, _ := d.(*pyjson.Object).Get("c")
		if b != int64(1) || c != int64(3) {
			t.Errorf("merged %v %v", b, c)
		}
	}
}

func TestFrontMatter(t *testing.T) {
	cases := map[string]string{
		"---\na: 1\n---\nbody":            "a: 1\n",
		"---\r\na: 1\r\n---\r\n":          "a: 1\n",
		"---\na: 1":                       "a: 1\n",
		"---\n---\n":                      "\n",
		"---\nlanguage:\n- no\n- en\n---": "language:\n- \"no\"\n- en\n",
		"---\na:\n\tb: 1\n---":            "a:\n  b: 1\n",
		"---\na: 1\u2028b: 2\n---":        "a: 1\nb: 2\n",
	}
	for text, want := range cases {
		if got, ok := frontMatter(text); got != want || !ok {
			t.Errorf("%q: %q %v, want %q", text, got, ok, want)
		}
	}
	for _, text := range []string{"", "# Title\n---\na: 1\n---\n", " ---\na: 1\n", "\ufeff---\na: 1\n---\n", "----\n"} {
		if got, ok := frontMatter(text); ok {
			t.Errorf("%q: %q", text, got)
		}
	}
}

// A card that cannot be read is passed over with a note, and one whose values
// have no place is an error that names file and key.
func TestBadCards(t *testing.T) {
	for _, card := range []string{"---\na: [\n---\n", "---\na: \xff\n---\n", "---\na: !thing x\n---\n"} {
		m := newToy(t)
		m.files["README.md"] = []byte(card)
		g := m.mustConvert(t, "f32")
		if err := hasNote(g, "README.md", "cannot be read"); err != nil {
			t.Errorf("%q: %v", card, err)
		}
		if v, _ := g.Meta.Text("general.name"); v != "Toy" {
			t.Errorf("%q: name %q", card, v)
		}
	}
	for card, words := range map[string]string{
		"version: 1.5":               "1.5 is a number, general.version wants a string",
		"name: 7":                    "7 is a whole number, general.name wants a string",
		"license: [mit, 3]":          "general.license",
		"tags: [a, 3]":               "general.tags",
		"tags: [2024-01-01]":         "a date",
		"base_model: [{name: true}]": "general.base_model.0.name",
	} {
		m := newToy(t)
		m.files["README.md"] = []byte("---\n" + card + "\n---\n")
		_, err := m.convert(t, Options{})
		wantError(t, err, ErrMetadata, "README.md", words)
	}
	// What Python calls false is left out.
	m := newToy(t)
	m.files["README.md"] = []byte("---\nversion: 0\nauthor: no\ntags: []\nlicense: \"\"\nlanguage: no\n---\n")
	g := m.mustConvert(t, "f32")
	for _, key := range []string{"version", "author", "tags", "license", "languages"} {
		if v, ok := g.Meta.Get("general." + key); ok {
			t.Errorf("general.%s = %s", key, v)
		}
	}
	for text, words := range map[string]string{`{"top_k":50.5}`: "general.sampling.top_k", `{"temperature":"hot"}`: "general.sampling.temp", `{"top_p":1e300}`: "top_p"} {
		m := newToy(t)
		m.files["generation_config.json"] = []byte(text)
		_, err := m.convert(t, Options{})
		wantError(t, err, ErrMetadata, "generation_config.json", words)
	}
	m = newToy(t)
	m.files["generation_config.json"] = []byte(`{"temperature": 0.5,}`)
	if err := hasNote(m.mustConvert(t, "f32"), "generation_config.json", "cannot be read"); err != nil {
		t.Error(err)
	}
}

func TestSizeLabel(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0.00K", 999: "1.0K", 260032: "260K", 1000000: "1000K", 1000001: "1.0M", 1235814432: "1.2B", 6738415616: "6.7B", 70553706496: "71B",
		1500000000000: "1.5T", 9500000: "10M", 10500000: "10M", 99500: "100K",
	} {
		if got := sizeLabel(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}

func TestTitle(t *testing.T) {
	for s, want := range map[string]string{
		"tiny-llama-v1.0": "Tiny Llama v1.0", "stories260k": "Stories260K", "Qwen2.5-0.5b": "Qwen2.5 0.5b", " a--b ": "A B", "über-größe": "Über Größe",
		"my_model": "My_Model", "v2-x": "v2 X", "GPT-j": "GPT J", "-": "",
	} {
		if got := title(s); got != want {
			t.Errorf("%q: %q, want %q", s, got, want)
		}
	}
}

func TestPooling(t *testing.T) {
	for pooling, want := range map[string]string{
		`{"pooling_mode_mean_tokens":true}`:                             "1",
		`{"pooling_mode_lasttoken":true}`:                               "3",
		`{"pooling_mode":"mean","pooling_mode_cls_token":true}`:         "2",
		`{"pooling_mode":"lasttoken","pooling_mode_mean_tokens":false}`: "3",
	} {
		m := newToy(t)
		m.config["architectures"], m.config["model_type"] = []string{"Qwen2ForCausalLM"}, "qwen2"
		m.files["modules.json"] = []byte(`[{"type":"sentence_transformers.models.Transformer","path":""},{"type":"sentence_transformers.models.Pooling","path":"1_Pooling"}]`)
		m.files["1_Pooling/config.json"] = []byte(pooling)
		g := m.mustConvert(t, "f32")
		if v, ok := g.Meta.Get("qwen2.pooling_type"); !ok || v.String() != want || v.Type() != gguf.Uint32 {
			t.Errorf("%s: %s", pooling, v)
		}
		m.files["1_Pooling/config.json"] = []byte(`{}`)
		_, err := m.convert(t, Options{})
		wantError(t, err, ErrMetadata, "1_Pooling/config.json")
	}
}

func FuzzCard(f *testing.F) {
	for _, s := range []string{
		"---\nlicense: mit\nlanguage:\n- no\nbase_model: a/b-7B\ntags: [x, 1]\n---\n",
		"---\na: &x [1, *x]\n---\n", "---\n<<: {a: 1}\nk: !!str 7\n---\n", "---\nx: 1:30.5\ny: -.inf\n---", "---\n? [a]\n: b\n---\n",
	} {
		f.Add([]byte(s), "org/Name-7b1-v2", int64(7e9))
	}
	f.Fuzz(func(t *testing.T, text []byte, id string, params int64) {
		card, err := parseCard(text)
		if err != nil {
			return
		}
		g := &general{}
		g.fromCard(card, params)
		g.fromID(id, params)
		w := kvWriter{meta: gguf.NewMetadata()}
		g.write(&w)
		for key, v := range w.meta.All() {
			if !v.Valid() || v.IsArray() && v.Len() == 0 {
				t.Fatalf("%s has no value", key)
			}
		}
		_ = fmt.Sprint(w.err)
	})
}
