package kmcu

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"quern/tensor"
)

var ctx = context.Background()

func golden(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "testdata", "golden", "kmcu", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func open(b []byte, opt Options) (*File, error) {
	return Open(ctx, "t.kmcu", tensor.BytesBlob("t.kmcu", b), opt)
}

// TestGolden reads the files of the independent script, and lays out and writes
// them again from nothing but their header fields and raw tensor bytes.
func TestGolden(t *testing.T) {
	tests := []struct {
		file   string
		header Header
		params int64
		cols   int64 // of L0.down, to see the padding
	}{
		{"stories260k.kmcu", Header{Layers: 5, Dim: 64, Heads: 8, KVHeads: 4, HeadDim: 8, FFNDim: 172, Vocab: 512, MaxSeq: 512,
			BOS: 1, EOS: 2, Tied: true, RopeTheta: 10000, NormEps: 1e-5}, 260032, 172},
		{"stories-wide.force-tie.kmcu", Header{Layers: 5, Dim: 256, Heads: 8, KVHeads: 4, HeadDim: 32, FFNDim: 256, Vocab: 512, MaxSeq: 512,
			BOS: 1, EOS: 2, Tied: true, RopeTheta: 10000, NormEps: 2.5e-6}, 2099968, 256},
	}
	for _, tt := range tests {
		t.Run(tt.file, func(t *testing.T) {
			raw := golden(t, tt.file)
			f, err := open(raw, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if f.Header != tt.header || f.TotalParams != tt.params || f.Align != AlignRow {
				t.Errorf("header %+v, %d values, align %v, want %+v, %d, row", f.Header, f.TotalParams, f.Align, tt.header, tt.params)
			}
			down := f.Find("L0.down")
			if down == nil || down.Cols != tt.cols || !down.Tensor.Shape.Equal(tensor.Shape{int64(tt.header.Dim), padTo(tt.cols, 32)}) {
				t.Errorf("L0.down is %+v", down)
			}
			l, err := NewLayout(f.Header, f.Header.Tensors(), LayoutOptions{Partition: int64(len(raw))})
			if err != nil {
				t.Fatal(err)
			}
			if l.Size != int64(len(raw)) {
				t.Errorf("planned %d bytes, want %d", l.Size, len(raw))
			}
			var out bytes.Buffer
			if err := l.WriteTo(ctx, &out, f.All()); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(out.Bytes(), raw) {
				t.Errorf("the written file differs from the golden at offset %d", firstDiff(out.Bytes(), raw))
			}
		})
	}
}

func firstDiff(a, b []byte) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// tiny is a model whose every number fits on a page: 2 heads of 2, one layer,
// rows of 4 and 3 values.
var tiny = Header{Layers: 1, Dim: 4, Heads: 2, KVHeads: 1, HeadDim: 2, FFNDim: 3, Vocab: 5, MaxSeq: 16, BOS: 1, EOS: 2, Tied: false, RopeTheta: 10000, NormEps: 0.5}

// TestHeaderBytes compares with bytes put down by hand from the format page.
func TestHeaderBytes(t *testing.T) {
	l, err := NewLayout(tiny, tiny.Tensors(), LayoutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	head := "KMCU" +
		"\x01\x00\x00\x00" + "\x01\x00\x00\x00" + "\x04\x00\x00\x00" + "\x02\x00\x00\x00" + "\x01\x00\x00\x00" + // version .. n_kv_heads
		"\x02\x00\x00\x00" + "\x03\x00\x00\x00" + "\x05\x00\x00\x00" + "\x10\x00\x00\x00" + // head_dim .. max_seq
		"\x01\x00\x00\x00" + "\x02\x00\x00\x00" + "\x00\x00\x00\x00" + // bos, eos, tied
		"\x0c\x00\x00\x00" + "\x80\x00\x00\x00" + "\xc0\x02\x00\x00" + // 12 tensors, directory at 128, data at 704 = 128 + 12*48
		"\x00\x40\x1c\x46" + "\x00\x00\x00\x3f" + // 10000, 0.5
		"\x88\x00\x00\x00" + // 136 values
		strings.Repeat("\x00", 52)
	// 136 = 20 embed + 4 + 16 q + 8 k + 8 v + 16 o + 4 + 12 gate + 12 up + 12 down + 4 + 20 head
	embed := "tok_embed" + strings.Repeat("\x00", 15) + "\x02\x00\x00\x00" + "\x05\x00\x00\x00" + "\x04\x00\x00\x00" +
		"\xc0\x02\x00\x00" + "\x5a\x00\x00\x00" + "\x00\x00\x00\x00" // 5 rows of one block: 90 bytes at 704
	norm := "L0.in_ln" + strings.Repeat("\x00", 16) + "\x01\x00\x00\x00" + "\x01\x00\x00\x00" + "\x04\x00\x00\x00" +
		"\x40\x03\x00\x00" + "\x10\x00\x00\x00" + "\x00\x00\x00\x00" // 16 bytes at 832
	want := head + embed + norm
	if got := string(l.Header[:len(want)]); got != want {
		t.Errorf("header\n got %q\nwant %q", got, want)
	}
	// The last record: lm_head behind final_norm (16 bytes at 1600).
	tail := "lm_head" + strings.Repeat("\x00", 17) + "\x02\x00\x00\x00" + "\x05\x00\x00\x00" + "\x04\x00\x00\x00" +
		"\x80\x06\x00\x00" + "\x5a\x00\x00\x00" + "\x00\x00\x00\x00"
	if got := string(l.Header[656:704]); got != tail {
		t.Errorf("last record\n got %q\nwant %q", got, tail)
	}
	if l.Size != 1664+90 || len(l.Header) != 704 || l.TotalParams != 136 {
		t.Errorf("size %d, header %d, %d values, want 1754, 704, 136", l.Size, len(l.Header), l.TotalParams)
	}
}

// build writes a file of the tiny model whose data bytes are all different from
// the padding.
func build(t testing.TB, h Header, opt LayoutOptions) []byte {
	t.Helper()
	l, err := NewLayout(h, h.Tensors(), opt)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w, err := l.NewWriter(&out)
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range l.Tensors {
		if _, err := w.Write(bytes.Repeat([]byte{byte(i + 1)}, int(p.Bytes))); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestRead(t *testing.T) {
	var key tensor.Key
	key[0] = 1
	f, err := open(build(t, tiny, LayoutOptions{}), Options{Source: "base", Key: key})
	if err != nil {
		t.Fatal(err)
	}
	if len(f.All()) != 12 {
		t.Fatalf("%d tensors, want 12", len(f.All()))
	}
	keys := map[tensor.Key]bool{}
	for i, x := range f.All() {
		if err := x.Validate(); err != nil {
			t.Error(err)
		}
		if x.Key.IsZero() || keys[x.Key] {
			t.Errorf("%s: key %v is zero or taken", x.Name, x.Key)
		}
		keys[x.Key] = true
		row := make([]byte, x.RowBytes())
		if err := x.ReadRows(ctx, row, x.Rows()-1, 1); err != nil || row[0] != byte(i+1) || row[len(row)-1] != byte(i+1) {
			t.Errorf("%s: last row %v, %v", x.Name, row, err)
		}
		want := tensor.Extent{Source: "base", File: "t.kmcu", Offset: f.Tensors[i].Offset, Bytes: x.Bytes()}
		if len(x.Origin) != 1 || x.Origin[0] != want {
			t.Errorf("%s: origin %v, want %v", x.Name, x.Origin, want)
		}
	}
}

// TestFlat: the older form cuts the whole matrix, so the 20 values of tok_embed
// are one block.
func TestFlat(t *testing.T) {
	b := build(t, tiny, LayoutOptions{Align: AlignNone})
	f, err := open(b, Options{})
	if err != nil {
		t.Fatal(err)
	}
	e := f.Find("tok_embed")
	if f.Align != AlignNone || e.Bytes != 18 || !e.Tensor.Shape.Equal(tensor.Shape{1, 32}) || e.Rows != 5 || e.Cols != 4 {
		t.Errorf("align %v, tok_embed %+v", f.Align, e)
	}
	// One padded matrix among flat ones is a contradiction.
	l, err := NewLayout(tiny, tiny.Tensors(), LayoutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	last := l.Tensors[11]
	r := b[headerBytes+11*recordBytes:]
	binary.LittleEndian.PutUint32(r[40:], uint32(last.Bytes))
	b = append(b, make([]byte, last.Bytes-18)...)
	if _, err := open(b, Options{}); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), "padded") {
		t.Errorf("mixed forms: %v", err)
	}
}

// TestMinueza: sizes published for this model, 18.07 and 12.58 MiB (the first
// does not fit a 16 MiB partition).
func TestMinueza(t *testing.T) {
	h := Header{Layers: 10, Dim: 312, Heads: 12, KVHeads: 4, HeadDim: 26, FFNDim: 1092, Vocab: 32002, MaxSeq: 2048, BOS: 1, EOS: 32000, RopeTheta: 10000, NormEps: 1e-6}
	tests := []struct {
		tied          bool
		mib, millions float64
	}{{false, 18.07, 32.79}, {true, 12.58, 22.81}}
	for _, tt := range tests {
		h.Tied = tt.tied
		l, err := NewLayout(h, h.Tensors(), LayoutOptions{})
		if err != nil {
			t.Fatal(err)
		}
		mib, millions := float64(l.Size)/(1<<20), float64(l.TotalParams)/1e6
		if math.Round(float64(mib*100))/100 != tt.mib || math.Round(float64(millions*100))/100 != tt.millions {
			t.Errorf("tied %v: %.4f MiB, %.4f M values, want %v, %v", tt.tied, mib, millions, tt.mib, tt.millions)
		}
		_, err = NewLayout(h, h.Tensors(), LayoutOptions{Partition: 16 << 20})
		if fits := err == nil; fits != tt.tied {
			t.Errorf("tied %v: in 16 MiB: %v", tt.tied, err)
		}
	}
}

// TestPartition: the error names the excess.
func TestPartition(t *testing.T) {
	h := Header{Layers: 1, Dim: 64, Heads: 2, KVHeads: 1, HeadDim: 32, FFNDim: 64, Vocab: 26000, MaxSeq: 16, BOS: 1, EOS: 2, Tied: true, RopeTheta: 10000, NormEps: 1e-5}
	l, err := NewLayout(h, h.Tensors(), LayoutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = NewLayout(h, h.Tensors(), LayoutOptions{Partition: l.Size - 1024})
	if !errors.Is(err, ErrPartition) || !strings.Contains(err.Error(), "1024 bytes (1 KiB) too many") {
		t.Errorf("one KiB too large: %v", err)
	}
	if _, err = NewLayout(h, h.Tensors(), LayoutOptions{Partition: l.Size}); err != nil {
		t.Errorf("exactly as large: %v", err)
	}
}

// TestDataAlignment: pages of 64 KiB for flash that is mapped.
func TestDataAlignment(t *testing.T) {
	const page = 64 << 10
	b := build(t, tiny, LayoutOptions{DataAlignment: page})
	f, err := open(b, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range f.Tensors {
		if want := int64(i+1) * page; e.Offset != want {
			t.Errorf("%s at %d, want %d", e.Name, e.Offset, want)
		}
	}
	for _, a := range []int64{-64, 32, 96, 1 << 40} {
		if _, err := NewLayout(tiny, tiny.Tensors(), LayoutOptions{DataAlignment: a}); !errors.Is(err, ErrWrite) {
			t.Errorf("alignment %d: %v", a, err)
		}
	}
}
