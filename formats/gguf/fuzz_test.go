package gguf

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"quern/tensor"
)

// seeds gives both targets every file of the tables and of testdata.
func seeds(f *testing.F) {
	f.Helper()
	for _, r := range rejects {
		f.Add([]byte(r.raw))
	}
	for _, a := range accepts {
		f.Add([]byte(a.raw))
	}
	f.Add([]byte(two()))
	paths, err := filepath.Glob(filepath.Join("testdata", "*.gguf"))
	if err != nil || len(paths) == 0 {
		f.Fatal("no files", err)
	}
	for _, p := range paths {
		b, err := os.ReadFile(p)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
}

// FuzzOpen: no panic, an error with a place, and no more memory than a small
// multiple of the input, whatever the file says.
func FuzzOpen(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, partial := range []bool{false, true} {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			x, err := Open(ctx, "f", tensor.BytesBlob("f", b), Options{Partial: partial})
			runtime.ReadMemStats(&after)
			if got, most := after.TotalAlloc-before.TotalAlloc, uint64(len(b))*32+64<<10; got > most {
				t.Fatalf("%d bytes allocated for %d bytes of input", got, len(b))
			}
			var re *ReadError
			if err != nil && !errors.As(err, &re) {
				t.Fatalf("error without a place: %v", err)
			}
			if err != nil {
				continue
			}
			if !partial && len(x.Problems) > 0 {
				t.Fatalf("opened with problems: %v", x.Problems)
			}
			for i := range x.Tensors {
				s := &x.Tensors[i]
				_ = s.TypeName()
				if (s.Usable() == nil) != (s.Tensor != nil) {
					t.Fatalf("tensor %q: usable %v, tensor %v", s.Name, s.Usable(), s.Tensor)
				}
				if !partial && s.Offset+s.Bytes > int64(len(b)) {
					t.Fatalf("tensor %q ends behind the file", s.Name)
				}
			}
			_, _ = ReadVocab(x.Meta)
		}
	})
}

// FuzzRewrite: what the reader accepts is laid out, written and read again with
// the same contents.
func FuzzRewrite(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := Open(ctx, "f", tensor.BytesBlob("f", b), Options{})
		if err != nil {
			return
		}
		list, err := x.All()
		if err != nil {
			return // a type that holds activations
		}
		for key := range x.Meta.All() {
			if strings.ContainsRune(key, 0) {
				return // read as ggml reads it, but not written
			}
		}
		l, err := NewLayout(x.Meta, specs(list), LayoutOptions{})
		if err != nil {
			t.Fatalf("accepted but not laid out: %v", err)
		}
		var out bytes.Buffer
		if err := l.WriteTo(ctx, &out, list); err != nil {
			t.Fatalf("accepted but not written: %v", err)
		}
		if int64(out.Len()) != l.Size {
			t.Fatalf("wrote %d bytes, planned %d", out.Len(), l.Size)
		}
		y, err := Open(ctx, "f", tensor.BytesBlob("f", out.Bytes()), Options{})
		if err != nil {
			t.Fatalf("written but not read: %v", err)
		}
		if !y.Meta.Equal(x.Meta) || y.Alignment != x.Alignment || len(y.Tensors) != len(x.Tensors) {
			t.Fatalf("read again with other metadata, alignment %d or %d tensors", y.Alignment, len(y.Tensors))
		}
		for i := range y.Tensors {
			p, q := &x.Tensors[i], &y.Tensors[i]
			if p.Name != q.Name || p.TypeID != q.TypeID || !p.Shape().Equal(q.Shape()) || p.Bytes != q.Bytes {
				t.Fatalf("tensor %d read again as %+v, was %+v", i, q, p)
			}
			if !bytes.Equal(b[p.Offset:p.Offset+p.Bytes], out.Bytes()[q.Offset:q.Offset+q.Bytes]) {
				t.Fatalf("tensor %q has other data", p.Name)
			}
		}
	})
}
