package tokenizer

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// memFiles is a folder in memory.
type memFiles map[string]string

func (m memFiles) ReadFile(_ context.Context, path string, limit int64) ([]byte, error) {
	s, ok := m[path]
	if !ok {
		return nil, fs.ErrNotExist
	}
	if int64(len(s)) > limit {
		return nil, fmt.Errorf("%s is larger than %d", path, limit)
	}
	return []byte(s), nil
}

// readFolder loads the small files of a test model. model.json may name files
// that lie elsewhere, gzipped.
func readFolder(t testing.TB, dir string) memFiles {
	t.Helper()
	m := memFiles{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || strings.HasSuffix(path, ".safetensors") {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		m[filepath.ToSlash(rel)] = string(readTestFile(t, path))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if text, ok := m["model.json"]; ok {
		var desc struct{ Copy map[string]string }
		if err := json.Unmarshal([]byte(text), &desc); err != nil {
			t.Fatalf("%s/model.json: %v", dir, err)
		}
		for name, from := range desc.Copy {
			m[name] = string(readTestFile(t, filepath.Join("..", "testdata", "convert", filepath.FromSlash(from))))
		}
		delete(m, "model.json")
	}
	return m
}

func readTestFile(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasSuffix(path, ".gz") {
		z, err := gzip.NewReader(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		if data, err = io.ReadAll(z); err != nil {
			t.Fatal(err)
		}
	}
	return data
}

func (m memFiles) paths() []string {
	var out []string
	for name := range m {
		out = append(out, name)
	}
	return out
}

// load runs Load as a converter would.
func (m memFiles) load(t testing.TB) (*Vocabulary, error) {
	t.Helper()
	cfg, err := ParseConfig("config.json", []byte(m["config.json"]))
	if err != nil {
		return nil, err
	}
	return Load(context.Background(), m, cfg, LoadOptions{Paths: m.paths()})
}

// describe renders keys as the goldens have them: scalars as they are, arrays
// as element type, count and the start of a SHA-256 over their file bytes.
func describe(t testing.TB, kvs []KV) []string {
	t.Helper()
	var out []string
	for _, kv := range kvs {
		kind, value := "", any(nil)
		arr := func(of string, n int, data []byte) {
			sum := sha256.Sum256(data)
			kind, value = "arr", map[string]any{"of": of, "count": n, "sha256": hex.EncodeToString(sum[:8])}
		}
		switch v := kv.Value.(type) {
		case string:
			kind, value = "str", v
		case uint32:
			kind, value = "u32", v
		case bool:
			kind, value = "bool", v
		case []string:
			var b []byte
			for _, s := range v {
				b = binary.LittleEndian.AppendUint64(b, uint64(len(s)))
				b = append(b, s...)
			}
			arr("str", len(v), b)
		case []float32:
			var b []byte
			for _, f := range v {
				b = binary.LittleEndian.AppendUint32(b, math.Float32bits(f))
			}
			arr("f32", len(v), b)
		case []int32:
			var b []byte
			for _, n := range v {
				b = binary.LittleEndian.AppendUint32(b, uint32(n))
			}
			arr("i32", len(v), b)
		default:
			t.Fatalf("%s: value of type %T", kv.Key, v)
		}
		line, err := json.Marshal([]any{kv.Key, kind, value})
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, string(line))
	}
	return out
}

type convertGolden struct {
	Outputs []struct {
		File string
		KV   [][]any
	}
}

// TestConvertGoldens compares the keys with files that convert_hf_to_gguf.py
// of llama.cpp v0.5.0 wrote from the same folders.
func TestConvertGoldens(t *testing.T) {
	var dirs []string
	for _, glob := range []string{"../testdata/models/*/config.json", "../testdata/convert/models/*/config.json"} {
		found, err := filepath.Glob(glob)
		if err != nil {
			t.Fatal(err)
		}
		dirs = append(dirs, found...)
	}
	ran := 0
	for _, config := range dirs {
		dir := filepath.Dir(config)
		name := filepath.Base(dir)
		golden := filepath.Join("..", "testdata", "convert", name+".json")
		if _, err := os.Stat(golden); err != nil {
			continue // a model without a golden file of the whole conversion
		}
		ran++
		t.Run(name, func(t *testing.T) {
			var g convertGolden
			if err := json.Unmarshal(readTestFile(t, golden), &g); err != nil {
				t.Fatal(err)
			}
			v, err := readFolder(t, dir).load(t)
			if err != nil {
				t.Fatal(err)
			}
			var want []string
			for _, kv := range g.Outputs[0].KV {
				if strings.HasPrefix(kv[0].(string), "tokenizer.") {
					line, err := json.Marshal(kv)
					if err != nil {
						t.Fatal(err)
					}
					want = append(want, string(line))
				}
			}
			compareLines(t, describe(t, v.Keys()), want)
		})
	}
	if ran < 3 {
		t.Errorf("only %d models have goldens", ran)
	}
}

func compareLines(t *testing.T, got, want []string) {
	t.Helper()
	for i := 0; i < len(got) || i < len(want); i++ {
		g, w := "(none)", "(none)"
		if i < len(got) {
			g = got[i]
		}
		if i < len(want) {
			w = want[i]
		}
		if g != w {
			t.Errorf("key %d:\n got %s\nwant %s", i, g, w)
		}
	}
}
