package gguf

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"quern/tensor"
)

// counting counts the reads of a blob and fails them after some.
type counting struct {
	tensor.Blob
	reads, bytes int64
	last         int64 // end of the furthest read
	failAt       int64 // the read that fails, from 1; 0 for none
}

var errRead = errors.New("connection reset")

func (c *counting) ReadAt(ctx context.Context, p []byte, off int64) error {
	c.reads++
	c.bytes += int64(len(p))
	c.last = max(c.last, off+int64(len(p)))
	if c.reads == c.failAt {
		return errRead
	}
	return c.Blob.ReadAt(ctx, p, off)
}

// bigVocab is a file of 300,000 tokens with scores and types, over 8 MiB of
// header, and one tensor.
func bigVocab(t testing.TB) []byte {
	t.Helper()
	const n = 300_000
	tokens, scores, types := make([]string, n), make([]float32, n), make([]int32, n)
	for i := range tokens {
		tokens[i] = fmt.Sprintf("token-%07d", i)
		scores[i] = -float32(i)
		types[i] = 1
	}
	m := NewMetadata(KV{"tokenizer.ggml.model", Scalar("llama")}, KV{"tokenizer.ggml.tokens", List(tokens)},
		KV{"tokenizer.ggml.scores", List(scores)}, KV{"tokenizer.ggml.token_type", List(types)})
	l, err := NewLayout(m, []TensorSpec{{"w", tensor.F32, tensor.Shape{1 << 20, 4}}}, LayoutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return append(l.Header, make([]byte, l.Size-l.DataStart())...)
}

// TestHeaderRequests: a header of 8 MiB costs one read for each doubling of the
// first MiB, each byte once, and the data is left alone.
func TestHeaderRequests(t *testing.T) {
	raw := bigVocab(t)
	b := &counting{Blob: tensor.BytesBlob("v", raw)}
	f, err := Open(ctx, "v", b, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if f.HeaderEnd < 8<<20 {
		t.Fatalf("a header of %d bytes is too short for this test", f.HeaderEnd)
	}
	if b.reads != 5 || b.bytes != 16<<20 || b.last != 16<<20 {
		t.Errorf("%d reads of %d bytes up to %d, want 5 of 16 MiB", b.reads, b.bytes, b.last)
	}
	v, err := ReadVocab(f.Meta)
	if err != nil || len(v.Tokens) != 300_000 || v.Tokens[299_999] != "token-0299999" || v.Scores[299_999] != -299_999 {
		t.Errorf("vocabulary: %v", err)
	}
	small := &counting{Blob: tensor.BytesBlob("two", []byte(two()))}
	if _, err := Open(ctx, "two", small, Options{}); err != nil || small.reads != 1 {
		t.Errorf("%d reads of a small header, %v", small.reads, err)
	}
	// A first read that guesses right saves the doublings.
	b = &counting{Blob: tensor.BytesBlob("v", raw)}
	if _, err := Open(ctx, "v", b, Options{FirstRead: 12 << 20}); err != nil || b.reads != 1 {
		t.Errorf("%d reads, %v", b.reads, err)
	}
	// Any first read gives the same header.
	for _, first := range []int64{1, 24, 1000, 1 << 30} {
		g, err := Open(ctx, "v", tensor.BytesBlob("v", raw), Options{FirstRead: first})
		if err != nil || !g.Meta.Equal(f.Meta) || g.DataStart != f.DataStart {
			t.Errorf("first read of %d: %v", first, err)
		}
	}
}

// TestHeaderLimit: the error states what is needed, the limit and the way out.
func TestHeaderLimit(t *testing.T) {
	raw := bigVocab(t)
	b := &counting{Blob: tensor.BytesBlob("v", raw)}
	_, err := Open(ctx, "v", b, Options{MaxHeader: 2 << 20})
	if !errors.Is(err, ErrHeaderLimit) || !strings.Contains(err.Error(), "the limit is 2097152") || !strings.Contains(err.Error(), "tokenizer.ggml.tokens") {
		t.Errorf("error %v", err)
	}
	if b.last > 2<<20 {
		t.Errorf("read up to %d in spite of the limit", b.last)
	}
	// An array that claims more than the limit is refused before it is read.
	b = &counting{Blob: tensor.BytesBlob("v", []byte(meta(kv("k", 9, arr(0, 4<<20, "")))+zeros(4<<20)))}
	if _, err := Open(ctx, "v", b, Options{MaxHeader: 2 << 20}); !errors.Is(err, ErrHeaderLimit) || b.last > 2<<20 {
		t.Errorf("read up to %d, %v", b.last, err)
	}
}

// TestReadFault: an error of the blob comes out with file, offset and field
// wherever it falls.
func TestReadFault(t *testing.T) {
	raw := bigVocab(t)
	for at := int64(1); at <= 5; at++ {
		_, err := Open(ctx, "v.gguf", &counting{Blob: tensor.BytesBlob("v", raw), failAt: at}, Options{})
		var re *ReadError
		if !errors.Is(err, errRead) || !errors.As(err, &re) || re.File != "v.gguf" {
			t.Errorf("read %d fails: %v", at, err)
		}
	}
	gone, stop := context.WithCancelCause(ctx)
	stop(errRead)
	if _, err := Open(gone, "v", tensor.BytesBlob("v", raw), Options{}); !errors.Is(err, errRead) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestVocabMemory: 300,000 strings share one piece of memory.
func TestVocabMemory(t *testing.T) {
	raw := bigVocab(t)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	f, err := Open(ctx, "v", tensor.BytesBlob("v", raw), Options{})
	if err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if n := after.Mallocs - before.Mallocs; n > 1000 {
		t.Errorf("%d allocations", n)
	}
	// Text 3.9 MB, string headers 4.8 MB, scores and types 2.4 MB.
	if held := int64(after.HeapAlloc) - int64(before.HeapAlloc); held > 13<<20 {
		t.Errorf("%d bytes are held for a header of %d", held, f.HeaderEnd)
	}
	runtime.KeepAlive(f)
	runtime.KeepAlive(raw)
}

// TestSparse: positions over 2^32 in a file of 5 GiB with a tensor at its end.
func TestSparse(t *testing.T) {
	const rows, cols = 5 << 20, 1 << 10 // 5 GiB of one-byte values
	l, err := NewLayout(nil, []TensorSpec{{"big", tensor.I8, tensor.Shape{rows, cols}}, {"last", tensor.F32, tensor.Shape{2}}}, LayoutOptions{BareEnd: true})
	if err != nil {
		t.Fatal(err)
	}
	if want := l.DataStart() + rows*cols; l.Tensors[1].Offset != want || l.Size != want+8 {
		t.Fatalf("last tensor at %d, size %d, want %d, %d", l.Tensors[1].Offset, l.Size, want, want+8)
	}
	path := filepath.Join(t.TempDir(), "sparse.gguf")
	w, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for _, p := range []struct {
		s   string
		off int64
	}{{string(l.Header), 0}, {"the end!", l.Tensors[1].Offset}, {"row", l.Tensors[0].Offset + 5<<30 - 1<<10}} {
		if _, err := w.WriteAt([]byte(p.s), p.off); err != nil {
			t.Fatal(err)
		}
	}
	blob, err := tensor.OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer blob.Close()
	f, err := Open(ctx, path, blob, Options{})
	if err != nil {
		t.Fatal(err)
	}
	list, err := f.All()
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 8)
	if err := list[1].ReadRows(ctx, b, 0, 1); err != nil || string(b) != "the end!" {
		t.Errorf("last tensor %q, %v", b, err)
	}
	b = make([]byte, cols)
	if err := list[0].ReadRows(ctx, b, rows-1, 1); err != nil || string(b[:4]) != "row\x00" {
		t.Errorf("last row of the large tensor %q, %v", b[:4], err)
	}
	if err := w.Truncate(l.Size - 1); err != nil {
		t.Fatal(err)
	}
	short, err := tensor.OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer short.Close()
	if _, err := Open(ctx, path, short, Options{}); !errors.Is(err, ErrTruncated) || !strings.Contains(err.Error(), `"last"`) {
		t.Errorf("one byte short: %v", err)
	}
}
