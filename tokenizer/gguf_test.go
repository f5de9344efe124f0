package tokenizer

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"quern/formats/gguf"
)

// TestFromGGUF: what was written is read back, other integer widths included.
func TestFromGGUF(t *testing.T) {
	want, err := readFolder(t, "../testdata/models/stories260k").load(t)
	if err != nil {
		t.Fatal(err)
	}
	m := gguf.NewMetadata(gguf.KV{Key: "general.architecture", Value: gguf.Scalar("llama")})
	for _, kv := range want.Keys() {
		switch v := kv.Value.(type) {
		case string:
			m.Set(kv.Key, gguf.Scalar(v))
		case bool:
			m.Set(kv.Key, gguf.Scalar(v))
		case uint32:
			m.Set(kv.Key, gguf.Scalar(int64(v)))
		case []string:
			m.Set(kv.Key, gguf.List(v))
		case []float32:
			m.Set(kv.Key, gguf.List(v))
		case []int32:
			wide := make([]uint64, len(v))
			for i, n := range v {
				wide[i] = uint64(n)
			}
			m.Set(kv.Key, gguf.List(wide))
		}
	}
	got, err := FromGGUF(m)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got.Keys(), want.Keys()) {
		t.Error("the keys come back changed")
	}
	if got.Size != want.Size || !reflect.DeepEqual(got.EndIDs, want.EndIDs) {
		t.Errorf("size %d ends %v, want %d %v", got.Size, got.EndIDs, want.Size, want.EndIDs)
	}
	if got.Digest() != want.Digest() {
		t.Errorf("digest %s, want %s", got.Digest(), want.Digest())
	}
}

func TestFromGGUFRejects(t *testing.T) {
	if _, err := FromGGUF(gguf.NewMetadata()); !errors.Is(err, ErrNoTokenizer) {
		t.Errorf("no tokenizer: %v", err)
	}
	base := func(kvs ...gguf.KV) *gguf.Metadata {
		m := gguf.NewMetadata(
			gguf.KV{Key: keyModel, Value: gguf.Scalar(ModelBPE)}, gguf.KV{Key: keyPre, Value: gguf.Scalar("gpt-2")},
			gguf.KV{Key: keyTokens, Value: gguf.List([]string{"a", "b", "ab"})}, gguf.KV{Key: keyMerges, Value: gguf.List([]string{"a b"})})
		for _, kv := range kvs {
			m.Set(kv.Key, kv.Value)
		}
		return m
	}
	if v, err := FromGGUF(base()); err != nil {
		t.Fatal(err)
	} else if _, err = New(v); err != nil {
		t.Fatal(err)
	}
	// Token types of every width of integers say the same.
	for _, types := range []gguf.Value{
		gguf.List([]int8{1, 3, 4}), gguf.List([]uint8{1, 3, 4}), gguf.List([]int16{1, 3, 4}), gguf.List([]uint16{1, 3, 4}),
		gguf.List([]int32{1, 3, 4}), gguf.List([]uint32{1, 3, 4}), gguf.List([]int64{1, 3, 4}), gguf.List([]uint64{1, 3, 4}),
	} {
		v, err := FromGGUF(base(gguf.KV{Key: keyTypes, Value: types}))
		if err != nil || v.Types[0] != Normal || v.Types[1] != Control || v.Types[2] != UserDefined {
			t.Errorf("token types %v: %v, %v", types, v, err)
		}
	}
	for _, types := range []gguf.Value{gguf.List([]int64{1, 3, 1 << 40}), gguf.List([]float32{1, 3, 4}), gguf.List([]string{"1", "3", "4"})} {
		if _, err := FromGGUF(base(gguf.KV{Key: keyTypes, Value: types})); err == nil || !strings.Contains(err.Error(), keyTypes) {
			t.Errorf("token types %v: error %v", types, err)
		}
	}
	for key, v := range map[string]gguf.Value{
		keyScores: gguf.List([]float32{1, 2}),
		keyTypes:  gguf.List([]int32{1, 2}),
		keyMerges: gguf.List([]string{"ab"}),
	} {
		if _, err := FromGGUF(base(gguf.KV{Key: key, Value: v})); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%s: error %v", key, err)
		}
	}
	for _, c := range []struct {
		key  string
		val  gguf.Value
		want error
	}{
		{keyPre, gguf.Scalar("nonsense"), ErrUnknownPre},
		{keyModel, gguf.Scalar("t5"), ErrUnsupported},
		{keyTokens, gguf.List([]string{"a", "b", "a"}), ErrFormat},
	} {
		v, err := FromGGUF(base(gguf.KV{Key: c.key, Value: c.val}))
		if err != nil {
			t.Fatal(err)
		}
		if _, err = New(v); !errors.Is(err, c.want) {
			t.Errorf("%s: error %v, want %v", c.key, err, c.want)
		}
	}
}

// TestCompare: the written vocabulary and its source agree on the sample texts;
// a wrong name does not.
func TestCompare(t *testing.T) {
	if n := len(SampleTexts()); n < 40 {
		t.Fatalf("only %d sample texts", n)
	}
	for _, toy := range []string{"gpt-2", "llama3", "qwen2", "smollm", "tekken", "gpt-4o", "deepseek-v3"} {
		m := toyFolder(t, toy, nil)
		cfg, err := ParseConfig("config.json", []byte(m["config.json"]))
		if err != nil {
			t.Fatal(err)
		}
		src, err := OpenSource(t.Context(), m, cfg)
		if err != nil {
			t.Fatal(err)
		}
		diffs := func(pre string) []Difference {
			v, err := Load(t.Context(), m, cfg, LoadOptions{Pre: pre})
			if err != nil {
				t.Fatal(err)
			}
			tok, err := New(v)
			if err != nil {
				t.Fatal(err)
			}
			d, err := Compare(src, tok, SampleTexts())
			if err != nil {
				t.Fatal(err)
			}
			return d
		}
		for _, d := range diffs("") {
			// llama.cpp cuts combining marks off where gpt-4o's own pattern
			// does not; that difference is the reader's and must show.
			if toy != "gpt-4o" || d.Text != "\u0939\u093f\u0928\u094d\u0926\u0940" {
				t.Errorf("%s: %q is %v, want %v", toy, d.Text, d.Got, d.Want)
			}
		}
		noticed := 0
		for _, wrong := range []string{"bloom", "gpt-2", "deepseek-coder"} {
			noticed += len(diffs(wrong))
		}
		if noticed == 0 {
			t.Errorf("%s: wrong pre-tokenizers go unnoticed", toy)
		}
	}
	if _, err := OpenSource(t.Context(), spmFolder(4, `"vocab_size":4`), Config{}); !errors.Is(err, ErrUnsupported) {
		t.Errorf("tokenizer.model alone: %v", err)
	}
}
