package imatrix

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"quern/formats/gguf"
	"quern/internal/testmodel"
	"quern/tensor"
)

var ctx = context.Background()

func read(t *testing.T, name string) *Matrix {
	t.Helper()
	blob, err := tensor.OpenFile(filepath.Join(testmodel.Root(), "convert/presets", name))
	if err != nil {
		t.Fatal(err)
	}
	defer blob.Close()
	m, err := Read(ctx, name, blob, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestReal reads what the real llama-imatrix wrote of one run in both formats.
// Its two ways to the same mean, (sum/count*chunks)/chunks and sum/count, round
// differently in the last digit.
func TestReal(t *testing.T) {
	for _, c := range []struct {
		model       string
		entries     int
		first, last string
		experts     int64
	}{
		{"stories-wide", 35, "blk.0.attn_k.weight", "blk.4.ffn_up.weight", 0},
		{"stories-moe", 40, "blk.0.attn_k.weight", "blk.4.ffn_up_exps.weight", 8},
	} {
		old, now := read(t, c.model+".imatrix.dat"), read(t, c.model+".imatrix.gguf")
		for _, m := range []*Matrix{old, now} {
			if len(m.Entries) != c.entries || m.Entries[0].Name != c.first || m.Entries[c.entries-1].Name != c.last {
				t.Errorf("%s: %d entries, %s to %s", c.model, len(m.Entries), m.Entries[0].Name, m.Entries[len(m.Entries)-1].Name)
			}
			if m.Chunks != 7 || !slices.Equal(m.Datasets, []string{"eval-stories.txt"}) {
				t.Errorf("%s: %d chunks of %q", c.model, m.Chunks, m.Datasets)
			}
		}
		if !old.Legacy || now.Legacy || now.ChunkSize != 256 {
			t.Errorf("%s: legacy %t and %t, chunks of %d", c.model, old.Legacy, now.Legacy, now.ChunkSize)
		}
		for i, e := range now.Entries {
			o := old.Entries[i]
			if o.Name != e.Name || len(o.Weights) != len(e.Weights) {
				t.Fatalf("%s: %s with %d weights, %s with %d", c.model, o.Name, len(o.Weights), e.Name, len(e.Weights))
			}
			for j, w := range e.Weights {
				if d := int64(math.Float32bits(w)) - int64(math.Float32bits(o.Weights[j])); d < -2 || d > 2 {
					t.Fatalf("%s: %s: weight %d is %g and %g", c.model, e.Name, j, w, o.Weights[j])
				}
			}
			if strings.HasSuffix(e.Name, "_exps.weight") != (len(e.Counts) > 1) || len(e.Counts) > 1 && int64(len(e.Counts)) != c.experts {
				t.Errorf("%s: %s has counts %v", c.model, e.Name, e.Counts)
			}
			if len(e.Counts) == 1 && e.Counts[0] != 7*256 {
				t.Errorf("%s: %s: %d rows in 7 chunks of 256", c.model, e.Name, e.Counts[0])
			}
			if un := e.Unseen(1); un != nil {
				t.Errorf("%s: %s unseen", c.model, e.Name)
			}
		}
	}
	// The first weight of a file, by hand: its bytes over 7 chunks.
	if got, want := read(t, "stories-wide.imatrix.dat").Entries[0].Weights[0], float32(2.757931709289551)/7; got != want {
		t.Errorf("first weight %g, want %g", got, want)
	}
}

// old builds a file of the older format.
type old struct{ bytes.Buffer }

func (b *old) i32(vs ...int32) *old {
	for _, v := range vs {
		b.Write(binary.LittleEndian.AppendUint32(nil, uint32(v)))
	}
	return b
}

func (b *old) f32(vs ...float32) *old {
	for _, v := range vs {
		b.Write(binary.LittleEndian.AppendUint32(nil, math.Float32bits(v)))
	}
	return b
}

func (b *old) text(s string) *old {
	b.i32(int32(len(s)))
	b.WriteString(s)
	return b
}

func (b *old) entry(name string, calls int32, vs ...float32) *old {
	return b.text(name).i32(calls, int32(len(vs))).f32(vs...)
}

func begin(n int32) *old { return new(old).i32(n) }

// entry of a GGUF file under construction.
type sums struct {
	name   string
	dims   []int64 // outermost first
	values []float32
}

// file builds a file of the newer format.
func file(t testing.TB, list []sums, drop ...string) []byte {
	t.Helper()
	meta := gguf.NewMetadata(
		gguf.KV{Key: "general.type", Value: gguf.Scalar("imatrix")},
		gguf.KV{Key: "imatrix.datasets", Value: gguf.List([]string{"a.txt", "b.txt"})},
		gguf.KV{Key: "imatrix.chunk_count", Value: gguf.Scalar(uint32(3))},
		gguf.KV{Key: "imatrix.chunk_size", Value: gguf.Scalar(uint32(512))},
	)
	for _, k := range drop {
		meta.Delete(k)
	}
	var specs []gguf.TensorSpec
	for _, s := range list {
		specs = append(specs, gguf.TensorSpec{Name: s.name, Type: tensor.F32, Shape: s.dims})
	}
	l, err := gguf.NewLayout(meta, specs, gguf.LayoutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, l.Size)
	copy(b, l.Header)
	for i, s := range list {
		for j, v := range s.values {
			binary.LittleEndian.PutUint32(b[l.Tensors[i].Offset+4*int64(j):], math.Float32bits(v))
		}
	}
	return b
}

func parse(b []byte) (*Matrix, error) { return Read(ctx, "f", tensor.BytesBlob("f", b), Options{}) }

// TestArithmetic checks weights by hand.
func TestArithmetic(t *testing.T) {
	third := float32(1) / 3
	for name, c := range map[string]struct {
		file   []byte
		want   []float32
		counts []int64
		unseen []int64 // of two
	}{
		"old":               {begin(1).entry("w", 3, 1, 3).Bytes(), []float32{third, 1}, nil, []int64{1}},
		"old, no chunks":    {begin(1).entry("w", 0, 1, 3).Bytes(), []float32{1, 3}, nil, []int64{0}},
		"old, expert of 1s": {begin(1).entry("w", 3, 6, 6, 3, 3).Bytes(), []float32{2, 2, 1, 1}, nil, []int64{1}},
		"new": {file(t, []sums{{"w.in_sum2", []int64{4}, []float32{1, 3, 0, 6}}, {"w.counts", []int64{1}, []float32{3}}}),
			[]float32{third, 1, 0, 2}, []int64{3}, nil},
		"new, an expert without data": {file(t, []sums{{"w.counts", []int64{2, 1}, []float32{0, 2.5}}, {"w.in_sum2", []int64{2, 2}, []float32{0, 0, 6, 1}}}),
			[]float32{1, 1, 2, third}, []int64{0, 3}, []int64{0}},
		"new, no data": {file(t, []sums{{"w.counts", []int64{1}, []float32{0.4}}, {"w.in_sum2", []int64{2}, []float32{0, 0}}}),
			[]float32{1, 1}, []int64{0}, []int64{0, 1}},
	} {
		m, err := parse(c.file)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		e, ok := m.Find("w")
		if !ok || !slices.Equal(e.Weights, c.want) || !slices.Equal(e.Counts, c.counts) {
			t.Errorf("%s: %+v, want weights %g and counts %d", name, e, c.want, c.counts)
			continue
		}
		if got := e.Unseen(2); !slices.Equal(got, c.unseen) {
			t.Errorf("%s: unseen %d, want %d", name, got, c.unseen)
		}
	}
}

// TestHead checks names, order and what a file says of its making.
func TestHead(t *testing.T) {
	for name, c := range map[string]struct {
		file     []byte
		names    []string
		datasets []string
		chunks   int64
		ignored  []string
	}{
		"no trailer":    {begin(2).entry("b", 1, 1).entry("a", 1, 1).Bytes(), []string{"a", "b"}, nil, 0, nil},
		"chunks alone":  {begin(1).entry("a", 1, 1).i32(9).Bytes(), []string{"a"}, nil, 9, nil},
		"no text":       {begin(1).entry("a", 1, 1).i32(9, 0).Bytes(), []string{"a"}, nil, 9, nil},
		"whole trailer": {begin(1).entry("a", 1, 1).i32(9).text("x.txt").Bytes(), []string{"a"}, []string{"x.txt"}, 9, nil},
		"new": {file(t, []sums{{"b.in_sum2", []int64{1}, []float32{1}}, {"b.counts", []int64{1}, []float32{1}}, {"other", []int64{1}, []float32{1}},
			{"a.in_sum2", []int64{1}, []float32{1}}, {"a.counts", []int64{1}, []float32{1}}}), []string{"a", "b"}, []string{"a.txt", "b.txt"}, 3, []string{"other"}},
	} {
		m, err := parse(c.file)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var names []string
		for _, e := range m.Entries {
			names = append(names, e.Name)
		}
		if !slices.Equal(names, c.names) || !slices.Equal(m.Datasets, c.datasets) || m.Chunks != c.chunks || !slices.Equal(m.Ignored, c.ignored) {
			t.Errorf("%s: %q, %+v", name, names, m)
		}
		if _, ok := m.Find("c"); ok {
			t.Errorf("%s: found what is not there", name)
		}
	}
}

func float32Nan() float32 { return float32(math.NaN()) }

type reject struct {
	name string
	file []byte
	err  error
	says string
}

func rejects(t testing.TB) []reject {
	inf := float32(math.Inf(1))
	good := func() []sums {
		return []sums{{"w.in_sum2", []int64{2, 2}, []float32{1, 2, 3, 4}}, {"w.counts", []int64{2, 1}, []float32{1, 2}}}
	}
	with := func(i int, f func(*sums)) []byte {
		list := good()
		f(&list[i])
		return file(t, list)
	}
	f16 := file(t, good())
	// The type of the first tensor, behind its name, n_dims and two dims.
	at := bytes.Index(f16, []byte("w.in_sum2")) + len("w.in_sum2") + 4 + 16
	f16[at] = 26 // I32, of the same size
	return []reject{
		{"empty", nil, ErrTruncated, "0 bytes"},
		{"short", []byte("abc"), ErrTruncated, "3 bytes"},
		{"no entries", begin(0).Bytes(), ErrFormat, "0 in a file"},
		{"negative entries", begin(-1).Bytes(), ErrFormat, "-1 in a file"},
		{"too many entries", begin(math.MaxInt32).entry("a", 1, 1).Bytes(), ErrFormat, "2147483647 in a file"},
		{"second entry missing", begin(2).entry("a", 1, 1, 2, 3, 4, 5, 6).Bytes(), ErrTruncated, "length of the name"},
		{"empty name", begin(1).entry("", 1, 1, 1).Bytes(), ErrFormat, "length of the name"},
		{"name too long", begin(1).i32(maxName+1).f32(1, 2, 3, 4).Bytes(), ErrFormat, "length of the name"},
		{"name cut off", begin(1).i32(100).f32(1, 2, 3, 4).Bytes(), ErrTruncated, "needs 100 bytes"},
		{"NUL in name", begin(1).entry("a\x00b", 1, 1).Bytes(), ErrFormat, "NUL"},
		{"negative chunks", begin(1).entry("a", -1, 1).Bytes(), ErrFormat, "number of chunks: "},
		{"no values", begin(1).text("abcde").i32(1, 0).Bytes(), ErrFormat, "number of values"},
		{"too many values", begin(1).text("abcde").i32(1, math.MaxInt32).Bytes(), ErrTruncated, "2147483647 values"},
		{"values cut off", begin(1).text("abcde").i32(1, 2).f32(1).Bytes(), ErrTruncated, "8 bytes, 4 are left"},
		{"NaN", begin(1).entry("abc", 1, 1, float32Nan()).Bytes(), ErrValue, `entry "abc": values: impossible value in an importance matrix: value 1 is NaN`},
		{"infinity", begin(1).entry("abc", 1, inf).Bytes(), ErrValue, "value 0 is +Inf"},
		{"negative", begin(1).entry("abc", 1, 1, 2, -1).Bytes(), ErrValue, "value 2 is -1"},
		{"twice", begin(2).entry("abc", 1, 1).entry("abc", 1, 1).Bytes(), ErrFormat, `"abc": name: bad importance matrix: it occurs twice`},
		{"trailer cut off", begin(1).entry("abc", 1, 1).i32(1, 5).Bytes(), ErrTruncated, "text's name"},
		{"half a number", append(begin(1).entry("abc", 1, 1).Bytes(), 1, 2), ErrTruncated, "chunks of the run"},
		{"negative run", begin(1).entry("abc", 1, 1).i32(-1).Bytes(), ErrFormat, "chunks of the run"},
		{"more behind", begin(1).entry("abc", 1, 1).i32(1).text("x").i32(0).Bytes(), ErrFormat, "4 bytes follow"},
		{"pointer", []byte("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n"), gguf.ErrLFSPointer, "git lfs pull"},
		{"page", []byte("<!DOCTYPE html><html></html>"), gguf.ErrHTML, "HTML"},

		{"GGUF header", []byte("GGUF\x03\x00\x00\x00"), gguf.ErrTruncated, ""},
		{"GGUF without type", file(t, good(), "general.type"), ErrFormat, "general.type"},
		{"GGUF without texts", file(t, good(), "imatrix.datasets"), ErrFormat, "imatrix.datasets"},
		{"GGUF without chunks", file(t, good(), "imatrix.chunk_count"), ErrFormat, "imatrix.chunk_count"},
		{"GGUF without their size", file(t, good(), "imatrix.chunk_size"), ErrFormat, "imatrix.chunk_size"},
		{"GGUF without entries", file(t, nil), ErrFormat, "no entries"},
		{"no counts", file(t, good()[:1]), ErrFormat, `there is no tensor "w.counts"`},
		{"no sums", file(t, append(good(), sums{"v.counts", []int64{1}, []float32{1}})), ErrFormat, `there is no tensor "v.in_sum2"`},
		{"not F32", f16, ErrFormat, "it is I32, not F32"},
		{"three counts", with(1, func(s *sums) { s.dims, s.values = []int64{3, 1}, []float32{1, 1, 1} }), ErrFormat, "3 counts for 4 sums"},
		{"NaN count", with(1, func(s *sums) { s.values[1] = float32Nan() }), ErrValue, `entry "w": counts: impossible value in an importance matrix: value 1 is NaN`},
		{"negative count", with(1, func(s *sums) { s.values[0] = -2 }), ErrValue, "value 0 is -2"},
		{"infinite count", with(1, func(s *sums) { s.values[0] = inf }), ErrValue, "value 0 is +Inf"},
		{"huge count", with(1, func(s *sums) { s.values[0] = 1e30 }), ErrValue, "value 0 is 1e+30"},
		{"NaN sum", with(0, func(s *sums) { s.values[3] = float32Nan() }), ErrValue, "value 3 is NaN"},
		{"negative sum", with(0, func(s *sums) { s.values[2] = -1 }), ErrValue, "value 2 is -1"},
	}
}

func TestRejects(t *testing.T) {
	for _, r := range rejects(t) {
		_, err := parse(r.file)
		if !errors.Is(err, r.err) || !strings.Contains(err.Error(), r.says) {
			t.Errorf("%s: %v, want %v that says %q", r.name, err, r.err, r.says)
		}
	}
	// A model is no importance matrix.
	meta := gguf.NewMetadata(gguf.KV{Key: "general.type", Value: gguf.Scalar("model")})
	l, err := gguf.NewLayout(meta, nil, gguf.LayoutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parse(l.Header); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), `of type "model"`) {
		t.Error(err)
	}
	if _, err := Read(ctx, "f", tensor.BytesBlob("f", begin(1).entry("a", 1, 1).Bytes()), Options{MaxBytes: 10}); !errors.Is(err, ErrLimit) {
		t.Error(err)
	}
}

// TestPrefixes cuts real files everywhere near their start and end: always an
// error, except where the older format may end.
func TestPrefixes(t *testing.T) {
	b := begin(2).entry("a", 1, 1, 2).entry("b", 2, 3).i32(4).text("x.txt").Bytes()
	ends := []int{len(b), len(b) - 9, len(b) - 13}
	for n := range len(b) {
		if _, err := parse(b[:n]); (err == nil) != slices.Contains(ends, n) {
			t.Errorf("first %d of %d bytes: %v", n, len(b), err)
		}
	}
	g := file(t, []sums{{"w.in_sum2", []int64{2}, []float32{1, 2}}, {"w.counts", []int64{1}, []float32{1}}})
	for n := range len(g) - 28 { // the padding behind the last value may be missing
		if _, err := parse(g[:n]); err == nil {
			t.Errorf("first %d of %d bytes of a GGUF file are accepted", n, len(g))
		}
	}
}

// failing fails on the n-th read.
type failing struct {
	tensor.Blob
	n int
}

var errRead = errors.New("disk on fire")

func (f *failing) ReadAt(ctx context.Context, p []byte, off int64) error {
	if f.n--; f.n < 0 {
		return errRead
	}
	return f.Blob.ReadAt(ctx, p, off)
}

func TestReadFailures(t *testing.T) {
	for _, name := range []string{"stories-moe.imatrix.dat", "stories-moe.imatrix.gguf"} {
		b, err := os.ReadFile(filepath.Join(testmodel.Root(), "convert/presets", name))
		if err != nil {
			t.Fatal(err)
		}
		failed := 0
		for n := 0; ; n++ {
			_, err := Read(ctx, name, &failing{tensor.BytesBlob(name, b), n}, Options{})
			if err == nil {
				break
			}
			failed++
			if !errors.Is(err, errRead) {
				t.Errorf("%s, read %d: %v", name, n, err)
			}
		}
		if failed < 40 {
			t.Errorf("%s: only %d reads", name, failed)
		}
		stopped, cancel := context.WithCancelCause(ctx)
		cancel(errRead)
		if _, err := Read(stopped, name, tensor.BytesBlob(name, b), Options{}); !errors.Is(err, errRead) {
			t.Errorf("%s: %v after the context ended", name, err)
		}
	}
}
