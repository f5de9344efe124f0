package placed

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"quern/tensor"
)

var plan = []Extent{{"a", 4, 3}, {"b", 8, 0}, {"c", 10, 2}}

const want = "HEADaaa\x00\x00\x00cc\x00\x00"

// TestChunks: the same bytes whatever the chunks.
func TestChunks(t *testing.T) {
	for size := 1; size <= 6; size++ {
		var out bytes.Buffer
		w, err := New(&out, []byte("HEAD"), plan, 14)
		if err != nil {
			t.Fatal(err)
		}
		for rest := []byte("aaacc"); len(rest) > 0; {
			n := min(size, len(rest))
			if k, err := w.Write(rest[:n]); k != n || err != nil {
				t.Fatalf("write of %d: %d, %v", n, k, err)
			}
			rest = rest[n:]
		}
		if err := w.Close(); err != nil || out.String() != want {
			t.Errorf("chunks of %d: %q, %v, want %q", size, out.String(), err, want)
		}
	}
}

func TestTooMuchTooLittle(t *testing.T) {
	w, err := New(io.Discard, []byte("HEAD"), plan, 14)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := w.Write([]byte("aaaccx")); n != 5 || !errors.Is(err, ErrPlan) {
		t.Errorf("too much: %d, %v", n, err)
	}
	if err := w.Close(); !errors.Is(err, ErrPlan) {
		t.Errorf("close after too much: %v", err)
	}
	w, err = New(io.Discard, []byte("HEAD"), plan, 14)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte("aa")); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); !errors.Is(err, ErrPlan) || !strings.Contains(err.Error(), `"a" has 2 of 3`) {
		t.Errorf("too little: %v", err)
	}
}

func TestBadPlan(t *testing.T) {
	for name, ext := range map[string][]Extent{
		"in the header": {{"a", 3, 1}},
		"overlap":       {{"a", 4, 3}, {"b", 6, 1}},
		"past the size": {{"a", 4, 11}},
		"negative":      {{"a", 4, -1}},
	} {
		if _, err := New(io.Discard, []byte("HEAD"), ext, 14); !errors.Is(err, ErrPlan) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// fullAt fails after n bytes, the last write being short.
type fullAt struct{ n int }

var errFull = errors.New("disk full")

func (w *fullAt) Write(p []byte) (int, error) {
	if len(p) > w.n {
		n := w.n
		w.n = 0
		return n, errFull
	}
	w.n -= len(p)
	return len(p), nil
}

// TestFull: the error of the writer below comes out wherever it falls, with the
// offset, and stays.
func TestFull(t *testing.T) {
	for n := range len(want) {
		w, err := New(&fullAt{n}, []byte("HEAD"), plan, 14)
		if err == nil {
			_, err = w.Write([]byte("aaacc"))
		}
		if err == nil {
			err = w.Close()
		}
		if !errors.Is(err, errFull) {
			t.Errorf("full after %d bytes: %v", n, err)
		}
		if w != nil && !errors.Is(w.Close(), errFull) {
			t.Errorf("full after %d bytes: forgotten by Close", n)
		}
	}
}

func TestCopy(t *testing.T) {
	a := &tensor.Tensor{Name: "a", Type: tensor.U8, Shape: tensor.Shape{3, 1}, Src: &tensor.Section{Blob: tensor.BytesBlob("a", []byte("aaa")), RowBytes: 1}}
	c := &tensor.Tensor{Name: "c", Type: tensor.U8, Shape: tensor.Shape{2}, Src: &tensor.Section{Blob: tensor.BytesBlob("c", []byte("cc")), RowBytes: 2}}
	var out bytes.Buffer
	w, err := New(&out, []byte("HEAD"), plan, 14)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Copy(context.Background(), []*tensor.Tensor{a, c}); err != nil || out.String() != want {
		t.Errorf("%q, %v, want %q", out.String(), err, want)
	}
	gone, stop := context.WithCancelCause(context.Background())
	stop(errFull)
	w, err = New(io.Discard, []byte("HEAD"), plan, 14)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Copy(gone, []*tensor.Tensor{a, c}); !errors.Is(err, errFull) {
		t.Errorf("cancelled: %v", err)
	}
}
