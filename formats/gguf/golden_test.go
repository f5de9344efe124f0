package gguf

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"quern/tensor"
)

func fixture(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// specs describes the tensors of a file for a new layout.
func specs(list []*tensor.Tensor) []TensorSpec {
	out := make([]TensorSpec, len(list))
	for i, t := range list {
		out[i] = TensorSpec{t.Name, t.Type, t.Shape}
	}
	return out
}

// rewrite lays out what was read and writes it.
func rewrite(t testing.TB, f *File, opt LayoutOptions) []byte {
	t.Helper()
	list, err := f.All()
	if err != nil {
		t.Fatal(err)
	}
	l, err := NewLayout(f.Meta, specs(list), opt)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := l.WriteTo(ctx, &out, list); err != nil {
		t.Fatal(err)
	}
	if int64(out.Len()) != l.Size {
		t.Errorf("wrote %d bytes, planned %d", out.Len(), l.Size)
	}
	return out.Bytes()
}

// TestWriterBytes compares a whole file with one put together by hand.
func TestWriterBytes(t *testing.T) {
	m := NewMetadata(KV{"general.architecture", Scalar("llama")}, KV{"a", Scalar(uint8(7))}, KV{"b", Scalar(false)},
		KV{"c", List([]string{"x", ""})}, KV{"d", List([]int16{-2})}, KV{"e", List([]float64{})}, KV{"f", Scalar(float32(-2))}, KV{"g", Scalar(int64(-1))})
	kvs := []string{kv("general.architecture", 8, str("llama")), kv("a", 0, "\x07"), kv("b", 7, "\x00"),
		kv("c", 9, arr(8, 2, str("x")+str(""))), kv("d", 9, arr(3, 1, "\xfe\xff")), kv("e", 9, arr(12, 0, "")), kv("f", 6, "\x00\x00\x00\xc0"), kv("g", 11, u64(1<<64-1))}
	list := []TensorSpec{{"w", tensor.F32, tensor.Shape{3, 2}}, {"x", tensor.Q8_0, tensor.Shape{1, 2, 32}}, {"y", tensor.I8, tensor.Shape{1, 1}}, {"z", tensor.F16, nil}}
	data := []string{strings.Repeat("w", 24), strings.Repeat("x", 68), "y", "zz"}
	tests := []struct {
		name string
		opt  LayoutOptions
		want string
	}{
		{"gguf-py", LayoutOptions{}, file(kvs, []string{info("w", 0, 0, 2, 3), info("x", 8, 32, 32, 2, 1), info("y", 24, 128, 1, 1), info("z", 1, 160)}, "") +
			data[0] + zeros(8) + data[1] + zeros(28) + data[2] + zeros(31) + data[3] + zeros(30)},
		{"ggml", LayoutOptions{Dims: DropOnes, Alignment: 32}, file(kvs, []string{info("w", 0, 0, 2, 3), info("x", 8, 32, 32, 2), info("y", 24, 128, 1), info("z", 1, 160, 1)}, "") +
			data[0] + zeros(8) + data[1] + zeros(28) + data[2] + zeros(31) + data[3] + zeros(30)},
		{"bare end", LayoutOptions{BareEnd: true}, file(kvs, []string{info("w", 0, 0, 2, 3), info("x", 8, 32, 32, 2, 1), info("y", 24, 128, 1, 1), info("z", 1, 160)}, "") +
			data[0] + zeros(8) + data[1] + zeros(28) + data[2] + zeros(31) + data[3]},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l, err := NewLayout(m, list, tt.opt)
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			w, err := l.NewWriter(&out)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range data {
				if _, err := w.Write([]byte(d)); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			if out.String() != tt.want {
				t.Errorf("\n got %q\nwant %q", out.String(), tt.want)
			}
			if l.Size != int64(len(tt.want)) || l.DataStart()%32 != 0 || l.Tensors[1].Offset != l.DataStart()+32 || l.Tensors[1].Bytes != 68 {
				t.Errorf("size %d, data start %d, second tensor %+v, want size %d", l.Size, l.DataStart(), l.Tensors[1], len(tt.want))
			}
		})
	}
}

// TestAlignedHeader: a header that ends on the alignment gets no padding.
func TestAlignedHeader(t *testing.T) {
	for n := range 40 {
		m := NewMetadata(KV{"k", Scalar(strings.Repeat("v", n))})
		l, err := NewLayout(m, nil, LayoutOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if want := file([]string{kv("k", 8, str(strings.Repeat("v", n)))}, nil, ""); string(l.Header) != want || l.Size != int64(len(want)) {
			t.Errorf("value of %d bytes: %d bytes, want %d", n, l.Size, len(want))
		}
		if l, err = NewLayout(m, nil, LayoutOptions{BareEnd: true}); err != nil || l.Size != int64(24+8+1+4+8+n) {
			t.Errorf("value of %d bytes, bare end: %d bytes, %v", n, l.Size, err)
		}
	}
}

// TestKinds: gguf-py's own file of every value type, read and written again.
func TestKinds(t *testing.T) {
	raw := fixture(t, "kinds.gguf")
	f, err := Open(ctx, "kinds.gguf", tensor.BytesBlob("kinds.gguf", raw), Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := NewMetadata(KV{"general.architecture", Scalar("quern-test")}, KV{"general.alignment", Scalar(uint32(64))}, KV{"twice", Scalar(uint32(1))},
		KV{"u8", Scalar(uint8(255))}, KV{"i8", Scalar(int8(-128))}, KV{"u16", Scalar(uint16(65535))}, KV{"i16", Scalar(int16(-32768))},
		KV{"u32", Scalar(uint32(1<<32 - 1))}, KV{"i32", Scalar(int32(-1 << 31))}, KV{"u64", Scalar(uint64(1<<64 - 1))}, KV{"i64", Scalar(int64(-1 << 63))},
		KV{"f32", Scalar(float32(0.1))}, KV{"f64", Scalar(0.1)}, KV{"yes", Scalar(true)}, KV{"no", Scalar(false)}, KV{"str", Scalar("grüße, 挽き臼")},
		KV{"twice", Scalar("now a string")}, KV{"strs", List([]string{"a", "", "ccc"})}, KV{"i32s", List([]int32{1, -2, 3})}, KV{"f32s", List([]float32{0.5, -1000})},
		KV{"bools", List([]bool{true, false, true})}, KV{"u8s", List([]uint8{1, 2})}, KV{"i8s", List([]int8{-1})}, KV{"u16s", List([]uint16{65535})},
		KV{"i16s", List([]int16{-2})}, KV{"u32s", List([]uint32{7})}, KV{"u64s", List([]uint64{1 << 63})}, KV{"i64s", List([]int64{-1 << 40})}, KV{"f64s", List([]float64{0.1})})
	if !f.Meta.Equal(want) {
		for k, v := range f.Meta.All() {
			t.Logf("%s %s %v", k, v.Kind(), v)
		}
		t.Error("metadata differs from what the script wrote")
	}
	dims := map[string]string{"matrix": "[4 3]", "ones": "[5 1 1]", "scalar": "[]", "four": "[4 1 3 2]", "blocks": "[32 2]", "ids": "[3]"}
	for _, x := range f.Tensors {
		if got := fmt.Sprint(x.Dims); got != dims[x.Name] {
			t.Errorf("%s: dims %s, want %s", x.Name, got, dims[x.Name])
		}
	}
	if got := rewrite(t, f, LayoutOptions{Alignment: 64}); !bytes.Equal(got, raw) {
		t.Errorf("written again it is another file:\n got %q\nwant %q", got, raw)
	}
}

// golden is one output in testdata/convert/MODEL.json: what the real tools made.
type golden struct {
	File      string  `json:"file"`
	Tool      string  `json:"tool"`
	Size      int64   `json:"size"`
	DataStart int64   `json:"data_start"`
	KV        [][]any `json:"kv"`
	Tensors   [][]any `json:"tensors"`
}

func goldens(t *testing.T) []golden {
	t.Helper()
	var paths []string
	for _, models := range []string{"stories*.json", "tiny-*.json"} {
		found, err := filepath.Glob(filepath.Join("..", "..", "testdata", "convert", models))
		if err != nil || len(found) == 0 {
			t.Fatalf("no goldens %s of the real tools: %v", models, err)
		}
		paths = append(paths, found...)
	}
	var all []golden
	for _, p := range paths {
		b, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		var doc struct {
			Outputs []golden `json:"outputs"`
		}
		dec := json.NewDecoder(bytes.NewReader(b))
		dec.UseNumber()
		if err := dec.Decode(&doc); err != nil {
			t.Fatalf("%s: %v", p, err)
		}
		all = append(all, doc.Outputs...)
	}
	return all
}

func (g *golden) specs(t *testing.T) (list []TensorSpec, offsets []int64) {
	t.Helper()
	for _, x := range g.Tensors {
		typ, err := tensor.ParseType(x[1].(string))
		if err != nil {
			t.Fatal(err)
		}
		var dims []int64
		for _, d := range x[2].([]any) {
			n, _ := d.(json.Number).Int64()
			dims = append(dims, n)
		}
		off, _ := x[3].(json.Number).Int64()
		list = append(list, TensorSpec{x[0].(string), typ, shapeOf(dims)})
		offsets = append(offsets, off)
	}
	return list, offsets
}

// TestOffsets holds planned offsets and sizes against every file that the real
// tools made.
func TestOffsets(t *testing.T) {
	for _, g := range goldens(t) {
		list, offsets := g.specs(t)
		opt := LayoutOptions{}
		if g.Tool == "llama-quantize" {
			opt.Dims = DropOnes
		}
		l, err := NewLayout(nil, list, opt)
		if err != nil {
			t.Errorf("%s: %v", g.File, err)
			continue
		}
		for i, p := range l.Tensors {
			if got := p.Offset - l.DataStart(); got != offsets[i] {
				t.Errorf("%s: tensor %s at %d, want %d", g.File, p.Name, got, offsets[i])
			}
		}
		if got := l.Size - l.DataStart(); got != g.Size-g.DataStart {
			t.Errorf("%s: %d bytes of data, want %d", g.File, got, g.Size-g.DataStart)
		}
	}
}

// TestRealHeaders reads the headers of the real tools, compares them with what
// another reader saw in them, and lays them out again.
func TestRealHeaders(t *testing.T) {
	all := goldens(t)
	for _, tt := range []struct {
		head, of string
		opt      LayoutOptions
	}{
		{"stories260k.f16.head", "stories260k.f16.gguf", LayoutOptions{}},
		{"stories260k.f16.Q4_0.head", "stories260k.f16.Q4_0.gguf", LayoutOptions{Dims: DropOnes}},
	} {
		t.Run(tt.of, func(t *testing.T) {
			var g *golden
			for i := range all {
				if all[i].File == tt.of {
					g = &all[i]
				}
			}
			raw := fixture(t, tt.head)
			f, err := Open(ctx, tt.of, &headOnly{raw, g.Size}, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if f.DataStart != g.DataStart || f.Meta.Len() != len(g.KV) {
				t.Errorf("data start %d, %d pairs, want %d, %d", f.DataStart, f.Meta.Len(), g.DataStart, len(g.KV))
			}
			for i, want := range g.KV {
				if got := f.Meta.At(i); !isPair(got, want) {
					t.Errorf("pair %d: %s %s %v, want %v", i, got.Key, got.Value.Kind(), got.Value, want)
				}
			}
			list, offsets := g.specs(t)
			for i, x := range f.Tensors {
				if x.Name != list[i].Name || x.TypeName() != list[i].Type.String() || !x.Shape().Equal(list[i].Shape) || x.Offset != f.DataStart+offsets[i] {
					t.Errorf("tensor %d: %+v, want %v at %d", i, x, list[i], offsets[i])
				}
			}
			l, err := NewLayout(f.Meta, list, tt.opt)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(l.Header, raw) || l.Size != g.Size {
				t.Errorf("laid out again the header is another, or the size %d is not %d", l.Size, g.Size)
			}
			v, err := ReadVocab(f.Meta)
			if err != nil || len(v.Tokens) != 512 || v.Model != "llama" || v.Types[0] != 2 || v.Tokens[1] != "<s>" || len(v.Scores) != 512 {
				t.Errorf("vocabulary: %v", err)
			}
		})
	}
}

// isPair reports whether a pair is the one that a golden describes by key,
// type and value, arrays by element type, count and digest.
func isPair(p KV, want []any) bool {
	if p.Key != want[0] || p.Value.Type().String() != want[1] {
		return false
	}
	if list, ok := want[2].(map[string]any); ok {
		// As it stands in a file an array starts with 12 bytes of type and count.
		sum := sha256.Sum256(appendValue(nil, p.Value)[12:])
		return p.Value.Elem().String() == list["of"] && fmt.Sprint(p.Value.Len()) == fmt.Sprint(list["count"]) && hex.EncodeToString(sum[:8]) == list["sha256"]
	}
	if x, ok := p.Value.Any().(float32); ok {
		f, err := want[2].(json.Number).Float64()
		return err == nil && f == float64(x)
	}
	return fmt.Sprint(p.Value.Any()) == fmt.Sprint(want[2])
}

// TestQuantizeMetadata makes the metadata of llama-quantize's output from that
// of its input by the rule that every set removes and appends.
func TestQuantizeMetadata(t *testing.T) {
	in, err := Open(ctx, "in", tensor.BytesBlob("in", fixture(t, "stories260k.f16.head")), Options{Partial: true})
	if err != nil {
		t.Fatal(err)
	}
	want, err := Open(ctx, "out", tensor.BytesBlob("out", fixture(t, "stories260k.f16.Q4_0.head")), Options{Partial: true})
	if err != nil {
		t.Fatal(err)
	}
	m := in.Meta.Clone()
	m.Append("general.quantization_version", Scalar(uint32(2)))
	m.Append("general.file_type", Scalar(uint32(2)))
	if !m.Equal(want.Meta) {
		t.Error("metadata differs from that of the real file")
	}
	if in.Meta.Equal(m) {
		t.Error("the input's metadata changed with the clone")
	}
}

// headOnly serves a header and refuses the data behind it.
type headOnly struct {
	head []byte
	size int64
}

func (h *headOnly) Size() int64 { return h.size }

func (h *headOnly) ReadAt(_ context.Context, p []byte, off int64) error {
	clear(p)
	if off < int64(len(h.head)) {
		copy(p, h.head[off:])
	}
	return nil
}
