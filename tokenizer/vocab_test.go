package tokenizer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"quern/formats/gguf"
)

// spmFolder is a Llama folder with a tokenizer.model of n pieces: <unk>, <s>,
// </s>, then letters.
func spmFolder(n int, config string) memFiles {
	b := (&spBuilder{}).set(3, uint64(SPBPE)).piece("<unk>", 0, PieceUnknown).piece("<s>", 0, PieceControl).piece("</s>", 0, PieceControl)
	for i := 3; i < n; i++ {
		b.piece(string(rune('a'+i-3)), float32(-i), PieceNormal)
	}
	return memFiles{
		"config.json":     `{"architectures":["LlamaForCausalLM"],"model_type":"llama",` + config + `}`,
		"tokenizer.model": string(b.bytes()),
	}
}

// TestPadding: rows without an id become unused tokens, and no padding name can
// be sampled or show in a text.
func TestPadding(t *testing.T) {
	v, err := spmFolder(13, `"vocab_size":16,"bos_token_id":1,"eos_token_id":2`).load(t)
	if err != nil {
		t.Fatal(err)
	}
	if len(v.Tokens) != 16 || v.Size != 13 {
		t.Fatalf("%d tokens, size %d", len(v.Tokens), v.Size)
	}
	for id := 13; id < 16; id++ {
		if v.Types[id] != Unused || v.Tokens[id] != fmt.Sprintf("[PAD%d]", id) || v.Scores[id] != -10000 {
			t.Errorf("token %d: %q %v %v", id, v.Tokens[id], v.Types[id], v.Scores[id])
		}
	}
	tok, err := New(v)
	if err != nil {
		t.Fatal(err)
	}
	for id := int32(-1); id < 18; id++ {
		if want := id < 0 || id >= 13; tok.IsUnused(id) != want {
			t.Errorf("token %d: unused is %v", id, !want)
		}
	}
	if got := tok.Decode([]int32{3, 13, 14, 15, 4}, DecodeOptions{Special: true}); got != "ab" {
		t.Errorf("decoded %q, want no padding name", got)
	}
	if err := (Sizes{Config: 16, Tokenizer: v.Size, Embedding: 16, Head: 16}).Check(v); err != nil {
		t.Errorf("sizes: %v", err)
	}
}

func TestSizes(t *testing.T) {
	v, err := spmFolder(18, `"vocab_size":18`).load(t)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		s    Sizes
		want []string // empty: fine
	}{
		{Sizes{18, 18, 18, 18}, nil},
		{Sizes{18, 18, 18, 0}, nil},
		{Sizes{20, 18, 20, 20}, nil},
		{Sizes{0, 18, 18, 0}, nil},
		{Sizes{18, 18, 0, 0}, nil},
		{Sizes{18, 18, 16, 16}, []string{"18 ids", "16 rows", `16 "n"`, `17 "o"`}},
		{Sizes{16, 18, 0, 0}, []string{"vocab_size 16", `16 "n"`}},
		{Sizes{18, 18, 18, 16}, []string{"embedding has 18 rows", "head 16"}},
		{Sizes{18, 18, 20, 20}, []string{"vocab_size 18", "20 rows"}},
		{Sizes{20, 18, 18, 18}, []string{"vocab_size 20", "18 rows"}},
		{Sizes{0, 18, 20, 0}, []string{"20 rows", "18 ids"}},
	} {
		err := c.s.Check(v)
		if c.want == nil {
			if err != nil {
				t.Errorf("%+v: %v", c.s, err)
			}
			continue
		}
		if !errors.Is(err, ErrVocabSize) {
			t.Errorf("%+v: error %v", c.s, err)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%+v: error %v, want %q in it", c.s, err, w)
			}
		}
	}
	many := Sizes{Tokenizer: 1 << 20, Embedding: 10}
	if err := many.Check(v); err == nil || len(err.Error()) > 500 || !strings.Contains(err.Error(), "and 1048558 more") {
		t.Errorf("a long list: %v", err)
	}
}

// TestTooManyIDs: a tokenizer.json with more ids than vocab_size is refused
// with the ids named.
func TestTooManyIDs(t *testing.T) {
	m := toyFolder(t, "gpt-2", nil)
	v, err := m.load(t)
	if err != nil {
		t.Fatal(err)
	}
	m["config.json"] = strings.Replace(m["config.json"], "1000", fmt.Sprint(v.Size-2), 1)
	_, err = m.load(t)
	if !errors.Is(err, ErrVocabSize) || !strings.Contains(err.Error(), fmt.Sprintf("%d %q", v.Size-1, v.Tokens[v.Size-1])) {
		t.Errorf("error %v", err)
	}
}

func TestSpecialIDOutside(t *testing.T) {
	for _, c := range []struct{ config, want string }{
		{`"vocab_size":3,"eos_token_id":4294967295`, "eos_token_id"},
		{`"vocab_size":3,"bos_token_id":3`, "bos_token_id"},
		{`"vocab_size":3,"pad_token_id":-1`, "pad"},
	} {
		_, err := spmFolder(3, c.config).load(t)
		if !errors.Is(err, ErrSpecialID) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "config.json") {
			t.Errorf("%s: error %v", c.config, err)
		}
	}
	// A padding token past the end is common; the converter leaves it out.
	v, err := spmFolder(3, `"vocab_size":3,"pad_token_id":3`).load(t)
	if err != nil || !warned(v, "pad token id 3") {
		t.Errorf("pad: %v", err)
	}
	if _, ok := v.ID("pad"); ok {
		t.Error("pad is written")
	}
	// Byte-level BPE has no limit in the converter; here it has.
	m := toyFolder(t, "gpt-2", nil)
	m["config.json"] = strings.Replace(m["config.json"], `"vocab_size"`, `"pad_token_id":1000,"vocab_size"`, 1)
	if _, err := m.load(t); !errors.Is(err, ErrSpecialID) || !strings.Contains(err.Error(), "padding_token_id") || !strings.Contains(err.Error(), "1000") {
		t.Errorf("BPE: %v", err)
	}
	// And a file says which key is wrong.
	g := gguf.NewMetadata(gguf.KV{Key: keyModel, Value: gguf.Scalar(ModelSPM)}, gguf.KV{Key: keyTokens, Value: gguf.List([]string{"a"})},
		gguf.KV{Key: specialKey("eos"), Value: gguf.Scalar(uint32(4294967295))})
	if _, err := FromGGUF(g); err == nil || !strings.Contains(err.Error(), specialKey("eos")) || !strings.Contains(err.Error(), "4294967295") {
		t.Errorf("GGUF: %v", err)
	}
}

// TestTurnMarkers: tokens that any file calls special are control tokens, and a
// prompt with one gives its one id.
func TestTurnMarkers(t *testing.T) {
	m := spmFolder(6, `"vocab_size":16,"bos_token_id":1,"eos_token_id":2`)
	m["tokenizer_config.json"] = `{"added_tokens_decoder":{
		"6":{"content":"<start_of_turn>","special":true},"7":{"content":"<end_of_turn>","special":true},
		"8":{"content":"<|im_end|>","special":false},"9":{"content":"plain","special":false}},
		"eot_token":"<end_of_turn>"}`
	v, err := m.load(t)
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[int]TokenType{1: Control, 3: Normal, 6: Control, 7: Control, 8: Control, 9: UserDefined, 10: Unused} {
		if v.Types[id] != want {
			t.Errorf("token %d %q is %v, want %v", id, v.Tokens[id], v.Types[id], want)
		}
	}
	tok, err := New(v)
	if err != nil {
		t.Fatal(err)
	}
	ids, err := tok.Encode("<start_of_turn><end_of_turn>plain", EncodeOptions{Parse: true})
	if err != nil {
		t.Fatal(err)
	}
	equalIDs(t, "turn markers", ids, []int32{6, 7, 9})
	if !tok.IsEnd(7) || !tok.IsEnd(2) || tok.IsEnd(6) || tok.IsEnd(9) {
		t.Errorf("end ids %v", tok.EndIDs())
	}
}

// TestEndByName: the end-of-turn id is that of the token's text, wherever the
// list has it.
func TestEndByName(t *testing.T) {
	m := toyFolder(t, "llama3", func(doc map[string]any) {
		list := doc["added_tokens"].([]any)
		n := float64(len(doc["model"].(map[string]any)["vocab"].(map[string]any)))
		list = list[:4] // the special tokens that are in the model's vocabulary
		for i, text := range []string{"<|start|>", "<|end|>"} {
			list = append(list, map[string]any{"id": n + float64(i), "content": text, "special": true, "normalized": false,
				"single_word": false, "lstrip": false, "rstrip": false})
		}
		doc["added_tokens"] = list
		m := doc["post_processor"].(map[string]any)
		m["single"] = m["single"].([]any)[:2]
	})
	m["tokenizer_config.json"] = `{"tokenizer_class":"PreTrainedTokenizerFast","bos_token":"<s>","eos_token":"<|end|>"}`
	v, err := m.load(t)
	if err != nil {
		t.Fatal(err)
	}
	id, ok := v.ID("eos")
	if !ok || v.Tokens[id] != "<|end|>" || v.Tokens[id-1] != "<|start|>" {
		t.Errorf("eos is %d %v", id, ok)
	}
}

// TestEndLists: every id of a list of end ids counts; the key has the one that
// the tokenizer names.
func TestEndLists(t *testing.T) {
	m := spmFolder(12, `"vocab_size":12,"eos_token_id":[7,9],"bos_token_id":1`)
	v, err := m.load(t)
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(v.EndIDs) != "[7 9]" {
		t.Errorf("end ids %v", v.EndIDs)
	}
	if _, ok := v.ID("eos"); ok || !warned(v, "list [7 9]") {
		t.Errorf("the converter writes no key for a list: %v", v.Warnings)
	}
	if tok, err := New(v); err != nil || !tok.IsEnd(7) || !tok.IsEnd(9) || tok.IsEnd(8) {
		t.Errorf("the reader ends at %v, %v", tok.EndIDs(), err)
	}
	m = spmFolder(12, `"vocab_size":12,"eos_token_id":7,"bos_token_id":1`)
	m["generation_config.json"] = `{"eos_token_id":[7,9,99,-1]}`
	if v, err = m.load(t); err != nil {
		t.Fatal(err)
	}
	if id, _ := v.ID("eos"); id != 7 || fmt.Sprint(v.EndIDs) != "[7 9]" {
		t.Errorf("eos %d, end ids %v", id, v.EndIDs)
	}
	m["generation_config.json"] = `{"eos_token_id": 9,}` // published files are broken like this
	if v, err = m.load(t); err != nil || fmt.Sprint(v.EndIDs) != "[7]" {
		t.Errorf("broken generation_config.json: %v %v", err, v.EndIDs)
	}
	tok, err := New(v)
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(tok.EndIDs()) != "[2 7]" { // "</s>" means an end by its text
		t.Errorf("the reader's end ids %v", tok.EndIDs())
	}
}

// TestOneBOS: a template that writes BOS, and a vocabulary that adds it.
func TestOneBOS(t *testing.T) {
	m := spmFolder(12, `"vocab_size":12,"eos_token_id":2,"bos_token_id":1`)
	m["tokenizer_config.json"] = `{"add_bos_token":true,"add_prefix_space":false,"chat_template":"{{ bos_token }}{{ messages[0].content }}"}`
	v, err := m.load(t)
	if err != nil {
		t.Fatal(err)
	}
	if !warned(v, "puts two") {
		t.Errorf("no warning in %q", v.Warnings)
	}
	tok, err := New(v)
	if err != nil {
		t.Fatal(err)
	}
	for _, prompt := range []string{"<s>abc", "abc"} {
		ids, err := tok.EncodeChat(prompt)
		if err != nil {
			t.Fatal(err)
		}
		ones := 0
		for _, id := range ids {
			if id == 1 {
				ones++
			}
		}
		if ones != 1 || ids[0] != 1 {
			t.Errorf("%q: %v, want exactly one BOS", prompt, ids)
		}
	}
}

// TestTemplatePrecedence: tokenizer_config.json, then the .jinja file, then the
// .json file; the losers are named.
func TestTemplatePrecedence(t *testing.T) {
	all := map[string]string{
		"tokenizer_config.json": `{"add_bos_token":false,"chat_template":"A"}`,
		"chat_template.jinja":   "B",
		"chat_template.json":    `{"chat_template":"C"}`,
	}
	for _, c := range []struct {
		drop  []string
		want  string
		warns []string
	}{
		{nil, "A", []string{"that of chat_template.jinja", "that of chat_template.json"}},
		{[]string{"tokenizer_config.json"}, "B", []string{"that of chat_template.json"}},
		{[]string{"tokenizer_config.json", "chat_template.jinja"}, "C", nil},
	} {
		m := spmFolder(4, `"vocab_size":4`)
		for name, text := range all {
			m[name] = text
		}
		for _, name := range c.drop {
			delete(m, name)
			if name == "tokenizer_config.json" {
				m[name] = `{"add_bos_token":false}`
			}
		}
		v, err := m.load(t)
		if err != nil {
			t.Fatal(err)
		}
		if v.ChatTemplate() != c.want {
			t.Errorf("without %v: template %q, want %q", c.drop, v.ChatTemplate(), c.want)
		}
		named := 0
		for _, w := range c.warns {
			if !warned(v, w) {
				t.Errorf("without %v: no warning of %q in %q", c.drop, w, v.Warnings)
			}
		}
		for _, w := range v.Warnings {
			if strings.Contains(w, "chat template of") {
				named++
			}
		}
		if named != len(c.warns) {
			t.Errorf("without %v: warnings %q", c.drop, v.Warnings)
		}
	}
	// Equal templates are no loss.
	m := spmFolder(4, `"vocab_size":4`)
	m["tokenizer_config.json"], m["chat_template.jinja"] = `{"chat_template":"A\n"}`, "A\r\n"
	if v, err := m.load(t); err != nil || warned(v, "is ignored") {
		t.Errorf("equal templates: %v %q", err, v.Warnings)
	}
}

func TestNoTokenizer(t *testing.T) {
	m := memFiles{"config.json": `{"architectures":["LlamaForCausalLM"]}`}
	if _, err := m.load(t); !errors.Is(err, ErrNoTokenizer) {
		t.Errorf("error %v", err)
	}
	m["tekken.json"] = "{}"
	if _, err := m.load(t); !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), "tekken.json") {
		t.Errorf("error %v", err)
	}
	m = memFiles{"config.json": `{"architectures":["LlamaForCausalLM"]}`, "tokenizer.json": `{"model":{"type":"WordLevel","vocab":{}}}`}
	if _, err := m.load(t); !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), "WordLevel") {
		t.Errorf("error %v", err)
	}
}

// failingFiles fails on one path.
type failingFiles struct {
	memFiles
	path string
	err  error
}

func (f failingFiles) ReadFile(ctx context.Context, path string, limit int64) ([]byte, error) {
	if path == f.path {
		return nil, f.err
	}
	return f.memFiles.ReadFile(ctx, path, limit)
}

// TestReadErrors: a file that cannot be read is not taken for a missing one.
func TestReadErrors(t *testing.T) {
	broken := errors.New("connection reset")
	m := spmFolder(4, `"vocab_size":4`)
	m["chat_template.jinja"] = "x"
	for _, path := range []string{"tokenizer.model", "tokenizer.json", "tokenizer_config.json", "added_tokens.json", "generation_config.json",
		"chat_template.jinja", "chat_template.json", "merges.txt", "additional_chat_templates/a.jinja"} {
		_, err := Load(t.Context(), failingFiles{m, path, broken}, Config{Architecture: "LlamaForCausalLM"}, LoadOptions{Paths: []string{"additional_chat_templates/a.jinja"}})
		if !errors.Is(err, broken) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: error %v", path, err)
		}
	}
}

func TestBadSideFiles(t *testing.T) {
	for name, text := range map[string]string{
		"tokenizer_config.json": "{",
		"added_tokens.json":     `{"x":"y"}`,
		"chat_template.json":    `[]`,
		"chat_template.jinja":   "\xff",
	} {
		m := spmFolder(4, `"vocab_size":4`)
		m[name] = text
		if _, err := m.load(t); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	m := spmFolder(4, `"vocab_size":4`)
	m["tokenizer_config.json"] = `{"added_tokens_decoder":{"x":{"content":"a"}}}`
	if _, err := m.load(t); !errors.Is(err, ErrFormat) {
		t.Errorf("added_tokens_decoder: %v", err)
	}
	// Bare Infinity is Python's JSON, in config files only.
	m["tokenizer_config.json"] = `{"model_max_length":Infinity,"x":NaN,"a":1,"a":2}`
	if v, err := m.load(t); err != nil || !warned(v, `key "a" occurs twice`) {
		t.Errorf("Infinity: %v", err)
	}
}
