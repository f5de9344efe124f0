package safetensors

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"quern/tensor"
)

// folder is an in-memory Files that notes what is opened.
type folder struct {
	files  map[string][]byte
	opened []string
}

func (f *folder) Open(_ context.Context, p string) (tensor.Blob, error) {
	b, ok := f.files[p]
	if !ok {
		return nil, fmt.Errorf("open %s: %w", p, fs.ErrNotExist)
	}
	f.opened = append(f.opened, p)
	return tensor.BytesBlob(p, b), nil
}

func (f *folder) list() []FileInfo {
	var out []FileInfo
	for p, b := range f.files {
		out = append(out, FileInfo{Path: p, Size: int64(len(b))})
	}
	return out
}

func (f *folder) open(opt ModelOptions) (*Model, error) {
	opt.Parallel = 1
	return OpenModel(context.Background(), f, f.list(), opt)
}

// shard makes a file of U8 tensors with one byte each, its place in the list.
func shard(names ...string) []byte {
	var ts []*tensor.Tensor
	for i, n := range names {
		ts = append(ts, section(n, tensor.U8, tensor.Shape{1}, []byte{byte(i)}))
	}
	var b bytes.Buffer
	if err := Write(context.Background(), &b, nil, ts); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// toy is a model of three shards with two tensors each.
func toy() *folder {
	return &folder{files: map[string][]byte{
		"config.json":                      []byte("{}"),
		"model-00001-of-00003.safetensors": shard("c", "a"),
		"model-00002-of-00003.safetensors": shard("f", "b"),
		"model-00003-of-00003.safetensors": shard("e", "d"),
		IndexName: []byte(`{"metadata":{"total_size":6},"weight_map":{
			"a":"model-00001-of-00003.safetensors","b":"model-00002-of-00003.safetensors","c":"model-00001-of-00003.safetensors",
			"d":"model-00003-of-00003.safetensors","e":"model-00003-of-00003.safetensors","f":"model-00002-of-00003.safetensors"}}`),
	}}
}

func tensorNames(m *Model) string {
	var s []string
	for _, t := range m.Tensors {
		s = append(s, t.Name)
	}
	return strings.Join(s, " ")
}

func mustModel(t *testing.T, f *folder, opt ModelOptions) *Model {
	t.Helper()
	m, err := f.open(opt)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestModelOrder(t *testing.T) {
	m := mustModel(t, toy(), ModelOptions{Source: "base"})
	if got := tensorNames(m); got != "a c b f d e" {
		t.Errorf("order %s", got)
	}
	if len(m.Warnings)+len(m.Ignored) > 0 || len(m.Files) != 3 || m.Index == nil {
		t.Errorf("warnings %v, ignored %v, %d files", m.Warnings, m.Ignored, len(m.Files))
	}
	o := m.Tensors[3].Origin[0]
	if o.Source != "base" || o.File != "model-00002-of-00003.safetensors" {
		t.Errorf("origin %+v", o)
	}
	// In parallel it is the same.
	p, err := OpenModel(context.Background(), &lockedFolder{files: toy().files}, toy().list(), ModelOptions{})
	if err != nil || tensorNames(p) != "a c b f d e" {
		t.Errorf("in parallel %v %v", tensorNames(p), err)
	}
}

// lockedFolder may be used by several goroutines.
type lockedFolder struct{ files map[string][]byte }

func (f *lockedFolder) Open(_ context.Context, p string) (tensor.Blob, error) {
	return tensor.BytesBlob(p, f.files[p]), nil
}

func TestModelKeys(t *testing.T) {
	f := toy()
	for _, x := range mustModel(t, f, ModelOptions{}).Tensors {
		if !x.Key.IsZero() {
			t.Fatalf("%s has a key without a digest", x.Name)
		}
	}
	list := f.list()
	for i := range list {
		list[i].SHA256 = fmt.Sprintf("%x", sha256.Sum256(f.files[list[i].Path]))
	}
	m, err := OpenModel(context.Background(), f, list, ModelOptions{})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[tensor.Key]string{}
	for _, x := range m.Tensors {
		if x.Key.IsZero() || seen[x.Key] != "" {
			t.Errorf("key of %s: %v, also of %s", x.Name, x.Key, seen[x.Key])
		}
		seen[x.Key] = x.Name
	}
	own := tensor.Derive("mine", "")
	m = mustModel(t, f, ModelOptions{FileKey: func(FileInfo) tensor.Key { return own }})
	if m.Tensors[0].Key.IsZero() {
		t.Error("FileKey was not used")
	}
}

// Case 19: a shard that is not there is named with its tensors, before any
// weight file is opened.
func TestMissingShard(t *testing.T) {
	f := toy()
	delete(f.files, "model-00002-of-00003.safetensors")
	_, err := f.open(ModelOptions{})
	wantErr(t, err, ErrShards, "model-00002-of-00003.safetensors", "2 tensors: b, f", "1 are missing")
	if !slices.Equal(f.opened, []string{IndexName}) {
		t.Errorf("opened %v", f.opened)
	}
}

// Case 21: a stray model.safetensors beside shards is reported and not read.
func TestStrayFile(t *testing.T) {
	f := toy()
	f.files[SingleName] = shard("a", "stray")
	f.files["original/consolidated.00.pth"] = []byte("x")
	f.files["pytorch_model.bin"] = []byte("x")
	f.files["onnx/model.onnx"] = []byte("x")
	m := mustModel(t, f, ModelOptions{})
	if got := tensorNames(m); got != "a c b f d e" {
		t.Errorf("tensors %s", got)
	}
	if want := []string{SingleName, "onnx/model.onnx", "original/consolidated.00.pth", "pytorch_model.bin"}; !slices.Equal(m.Ignored, want) {
		t.Errorf("ignored %v", m.Ignored)
	}
	if len(m.Warnings) != 1 || !strings.Contains(m.Warnings[0], SingleName) {
		t.Errorf("warnings %v", m.Warnings)
	}
	if slices.Contains(f.opened, SingleName) {
		t.Error("the stray file was opened")
	}
}

// Case 22: the index decides, whatever shards are called and wherever they
// are below it.
func TestShardNames(t *testing.T) {
	f := &folder{files: map[string][]byte{
		"part-a.safetensors":        shard("x"),
		"weights/b.bin.data":        shard("y"),
		"weights..v2/c.safetensors": shard("z"),
		IndexName:                   []byte(`{"weight_map":{"x":"part-a.safetensors","y":"weights/b.bin.data","z":"weights..v2/c.safetensors"},"metadata":{"total_size":3}}`),
	}}
	if got := tensorNames(mustModel(t, f, ModelOptions{})); got != "x z y" {
		t.Errorf("tensors %s", got)
	}
}

// Case 23: an index and files that disagree: both lists, and the way out.
func TestStaleIndex(t *testing.T) {
	f := &folder{files: map[string][]byte{
		"model-00001-of-00002.safetensors": shard("a"),
		"model-00002-of-00002.safetensors": shard("b"),
		IndexName:                          []byte(`{"weight_map":{"a":"model-00001-of-00004.safetensors","b":"model-00004-of-00004.safetensors"}}`),
	}}
	_, err := f.open(ModelOptions{})
	wantErr(t, err, ErrShards, "names 2 shards, 2 are missing", "model-00001-of-00004.safetensors, model-00004-of-00004.safetensors",
		"does not name: model-00001-of-00002.safetensors, model-00002-of-00002.safetensors", "rebuilt from the headers")
	m := mustModel(t, f, ModelOptions{FromHeaders: true})
	if tensorNames(m) != "a b" || m.Index != nil {
		t.Errorf("from headers: %s", tensorNames(m))
	}
	delete(f.files, "model-00002-of-00002.safetensors")
	_, err = f.open(ModelOptions{FromHeaders: true})
	wantErr(t, err, ErrShards, "00002 files, 1 are there")
}

// The index and the shards' headers must agree in both directions.
func TestIndexAgainstHeaders(t *testing.T) {
	f := toy()
	f.files["model-00002-of-00003.safetensors"] = shard("b", "extra")
	_, err := f.open(ModelOptions{})
	wantErr(t, err, ErrShards, "in no shard: f (model-00002-of-00003.safetensors)", "not in the index: extra (model-00002-of-00003.safetensors)")
	f.files["model-00002-of-00003.safetensors"] = shard("b", "d")
	_, err = f.open(ModelOptions{})
	wantErr(t, err, ErrShards, "tensor \"d\" is in model-00002-of-00003.safetensors and in model-00003-of-00003.safetensors")
	f = toy()
	f.files["model-00002-of-00003.safetensors"] = shard("b", "d")
	f.files["model-00003-of-00003.safetensors"] = shard("e", "f")
	_, err = f.open(ModelOptions{})
	wantErr(t, err, ErrShards, "puts tensor \"d\" in model-00003-of-00003.safetensors, it is in model-00002-of-00003.safetensors")
	f = toy()
	f.files["model-00003-of-00003.safetensors"] = f.files["model-00003-of-00003.safetensors"][:60]
	_, err = f.open(ModelOptions{})
	wantErr(t, err, ErrTruncated, "model-00003-of-00003.safetensors")
	// Long lists are cut.
	var many []string
	for i := range 30 {
		many = append(many, fmt.Sprintf("t%02d", i))
	}
	f = toy()
	f.files["model-00002-of-00003.safetensors"] = shard(append(many, "b", "f")...)
	_, err = f.open(ModelOptions{})
	wantErr(t, err, ErrShards, "30 tensors of the shards", "and 20 more")
}

func TestTotalSize(t *testing.T) {
	for val, want := range map[string]string{
		`{"total_size":6}`:                      "",
		`{"total_size":7}`:                      "says total_size 7, the tensors hold 6 bytes",
		`{"total_size":-1}`:                     "says total_size -1",
		`{"total_size":6.0}`:                    "has no metadata.total_size",
		`{"total_size":"6"}`:                    "has no metadata.total_size",
		`{"total_size":99999999999999999999}`:   "has no metadata.total_size",
		`{"x":[1,{"y":null}],"total_size":6}`:   "",
		`{}`:                                    "has no metadata.total_size",
		`null`:                                  "has no metadata.total_size",
		`{"total_size":{"a":[true,false,1e5]}}`: "has no metadata.total_size",
	} {
		f := toy()
		f.files[IndexName] = bytes.Replace(f.files[IndexName], []byte(`{"total_size":6}`), []byte(val), 1)
		m := mustModel(t, f, ModelOptions{})
		if got := strings.Join(m.Warnings, "; "); (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%s: warnings %q, want %q", val, got, want)
		}
	}
}

func TestUnsafeShardNames(t *testing.T) {
	for name, part := range map[string]string{
		"../x.safetensors": "leaves the folder", "a/../../x": "leaves the folder", "../../etc/x": "leaves the folder", "..": "leaves the folder",
		"/etc/x": "absolute", `a\b`: "backslash", `..\x`: "backslash", "http://example.org/x": "URL", "file:///x": "URL",
		"C:x": "drive", "c:/x": "drive", "": "empty", "a//b": "empty or . part", "./a": "empty or . part", "a/": "empty or . part", "a\x00b": "control",
	} {
		text := fmt.Sprintf(`{"weight_map":{"a":"ok.safetensors","w":%q}}`, name)
		text = strings.ReplaceAll(text, `\x00`, `\u0000`)
		_, err := ReadIndex(context.Background(), "i.json", tensor.BytesBlob("i", []byte(text)))
		wantErr(t, err, ErrIndex, part, `"w"`, "i.json", "byte")
	}
}

func TestBadIndex(t *testing.T) {
	for text, part := range map[string]string{
		`[]`:                               "index object",
		`{}`:                               "no weight_map",
		`{"weight_map":{}}`:                "empty",
		`{"weight_map":[]}`:                "weight_map",
		`{"weight_map":{"a":1}}`:           "the shard of \"a\"",
		`{"weight_map":{"a":["x"]}}`:       "the shard of \"a\"",
		`{"weight_map":{"":"x"}}`:          "without a name",
		`{"weight_map":{"a":"x","a":"y"}}`: `names tensor "a" twice`,
		`{"weight_map":{"a":"x"},"weight_map":{}}`: "duplicate key",
		`{"metadata":{},"metadata":{}}`:            "duplicate key",
		`{"weight_map":{"a":"x"}} 1`:               "after the JSON object",
		`{"weight_map":{"a":"x"}`:                  "ends inside",
		"{\"weight_map\":{\"\xff\":\"x\"}}":        "not UTF-8",
		`{"x":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `,"weight_map":{"a":"x"}}`: "nested more than 64",
		`{"x":tru,"weight_map":{"a":"x"}}`: "unknown word",
		`{"x":01,"weight_map":{"a":"x"}}`:  "not a JSON number",
		`{"x":1.,"weight_map":{"a":"x"}}`:  "not a JSON number",
		`{"x":-,"weight_map":{"a":"x"}}`:   "not a JSON number",
		`{"x":1e,"weight_map":{"a":"x"}}`:  "not a JSON number",
	} {
		_, err := ReadIndex(context.Background(), "i.json", tensor.BytesBlob("i", []byte(text)))
		wantErr(t, err, ErrIndex, part)
	}
	if _, err := ReadIndex(context.Background(), "i.json", &countBlob{size: maxIndex + 1}); !errors.Is(err, ErrIndex) {
		t.Errorf("over the limit: %v", err)
	}
	boom := errors.New("boom")
	if _, err := ReadIndex(context.Background(), "i.json", &countBlob{size: 10, err: boom}); !errors.Is(err, boom) || errors.Is(err, ErrIndex) {
		t.Errorf("failing read: %v", err)
	}
}

// TestStreamedIndex reads an index of some megabytes, which passes through the
// buffer in pieces, and demands that memory does not grow by its text.
func TestStreamedIndex(t *testing.T) {
	var b strings.Builder
	b.WriteString(`{"metadata":{"total_size":1},"weight_map":{`)
	const n = 40_000
	for i := range n {
		if i > 0 {
			b.WriteString(",\n")
		}
		fmt.Fprintf(&b, `"model.layers.%d.mlp.experts.%d.\u0064own_proj.weight": "model-%05d-of-00100.safetensors"`, i/100, i%100, i%100)
	}
	b.WriteString("}}")
	blob := tensor.BytesBlob("i", []byte(b.String()))
	if blob.Size() < 3*indexChunk {
		t.Fatalf("only %d bytes", blob.Size())
	}
	idx, err := ReadIndex(context.Background(), "i.json", blob)
	if err != nil {
		t.Fatal(err)
	}
	if len(idx.Weights) != n || len(idx.Shards) != 100 || idx.Shards[7] != "model-00007-of-00100.safetensors" {
		t.Errorf("%d weights, %d shards", len(idx.Weights), len(idx.Shards))
	}
	for _, w := range idx.Weights {
		if !strings.HasSuffix(w.Tensor, ".down_proj.weight") {
			t.Fatalf("name %q", w.Tensor)
		}
	}
	// Tokens cut at every place by a buffer of a few bytes.
	text := `{"metadata" : {"a\u00e9\ud83d\udc09b": [1.5e-3, true, false, null, "x\n"], "total_size": 123456} , "weight_map": {"t\"é": "s/x.safetensors", "u": "y"}}  `
	want, err := parseIndex(&scanner{buf: []byte(text)})
	if err != nil {
		t.Fatal(err)
	}
	for size := 1; size < 20; size++ {
		got, err := parseIndex(&scanner{buf: make([]byte, 0, size), r: strings.NewReader(text)})
		if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("buffer of %d: %v, %v", size, got, err)
		}
	}
	// Positions count the text, not the buffer.
	bad := `{"weight_map":{"a":"x","b":?}}`
	for size := 1; size < 20; size++ {
		_, err := parseIndex(&scanner{buf: make([]byte, 0, size), r: strings.NewReader(bad)})
		if err == nil || !strings.HasPrefix(err.Error(), "byte 27:") {
			t.Errorf("buffer of %d: %v", size, err)
		}
	}
}

func TestChooseFiles(t *testing.T) {
	one := shard("w")
	for _, x := range []struct {
		name  string
		files []string
		opt   ModelOptions
		want  string // files read, or part of the error
		bad   bool
	}{
		{"single", []string{SingleName}, ModelOptions{}, SingleName, false},
		{"single beside consolidated", []string{SingleName, "consolidated.safetensors", "sub/x.safetensors"}, ModelOptions{}, SingleName, false},
		{"only one, other name", []string{"weights.safetensors", "README.md"}, ModelOptions{}, "weights.safetensors", false},
		{"nothing", []string{"README.md"}, ModelOptions{}, "neither", true},
		{"only PyTorch", []string{"pytorch_model.bin"}, ModelOptions{}, "pytorch_model.bin", true},
		{"two without an index", []string{"a.safetensors", "b.safetensors"}, ModelOptions{}, "2 files could be meant: a.safetensors, b.safetensors", true},
		{"two shards without an index", []string{"m-00001-of-00002.safetensors", "m-00002-of-00002.safetensors"}, ModelOptions{}, "could be meant", true},
		{"one shard without an index", []string{"m-00001-of-00002.safetensors"}, ModelOptions{}, "could be meant", true},
		{"two sets", []string{"m-00001-of-00001.safetensors", "n-00001-of-00001.safetensors"}, ModelOptions{FromHeaders: true}, "more than one set", true},
		{"from headers, one", []string{SingleName}, ModelOptions{FromHeaders: true}, SingleName, false},
		{"from headers, shards beside a stray", []string{SingleName, "m-00001-of-00001.safetensors"}, ModelOptions{FromHeaders: true}, "m-00001-of-00001.safetensors", false},
		{"wrong numbers", []string{"m-00001-of-00002.safetensors", "m-00003-of-00002.safetensors"}, ModelOptions{FromHeaders: true}, "00002 files, 2 are there", true},
	} {
		f := &folder{files: map[string][]byte{}}
		for _, p := range x.files {
			f.files[p] = one
		}
		_, err := f.open(x.opt)
		switch {
		case x.bad && (err == nil || !strings.Contains(err.Error(), x.want)):
			t.Errorf("%s: error %v, want %s", x.name, err, x.want)
		case !x.bad && (err != nil || strings.Join(f.opened, " ") != x.want):
			t.Errorf("%s: opened %v, %v", x.name, f.opened, err)
		}
	}
}

func TestModelCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	f := toy()
	if _, err := OpenModel(ctx, f, f.list(), ModelOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
