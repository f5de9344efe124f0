package kmcu

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"runtime"
	"strings"
	"testing"

	"quern/tensor"
)

func put32(off int, v uint32) func([]byte) []byte {
	return func(b []byte) []byte { binary.LittleEndian.PutUint32(b[off:], v); return b }
}

func put8(off int, v byte) func([]byte) []byte {
	return func(b []byte) []byte { b[off] = v; return b }
}

// record gives the offset of a field of tensor i's record.
func record(i, field int) int { return headerBytes + i*recordBytes + field }

// mutations break a good file of the tiny model in one place each.
var mutations = []struct {
	name   string
	change func([]byte) []byte
	is     error
	offset int64
	text   string
}{
	{"empty file", func([]byte) []byte { return nil }, ErrNotKMCU, 0, "magic"},
	{"web page", func([]byte) []byte { return []byte("<!DOCTYPE html><html>") }, ErrHTML, 0, "magic"},
	{"git lfs pointer", func([]byte) []byte {
		return []byte("version https://git-lfs.github.com/spec/v1\noid sha256:4db9\nsize 154880\n")
	}, ErrLFSPointer, 0, "magic"},
	{"another format", func([]byte) []byte { return []byte("GGUF\x03\x00\x00\x00") }, ErrNotKMCU, 0, "magic"},
	{"other magic", put8(3, 'X'), ErrNotKMCU, 0, "magic"},
	{"header cut", func(b []byte) []byte { return b[:127] }, ErrTruncated, 0, "127"},
	{"version 2", put32(4, 2), ErrVersion, 4, "version"},
	{"no layers", put32(8, 0), ErrFormat, 8, "n_layers"},
	{"absurd layers", put32(8, 1<<31), ErrFormat, 8, "n_layers"},
	{"no dim", put32(12, 0), ErrFormat, 12, "dim"},
	{"no heads", put32(16, 0), ErrFormat, 16, "n_heads"},
	{"heads over kv heads", put32(20, 3), ErrFormat, 20, "n_kv_heads"},
	{"no kv heads", put32(20, 0), ErrFormat, 20, "n_kv_heads"},
	{"odd head", put32(24, 3), ErrFormat, 24, "head_dim"},
	{"heads overflow", put32(24, math.MaxUint32-1), ErrFormat, 24, "overflow"},
	{"no ffn", put32(28, 0), ErrFormat, 28, "ffn_dim"},
	{"no vocab", put32(32, 0), ErrFormat, 32, "vocab_size"},
	{"no context", put32(36, 0), ErrFormat, 36, "max_seq"},
	{"bos past the vocabulary", put32(40, 5), ErrFormat, 40, "bos_id"},
	{"eos past the vocabulary", put32(44, math.MaxUint32), ErrFormat, 44, "4294967295 of a vocabulary of 5"},
	{"tied 2", put32(48, 2), ErrFormat, 48, "tied_embed"},
	{"tied with a head", put32(48, 1), ErrModel, 128, "12 tensors"},
	{"no tensors", put32(52, 0), ErrFormat, 52, "n_tensors"},
	{"more tensors than bytes", put32(52, 1<<32-1), ErrFormat, 52, "n_tensors"},
	{"one tensor more", put32(52, 13), ErrFormat, 60, "13 records"},
	{"one tensor less", put32(52, 11), ErrFormat, 1616, "after the last tensor"},
	{"directory in the header", put32(56, 64), ErrFormat, 56, "dir_offset"},
	{"directory behind the data", put32(56, 1<<30), ErrFormat, 60, "inside the directory"},
	{"data not aligned", put32(60, 705), ErrFormat, 60, "multiple of 64"},
	{"data in the directory", put32(60, 640), ErrFormat, 60, "inside the directory"},
	{"data behind the first tensor", put32(60, 768), ErrFormat, int64(record(0, 36)), "tok_embed"},
	{"theta 0", put32(64, 0), ErrFormat, 64, "rope_theta"},
	{"theta NaN", put32(64, 0x7fc00000), ErrFormat, 64, "rope_theta"},
	{"theta Inf", put32(64, 0x7f800000), ErrFormat, 64, "rope_theta"},
	{"eps negative", put32(68, 0xbf800000), ErrFormat, 68, "norm_eps"},
	{"eps NaN", put32(68, 0x7fc00000), ErrFormat, 68, "norm_eps"},
	{"other params", put32(72, 135), ErrFormat, 72, "136"},
	{"header tail", put8(127, 1), ErrFormat, 127, "end of the header"},
	{"name without NUL", func(b []byte) []byte { copy(b[128:], strings.Repeat("n", 24)); return b }, ErrFormat, 128, "no NUL"},
	{"name with a tail", put8(128+20, 'x'), ErrFormat, 128, "after its NUL"},
	{"name empty", func(b []byte) []byte { clear(b[128:152]); return b }, ErrFormat, 128, "empty"},
	{"name not ASCII", put8(128, 0xff), ErrFormat, 128, "0xff"},
	{"name twice", func(b []byte) []byte { copy(b[record(3, 0):], "L0.q"); return b }, ErrFormat, int64(record(3, 0)), "twice"},
	{"name unknown", func(b []byte) []byte { copy(b[record(3, 0):], "L0.z"); return b }, ErrModel, 128, "L0.k is missing"},
	{"names swapped", func(b []byte) []byte {
		copy(b[record(3, 0):], "L0.v")
		copy(b[record(4, 0):], "L0.k")
		return b
	}, ErrModel, 128, "L0.k is expected"},
	{"dtype 3", put32(record(2, 24), 3), ErrFormat, int64(record(2, 24)), "dtype"},
	{"no rows", put32(record(2, 28), 0), ErrFormat, int64(record(2, 28)), "shape"},
	{"no columns", put32(record(2, 32), 0), ErrFormat, int64(record(2, 28)), "shape"},
	{"values overflow", put32(record(2, 28), math.MaxUint32), ErrFormat, int64(record(2, 28)), "2^32-1"},
	{"rows against size", put32(record(2, 28), 5), ErrFormat, int64(record(2, 40)), "nbytes"},
	{"columns against size", put32(record(2, 32), 33), ErrFormat, int64(record(2, 40)), "nbytes"},
	{"columns within the padding", put32(record(2, 32), 5), ErrFormat, 72, "total_params"},
	{"size of a norm", put32(record(1, 40), 18), ErrFormat, int64(record(1, 40)), "nbytes"},
	{"offset not aligned", put32(record(2, 36), 897), ErrFormat, int64(record(2, 36)), "multiple of 64"},
	{"overlap", put32(record(2, 36), 832), ErrFormat, int64(record(2, 36)), "L0.in_ln"},
	{"in the directory", put32(record(0, 36), 128), ErrFormat, int64(record(0, 36)), "data_offset"},
	{"past the end", put32(record(11, 36), 1<<30), ErrTruncated, int64(record(11, 36)), "lm_head"},
	{"record tail", put32(record(2, 44), 1), ErrFormat, int64(record(2, 44)), "end of the record"},
	{"last byte cut", func(b []byte) []byte { return b[:len(b)-1] }, ErrTruncated, int64(record(11, 36)), "lm_head"},
	{"byte added", func(b []byte) []byte { return append(b, 0) }, ErrFormat, 1754, "1 bytes after"},
	{"directory cut", func(b []byte) []byte { return b[:700] }, ErrTruncated, 56, "directory"},
}

func TestReject(t *testing.T) {
	good := build(t, tiny, LayoutOptions{})
	if _, err := open(good, Options{}); err != nil {
		t.Fatal(err)
	}
	for _, tt := range mutations {
		t.Run(tt.name, func(t *testing.T) {
			_, err := open(tt.change(append([]byte(nil), good...)), Options{})
			var re *ReadError
			if !errors.Is(err, tt.is) || !errors.As(err, &re) {
				t.Fatalf("error %v, want %v", err, tt.is)
			}
			if re.Offset != tt.offset || re.File != "t.kmcu" || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("error %q, want offset %d and %q", err, tt.offset, tt.text)
			}
		})
	}
}

// TestOptions: what a dump of flash and a file of other tensors need.
func TestOptions(t *testing.T) {
	good := build(t, tiny, LayoutOptions{})
	dump := append(append([]byte(nil), good...), 0xff, 0xff)
	if _, err := open(dump, Options{Trailing: true}); err != nil {
		t.Errorf("dump: %v", err)
	}
	copy(good[record(3, 0):], "L0.z")
	if _, err := open(good, Options{AnyTensors: true}); err != nil {
		t.Errorf("other tensors: %v", err)
	}
}

// TestLoose: the directory need not follow the data's order, and matrices may
// be kept as they are.
func TestLoose(t *testing.T) {
	list := tiny.Tensors()
	list[0].Type = tensor.F32
	l, err := NewLayout(tiny, list, LayoutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	b := append(append([]byte(nil), l.Header...), make([]byte, l.Size-int64(len(l.Header)))...)
	gate, up := record(7, 36), record(8, 36) // of equal size
	g, u := binary.LittleEndian.Uint32(b[gate:]), binary.LittleEndian.Uint32(b[up:])
	put32(gate, u)(b)
	put32(up, g)(b)
	f, err := open(b, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if e := f.Find("tok_embed"); !e.Tensor.Shape.Equal(tensor.Shape{5, 4}) || e.Bytes != 80 {
		t.Errorf("tok_embed in f32: %+v", e)
	}
	if f.Find("L0.gate").Offset != int64(u) || f.Find("L0.up").Tensor.Origin[0].Offset != int64(g) {
		t.Error("gate and up are not where the directory says")
	}
}

func TestLayoutRefuses(t *testing.T) {
	list := tiny.Tensors()
	change := func(f func([]TensorSpec) []TensorSpec) []TensorSpec { return f(append([]TensorSpec(nil), list...)) }
	rename := func(name string) []TensorSpec {
		return change(func(l []TensorSpec) []TensorSpec { l[3].Name = name; return l })
	}
	set := func(x TensorSpec) []TensorSpec {
		return change(func(l []TensorSpec) []TensorSpec { l[3] = x; return l })
	}
	noBOS := tiny
	noBOS.BOS = 7
	tests := []struct {
		name string
		h    Header
		list []TensorSpec
		opt  LayoutOptions
		is   error
		text string
	}{
		{"long name", tiny, rename(strings.Repeat("n", 24)), LayoutOptions{AnyTensors: true}, ErrWrite, "24 bytes"},
		{"empty name", tiny, rename(""), LayoutOptions{AnyTensors: true}, ErrWrite, "0 bytes"},
		{"NUL in a name", tiny, rename("a\x00b"), LayoutOptions{AnyTensors: true}, ErrWrite, "0x00"},
		{"name twice", tiny, rename("L0.q"), LayoutOptions{AnyTensors: true}, ErrWrite, "two of this name"},
		{"missing tensor", tiny, list[:11], LayoutOptions{}, ErrModel, "11 tensors"},
		{"no tensors", tiny, nil, LayoutOptions{AnyTensors: true}, ErrWrite, "0 tensors"},
		{"other name", tiny, rename("L0.kk"), LayoutOptions{}, ErrModel, "L0.k is missing"},
		{"wrong shape", tiny, set(TensorSpec{"L0.k", tensor.KMCUQ4, 2, 3}), LayoutOptions{}, ErrModel, "2 x 3"},
		{"quantized norm", tiny, change(func(l []TensorSpec) []TensorSpec { l[1].Type = tensor.KMCUQ4; return l }), LayoutOptions{}, ErrModel, "norms are F32"},
		{"other type", tiny, set(TensorSpec{"L0.k", tensor.Q4_0, 2, 4}), LayoutOptions{}, ErrWrite, "Q4_0"},
		{"no rows", tiny, set(TensorSpec{"L0.k", tensor.F32, 0, 4}), LayoutOptions{AnyTensors: true}, ErrWrite, "0 x 4"},
		{"offset of 4 GiB", tiny, set(TensorSpec{"L0.k", tensor.F32, 1 << 10, 1 << 20}), LayoutOptions{AnyTensors: true}, ErrWrite, "4 GiB"},
		{"too many values", tiny, change(func(l []TensorSpec) []TensorSpec {
			l[3].Rows, l[3].Cols, l[4].Rows, l[4].Cols = 1<<16, 1<<15, 1<<16, 1<<15
			return l
		}), LayoutOptions{AnyTensors: true}, ErrWrite, "2^32-1 values"},
		{"bos past the vocabulary", noBOS, list, LayoutOptions{}, ErrWrite, "bos_id"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := NewLayout(tt.h, tt.list, tt.opt)
			if !errors.Is(err, tt.is) || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("error %v, want %v with %q", err, tt.is, tt.text)
			}
		})
	}
}

// FuzzOpen: no panic, no allocation beyond a small multiple of the input, and
// what is accepted lays out and reads the same again.
func FuzzOpen(f *testing.F) {
	good := build(f, tiny, LayoutOptions{})
	f.Add(good)
	f.Add(build(f, tiny, LayoutOptions{Align: AlignNone}))
	f.Add(golden(f, "stories260k.kmcu")[:8192])
	for _, m := range mutations {
		f.Add(m.change(append([]byte(nil), good...)))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, opt := range []Options{{}, {Trailing: true, AnyTensors: true}} {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			x, err := open(b, opt)
			runtime.ReadMemStats(&after)
			if got, most := after.TotalAlloc-before.TotalAlloc, uint64(len(b))*24+64<<10; got > most {
				t.Fatalf("%d bytes allocated for %d bytes of input", got, len(b))
			}
			if err != nil {
				var re *ReadError
				if !errors.As(err, &re) {
					t.Fatalf("error without a place: %v", err)
				}
				continue
			}
			again(t, x, opt)
		}
	})
}

// again lays out the contents of an accepted file and reads the result.
func again(t *testing.T, x *File, opt Options) {
	l, err := NewLayout(x.Header, x.specs(), LayoutOptions{Align: x.Align, AnyTensors: opt.AnyTensors})
	if err != nil {
		t.Fatalf("accepted but not laid out: %v", err)
	}
	if l.TotalParams != x.TotalParams || l.Size > x.Size {
		t.Fatalf("laid out with %d values in %d bytes, read %d in %d", l.TotalParams, l.Size, x.TotalParams, x.Size)
	}
	out := &sink{}
	if err := l.WriteTo(context.Background(), out, x.All()); err != nil {
		t.Fatalf("accepted but not written: %v", err)
	}
	y, err := open(out.b, opt)
	if err != nil {
		t.Fatalf("written but not read: %v", err)
	}
	if y.Header != x.Header || len(y.Tensors) != len(x.Tensors) {
		t.Fatalf("read again as %+v, want %+v", y.Header, x.Header)
	}
	for i := range y.Tensors {
		if y.Tensors[i].TensorSpec != x.Tensors[i].TensorSpec {
			t.Fatalf("tensor %d read again as %+v, want %+v", i, y.Tensors[i], x.Tensors[i])
		}
	}
}

type sink struct{ b []byte }

func (s *sink) Write(p []byte) (int, error) {
	s.b = append(s.b, p...)
	return len(p), nil
}
