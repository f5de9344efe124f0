package repacked

import (
	"bytes"
	"encoding/hex"
	"errors"
	"runtime"
	"strings"
	"testing"

	"quern/internal/digest"
	"quern/tensor"
	"quern/tensor/repack"
)

var of = digest.Of([]byte("a GGUF file"))

func layout(t testing.TB, name string) *repack.Layout {
	t.Helper()
	l, err := repack.Parse(name)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

var small = []Spec{{"blk.0.attn_q.weight", tensor.Shape{8, 64}}, {"blk.0.ffn_up_exps.weight", tensor.Shape{2, 4, 32}}}

// bytesOf are the plain bytes of a tensor, all different from its neighbours'.
func bytesOf(n int64) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8)
	}
	return b
}

// build writes a file with the digest of its GGUF file.
func build(t testing.TB, specs []Spec, align int64) []byte {
	t.Helper()
	l := layout(t, "q4_0_4x4")
	plan, err := newLayout(l, specs, 4711, align)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, plan.Size)
	copy(b, plan.Header)
	copy(b[DigestAt:], of[:])
	for _, p := range plan.Tensors {
		if err := l.Pack(b[p.Offset:p.Offset+p.Bytes], bytesOf(p.Bytes), p.Shape.RowLen()); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func open(t testing.TB, b []byte) (*File, error) {
	return Open(t.Context(), "x.repack", tensor.BytesBlob("x.repack", b), Options{Source: "s", Key: tensor.Key{1}})
}

// TestHeader holds the header to bytes written by hand from the drawing.
func TestHeader(t *testing.T) {
	plan, err := NewLayout(layout(t, "q4_0_4x4"), small[:1], 0x1234)
	if err != nil {
		t.Fatal(err)
	}
	want := hex.EncodeToString([]byte("QUERNRPK")) + "01000000" + "40000000" +
		hex.EncodeToString([]byte("q4_0_4x4")) + strings.Repeat("00", 16) + strings.Repeat("00", 32) +
		"3412000000000000" + "0002000000000000" + "01000000" + "37000000" +
		"1300" + "0200" + hex.EncodeToString([]byte("blk.0.attn_q.weight")) +
		"4000000000000000" + "0800000000000000" + "c000000000000000" + "2001000000000000"
	want += strings.Repeat("00", 192-len(want)/2)
	// 8 rows of 2 blocks of 18 bytes are 288 from 192 on; zeros follow up to 512.
	if got := hex.EncodeToString(plan.Header); got != want {
		t.Errorf("header\n%s, want\n%s", got, want)
	}
	if plan.Size != 512 {
		t.Errorf("size %d", plan.Size)
	}
}

func TestOpen(t *testing.T) {
	for _, align := range []int64{64, 4096} {
		f, err := open(t, build(t, small, align))
		if err != nil {
			t.Fatal(err)
		}
		if f.Layout.String() != "q4_0_4x4" || f.GGUF != of || f.GGUFSize != 4711 || len(f.Entries) != 2 {
			t.Errorf("%+v", f)
		}
		for i := range f.Entries {
			e := &f.Entries[i]
			if e.Name != small[i].Name || !e.Shape.Equal(small[i].Shape) || e.Offset%align != 0 || e.Packed.Type != tensor.U8 {
				t.Errorf("%+v", e)
			}
			p, err := f.Plain(e)
			if err != nil {
				t.Fatal(err)
			}
			got := make([]byte, p.Bytes())
			if err := p.ReadRows(t.Context(), got, 0, p.Rows()); err != nil {
				t.Fatal(err)
			}
			if p.Type != tensor.Q4_0 || !bytes.Equal(got, bytesOf(e.Bytes)) {
				t.Errorf("tensor %s: other rows than were packed", e.Name)
			}
		}
		if f.Entries[0].Packed.Key == f.Entries[1].Packed.Key || f.Entries[0].Packed.Key.IsZero() {
			t.Error("keys do not tell tensors apart")
		}
		if err := f.Of(of); err != nil {
			t.Error(err)
		}
		if err := f.Of(digest.Of(nil)); !errors.Is(err, ErrOther) || !strings.Contains(err.Error(), of.Hex()) {
			t.Errorf("another file: %v", err)
		}
	}
}

// mutations spoil a good file; the error says what is wrong, where.
var mutations = []struct {
	name   string
	want   error
	offset int64
	say    string
	change func(b []byte) []byte
}{
	{"empty", ErrNotRepacked, 0, "starts with", func(b []byte) []byte { return nil }},
	{"another format", ErrNotRepacked, 0, "GGUF", func(b []byte) []byte { copy(b, "GGUF"); return b }},
	{"a pointer", ErrLFSPointer, 0, "git lfs pull", func(b []byte) []byte {
		return []byte("version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 2\n")
	}},
	{"magic alone", ErrTruncated, 0, "8 bytes", func(b []byte) []byte { return b[:8] }},
	{"version", ErrVersion, 8, "2", func(b []byte) []byte { b[8] = 2; return b }},
	{"alignment 0", ErrFormat, 12, "power of two", func(b []byte) []byte { b[12] = 0; return b }},
	{"alignment 96", ErrFormat, 12, "power of two", func(b []byte) []byte { b[12] = 96; return b }},
	{"alignment 2^30", ErrFormat, 12, "power of two", func(b []byte) []byte { b[12], b[15] = 0, 0x40; return b }},
	{"unknown layout", repack.ErrLayout, 16, "q4_0_4x9", func(b []byte) []byte { b[23] = '9'; return b }},
	{"letter case", ErrFormat, 16, "Q4_0_4x4", func(b []byte) []byte { b[16] = 'Q'; return b }},
	{"behind the layout", ErrFormat, 16, "zeros behind", func(b []byte) []byte { b[39] = 1; return b }},
	{"no digest", ErrFormat, 40, "zero", func(b []byte) []byte { clear(b[40:72]); return b }},
	{"no GGUF file", ErrFormat, 72, "0", func(b []byte) []byte { clear(b[72:80]); return b }},
	{"a huge GGUF file", ErrFormat, 72, "size", func(b []byte) []byte { b[79] = 0xff; return b }},
	{"cut off", ErrTruncated, 80, "the file has", func(b []byte) []byte { return b[:len(b)-1] }},
	{"trailing", ErrFormat, 80, "the file has", func(b []byte) []byte { return append(b, 0) }},
	{"huge size", ErrTruncated, 80, "the file has", func(b []byte) []byte { b[87] = 0xff; return b }},
	{"no tensors", ErrFormat, 88, "0", func(b []byte) []byte { b[88] = 0; return b }},
	{"too many tensors", ErrFormat, 88, "allowed", func(b []byte) []byte { b[91] = 0xff; return b }},
	{"a directory too short for them", ErrFormat, 92, "cannot have", func(b []byte) []byte { b[92] = 3; return b }},
	{"a directory too long for them", ErrFormat, 92, "cannot have", func(b []byte) []byte { b[94] = 1; return b }},
	{"one dimension", ErrFormat, 98, "not 2 or 3", func(b []byte) []byte { b[98] = 1; return b }},
	{"an entry past the directory", ErrFormat, 96, "past", func(b []byte) []byte { b[96] = 0xff; return b }},
	{"no name", ErrFormat, 96, "name", func(b []byte) []byte { b[96] = 0; return b }},
	{"NUL in a name", ErrFormat, 96, "NUL", func(b []byte) []byte { b[101] = 0; return b }},
	{"a dimension of 0", ErrFormat, 119, "dimension", func(b []byte) []byte { clear(b[119:127]); return b }},
	{"a negative dimension", ErrFormat, 119, "dimension", func(b []byte) []byte { b[126] = 0x80; return b }},
	{"a row of half a block", ErrFormat, 96, "48", func(b []byte) []byte { b[119] = 48; return b }},
	{"rows without a group", ErrFormat, 96, "groups of 4", func(b []byte) []byte { b[127] = 6; return b }},
	{"an overflow", ErrFormat, 96, "2^63", func(b []byte) []byte { b[125], b[133] = 0x40, 0x40; return b }},
	{"an offset off its place", ErrFormat, 96, "offset 320", func(b []byte) []byte { b[135] = 0x40; b[136] = 1; return b }},
	{"other bytes than the shape's", ErrFormat, 96, "64 bytes", func(b []byte) []byte { b[143], b[144] = 64, 0; return b }},
	{"a matrix past the end", ErrTruncated, 96, "ends behind", func(b []byte) []byte { b[127], b[128] = 0, 1; b[143], b[144] = 0, 0x24; return b }},
	{"padding", ErrFormat, 219, "zeros are wanted", func(b []byte) []byte { b[219] = 1; return b }},
}

func TestReject(t *testing.T) {
	good := build(t, small, 64)
	if _, err := open(t, good); err != nil {
		t.Fatal(err)
	}
	for _, m := range mutations {
		t.Run(m.name, func(t *testing.T) {
			_, err := open(t, m.change(append([]byte(nil), good...)))
			var re *ReadError
			if !errors.Is(err, m.want) || !errors.As(err, &re) || re.Offset != m.offset || !strings.Contains(err.Error(), m.say) {
				t.Errorf("%v, want %v at %d with %q", err, m.want, m.offset, m.say)
			}
		})
	}
	twice := append([]Spec(nil), small[0], Spec{"blk.1.attn_q.weight", small[0].Shape})
	b := build(t, twice, 64)
	b[96+55+4+4] = '0' // blk.1 becomes blk.0
	if _, err := open(t, b); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), "two of this name") {
		t.Errorf("two of a name: %v", err)
	}
}

func TestLayoutRefuses(t *testing.T) {
	l := layout(t, "q4_0_4x4")
	ok := tensor.Shape{4, 32}
	for name, c := range map[string]struct {
		specs  []Spec
		source int64
		say    string
	}{
		"nothing":         {nil, 1, "0 tensors"},
		"no file":         {small, 0, "0 bytes"},
		"no name":         {[]Spec{{"", ok}}, 1, "0 bytes"},
		"a long name":     {[]Spec{{strings.Repeat("x", 64), ok}}, 1, "64 bytes"},
		"NUL":             {[]Spec{{"a\x00", ok}}, 1, "NUL"},
		"two of a name":   {[]Spec{{"a", ok}, {"a", ok}}, 1, "two of this name"},
		"no groups":       {[]Spec{{"a", tensor.Shape{5, 32}}}, 1, "groups of 4"},
		"no rows":         {[]Spec{{"a", tensor.Shape{0, 32}}}, 1, "no values"},
		"too large":       {[]Spec{{"a", tensor.Shape{1 << 30, 1 << 33}}}, 1, "2^63"},
		"too large later": {[]Spec{{"a", tensor.Shape{1 << 29, 1 << 33}}, {"b", tensor.Shape{1 << 29, 1 << 34}}}, 1, "2^63"},
	} {
		if _, err := NewLayout(l, c.specs, c.source); !errors.Is(err, ErrWrite) || !strings.Contains(err.Error(), c.say) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzOpen: no panic, no allocation beyond a small multiple of the input, and what
// is accepted lays out to the same header.
func FuzzOpen(f *testing.F) {
	good := build(f, small, 64)
	f.Add(good)
	f.Add(build(f, small, 256))
	for _, name := range []string{"q2_0_8x4_base3", "q2_0_8x4_merged128", "q1_0_32_lut"} {
		l := layout(f, name)
		plan, err := NewLayout(l, []Spec{{"blk.0.attn_q.weight", tensor.Shape{2 * l.GroupRows(), 256}}}, 4711)
		if err != nil {
			f.Fatal(err)
		}
		b := make([]byte, plan.Size)
		copy(b, plan.Header)
		copy(b[DigestAt:], of[:])
		f.Add(b)
	}
	for _, m := range mutations {
		f.Add(m.change(append([]byte(nil), good...)))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		x, err := open(t, b)
		runtime.ReadMemStats(&after)
		if got, most := after.TotalAlloc-before.TotalAlloc, uint64(len(b))*24+64<<10; got > most {
			t.Fatalf("%d bytes allocated for %d bytes of input", got, len(b))
		}
		if err != nil {
			var re *ReadError
			if !errors.As(err, &re) {
				t.Fatalf("error without a place: %v", err)
			}
			return
		}
		var specs []Spec
		for i := range x.Entries {
			specs = append(specs, x.Entries[i].Spec)
			if _, err := x.Plain(&x.Entries[i]); err != nil {
				t.Fatalf("accepted, but not plain: %v", err)
			}
		}
		plan, err := newLayout(x.Layout, specs, x.GGUFSize, x.Alignment)
		if err != nil {
			t.Fatalf("accepted but not laid out: %v", err)
		}
		copy(plan.Header[DigestAt:], x.GGUF[:])
		if plan.Size != int64(len(b)) || !bytes.Equal(plan.Header, b[:len(plan.Header)]) {
			t.Fatal("laid out again it is another file")
		}
	})
}
