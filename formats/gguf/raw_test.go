package gguf

import (
	"context"
	"encoding/binary"
	"math"
	"strings"
	"testing"

	"quern/tensor"
)

var ctx = context.Background()

// The helpers below put files together byte by byte, from the format page and
// without the encoder under test.

func u32(n uint32) string { return string(binary.LittleEndian.AppendUint32(nil, n)) }
func u64(n uint64) string { return string(binary.LittleEndian.AppendUint64(nil, n)) }
func str(s string) string { return u64(uint64(len(s))) + s }

func kv(key string, typ uint32, value string) string { return str(key) + u32(typ) + value }

func arr(elem uint32, n uint64, elements string) string { return u32(elem) + u64(n) + elements }

func info(name string, typ uint32, offset uint64, ne ...int64) string {
	s := str(name) + u32(uint32(len(ne)))
	for _, d := range ne {
		s += u64(uint64(d))
	}
	return s + u32(typ) + u64(offset)
}

// header joins version, counts, pairs and infos without padding.
func header(version uint32, kvs, infos []string) string {
	return "GGUF" + u32(version) + u64(uint64(len(infos))) + u64(uint64(len(kvs))) + strings.Join(kvs, "") + strings.Join(infos, "")
}

func zeros(n int) string { return strings.Repeat("\x00", n) }

// pad fills up to a multiple of n.
func pad(s string, n int) string { return s + zeros((n-len(s)%n)%n) }

// file is a whole file with an alignment of 32 and that much data.
func file(kvs, infos []string, data string) string { return pad(header(3, kvs, infos), 32) + data }

func openRaw(s string, opt Options) (*File, error) {
	return Open(ctx, "t.gguf", tensor.BytesBlob("t.gguf", []byte(s)), opt)
}

// two is a good file: a pair and two tensors, 4x2 F32 and 3 F16.
func two() string {
	return file([]string{kv("general.architecture", 8, str("llama"))},
		[]string{info("a", 0, 0, 4, 2), info("b", 1, 32, 3)},
		strings.Repeat("A", 32)+"BBBBBB"+zeros(26))
}

func TestOpen(t *testing.T) {
	var key tensor.Key
	key[0] = 1
	for _, version := range []uint32{2, 3} {
		s := two()
		s = s[:4] + u32(version) + s[8:]
		f, err := openRaw(s, Options{Source: "base", Key: key})
		if err != nil {
			t.Fatal(err)
		}
		// 24 + (8+20+4+8+5) + (8+1+4+16+4+8) + (8+1+4+8+4+8) = 24+45+41+33
		if f.Version != version || f.HeaderEnd != 143 || f.DataStart != 160 || f.Size != 224 || f.Alignment != 32 {
			t.Errorf("version %d, header end %d, data start %d, size %d, alignment %d", f.Version, f.HeaderEnd, f.DataStart, f.Size, f.Alignment)
		}
		if v, err := f.Meta.Text("general.architecture"); err != nil || v != "llama" || f.Meta.Len() != 1 {
			t.Errorf("architecture %q, %v", v, err)
		}
		list, err := f.All()
		if err != nil || len(list) != 2 {
			t.Fatal(list, err)
		}
		a, b := list[0], list[1]
		if !a.Shape.Equal(tensor.Shape{2, 4}) || a.Type != tensor.F32 || !b.Shape.Equal(tensor.Shape{3}) || b.Type != tensor.F16 {
			t.Errorf("a %s %v, b %s %v", a.Type, a.Shape, b.Type, b.Shape)
		}
		row := make([]byte, 16)
		if err := a.ReadRows(ctx, row, 1, 1); err != nil || string(row) != strings.Repeat("A", 16) {
			t.Errorf("row of a: %q, %v", row, err)
		}
		row = make([]byte, 6)
		if err := b.ReadRows(ctx, row, 0, 1); err != nil || string(row) != "BBBBBB" {
			t.Errorf("row of b: %q, %v", row, err)
		}
		if want := (tensor.Extent{Source: "base", File: "t.gguf", Offset: 192, Bytes: 6}); len(b.Origin) != 1 || b.Origin[0] != want {
			t.Errorf("origin of b: %v, want %v", b.Origin, want)
		}
		if a.Key.IsZero() || a.Key == b.Key {
			t.Errorf("keys %v and %v", a.Key, b.Key)
		}
		if x := f.Find("b"); x == nil || x.Dims[0] != 3 || x.Offset != 192 || x.Bytes != 6 || x.TypeName() != "F16" || x.Usable() != nil {
			t.Errorf("b: %+v", x)
		}
		if f.Find("c") != nil {
			t.Error("found a tensor that is not there")
		}
	}
}

// TestValues reads every value type.
func TestValues(t *testing.T) {
	f, err := openRaw(file([]string{
		kv("u8", 0, "\xff"), kv("i8", 1, "\x80"), kv("u16", 2, "\xfe\xff"), kv("i16", 3, "\xfe\xff"),
		kv("u32", 4, u32(1<<31)), kv("i32", 5, u32(1<<31)), kv("f32", 6, "\x00\x00\x80\x3f"), kv("yes", 7, "\x02"), kv("no", 7, "\x00"),
		kv("str", 8, str("a\x00b")), kv("u64", 10, u64(1<<63)), kv("i64", 11, u64(1<<63)), kv("f64", 12, "\x00\x00\x00\x00\x00\x00\xf0\x3f"),
		kv("strs", 9, arr(8, 3, str("x")+str("")+str("yz"))), kv("u16s", 9, arr(2, 2, "\x01\x00\xff\xff")), kv("bools", 9, arr(7, 3, "\x00\x01\x07")),
		kv("none", 9, arr(4, 0, "")), kv("nostr", 9, arr(8, 0, "")),
	}, nil, ""), Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := []KV{
		{"u8", Scalar(uint8(255))}, {"i8", Scalar(int8(-128))}, {"u16", Scalar(uint16(65534))}, {"i16", Scalar(int16(-2))},
		{"u32", Scalar(uint32(1 << 31))}, {"i32", Scalar(int32(math.MinInt32))}, {"f32", Scalar(float32(1))}, {"yes", Scalar(true)}, {"no", Scalar(false)},
		{"str", Scalar("a\x00b")}, {"u64", Scalar(uint64(1 << 63))}, {"i64", Scalar(int64(math.MinInt64))}, {"f64", Scalar(1.0)},
		{"strs", List([]string{"x", "", "yz"})}, {"u16s", List([]uint16{1, 65535})}, {"bools", List([]bool{false, true, true})},
		{"none", List([]uint32{})}, {"nostr", List([]string{})},
	}
	if f.Meta.Len() != len(want) {
		t.Fatalf("%d pairs, want %d", f.Meta.Len(), len(want))
	}
	for i, w := range want {
		if got := f.Meta.At(i); got.Key != w.Key || !got.Value.Equal(w.Value) {
			t.Errorf("pair %d: %s %s %v, want %s %s %v", i, got.Key, got.Value.Kind(), got.Value, w.Key, w.Value.Kind(), w.Value)
		}
	}
	if f.DataStart != f.HeaderEnd+(32-f.HeaderEnd%32)%32 {
		t.Errorf("data start %d after a header of %d", f.DataStart, f.HeaderEnd)
	}
}
