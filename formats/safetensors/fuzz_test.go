package safetensors

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"quern/tensor"
)

// Reading a header may allocate this much: a constant for the first read and
// the runtime, and a multiple of the input for entries, names and shapes.
const (
	allocBase   = 2 << 20
	allocFactor = 64
)

// bounded runs f and fails when it allocates more than the input accounts for.
func bounded(t *testing.T, input int, f func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	if d := after.TotalAlloc - before.TotalAlloc; d > uint64(allocBase+allocFactor*input) {
		t.Fatalf("%d bytes allocated for an input of %d", d, input)
	}
}

var sentinels = []error{ErrHeader, ErrHeaderLimit, ErrTruncated, ErrLFSPointer, ErrHTML, ErrFormat, ErrIndex, ErrShards, ErrNoWeights}

func known(err error) bool {
	for _, s := range sentinels {
		if errors.Is(err, s) {
			return true
		}
	}
	return false
}

// FuzzOpen checks that no file makes the reader panic or allocate without
// bound, that each error is a known one, and that what opens covers its data
// and survives writing and reading.
func FuzzOpen(f *testing.F) {
	heads, err := filepath.Glob("../../testdata/models/*/*.safetensors")
	if err != nil || len(heads) < 4 {
		f.Fatalf("%d seeds, %v", len(heads), err)
	}
	for _, file := range heads {
		b, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b[:min(len(b), 4096)]) // truncated: the header is what matters
	}
	f.Add(raw(`{"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, make([]byte, 4)))
	f.Add(raw(`{"b":{"dtype":"U8","shape":[2,2],"data_offsets":[0,4]},"a":{"shape":[3],"data_offsets":[4,10],"dtype":"F16"}}  `, make([]byte, 10)))
	f.Add(raw(`{"e":{"dtype":"I64","shape":[0,4],"data_offsets":[0,0]},"\u00e9\ud83d\udc09":{"dtype":"BOOL","shape":[],"data_offsets":[0,1]}}`, []byte{1}))
	f.Add(raw(`{"w":{"dtype":"F8_E4M3","shape":[4611686018427387904,4],"data_offsets":[0,9007199254740993]}}`, nil))
	f.Add(raw(`{}      `, nil))
	f.Add([]byte("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"))
	f.Add([]byte("<!DOCTYPE html>"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var file *File
		var err error
		bounded(t, len(data), func() { file, err = openBytes(data) })
		if err != nil {
			if !known(err) {
				t.Fatalf("error of no known kind: %v", err)
			}
			return
		}
		total := file.DataStart
		for i, x := range file.Tensors {
			if i > 0 && file.Tensors[i-1].Name >= x.Name {
				t.Fatalf("%q and %q are out of order", file.Tensors[i-1].Name, x.Name)
			}
			if err := x.Validate(); err != nil {
				t.Fatal(err)
			}
			total += x.Bytes()
		}
		if total != file.Size {
			t.Fatalf("tensors cover %d of %d bytes", total, file.Size)
		}
		var b bytes.Buffer
		if err := Write(context.Background(), &b, file.Metadata, file.Tensors); err != nil {
			t.Fatal(err)
		}
		again, err := openBytes(b.Bytes())
		if err != nil || len(again.Tensors) != len(file.Tensors) {
			t.Fatalf("read back: %v", err)
		}
		for i, x := range again.Tensors {
			y := file.Tensors[i]
			if x.Name != y.Name || x.Type != y.Type || !x.Shape.Equal(y.Shape) || !bytes.Equal(rows(t, x), rows(t, y)) {
				t.Fatalf("read back %v, wrote %v", x, y)
			}
		}
	})
}

// FuzzIndex does the same for the shard index, and demands that the text gives
// the same result whole and streamed.
func FuzzIndex(f *testing.F) {
	f.Add([]byte(`{"metadata":{"total_size":6},"weight_map":{"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"}}`))
	f.Add([]byte(`{"weight_map":{"a":"../x","b":"c:/x"}} `))
	f.Add([]byte(`{"x":[[{"y":[1.5e-3,true,null,"\u00e9"]}]],"weight_map":{"\ud83d\udc09":"a/b"}}`))
	f.Add([]byte(`{"metadata":null,"weight_map":{"a":"x","a":"y"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var idx *Index
		var err error
		bounded(t, len(data), func() { idx, err = ReadIndex(context.Background(), "i", tensor.BytesBlob("i", data)) })
		if err != nil && !known(err) {
			t.Fatalf("error of no known kind: %v", err)
		}
		if errors.Is(err, ErrLFSPointer) || errors.Is(err, ErrHTML) || errors.Is(err, ErrFormat) {
			return
		}
		streamed, serr := parseIndex(&scanner{buf: make([]byte, 0, 7), r: bytes.NewReader(data)})
		if (err == nil) != (serr == nil) {
			t.Fatalf("whole: %v, streamed: %v", err, serr)
		}
		if err != nil {
			return
		}
		if len(streamed.Weights) != len(idx.Weights) {
			t.Fatalf("whole %d weights, streamed %d", len(idx.Weights), len(streamed.Weights))
		}
		for i, w := range idx.Weights {
			if w != streamed.Weights[i] || unsafePath(w.Shard) != "" || w.Tensor == "" {
				t.Fatalf("weight %v, streamed %v", w, streamed.Weights[i])
			}
		}
	})
}
