package safetensors

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"strings"
	"testing"

	"quern/tensor"
	"quern/tensor/view"
)

// countBlob serves size bytes: head, then spaces. It counts reads.
type countBlob struct {
	head, tail []byte
	size       int64
	reads      []int64 // lengths
	err        error
}

func (b *countBlob) Size() int64 { return b.size }

func (b *countBlob) ReadAt(_ context.Context, p []byte, off int64) error {
	b.reads = append(b.reads, int64(len(p)))
	if b.err != nil {
		return b.err
	}
	if off < 0 || off+int64(len(p)) > b.size {
		return io.ErrUnexpectedEOF
	}
	for i := range p {
		p[i] = ' '
	}
	if off < int64(len(b.head)) {
		copy(p, b.head[off:])
	}
	if start := b.size - int64(len(b.tail)); off+int64(len(p)) > start {
		for i := range b.tail {
			if at := start + int64(i) - off; at >= 0 && at < int64(len(p)) {
				p[at] = b.tail[i]
			}
		}
	}
	return nil
}

// padded makes a file with a header of n bytes, one U8 tensor of 4 bytes.
func padded(n int64) *countBlob {
	head := binary.LittleEndian.AppendUint64(nil, uint64(n))
	head = append(head, `{"w":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`...)
	return &countBlob{head: head, tail: []byte{1, 2, 3, 4}, size: 8 + n + 4}
}

// Case 1: any header length costs at most two reads, and the 8 length bytes
// count.
func TestHeaderReads(t *testing.T) {
	const least, most = minFirstRead, maxFirstRead
	for _, n := range []int64{least - 13, least - 9, least - 8, least - 7, least, 99_992, 99_993, 99_994, 100_000, 100_001, most - 8, most, 1_000_003, 2_000_000, 50_000_000} {
		b := padded(n)
		f, err := Open(context.Background(), "w", b, Options{})
		if err != nil {
			t.Errorf("header of %d bytes: %v", n, err)
			continue
		}
		first := min(b.size, max(4096, min(b.size/256, 131072)))
		want := []int64{first}
		if 8+n > first {
			want = append(want, 8+n-first)
		}
		if fmt.Sprint(b.reads) != fmt.Sprint(want) {
			t.Errorf("header of %d bytes: reads %v, want %v", n, b.reads, want)
		}
		if got := rows(t, f.Tensors[0]); string(got) != "\x01\x02\x03\x04" {
			t.Errorf("header of %d bytes: data %v", n, got)
		}
	}
}

// Case 2: duplicate names are called so, also when only an escape differs.
func TestDuplicateNames(t *testing.T) {
	for _, second := range []string{`"w"`, `"\u0077"`} {
		h := `{"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},` + second + `:{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`
		_, err := openBytes(raw(h, []byte{1, 2}))
		wantErr(t, err, ErrHeader, `duplicate tensor name "w"`, "byte 61", "byte 9")
	}
	for _, h := range []string{
		`{"__metadata__":{"a":"1"},"__metadata__":{"a":"1"}}`,
		`{"__metadata__":{"a":"1","a":"2"}}`,
		`{"w":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}}`,
		`{"w":{"dtype":"U8","shape":[1],"shape":[1],"data_offsets":[0,1]}}`,
		`{"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"data_offsets":[0,1]}}`,
	} {
		_, err := openBytes(raw(h, []byte{1}))
		wantErr(t, err, ErrHeader)
		if err != nil && !strings.Contains(err.Error(), "duplicate key") && !strings.Contains(err.Error(), "two values") {
			t.Errorf("%s: %v", h, err)
		}
	}
	// Another letter case is another key, and an unknown one.
	_, err := openBytes(raw(`{"w":{"dtype":"U8","DTYPE":"I8","shape":[1],"data_offsets":[0,1]}}`, []byte{1}))
	wantErr(t, err, ErrHeader, `unknown key "DTYPE"`)
}

// Case 3: __metadata__ is a map of strings, and no tensor.
func TestMetadataType(t *testing.T) {
	for val, what := range map[string]string{`["a"]`: "an array", `"a"`: "a string", `null`: "null", `1`: "a number", `{"a":1}`: "a number", `{"a":{"b":"c"}}`: "an object", `{"a":null}`: "null", `{"dtype":"U8","shape":[1],"data_offsets":[0,1]}`: "an array"} {
		_, err := openBytes(raw(`{"__metadata__":`+val+`}`, nil))
		wantErr(t, err, ErrHeader, "__metadata__", what)
	}
	_, err := NewLayout(nil, []TensorSpec{{"__metadata__", tensor.U8, tensor.Shape{1}}})
	wantErr(t, err, ErrWrite, "__metadata__")
}

// Case 4: the limit stops before memory is spent; raised, the file opens.
func TestHeaderLimit(t *testing.T) {
	b := padded(DefaultMaxHeader + 1)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := Open(context.Background(), "w", b, Options{})
	runtime.ReadMemStats(&after)
	wantErr(t, err, ErrHeaderLimit, "100000001", "100000000", "--max-header")
	if d := after.TotalAlloc - before.TotalAlloc; d > 1<<20 {
		t.Errorf("%d bytes allocated before the refusal", d)
	}
	f, err := Open(context.Background(), "w", b, Options{MaxHeader: DefaultMaxHeader + 1})
	if err != nil || len(f.Tensors) != 1 {
		t.Errorf("with the limit raised: %v", err)
	}
	// A length that is not there is refused whatever the limit.
	for _, n := range []uint64{50, 1 << 40, math.MaxInt64, math.MaxUint64 - 7, math.MaxUint64} {
		short := binary.LittleEndian.AppendUint64(nil, n)
		_, err := Open(context.Background(), "w", tensor.BytesBlob("w", append(short, '{', '}')), Options{MaxHeader: math.MaxInt64 - 8})
		if !errors.Is(err, ErrTruncated) && !errors.Is(err, ErrHeaderLimit) {
			t.Errorf("length %d: %v", n, err)
		}
	}
}

// Cases 6 and 7: what is often found in place of weights is called by name.
func TestOtherContent(t *testing.T) {
	lfs := "version https://git-lfs.github.com/spec/v1\noid sha256:4665a5ea423c2713d436b5ee50593a9640e0018c1550b5a0002f74190d6caea8\nsize 12345678\n"
	for _, x := range []struct {
		text     string
		sentinel error
		parts    []string
	}{
		{lfs, ErrLFSPointer, []string{"sha256:4665a5ea423c2713d436b5ee50593a9640e0018c1550b5a0002f74190d6caea8", "12345678", "git lfs pull"}},
		{strings.ReplaceAll(lfs, "\n", "\r\n"), ErrLFSPointer, []string{"12345678"}},
		{"<!DOCTYPE html><html><body>Log in</body></html>", ErrHTML, []string{"<!DOCTYPE"}},
		{"\xef\xbb\xbf\r\n <html lang=en>", ErrHTML, nil},
		{"GGUF\x03\x00\x00\x00aaaaaaaa", ErrFormat, []string{"GGUF"}},
		{"PK\x03\x04aaaaaaaaaaaa", ErrFormat, []string{"ZIP"}},
		{"", ErrTruncated, []string{"empty"}},
		{"\x02\x00\x00", ErrTruncated, []string{"3 bytes"}},
	} {
		_, err := openBytes([]byte(x.text))
		wantErr(t, err, x.sentinel, append(x.parts, "t.safetensors")...)
		if x.text == "" || x.sentinel == ErrTruncated {
			continue
		}
		_, err = ReadIndex(context.Background(), IndexName, tensor.BytesBlob("i", []byte(x.text)))
		wantErr(t, err, x.sentinel, append(x.parts, IndexName)...)
	}
}

// Case 8: a cut file says how long it should be and which tensor is hurt.
func TestTruncated(t *testing.T) {
	h := `{"a":{"dtype":"F32","shape":[2],"data_offsets":[8,16]},"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`
	whole := raw(h, make([]byte, 16))
	mustOpen(t, whole)
	_, err := openBytes(whole[:len(whole)-1])
	wantErr(t, err, ErrTruncated, fmt.Sprintf("expected %d+16 bytes, found %d", 8+len(h), len(whole)-1), `first damaged tensor "a"`)
	_, err = openBytes(whole[:len(whole)-9])
	wantErr(t, err, ErrTruncated, `first damaged tensor "b"`)
	_, err = openBytes(whole[:40])
	wantErr(t, err, ErrTruncated, fmt.Sprint(8+len(h)), "40")
	_, err = openBytes(whole[:8+len(h)-1])
	wantErr(t, err, ErrTruncated, fmt.Sprintf("needs %d bytes, the file has %d", 8+len(h), 8+len(h)-1))
	_, err = openBytes(append(whole, 0))
	wantErr(t, err, ErrHeader, "1 bytes after the last tensor")
}

// Case 10: the tensors tile the data, in any order.
func TestCoverage(t *testing.T) {
	two := func(a, b string) string {
		return `{"a":{"dtype":"F32","shape":[2],"data_offsets":` + a + `},"b":{"dtype":"F32","shape":[2],"data_offsets":` + b + `}}`
	}
	_, err := openBytes(raw(two("[0,8]", "[4,12]"), make([]byte, 12)))
	wantErr(t, err, ErrHeader, `tensor "b" at offsets 4 to 12 overlaps tensor "a", which ends at 8`)
	_, err = openBytes(raw(two("[0,8]", "[12,20]"), make([]byte, 20)))
	wantErr(t, err, ErrHeader, "gap of 4 bytes at offsets 8 to 12", `"a"`, `"b"`)
	_, err = openBytes(raw(two("[4,12]", "[12,20]"), make([]byte, 20)))
	wantErr(t, err, ErrHeader, "gap of 4 bytes at offsets 0 to 4")
	_, err = openBytes(raw(two("[0,8]", "[0,8]"), make([]byte, 8)))
	wantErr(t, err, ErrHeader, "overlaps")
	mustOpen(t, raw(two("[8,16]", "[0,8]"), make([]byte, 16)))
	// An empty tensor lies between others, not inside one.
	h := `{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"e":{"dtype":"F32","shape":[0],"data_offsets":[%d,%[1]d]}}`
	mustOpen(t, raw(fmt.Sprintf(h, 0), make([]byte, 8)))
	mustOpen(t, raw(fmt.Sprintf(h, 8), make([]byte, 8)))
	_, err = openBytes(raw(fmt.Sprintf(h, 4), make([]byte, 8)))
	wantErr(t, err, ErrHeader, "overlaps")
}

// Case 11: wrong JSON types and numbers that are no offsets.
func TestBadHeaders(t *testing.T) {
	one := func(offsets string) string { return `{"w":{"dtype":"U8","shape":[8],"data_offsets":` + offsets + `}}` }
	shape := func(s string) string { return `{"w":{"dtype":"U8","shape":` + s + `,"data_offsets":[0,8]}}` }
	for h, part := range map[string]string{
		`[]`:                           `not with "{"`,
		` {}`:                          `not with "{"`,
		`{} x`:                         "after the JSON object",
		`{}{}`:                         "after the JSON object",
		`{`:                            "ends inside",
		`{"w"`:                         "ends inside",
		`{"w":`:                        "ends inside",
		`{"w":[]}`:                     `the object of "w"`,
		`{"w":null}`:                   `the object of "w"`,
		`{"w":{}}`:                     `no "dtype"`,
		`{"w":{"dtype":"U8"}}`:         `no "shape"`,
		`{"w":{"dtype":1}}`:            "the dtype",
		`{"":{}}`:                      "without a name",
		`{,}`:                          "a key",
		`{"w":{},}`:                    `no "dtype"`,
		`{w:1}`:                        "a key",
		`{'w':1}`:                      "a key",
		"{\"a\nb\":1}":                 "control character",
		`{"\q":1}`:                     "escape",
		`{"\u12g4":1}`:                 `\u escape`,
		`{"\ud800":1}`:                 "surrogate",
		`{"\ud800\u0041":1}`:           "surrogate",
		`{"\udc00\ud800":1}`:           "surrogate",
		"{\"\xff\":1}":                 "not UTF-8",
		"{\"\xed\xa0\x80\":1}":         "not UTF-8",
		one(`[0,8`):                    "where",
		one(`[0]`):                     "1 data_offsets",
		one(`[0,8,8]`):                 "more than two",
		one(`[]`):                      "0 data_offsets",
		one(`{"0":8}`):                 "data_offsets",
		one(`[-1,8]`):                  "negative: \"-1\"",
		one(`[8,0]`):                   "before its begin",
		one(`[0,8.0]`):                 "not an integer: \"8.0\"",
		one(`[0,0.5]`):                 "not an integer",
		one(`[0,8e0]`):                 "not an integer",
		one(`[0,"8"]`):                 "a data offset",
		one(`[0,08]`):                  "not a JSON number",
		one(`[0,+8]`):                  "a data offset",
		one(`[0,Infinity]`):            "a data offset",
		one(`[0,NaN]`):                 "a data offset",
		one(`[0,9223372036854775808]`): "over 2^63-1: \"9223372036854775808\"",
		one(`[0,9007199254740993]`):    "9007199254740993",
		one(`[9223372036854775807,9223372036854775807]`): "hold 0",
		shape(`8`):                          "the shape",
		shape(`[8`):                         "where",
		shape(`[-8]`):                       "negative",
		shape(`[8.5]`):                      "not an integer",
		shape(`[true]`):                     "a dimension",
		shape(`[9]`):                        "takes 9 bytes",
		shape(`[4,4]`):                      "takes 16 bytes",
		shape(`[4294967296,4294967296]`):    "2^63-1",
		shape(`[99999999999999999999]`):     "over 2^63-1",
		shape(`[0,4611686018427387904,16]`): "takes 0 bytes",
		`{"w":{"dtype":"F9","shape":[1],"data_offsets":[0,8]}}`:               `unknown dtype "F9"; known are F64, F32, F16, BF16, F8_E4M3`,
		`{"w":{"dtype":"f32","shape":[2],"data_offsets":[0,8]}}`:              `unknown dtype "f32"`,
		`{"w":{"dtype":"Q4_0","shape":[2],"data_offsets":[0,8]}}`:             `unknown dtype "Q4_0"`,
		`{"w":{"dtype":"U8","shape":[8],"data_offsets":[0,8],"x":1}}`:         `unknown key "x"`,
		`{"w":` + strings.Repeat(`{"w":`, 10000) + strings.Repeat(`}`, 10001): "unknown key",
		`{"w":{"dtype":"U8","shape":` + strings.Repeat(`[`, 10000):            "a dimension",
	} {
		_, err := openBytes(raw(h, make([]byte, 8)))
		wantErr(t, err, ErrHeader, part)
	}
	_, err := openBytes(raw("", nil))
	wantErr(t, err, ErrHeader, "empty")
}

// Case 13: the data start is 8+N as it stands, not rounded up.
func TestUnpadded(t *testing.T) {
	h := `{"w":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}}` + "  "
	if len(h) != 57 {
		t.Fatalf("header of %d bytes", len(h))
	}
	var data []byte
	for _, v := range []float32{1, 2, 3} {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
	}
	f := mustOpen(t, raw(h, data))
	got := rows(t, f.Tensors[0])
	if string(got) != string(data) {
		t.Errorf("got %v, want %v", got, data)
	}
}

// Case 15: types stay what they are, and integers are not taken for floats.
func TestTypes(t *testing.T) {
	h, data := "{", []byte{}
	var all []tensor.Type
	for _, typ := range tensor.Types() {
		name, ok := typ.Safetensors()
		if !ok {
			continue
		}
		if len(h) > 1 {
			h += ","
		}
		n := typ.BlockBytes()
		h += fmt.Sprintf(`"t%02d":{"dtype":%q,"shape":[1],"data_offsets":[%d,%d]}`, len(all), name, len(data), int64(len(data))+n)
		data = append(data, make([]byte, n)...)
		all = append(all, typ)
	}
	f := mustOpen(t, raw(h+"}", data))
	for i, typ := range all {
		if f.Tensors[i].Type != typ {
			t.Errorf("%v read as %v", typ, f.Tensors[i].Type)
		}
	}
	_, err := view.Cast(f.Tensors[6], tensor.F32, view.CastOptions{})
	if f.Tensors[6].Type != tensor.I64 || err == nil || !strings.Contains(err.Error(), "t06") || !strings.Contains(err.Error(), "I64") {
		t.Errorf("I64 as float: %v", err)
	}
	_, err = Rescale(f.Tensors[4:5], ScaleOptions{})
	wantErr(t, err, ErrScale, "t04", "F8_E4M3")
}

// Case 16: empty tensors and scalars.
func TestEmptyAndScalar(t *testing.T) {
	h := `{"empty":{"dtype":"F32","shape":[0,4],"data_offsets":[0,0]},"scalar":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"one":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`
	f := mustOpen(t, raw(h, []byte{1, 2, 3, 4, 5, 6, 7, 8}))
	if got := rows(t, f.Tensor("empty")); len(got) != 0 {
		t.Errorf("empty: %v", got)
	}
	if got := rows(t, f.Tensor("scalar")); string(got) != "\x01\x02\x03\x04" {
		t.Errorf("scalar: %v", got)
	}
	if got := rows(t, f.Tensor("one")); string(got) != "\x05\x06\x07\x08" {
		t.Errorf("one: %v", got)
	}
	if x := f.Tensor("empty"); x.Origin != nil || len(f.Tensor("one").Origin) != 1 {
		t.Errorf("origins %v", x.Origin)
	}
	// A file without tensors is one too.
	if f := mustOpen(t, raw(`{}      `, nil)); len(f.Tensors) != 0 {
		t.Error(f.Tensors)
	}
}

// Case 58: bare Infinity and NaN are for config files only.
func TestNoInfinity(t *testing.T) {
	for _, v := range []string{"Infinity", "-Infinity", "NaN"} {
		_, err := openBytes(raw(`{"__metadata__":{"a":`+v+`}}`, nil))
		wantErr(t, err, ErrHeader)
	}
}

// A failing or cancelled read is not the file's fault.
func TestReadErrors(t *testing.T) {
	boom := errors.New("boom")
	b := padded(200_000)
	b.err = boom
	if _, err := Open(context.Background(), "w", b, Options{}); !errors.Is(err, boom) || errors.Is(err, ErrHeader) {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Open(ctx, "w", tensor.BytesBlob("w", raw(`{}`, nil)), Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
