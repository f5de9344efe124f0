package cact

import (
	"context"
	"errors"
	"math"
	"runtime"
	"strings"
	"testing"

	"quern/tensor"
)

func put32(off int, v uint32) func([]byte) []byte {
	return func(b []byte) []byte { le.PutUint32(b[off:], v); return b }
}

func put8(off int, v byte) func([]byte) []byte {
	return func(b []byte) []byte { b[off] = v; return b }
}

func put64(off int, v uint64) func([]byte) []byte {
	return func(b []byte) []byte { le.PutUint64(b[off:], v); return b }
}

// rec gives the offset of a field of tensor i's record in a file of generation 2.
func rec(i, field int) int { return 120 + 4*CodebookLen + i*recordBytes + field }

// mutations break needle2-b-w4.cact, of 2 layers and 51 tensors, in one place
// each.
var mutations = []struct {
	name   string
	change func([]byte) []byte
	is     error
	offset int64
	text   string
}{
	{"empty file", func([]byte) []byte { return nil }, ErrNotCact, 0, "tag"},
	{"web page", func([]byte) []byte { return []byte("<!DOCTYPE html><html>") }, ErrHTML, 0, "tag"},
	{"git lfs pointer", func([]byte) []byte {
		return []byte("version https://git-lfs.github.com/spec/v1\noid sha256:4db9\nsize 154880\n")
	}, ErrLFSPointer, 0, "tag"},
	{"another format", func([]byte) []byte { return []byte("GGUF\x03\x00\x00\x00") }, ErrNotCact, 0, "tag"},
	{"generation 1", put32(0, 0x05E12A82), ErrNotCact, 0, "tag"},
	{"taken for generation 3", put32(0, tag3), ErrFormat, 0, ""},
	{"header cut", func(b []byte) []byte { return b[:119] }, ErrTruncated, 0, "119"},
	{"codebooks cut", func(b []byte) []byte { return b[:231] }, ErrTruncated, 0, "231"},
	{"no tensors", put32(4, 0), ErrModel, 4, "num_tensors"},
	{"2^32-1 tensors", put32(4, math.MaxUint32), ErrModel, 4, "num_tensors"},
	{"one tensor less", func(b []byte) []byte { le.PutUint32(b[4:], le.Uint32(b[4:])-1); return b }, ErrFormat, 0, ""},
	{"codebook of 29", put32(8, 29), ErrFormat, 8, "codebook_len"},
	{"absurd window", put32(12, 1<<31), ErrFormat, 12, "kv_window"},
	{"no kv bits", put32(16, 0), ErrFormat, 16, "kv_bits"},
	{"33 kv bits", put32(16, 33), ErrFormat, 16, "kv_bits"},
	{"no vocabulary", put32(20, 0), ErrFormat, 20, "vocab"},
	{"other vocabulary", put32(20, 513), ErrModel, int64(rec(0, 4)), "embedding"},
	{"no d_model", put32(24, 0), ErrFormat, 24, "d_model"},
	{"absurd d_model", put32(24, math.MaxUint32), ErrFormat, 24, "d_model"},
	{"no heads", put32(28, 0), ErrFormat, 28, "num_heads"},
	{"heads over kv heads", put32(32, 3), ErrFormat, 32, "num_kv_heads"},
	{"no layers", put32(36, 0), ErrFormat, 36, "num_layers"},
	{"65 layers", put32(36, 65), ErrFormat, 36, "num_layers"},
	{"a layer more", put32(36, 3), ErrModel, 4, "num_tensors"},
	{"odd heads", put32(40, 47), ErrFormat, 40, "odd"},
	{"hada_n not the power", put32(48, 512), ErrFormat, 48, "hada_n"},
	{"absurd lanes", put32(52, 65), ErrFormat, 52, "mhc_lanes"},
	{"no slots", put32(56, 0), ErrFormat, 56, "engram_slots"},
	{"tables wider than the model", put32(60, 97), ErrFormat, 60, "engram_sub_dim"},
	{"tables do not divide", put32(64, 3), ErrFormat, 64, "num_engram_tables"},
	{"no taps", put32(68, 0), ErrFormat, 68, "engram_conv_taps"},
	{"other dilation", put32(72, 2), ErrFormat, 72, "engram_conv_dilation"},
	{"5 orders", put32(76, 5), ErrFormat, 76, "num_engram_orders"},
	{"no orders", func(b []byte) []byte { clear(b[76:88]); return b }, ErrFormat, 76, "no orders"},
	{"order in an unused place", put32(88, 1), ErrFormat, 88, "unused"},
	{"order of 0", put32(80, 0), ErrFormat, 80, "engram_orders[0]"},
	{"5 sites", put32(96, 5), ErrFormat, 96, "num_engram_sites"},
	{"site past the layers", put32(104, 2), ErrFormat, 104, "layer 2 of 2"},
	{"sites out of order", put32(100, 1), ErrFormat, 104, "does not follow"},
	{"theta 0", put32(116, 0), ErrFormat, 116, "rope_theta"},
	{"theta NaN", put32(116, 0x7fc00000), ErrFormat, 116, "rope_theta"},
	{"codebook NaN", put32(120+8, 0x7fc00000), ErrFormat, 128, "codebook entry 2"},
	{"codebook out of order", put32(120+4*5, 0xbf800000), ErrFormat, 140, "ascend"},
	{"dtype 0", put8(rec(0, 0), 0), ErrFormat, int64(rec(0, 0)), "dtype"},
	{"dtype 5", put8(rec(0, 0), 5), ErrFormat, int64(rec(0, 0)), "dtype"},
	{"5 dimensions", put8(rec(1, 1), 5), ErrFormat, int64(rec(1, 1)), "ndim"},
	{"CQ of one dimension", put8(rec(0, 1), 1), ErrFormat, int64(rec(0, 1)), "matrix"},
	{"record padding", put8(rec(0, 3), 1), ErrFormat, int64(rec(0, 2)), "padding"},
	{"dimension 0", put32(rec(1, 4), 0), ErrFormat, int64(rec(1, 4)), "dimension 0"},
	{"shape in an unused place", put32(rec(1, 8), 1), ErrFormat, int64(rec(1, 8)), "shape"},
	{"shape overflows", func(b []byte) []byte {
		b[rec(1, 1)] = 4
		for i := range 4 {
			le.PutUint32(b[rec(1, 4+4*i):], math.MaxUint32)
		}
		return b
	}, ErrFormat, int64(rec(1, 4)), "shape"},
	{"CQ shape overflows", func(b []byte) []byte {
		le.PutUint32(b[rec(0, 4):], math.MaxUint32)
		le.PutUint32(b[rec(0, 8):], math.MaxUint32)
		return b
	}, ErrFormat, int64(rec(0, 4)), "shape"},
	{"offset not on the grid", func(b []byte) []byte { b[rec(0, 20)]++; return b }, ErrFormat, int64(rec(0, 20)), "offset"},
	{"offset into the tensor before", func(b []byte) []byte {
		le.PutUint64(b[rec(1, 20):], le.Uint64(b[rec(0, 20):]))
		return b
	}, ErrFormat, int64(rec(1, 20)), "offset"},
	{"offset 2^63", put64(rec(2, 20), 1<<63), ErrFormat, int64(rec(2, 20)), "offset"},
	{"size 2^64-1", put64(rec(2, 28), math.MaxUint64), ErrFormat, int64(rec(2, 28)), "nbytes"},
	{"size one less", func(b []byte) []byte { b[rec(0, 28)]--; return b }, ErrFormat, int64(rec(0, 28)), "nbytes"},
	{"group 48", put32(rec(0, 36), 48), ErrFormat, int64(rec(0, 36)), "group"},
	{"group 2^31", put32(rec(0, 36), 1<<31), ErrFormat, int64(rec(0, 36)), "group"},
	{"other group of one tensor", func(b []byte) []byte {
		// The norm at 192 wide rows: 2 groups of 128, 1 of 256 with the same
		// padding and half the norms.
		le.PutUint32(b[rec(2, 36):], 256)
		le.PutUint64(b[rec(2, 28):], le.Uint64(b[rec(2, 28):])-192*2)
		return b
	}, ErrFormat, int64(rec(3, 20)), "offset"},
	{"group of an FP16 tensor", put32(rec(1, 36), 128), ErrFormat, int64(rec(1, 36)), "group"},
	{"bits 0", put32(rec(0, 40), 0), ErrFormat, int64(rec(0, 40)), "bits"},
	{"bits 6", put32(rec(0, 40), 6), ErrFormat, int64(rec(0, 40)), "bits"},
	{"bits 260", put32(rec(0, 40), 260), ErrFormat, int64(rec(0, 40)), "bits"},
	{"bits of an FP16 tensor", put32(rec(1, 40), 16), ErrFormat, int64(rec(1, 40)), "bits"},
	{"FP16 taken for FP32", func(b []byte) []byte {
		b[rec(1, 0)] = dtypeF32
		le.PutUint64(b[rec(1, 28):], 192*4)
		return b
	}, ErrFormat, 0, ""},
	{"bytes after the last tensor", func(b []byte) []byte { return append(b, 0) }, ErrFormat, -1, "after the last"},
	{"cut by one byte", func(b []byte) []byte { return b[:len(b)-1] }, ErrTruncated, 0, ""},
	{"cut in the directory", func(b []byte) []byte { return b[:400] }, ErrTruncated, 4, "directory"},
	{"a head that there is not", func(b []byte) []byte { b[manifestAt(b)+1] = 0x45; return b }, ErrModel, 0, "heads.manifest"},
	{"heads out of order", func(b []byte) []byte {
		m := manifestAt(b)
		b[m+1], b[m+3] = b[m+3], b[m+1]
		return b
	}, ErrModel, 0, "heads.manifest"},
}

// manifestAt finds the data of the manifest, the seventh record from the end but
// one.
func manifestAt(b []byte) int {
	n := int(le.Uint32(b[4:]))
	return int(le.Uint64(b[rec(n-8, 20):]))
}

func TestReject(t *testing.T) {
	good := golden(t, "needle2-b-w4.cact")
	for _, m := range mutations {
		t.Run(m.name, func(t *testing.T) {
			b := m.change(append([]byte(nil), good...))
			_, err := open(b)
			var re *ReadError
			if !errors.Is(err, m.is) || !errors.As(err, &re) {
				t.Fatalf("%v, want %v", err, m.is)
			}
			want := m.offset
			if want == -1 {
				want = int64(len(good))
			}
			if want != 0 && re.Offset != want || !strings.Contains(err.Error(), m.text) {
				t.Errorf("%v: want offset %d and %q", err, want, m.text)
			}
		})
	}
}

// TestEveryCut: no prefix of a file is taken for one.
func TestEveryCut(t *testing.T) {
	good := golden(t, "needle2-b-w4.cact")
	step := 1
	for n := 0; n < len(good); n += step {
		if n > 4000 {
			step = 997
		}
		if _, err := open(good[:n]); err == nil {
			t.Fatalf("cut at %d it is accepted", n)
		}
	}
}

// TestNoAllocation: a count in a small file does not make the reader allocate.
func TestNoAllocation(t *testing.T) {
	b := golden(t, "needle2-b-w4.cact")[:300]
	le.PutUint32(b[4:], math.MaxUint32)
	le.PutUint32(b[36:], 64)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := open(b); err == nil {
		t.Fatal("accepted")
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
		t.Errorf("%d bytes were allocated", n)
	}
}

// TestPitfall077Rotation: an archive whose group, and with it the rotation, is
// stripped is refused, not read without it.
func TestPitfall077Rotation(t *testing.T) {
	good := golden(t, "needle2-b-w4.cact")
	b := put32(rec(0, 36), 0)(append([]byte(nil), good...))
	if _, err := open(b); !errors.Is(err, ErrFormat) {
		t.Errorf("%v", err)
	}
}

func TestLayoutRefuses(t *testing.T) {
	f := mustOpen(t, golden(t, "needle2-b-w4.cact"))
	for _, c := range []struct {
		name   string
		change func(h *Header, list []LayoutTensor) []LayoutTensor
		is     error
	}{
		{"generation 4", func(h *Header, l []LayoutTensor) []LayoutTensor { h.Generation = 4; return l }, ErrWrite},
		{"generation 3 of the tensors of 2", func(h *Header, l []LayoutTensor) []LayoutTensor { h.Generation = 3; return l }, ErrModel},
		{"no layers", func(h *Header, l []LayoutTensor) []LayoutTensor { h.Layers = 0; return l }, ErrWrite},
		{"five sites", func(h *Header, l []LayoutTensor) []LayoutTensor {
			h.Layers, h.Sites = 8, []uint32{0, 1, 2, 3, 4}
			return l
		}, ErrWrite},
		{"a tensor short", func(_ *Header, l []LayoutTensor) []LayoutTensor { return l[:30] }, ErrModel},
		{"two swapped", func(_ *Header, l []LayoutTensor) []LayoutTensor { l[2], l[3] = l[3], l[2]; return l }, ErrModel},
		{"one too many", func(_ *Header, l []LayoutTensor) []LayoutTensor { return append(l, l[1]) }, ErrModel},
		{"other kind", func(_ *Header, l []LayoutTensor) []LayoutTensor { l[1].Kind = F32; return l }, ErrModel},
		{"other shape", func(_ *Header, l []LayoutTensor) []LayoutTensor { l[1].Shape = tensor.Shape{7}; return l }, ErrModel},
		{"two groups", func(_ *Header, l []LayoutTensor) []LayoutTensor { l[2].Group = 64; return l }, ErrWrite},
	} {
		h := f.Header
		list := c.change(&h, layoutOf(f))
		if _, err := NewLayout(h, f.Codebooks, f.Heads, list); !errors.Is(err, c.is) {
			t.Errorf("%s: %v, want %v", c.name, err, c.is)
		}
	}
}

// TestDecodeBadCrumb: ternary bits that stand for nothing are an error with tensor
// and row.
func TestDecodeBadCrumb(t *testing.T) {
	b := append([]byte(nil), golden(t, "needle2-a-mixed.cact")...)
	f := mustOpen(t, b)
	e := f.Entry("layer00.k_proj")
	b[e.Offset+3*e.Tensor.RowBytes()] = 0b10
	f = mustOpen(t, b)
	d, err := f.Decoded(f.Entry("layer00.k_proj"))
	if err != nil {
		t.Fatal(err)
	}
	err = d.ReadRows(context.Background(), make([]byte, d.Bytes()), 0, d.Rows())
	if err == nil || !strings.Contains(err.Error(), "layer00.k_proj: row 3") {
		t.Errorf("%v", err)
	}
}
