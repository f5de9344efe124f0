package gguf

import (
	"errors"
	"math"
	"strings"
	"testing"

	"quern/formats/internal/alien"
	"quern/tensor"
)

// one is a file with one tensor whose info is given, and 64 bytes of data.
func one(info string) string { return file(nil, []string{info}, zeros(64)) }

// meta is a file with these pairs and no tensors.
func meta(kvs ...string) string { return file(kvs, nil, "") }

// aligned is a file with an alignment value, its data start being a multiple of
// 64.
func aligned(value string) string {
	return pad(header(3, []string{str(KeyAlignment) + value}, []string{info("a", 0, 0, 4)}), 64) + zeros(64)
}

var rejects = []struct {
	name   string
	raw    string
	is     error
	offset int64
	text   string
}{
	{"empty file", "", ErrTruncated, 0, "empty"},
	{"three bytes", "GGU", ErrTruncated, 0, "magic"},
	{"other magic", "GGML" + two()[4:], ErrNotGGUF, 0, `"GGML`},
	{"safetensors", u64(2) + "{}", ErrNotGGUF, 0, "safetensors"},
	{"zip", "PK\x03\x04" + zeros(60), ErrNotGGUF, 0, "PyTorch"},
	{"web page", "\n<!DOCTYPE html><html></html>", ErrHTML, 0, "login"},
	{"web page without doctype", "<HTML lang=en>", ErrHTML, 0, "login"},
	{"git lfs pointer", alien.LFSMagic + "v1\noid sha256:4db9\nsize 1054528\n", ErrLFSPointer, 0, "\"sha256:4db9\" and \"1054528\" bytes"},
	{"version 0", "GGUF" + u32(0) + zeros(16), ErrVersion, 4, "version 0"},
	{"version 1", "GGUF" + u32(1) + zeros(16), ErrVersion, 4, "given up"},
	{"version 4", "GGUF" + u32(4) + zeros(16), ErrVersion, 4, "versions 2 and 3"},
	{"big-endian 3", "GGUF\x00\x00\x00\x03" + zeros(16), ErrByteOrder, 4, "0x03000000"},
	{"big-endian 2", "GGUF\x00\x00\x00\x02" + zeros(16), ErrByteOrder, 4, "big-endian"},
	{"negative tensors", "GGUF" + u32(3) + u64(math.MaxUint64) + u64(0), ErrFormat, 8, "-1 of them"},
	{"negative pairs", "GGUF" + u32(3) + u64(0) + u64(1<<63), ErrFormat, 16, "number of key-value pairs"},
	{"absurd tensors", "GGUF" + u32(3) + u64(1<<40) + u64(0), ErrFormat, 8, "cannot fit"},
	{"absurd pairs", "GGUF" + u32(3) + u64(0) + u64(1<<40), ErrFormat, 16, "cannot fit"},

	{"empty key", meta(kv("", 4, u32(1))), ErrFormat, 24, "empty"},
	{"duplicate key", meta(kv("k", 4, u32(1)), kv("l", 4, u32(1)), kv("k", 8, str("x"))), ErrDuplicate, 58, `"k"`},
	{"value type 13", meta(kv("k", 13, u32(1))), ErrFormat, 33, "13"},
	{"value type -1", meta(kv("k", math.MaxUint32, u32(1))), ErrFormat, 33, "-1"},
	{"array of arrays", meta(kv("k", 9, arr(9, 1, arr(4, 1, u32(1))))), ErrFormat, 37, "arrays of arrays"},
	{"empty array of arrays", meta(kv("k", 9, arr(9, 0, ""))), ErrFormat, 37, "arrays of arrays"},
	{"array type 99", meta(kv("k", 9, arr(99, 1, u32(1)))), ErrFormat, 37, "99"},
	{"array of 2^61", meta(kv("k", 9, arr(10, 1<<61, u64(1)))), ErrFormat, 41, "2305843009213693952"},
	{"array of 2^30 and one", meta(kv("k", 9, arr(0, 1<<30+1, ""))), ErrFormat, 41, "1073741825"},
	{"array past the end", meta(kv("k", 9, arr(4, 5, zeros(15)))), ErrTruncated, 41, "5 elements of u32"},
	{"strings past the end", meta(kv("k", 9, arr(8, 100, str("x")))), ErrTruncated, 41, "100 elements of str"},
	{"string in an array past the end", meta(kv("k", 9, arr(8, 2, str("x")+u64(100)))), ErrTruncated, 58, "array element 1"},
	{"string in an array over 1 GiB", meta(kv("k", 9, arr(8, 2, str("x")+u64(1<<30+1)))), ErrFormat, 58, "1073741825"},
	{"key over 1 GiB", meta(u64(1<<30+1) + zeros(16)), ErrFormat, 24, "1073741825"},
	{"key of 2^64-1", meta(u64(math.MaxUint64) + zeros(16)), ErrFormat, 24, "18446744073709551615"},
	{"key past the end", meta(u64(100) + zeros(16)), ErrTruncated, 32, "100 bytes"},
	{"string past the end", meta(kv("k", 8, u64(1000))), ErrTruncated, 45, "1000 bytes"},

	{"alignment of another width", aligned(u32(5) + u32(32)), ErrValue, 49, "i32"},
	{"alignment as u64", aligned(u32(10) + u64(32)), ErrValue, 49, "u64"},
	{"alignment as array", aligned(u32(9) + arr(4, 1, u32(32))), ErrValue, 49, "u32[1]"},
	{"alignment 0", aligned(u32(4) + u32(0)), ErrValue, 49, "power of two"},
	{"alignment 3", aligned(u32(4) + u32(3)), ErrValue, 49, "power of two"},
	{"alignment 2^31", aligned(u32(4) + u32(1<<31)), ErrValue, 49, "2147483648"},
	{"alignment over the file", aligned(u32(4) + u32(1<<20)), ErrTruncated, 0, "padding"},

	{"name of 64 bytes", one(info(strings.Repeat("n", 64), 0, 0, 4)), ErrFormat, 24, "64 bytes"},
	{"duplicate tensor", file(nil, []string{info("a", 0, 0, 4), info("a", 0, 32, 4)}, zeros(64)), ErrDuplicate, 57, `"a"`},
	{"duplicate as C strings", file(nil, []string{info("a\x00b", 0, 0, 4), info("a\x00c", 0, 32, 4)}, zeros(64)), ErrDuplicate, 59, `"a"`},
	{"five dimensions", one(info("a", 0, 0, 1, 1, 1, 1, 1)), ErrFormat, 33, "5, at most 4"},
	{"negative dimension", one(info("a", 0, 0, 4, -1)), ErrFormat, 45, "-1 is negative"},
	{"zero dimension", one(info("a", 0, 0, 4, 0)), ErrFormat, 45, "dimension 1"},
	{"zero rows of 32", file(nil, []string{info("a", 2, 0, 0)}, ""), ErrFormat, 37, "dimension 0"},
	{"values overflow", one(info("a", 0, 0, 1<<32, 1<<32)), ErrFormat, 45, "overflows"},
	{"values wrap to 0", one(info("a", 0, 0, 1<<62, 4)), ErrFormat, 45, "overflows"},
	{"values wrap to few", one(info("a", 0, 0, 1<<62+1, 4)), ErrFormat, 45, "overflows"},
	{"2^63-1 values", one(info("a", 24, 0, math.MaxInt64)), ErrFormat, 37, "overflows"},
	{"bytes overflow", one(info("a", 28, 0, 1<<61)), ErrFormat, 45, "bytes overflows"},
	{"type 43", one(info("a", 43, 0, 4)), ErrTensorType, 45, "43"},
	{"type 200", one(info("a", 200, 0, 4)), ErrTensorType, 45, "200"},
	{"type -1", one(info("a", math.MaxUint32, 0, 4)), ErrTensorType, 45, "-1"},
	{"removed type 4", one(info("a", 4, 0, 32)), ErrTensorType, 45, "Q4_2 was removed"},
	{"removed type 31", one(info("a", 31, 0, 32)), ErrTensorType, 45, "Q4_0_4_4"},
	{"removed type 38", one(info("a", 38, 0, 32)), ErrTensorType, 45, "IQ4_NL_8_8"},
	{"half a block", one(info("a", 2, 0, 16, 2)), ErrFormat, 53, "rows of 16 values"},
	{"scalar of blocks", one(info("a", 8, 0)), ErrFormat, 37, "rows of 1 values"},
	{"first offset not 0", one(info("a", 0, 32, 4)), ErrFormat, 49, "32, but"},
	{"gap", file(nil, []string{info("a", 0, 0, 4), info("b", 0, 64, 4)}, zeros(96)), ErrFormat, 82, "end at 32"},
	{"not padded", file(nil, []string{info("a", 0, 0, 4), info("b", 0, 16, 4)}, zeros(96)), ErrFormat, 82, "end at 32"},
	{"other order", file(nil, []string{info("a", 0, 32, 4), info("b", 0, 0, 4)}, zeros(64)), ErrFormat, 49, "end at 0"},
	{"offset of 2^63", one(info("a", 0, 1<<63, 4)), ErrFormat, 49, "2^63-1"},
	{"sizes overflow", file(nil, []string{info("a", 24, 0, math.MaxInt64-40)}, zeros(32)), ErrFormat, 49, "overflows"},

	{"no padding before the data", header(3, nil, []string{info("a", 0, 0, 4)}), ErrTruncated, 57, "padding"},
	{"no data", file(nil, []string{info("a", 0, 0, 4)}, ""), ErrTruncated, 64, "16 bytes are missing"},
	{"last byte cut", file(nil, []string{info("a", 0, 0, 4), info("b", 0, 32, 8)}, zeros(63)), ErrTruncated, 128, `tensor 1 "b": data`},
	{"other size and no data", file(nil, []string{info("a", 0, 0, 40), info("b", 0, 32, 8)}, zeros(64)), ErrFormat, 82, "end at 160"},
	{"first tensor cut", file(nil, []string{info("a", 0, 0, 4), info("b", 0, 32, 8)}, zeros(10)), ErrTruncated, 96, `tensor 0 "a": data`},
}

func TestReject(t *testing.T) {
	for _, tt := range rejects {
		t.Run(tt.name, func(t *testing.T) {
			_, err := openRaw(tt.raw, Options{})
			var re *ReadError
			if !errors.Is(err, tt.is) || !errors.As(err, &re) {
				t.Fatalf("error %v, want %v", err, tt.is)
			}
			// Offset 0 stands for "not looked at" where the pad decides it.
			if (tt.offset != 0 && re.Offset != tt.offset) || re.File != "t.gguf" || re.Field == "" || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("error %q at %d, want offset %d and %q", err, re.Offset, tt.offset, tt.text)
			}
		})
	}
}

// TestTruncatedHeader cuts a file at every byte of its header.
func TestTruncatedHeader(t *testing.T) {
	s := file([]string{kv("a", 8, str("text")), kv("b", 9, arr(8, 2, str("x")+str("yy"))), kv("c", 9, arr(4, 2, u32(1)+u32(2))), kv("d", 4, u32(7))},
		[]string{info("t", 2, 0, 32, 2), info("u", 0, 64, 3)}, zeros(64+12))
	if _, err := openRaw(s, Options{}); err != nil {
		t.Fatal(err)
	}
	for n := range len(s) {
		for _, partial := range []bool{false, true} {
			_, err := openRaw(s[:n], Options{Partial: partial})
			if partial && n >= len(s)-(64+12) {
				if err != nil {
					t.Errorf("data cut at %d: %v", n, err)
				}
				continue
			}
			if n < 4 && err != nil {
				continue // too short for the magic
			}
			if !errors.Is(err, ErrTruncated) && !errors.Is(err, ErrFormat) {
				t.Errorf("cut at %d: %v", n, err)
			}
		}
	}
}

var accepts = []struct {
	name string
	raw  string
}{
	{"nothing in it", header(3, nil, nil)},
	{"nothing in it, padded", file(nil, nil, "")},
	{"bytes after the data", two() + "trailing"},
	{"no final padding", two()[:160+32+6]},
	{"bytes as key", meta(kv("\xff\x00\n", 4, u32(1)))},
	{"empty string", meta(kv("k", 8, str("")))},
	{"name of 63 bytes", one(info(strings.Repeat("n", 63), 0, 0, 4))},
	{"empty name", one(info("", 0, 0, 4))},
	{"scalar", one(info("a", 0, 0))},
	{"four dimensions", one(info("a", 0, 0, 2, 1, 2, 1))},
	{"alignment 1", header(3, []string{kv(KeyAlignment, 4, u32(1))}, []string{info("a", 24, 0, 3), info("b", 24, 3, 2)}) + "aaabb"},
	{"alignment 2", pad(header(3, []string{kv(KeyAlignment, 4, u32(2))}, []string{info("a", 24, 0, 3), info("b", 24, 4, 2)}), 2) + "aaa\x00bb"},
	{"alignment 64", aligned(u32(4) + u32(64))},
	{"alignment 32", file([]string{kv(KeyAlignment, 4, u32(32))}, []string{info("a", 0, 0, 4)}, zeros(32))},
	{"activation type", file(nil, []string{info("a", 9, 0, 32), info("b", 15, 64, 256)}, zeros(64+292))},
}

func TestAccept(t *testing.T) {
	for _, tt := range accepts {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := openRaw(tt.raw, Options{}); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestEveryType opens a tensor of every type of the table and of every id of
// ggml that has a size.
func TestEveryType(t *testing.T) {
	known := 0
	for id := range uint32(60) {
		values, bytes, ok := blockOf(int32(id))
		if !ok {
			if _, err := openRaw(one(info("a", id, 0, 1024)), Options{}); !errors.Is(err, ErrTensorType) {
				t.Errorf("type %d: %v", id, err)
			}
			continue
		}
		f, err := openRaw(file(nil, []string{info("a", id, 0, values, 3)}, zeros(int(3*bytes))), Options{})
		if err != nil {
			t.Errorf("type %d: %v", id, err)
			continue
		}
		if _, ok := tensor.FromGGML(int32(id)); ok != (f.Tensors[0].Tensor != nil) {
			t.Errorf("type %d: in the table %v, tensor %v", id, ok, f.Tensors[0].Tensor)
		}
		known++
	}
	// 43 ids less the removed 4, 5, 31 to 33 and 36 to 38.
	if known != 35 {
		t.Errorf("%d types are known, want 35", known)
	}
}

// TestPartial: what inspect needs of files whose data cannot be used.
func TestPartial(t *testing.T) {
	s := file([]string{kv("k", 4, u32(7))},
		[]string{info("a", 0, 0, 4), info("new", 200, 32, 5, 7), info("b", 0, 128, 4), info("q", 9, 160, 32)}, zeros(160+36))
	if _, err := openRaw(s, Options{}); !errors.Is(err, ErrTensorType) {
		t.Errorf("strict: %v", err)
	}
	f, err := openRaw(s, Options{Partial: true})
	if err != nil {
		t.Fatal(err)
	}
	x := f.Find("new")
	if x.TypeID != 200 || x.Bytes != -1 || x.Tensor != nil || x.TypeName() != "type 200" || !x.Shape().Equal(tensor.Shape{7, 5}) {
		t.Errorf("new: %+v", x)
	}
	if err := x.Usable(); !errors.Is(err, ErrTensorType) || !strings.Contains(err.Error(), "200") {
		t.Errorf("new: %v", err)
	}
	if b := f.Find("b"); b.Offset != f.DataStart+128 || b.Usable() != nil {
		t.Errorf("b: %+v", b)
	}
	if q := f.Find("q"); q.Bytes != 36 || q.TypeName() != "Q8_1" || !errors.Is(q.Usable(), ErrTensorType) {
		t.Errorf("q: %+v, %v", q, q.Usable())
	}
	if len(f.Problems) != 1 || !errors.Is(f.Problems[0], ErrTensorType) {
		t.Errorf("problems %v", f.Problems)
	}
	if _, err := f.All(); !errors.Is(err, ErrTensorType) || !strings.Contains(err.Error(), `"new"`) {
		t.Errorf("all: %v", err)
	}
	// The tensor after an unknown one may not lie before it or off the grid.
	for _, off := range []uint64{0, 33} {
		s := file(nil, []string{info("a", 0, 0, 4), info("new", 200, 32, 5), info("b", 0, off, 4)}, zeros(160))
		if _, err := openRaw(s, Options{Partial: true}); !errors.Is(err, ErrFormat) {
			t.Errorf("offset %d after an unknown size: %v", off, err)
		}
	}
	// Without data everything but All works.
	f, err = openRaw(two()[:160], Options{Partial: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.All(); !errors.Is(err, ErrTruncated) || len(f.Problems) != 1 || !strings.Contains(err.Error(), `"a"`) {
		t.Errorf("no data: %v, problems %v", err, f.Problems)
	}
}
