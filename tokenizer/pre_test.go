package tokenizer

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestProbeText(t *testing.T) {
	sum := sha256.Sum256([]byte(probeText))
	if n := utf8.RuneCountInString(probeText); n != 350 || len(probeText) != 431 || !strings.HasPrefix(hex.EncodeToString(sum[:]), "a36179c1e2b1cfcf") {
		t.Errorf("%d characters, %d bytes, SHA-256 %x", n, len(probeText), sum)
	}
	if got := hashIDs([]int32{1, 20, 300}); got != hashOf("[1, 20, 300]") {
		t.Errorf("hash %s", got)
	}
	if got := hashIDs(nil); got != hashOf("[]") {
		t.Errorf("hash of nothing %s", got)
	}
}

func hashOf(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

func TestNameByHash(t *testing.T) {
	for hash, want := range map[string]string{
		"0ef9807a4087ebef797fc749390439009c3b9eda9ad1a097abbe738f486c01e5": "llama-bpe",
		"d4540891389ea895b53b399da6ac824becc30f2fba0e9ddbb98f92e55ca0e97c": "qwen2",
		"b6dc8df998e1cfbdc4eac8243701a65afe638679230920b50d6f17d81c098166": "olmo", // mpt has the same
		"877081d19cf6996e2c4ff0e1236341e9b7bde288f5311a56a937f0afbbb3aeb5": "deepseek-v3",
	} {
		if got, ok := nameByHash(hash); !ok || got != want {
			t.Errorf("%s is %q, want %q", hash, got, want)
		}
	}
	if name, ok := nameByHash(strings.Repeat("0", 64)); ok {
		t.Errorf("hash of zeros is %q", name)
	}
}

// TestNamesAreCut: every name that may be written is one that the runtime, and
// so llama.cpp, can load.
func TestNamesAreCut(t *testing.T) {
	for _, c := range preClasses() {
		for _, name := range append([]string{c.name}, c.names...) {
			if _, err := cutterFor(name); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	seen := map[string]bool{}
	for _, row := range cutterTable() {
		for _, name := range row.names {
			if seen[name] {
				t.Errorf("%q stands in two rows", name)
			}
			seen[name] = true
			if _, err := cutterFor(name); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if _, err := cutterFor("kimi-k3"); !errors.Is(err, ErrUnknownPre) {
		t.Errorf("unknown name: %v", err)
	}
}

// toyFolder is a toy tokenizer.json of the goldens in a Llama folder.
func toyFolder(t testing.TB, name string, edit func(doc map[string]any)) memFiles {
	t.Helper()
	for _, c := range loadHFGoldens(t).Cases {
		if c.Name != name {
			continue
		}
		data := []byte(c.Tokenizer)
		if edit != nil {
			var doc map[string]any
			unmarshal(t, data, &doc)
			edit(doc)
			var err error
			if data, err = json.Marshal(doc); err != nil {
				t.Fatal(err)
			}
		}
		return memFiles{
			"config.json":           `{"architectures":["LlamaForCausalLM"],"model_type":"llama","vocab_size":1000}`,
			"tokenizer.json":        string(data),
			"tokenizer_config.json": `{"tokenizer_class":"PreTrainedTokenizerFast","bos_token":"<s>","eos_token":"</s>"}`,
		}
	}
	t.Fatalf("no toy %q", name)
	return nil
}

func warned(v *Vocabulary, text string) bool {
	for _, w := range v.Warnings {
		if strings.Contains(w, text) {
			return true
		}
	}
	return false
}

// TestPreByDefinition: vocabularies of a few hundred tokens, whose hashes are in
// no list, get the name of their definition.
func TestPreByDefinition(t *testing.T) {
	for toy, want := range map[string]string{
		"gpt-2": "gpt-2", "llama3": "llama-bpe", "qwen2": "qwen2", "qwen35": "qwen35", "smollm": "smollm", "falcon": "falcon",
		"tekken": "tekken", "gpt-4o": "gpt-4o", "ling": "bailingmoe2", "deepseek-v3": "deepseek-v3", "deepseek-coder": "deepseek-coder",
		"gpt-2-prefix": "gpt-2", // the library takes the prefix space away
	} {
		t.Run(toy, func(t *testing.T) {
			v, err := toyFolder(t, toy, nil).load(t)
			if err != nil {
				t.Fatal(err)
			}
			if v.Pre != want || v.Model != ModelBPE {
				t.Errorf("model %q pre %q, want %q", v.Model, v.Pre, want)
			}
			if !warned(v, "goes by the definition") {
				t.Errorf("no warning in %q", v.Warnings)
			}
		})
	}
}

// TestKeptMatches: to keep the matches of a pattern that matches everything is to
// cut by it; of another pattern something would be lost.
func TestKeptMatches(t *testing.T) {
	keep := func(pattern string) func(doc map[string]any) {
		return func(doc map[string]any) {
			split := doc["pre_tokenizer"].(map[string]any)["pretokenizers"].([]any)[0].(map[string]any)
			split["behavior"], split["invert"] = "Removed", true
			if pattern != "" {
				split["pattern"] = map[string]any{"Regex": pattern}
			}
		}
	}
	for _, name := range []string{"gpt-4o", "qwen2"} {
		v, err := toyFolder(t, name, keep("")).load(t)
		if err != nil {
			t.Fatal(err)
		}
		if v.Pre != name {
			t.Errorf("%s: pre %q", name, v.Pre)
		}
	}
	if _, err := toyFolder(t, "gpt-4o", keep(`\p{L}+`)).load(t); !errors.Is(err, ErrUnknownPre) {
		t.Errorf("letters alone: %v", err)
	}
}

// TestIgnoreMerges: "llama-bpe" makes readers take whole words. A tokenizer
// without that rule gets the name only when it makes no difference.
func TestIgnoreMerges(t *testing.T) {
	v, err := toyFolder(t, "llama3-merges", nil).load(t)
	if err != nil {
		t.Fatal(err)
	}
	if v.Pre != "llama-bpe" {
		t.Errorf("all tokens are reachable: pre %q", v.Pre)
	}
	// Without its last merge the last token can only be had whole.
	dropMerge := func(doc map[string]any) {
		m := doc["model"].(map[string]any)
		merges := m["merges"].([]any)
		m["merges"] = merges[:len(merges)-1]
	}
	if v, err = toyFolder(t, "llama3-merges", dropMerge).load(t); err != nil {
		t.Fatal(err)
	}
	if v.Pre != "smaug-bpe" {
		t.Errorf("a token is out of reach of the merges: pre %q, want one that follows them", v.Pre)
	}
	if v, err = toyFolder(t, "llama3", dropMerge).load(t); err != nil {
		t.Fatal(err)
	}
	if v.Pre != "llama-bpe" {
		t.Errorf("with ignore_merges: pre %q", v.Pre)
	}
}

// TestUnknownPre: one changed character of a pattern is enough; the error shows
// the pattern and the nearest name.
func TestUnknownPre(t *testing.T) {
	m := toyFolder(t, "qwen2", nil)
	m["tokenizer.json"] = strings.Replace(m["tokenizer.json"], `|\\p{N}|`, `|\\p{N}+|`, 1)
	_, err := m.load(t)
	if !errors.Is(err, ErrUnknownPre) {
		t.Fatalf("error %v", err)
	}
	for _, want := range []string{`|\p{N}+|`, `"qwen2"`, "probe hash"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error does not name %s: %v", want, err)
		}
	}
	for _, toy := range []string{"literal", "literal-regex", "removed", "contiguous", "digits-together", "bloom"} {
		if v, err := toyFolder(t, toy, nil).load(t); !errors.Is(err, ErrUnknownPre) {
			t.Errorf("%s: %v, want an error", toy, v)
		}
	}
	// The caller may name it.
	cfg, err := ParseConfig("config.json", []byte(m["config.json"]))
	if err != nil {
		t.Fatal(err)
	}
	v, err := Load(t.Context(), m, cfg, LoadOptions{Pre: "qwen2"})
	if err != nil || v.Pre != "qwen2" {
		t.Errorf("with the name given: %v", err)
	}
}

// TestPreConflict: a tokenizer that treats the probe as a known one does, but
// other texts differently, is not given the known one's name. The probe has no
// run of digits after a letter, so joining these is invisible to the hash.
func TestPreConflict(t *testing.T) {
	data := string(readTestFile(t, "../testdata/convert/tokenizers/qwen3.json.gz"))
	folder := func(tokenizer string) memFiles {
		return memFiles{
			"config.json":           `{"architectures":["Qwen3ForCausalLM"],"model_type":"qwen3","vocab_size":151936}`,
			"tokenizer.json":        tokenizer,
			"tokenizer_config.json": `{"tokenizer_class":"Qwen2Tokenizer"}`,
		}
	}
	v, err := folder(data).load(t)
	if err != nil || v.Pre != "qwen2" || warned(v, "pre-tokenizer") {
		t.Fatalf("the tokenizer itself: %v, %v", err, v)
	}
	changed := strings.Replace(data, `(?i:'s|'t|'re`, `Q\\p{N}+|(?i:'s|'t|'re`, 1)
	if changed == data {
		t.Fatal("the pattern was not found")
	}
	_, err = folder(changed).load(t)
	if !errors.Is(err, ErrPreConflict) || !strings.Contains(err.Error(), `"qwen2"`) || !strings.Contains(err.Error(), `Q\p{N}+`) {
		t.Errorf("error %v", err)
	}
}

// TestDigitsDiffer: two toys that cut a text alike except for its digits get
// different names.
func TestDigitsDiffer(t *testing.T) {
	names := map[string]bool{}
	for _, toy := range []string{"llama3", "qwen2"} {
		v, err := toyFolder(t, toy, nil).load(t)
		if err != nil {
			t.Fatal(err)
		}
		names[v.Pre] = true
	}
	if len(names) != 2 {
		t.Errorf("names %v", names)
	}
}

func TestEditDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"a", "", 1}, {"kitten", "sitting", 3}, {"aé", "ae", 1}} {
		if got := editDistance(c.a, c.b); got != c.want {
			t.Errorf("%q to %q: %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
