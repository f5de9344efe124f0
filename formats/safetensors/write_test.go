package safetensors

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"quern/tensor"
)

func section(name string, typ tensor.Type, shape tensor.Shape, data []byte) *tensor.Tensor {
	t := &tensor.Tensor{Name: name, Type: typ, Shape: shape}
	t.Src = &tensor.Section{Blob: tensor.BytesBlob(name, data), RowBytes: t.RowBytes()}
	return t
}

func writeAll(t *testing.T, meta []KV, ts []*tensor.Tensor) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := Write(context.Background(), &b, meta, ts); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestWriteGolden compares with bytes written out by hand.
func TestWriteGolden(t *testing.T) {
	ts := []*tensor.Tensor{
		section("b", tensor.U8, tensor.Shape{3}, []byte{1, 2, 3}),
		section("a\"\\\n\x01é", tensor.F16, tensor.Shape{2, 1}, []byte{4, 5, 6, 7}),
		section("z", tensor.F32, nil, []byte{8, 9, 10, 11}),
		section("a", tensor.U8, tensor.Shape{0, 4}, nil),
	}
	header := `{"__metadata__":{"z":"1","a":"\"\t/<é"},` +
		`"z":{"dtype":"F32","shape":[],"data_offsets":[0,4]},` +
		`"a\"\\\n\u0001é":{"dtype":"F16","shape":[2,1],"data_offsets":[4,8]},` +
		`"a":{"dtype":"U8","shape":[0,4],"data_offsets":[8,8]},` +
		`"b":{"dtype":"U8","shape":[3],"data_offsets":[8,11]}}`
	for len(header)%8 != 0 {
		header += " "
	}
	want := raw(header, []byte{8, 9, 10, 11, 4, 5, 6, 7, 1, 2, 3})
	meta := []KV{{"z", "1"}, {"a", "\"\t/<é"}}
	if got := writeAll(t, meta, ts); !bytes.Equal(got, want) {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}
	// The order of the arguments makes no difference.
	ts[0], ts[3] = ts[3], ts[0]
	if got := writeAll(t, meta, ts); !bytes.Equal(got, want) {
		t.Error("the order of tensors shows")
	}
	f := mustOpen(t, want)
	if fmt.Sprint(f.Metadata) != fmt.Sprint(meta) || len(f.Tensors) != 4 || string(rows(t, f.Tensor("b"))) != "\x01\x02\x03" {
		t.Errorf("read back %v %v", f.Metadata, f.Tensors)
	}
	if got := writeAll(t, nil, nil); string(got) != "\x08\x00\x00\x00\x00\x00\x00\x00{}      " {
		t.Errorf("no tensors: %q", got)
	}
}

// Case 12: the header is padded to a multiple of 8 whatever the names.
func TestWritePadding(t *testing.T) {
	for n := 1; n <= 8; n++ {
		b := writeAll(t, nil, []*tensor.Tensor{section(strings.Repeat("n", n), tensor.F32, tensor.Shape{1}, []byte{1, 2, 3, 4})})
		if h := binary.LittleEndian.Uint64(b); h%8 != 0 {
			t.Errorf("%d letters: header of %d bytes", n, h)
		}
		if got := rows(t, mustOpen(t, b).Tensors[0]); string(got) != "\x01\x02\x03\x04" {
			t.Errorf("%d letters: data %v", n, got)
		}
	}
}

// TestRewriteReference rewrites files of the reference library: the same bytes
// must come out.
func TestRewriteReference(t *testing.T) {
	var files []string
	for _, g := range []string{"../../testdata/models/*/*.safetensors", "../../testdata/golden/runtime/*.safetensors"} {
		m, err := filepath.Glob(g)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, m...)
	}
	if len(files) < 7 {
		t.Fatalf("%d files", len(files))
	}
	for _, file := range files {
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		f := mustOpen(t, want)
		if got := writeAll(t, f.Metadata, f.Tensors); !bytes.Equal(got, want) {
			i := 0
			for i < len(got) && i < len(want) && got[i] == want[i] {
				i++
			}
			t.Errorf("%s: differs at byte %d: %.80q, want %.80q", file, i, got[i:], want[i:])
		}
	}
}

func TestWriteRefuses(t *testing.T) {
	one := tensor.Shape{1}
	for _, x := range []struct {
		meta []KV
		ts   []TensorSpec
		part string
	}{
		{nil, []TensorSpec{{"", tensor.U8, one}}, "without a name"},
		{nil, []TensorSpec{{"\xff", tensor.U8, one}}, "not UTF-8"},
		{nil, []TensorSpec{{"a", tensor.U8, one}, {"b", tensor.F32, one}, {"a", tensor.F32, one}}, `two tensors are called "a"`},
		{nil, []TensorSpec{{"a", tensor.Q4_0, tensor.Shape{32}}}, "Q4_0"},
		{nil, []TensorSpec{{"a", tensor.U8, tensor.Shape{-1}}}, "negative"},
		{nil, []TensorSpec{{"a", tensor.F64, tensor.Shape{1 << 62}}}, "large"},
		{nil, []TensorSpec{{"a", tensor.U8, tensor.Shape{1 << 62}}, {"b", tensor.U8, tensor.Shape{1 << 62}}}, "2^63-1"},
		{[]KV{{"a", "1"}, {"a", "2"}}, nil, "twice"},
		{[]KV{{"a", "\xff"}}, nil, "not UTF-8"},
	} {
		_, err := NewLayout(x.meta, x.ts)
		wantErr(t, err, ErrWrite, x.part)
	}
	big := make([]byte, DefaultMaxHeader)
	for i := range big {
		big[i] = 'x'
	}
	_, err := NewLayout([]KV{{"a", string(big)}}, nil)
	wantErr(t, err, ErrWrite, "100000000")
}

// TestWriteChecksTensors: what is written must be what was planned.
func TestWriteChecksTensors(t *testing.T) {
	a := section("a", tensor.U8, tensor.Shape{2}, []byte{1, 2})
	l, err := NewLayout(nil, []TensorSpec{{"a", tensor.U8, tensor.Shape{2}}})
	if err != nil {
		t.Fatal(err)
	}
	if l.Size != int64(len(l.Header))+2 || l.Tensors[0].Offset != int64(len(l.Header)) {
		t.Errorf("layout %+v", l)
	}
	for _, ts := range [][]*tensor.Tensor{
		nil,
		{section("b", tensor.U8, tensor.Shape{2}, []byte{1, 2})},
		{section("a", tensor.I8, tensor.Shape{2}, []byte{1, 2})},
		{section("a", tensor.U8, tensor.Shape{2, 1}, []byte{1, 2})},
		{a, section("b", tensor.U8, tensor.Shape{2}, []byte{1, 2})},
	} {
		var b bytes.Buffer
		wantErr(t, l.WriteTo(context.Background(), &b, ts), ErrWrite)
		if b.Len() > 0 {
			t.Error("bytes were written")
		}
	}
	// A source that fails, a writer that fails, a cancelled context.
	boom := errors.New("boom")
	bad := a.With(func(x *tensor.Tensor) {
		x.Src = tensor.SourceFunc(func(context.Context, []byte, int64, int64) error { return boom })
	})
	if err := l.WriteTo(context.Background(), &bytes.Buffer{}, []*tensor.Tensor{bad}); !errors.Is(err, boom) {
		t.Errorf("source: %v", err)
	}
	for n := range 3 {
		if err := l.WriteTo(context.Background(), &failWriter{after: n * 35}, []*tensor.Tensor{a}); n < 2 && !errors.Is(err, errFull) {
			t.Errorf("writer failing after %d bytes: %v", n*35, err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := l.WriteTo(ctx, &bytes.Buffer{}, []*tensor.Tensor{a}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

var errFull = errors.New("disk full")

type failWriter struct{ after int }

func (w *failWriter) Write(p []byte) (int, error) {
	if len(p) > w.after {
		return w.after, errFull
	}
	w.after -= len(p)
	return len(p), nil
}
