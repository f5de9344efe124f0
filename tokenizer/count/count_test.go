package count_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/klauspost/compress/zstd"

	"quern/formats/gguf"
	"quern/tokenizer"
	"quern/tokenizer/count"
)

// toy is a byte-level vocabulary: the bytes from 0 to 255, then words, then a
// special token, an added one, a reserve and padding.
func toy(t testing.TB) *tokenizer.Tokenizer {
	t.Helper()
	var tokens, merges []string
	var types []int32
	put := func(s string, typ tokenizer.TokenType) {
		tokens, types = append(tokens, s), append(types, int32(typ))
	}
	alphabet := func(b byte) string { // GPT-2's
		switch {
		case b >= 0x21 && b <= 0x7E, b >= 0xA1 && b <= 0xAC, b >= 0xAE:
			return string(rune(b))
		case b <= 0x20:
			return string(0x100 + rune(b))
		case b <= 0xA0:
			return string(0x100 + 33 + rune(b-0x7F))
		}
		return string(rune(0x143))
	}
	for b := range 256 {
		put(alphabet(byte(b)), tokenizer.Normal)
	}
	for _, m := range []string{"t h", "th e", "\u0120 the", "c a", "ca t", "\u0120 cat", "d o", "do g", "\u0120 dog"} {
		merges = append(merges, m)
		put(strings.Replace(m, " ", "", 1), tokenizer.Normal)
	}
	put("<|endoftext|>", tokenizer.Control)
	put("<tool>", tokenizer.UserDefined)
	put("<|unused_1|>", tokenizer.Control)
	put("[PAD268]", tokenizer.Unused)
	v, err := tokenizer.FromGGUF(gguf.NewMetadata(
		gguf.KV{Key: "tokenizer.ggml.model", Value: gguf.Scalar("gpt2")}, gguf.KV{Key: "tokenizer.ggml.pre", Value: gguf.Scalar("qwen2")},
		gguf.KV{Key: "tokenizer.ggml.tokens", Value: gguf.List(tokens)}, gguf.KV{Key: "tokenizer.ggml.token_type", Value: gguf.List(types)},
		gguf.KV{Key: "tokenizer.ggml.merges", Value: gguf.List(merges)},
		gguf.KV{Key: "tokenizer.ggml.eos_token_id", Value: gguf.Scalar(uint32(265))}))
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.New(v)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

const (
	idThe, idCat, idDog             = 258, 261, 264 // with their spaces
	idEnd, idTool, idReserve, idPad = 265, 266, 267, 268
	size                            = 269
)

func file(name, text string) count.File {
	return count.File{Name: name, Open: func(context.Context) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }}
}

func counts(t testing.TB, opt count.Options, corpora ...count.Corpus) *count.Counts {
	t.Helper()
	tok := toy(t)
	c, err := tok.NewCounter()
	if err != nil {
		t.Fatal(err)
	}
	n, err := count.Count(context.Background(), c, size, corpora, opt)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestCount(t *testing.T) {
	n := counts(t, count.Options{}, count.Corpus{Name: "a", Weight: 2, Language: "en", Files: []count.File{file("1", "a the cat"), file("2", " the dog the<tool>")}})
	x := n.Corpora[0]
	if x.Name != "a" || x.Language != "en" || x.Weight != 2 || x.Files != 2 || x.Bytes != 9+18 || x.Total != 7 {
		t.Errorf("%+v", x)
	}
	for id, want := range map[int]uint64{'a': 1, idThe: 3, idCat: 1, idDog: 1, idTool: 1, idEnd: 0} {
		if x.IDs[id] != want {
			t.Errorf("token %d: %d times, want %d", id, x.IDs[id], want)
		}
	}
}

// TestCountDoesNotDependOnHow: the numbers are those of Encode whatever the jobs
// and blocks.
func TestCountDoesNotDependOnHow(t *testing.T) {
	var b strings.Builder
	for i := range 4000 {
		fmt.Fprintf(&b, "the cat %d and the\tdog,\n\n  the cats' caf\u00e9 \u732b %x. <tool>", i, i*i)
	}
	text := b.String()
	tok := toy(t)
	want := make([]uint64, size)
	for range 3 {
		ids, err := tok.Encode(text, tokenizer.EncodeOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range ids {
			want[id]++
		}
	}
	corpus := count.Corpus{Name: "a", Files: []count.File{file("1", text), file("2", text), file("3", text)}}
	for _, jobs := range []int{1, 2, 7} {
		for _, block := range []int{1000, 4099, 1 << 20} {
			got := counts(t, count.Options{Jobs: jobs, Block: block}, corpus)
			if !slices.Equal(got.Corpora[0].IDs, want) {
				t.Errorf("%d jobs, blocks of %d: other counts", jobs, block)
			}
		}
	}
}

func TestCompressed(t *testing.T) {
	text := "the cat the dog"
	var gz, zs bytes.Buffer
	z := gzip.NewWriter(&gz)
	z.Write([]byte(text))
	z.Close()
	e, err := zstd.NewWriter(&zs)
	if err != nil {
		t.Fatal(err)
	}
	e.Write([]byte(text))
	e.Close()
	plain := counts(t, count.Options{}, count.Corpus{Name: "a", Files: []count.File{file("x", text)}})
	for name, b := range map[string][]byte{"gzip": gz.Bytes(), "zstd": zs.Bytes(), "two members": append(slices.Clone(gz.Bytes()), gz.Bytes()...)} {
		got := counts(t, count.Options{}, count.Corpus{Name: "a", Files: []count.File{file("x", string(b))}}).Corpora[0]
		if name == "two members" {
			if got.Bytes != int64(2*len(text)) {
				t.Errorf("%s: %d bytes", name, got.Bytes)
			}
			continue
		}
		if got.Bytes != int64(len(text)) || !slices.Equal(got.IDs, plain.Corpora[0].IDs) {
			t.Errorf("%s: %d bytes, other counts", name, got.Bytes)
		}
		// Cut off and damaged.
		for what, bad := range map[string][]byte{"cut": b[:len(b)-3], "damaged": flip(b)} {
			if _, err := tryCount(t, count.File{Name: "x", Open: file("x", string(bad)).Open}); !errors.Is(err, count.ErrCorpus) || !strings.Contains(err.Error(), name) {
				t.Errorf("%s %s: %v", name, what, err)
			}
		}
	}
}

func flip(b []byte) []byte {
	b = slices.Clone(b)
	b[len(b)-2] ^= 0x55
	return b
}

func tryCount(t testing.TB, f count.File) (*count.Counts, error) {
	t.Helper()
	c, err := toy(t).NewCounter()
	if err != nil {
		t.Fatal(err)
	}
	return count.Count(context.Background(), c, size, []count.Corpus{{Name: "web", Files: []count.File{f}}}, count.Options{Jobs: 2, Block: 256, MaxPiece: 4096})
}

func TestCountErrors(t *testing.T) {
	broken := errors.New("broken")
	for _, c := range []struct {
		name string
		open func(context.Context) (io.ReadCloser, error)
		want error
		says string
	}{
		{"no text", file("f", "").Open, count.ErrCorpus, "web: bad corpus: no text"},
		{"nowhere to cut", file("f", strings.Repeat("x", 10000)).Open, count.ErrCorpus, "without a place"},
		{"cannot be opened", func(context.Context) (io.ReadCloser, error) { return nil, os.ErrNotExist }, os.ErrNotExist, "web: f: "},
		{"breaks", func(context.Context) (io.ReadCloser, error) {
			return io.NopCloser(io.MultiReader(strings.NewReader(strings.Repeat("the cat ", 1000)), iotest.ErrReader(broken))), nil
		}, broken, "web: f: "},
	} {
		_, err := tryCount(t, count.File{Name: "f", Open: c.open})
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(broken)
	c, err := toy(t).NewCounter()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := count.Count(ctx, c, size, []count.Corpus{{Name: "a", Files: []count.File{file("f", "the cat")}}}, count.Options{}); !errors.Is(err, broken) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	for _, p := range []string{"b/2.txt", "a.txt", "b/1.txt", ".hidden", ".git/x"} {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(p)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, p), []byte(p), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	list, err := count.Files(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range list {
		names = append(names, f.Name)
	}
	if want := []string{"a.txt", "b/1.txt", "b/2.txt"}; !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
	if _, err := count.Files(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if _, err := count.Files(t.TempDir()); !errors.Is(err, count.ErrCorpus) {
		t.Error(err)
	}
}
