package all_test

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"quern/formats/kmcu"
	"quern/runtime/load"
	"quern/tokenizer"
)

// TestPruneVocab: in Hugging Face and GGUF form, before and after quantizing, the
// model has fewer tokens and computes what it did: logits of kept tokens are equal.
func TestPruneVocab(t *testing.T) {
	ids := keptIDs()
	const step = "  - prune-head: {tokens: keep, mode: vocab, multiple-of: 32}\n"
	for _, c := range []struct{ model, before, after string }{
		{"stories260k", "", ""},
		{"stories-wide", "", "  - quantize: {preset: Q4_0}\n"},
		{"stories-wide", "  - quantize: {preset: Q4_0}\n", ""},
		{"stories-moe", "", "  - quantize: {type: Q8_0, fallback: F16}\n  - reorder: {experts: last}\n"},
	} {
		t.Run(c.model+c.before+c.after, func(t *testing.T) {
			b := newPruneBench(t, c.model)
			base := b.dir
			if c.before != "" {
				base = b.build(b.dir, nil, c.before, "")
			}
			whole := b.build(base, nil, c.after, "")
			file := b.build(base, ids, step+c.after, "")
			f, _ := prunedFile(t, file)
			source, err := f.Meta.Int32s(tokenizer.KeySourceIDs)
			if err != nil {
				t.Fatal(err)
			}
			if n, err := f.Meta.Int64("llama.vocab_size"); err != nil || n != int64(len(source)) || n%32 != 0 || n >= 512 {
				t.Fatalf("vocab_size %d, %v; %d tokens", n, err, len(source))
			}
			m, err := load.Open(t.Context(), file)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			tok, err := m.Tokenizer()
			if err != nil {
				t.Fatal(err)
			}
			now, err := tok.Encode("Once upon a time, there was a girl.", tokenizer.EncodeOptions{Special: true})
			if err != nil {
				t.Fatal(err)
			}
			old := make([]int32, len(now))
			for i, id := range now {
				old[i] = source[id]
			}
			_, want := allLogits(t, whole, old)
			_, got := allLogits(t, file, now)
			for i := range want {
				if len(got[i]) != len(source) {
					t.Fatalf("%d logits of %d tokens", len(got[i]), len(source))
				}
				for id, v := range got[i] {
					if w := want[i][source[id]]; math.Float32bits(v) != math.Float32bits(w) {
						t.Fatalf("position %d: logit %d is %v, want %v", i, id, v, w)
					}
				}
			}
		})
	}
}

// TestPruneForms: from a GGUF file of F16 comes the very file that comes from the
// folder.
func TestPruneForms(t *testing.T) {
	for _, model := range []string{"stories260k", "stories-wide"} {
		b := newPruneBench(t, model)
		whole := b.build(b.dir, nil, "", "")
		for _, step := range []string{"  - prune-head: {tokens: keep}\n", "  - prune-head: {tokens: keep, mode: vocab}\n"} {
			sameModel(t, model+step, b.build(whole, keptIDs(), step, ""), b.build(b.dir, keptIDs(), step, ""))
		}
	}
}

// TestPruneKMCU: the header of a container has the new vocabulary, and the container
// has no place for a head that is pruned alone.
func TestPruneKMCU(t *testing.T) {
	const out = "outputs:\n  - {format: kmcu, file: out.gguf}\n"
	b := newPruneBench(t, "stories260k")
	file := b.build(b.dir, keptIDs(), "  - prune-head: {tokens: keep, mode: vocab, multiple-of: 32}\n", out)
	f, err := kmcu.Open(t.Context(), "k", blobOf(readAll(t, file)), kmcu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if h := f.Header; h.Vocab%32 != 0 || h.Vocab >= 512 || h.BOS != 1 || h.EOS != 2 {
		t.Errorf("%+v", h)
	}
	if _, _, err := b.try(b.dir, keptIDs(), "  - prune-head: {tokens: keep}\n", out); err == nil || !strings.Contains(err.Error(), "mode: vocab") {
		t.Errorf("a pruned head in a KMCU file: %v", err)
	}
}

// TestPrunedTokenizerGate: the tokenizer.json of the whole model speaks of the pruned
// vocabulary, of the strings that take no dropped token.
func TestPrunedTokenizerGate(t *testing.T) {
	b := newPruneBench(t, "tiny-qwen3")
	src, err := tokenizer.OpenSource(t.Context(), dirFiles(b.dir), tokenizer.Config{})
	if err != nil {
		t.Fatal(err)
	}
	var ids []int32
	texts := tokenizer.SampleTexts()
	for _, s := range texts[:len(texts)/2] {
		more, err := src.Encode(s, false)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, more...)
	}
	_, res, err := b.try(b.dir, ids, "  - prune-head: {tokens: keep, mode: vocab}\n", "outputs:\n  - {format: gguf, file: out.gguf}\ngates:\n  - tokenizer: {}\n")
	if err != nil {
		t.Fatal(err)
	}
	var n int
	text := res.Gates[0].Text
	if _, err := fmt.Sscanf(text[strings.Index(text, "other ids for "):], "other ids for 0 of %d golden strings", &n); err != nil || n < len(texts)/2 || n >= len(texts) || !res.Gates[0].Pass {
		t.Errorf("%s: %v", text, err)
	}
	for _, w := range res.Warnings {
		if strings.Contains(w, "golden strings") {
			t.Error(w)
		}
	}
}

// dirFiles is a folder of tokenizer files.
type dirFiles string

func (d dirFiles) ReadFile(_ context.Context, name string, _ int64) ([]byte, error) {
	return os.ReadFile(filepath.Join(string(d), filepath.FromSlash(name)))
}
