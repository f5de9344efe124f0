package convert

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"quern/formats/gguf"
	"quern/internal/testmodel"
	"quern/model"
	"quern/model/modeltest"
)

// golden is what the real converter wrote for one model; see interop/README.md.
type golden struct {
	Model   string
	Outputs []goldenFile
}

type goldenFile struct {
	File      string
	Tool      string
	Args      []string
	SHA256    string
	Size      int64
	DataStart int64 `json:"data_start"`
	KV        [][3]any
	Tensors   [][5]any
}

func readGoldens(t *testing.T) []golden {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(testmodel.Root(), "convert", "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	var out []golden
	for _, p := range paths {
		text, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		var g golden
		dec := json.NewDecoder(bytes.NewReader(text))
		dec.UseNumber()
		if dec.Decode(&g) == nil && g.Model != "" {
			out = append(out, g)
		}
	}
	if len(out) < 14 {
		t.Fatalf("%d goldens found", len(out))
	}
	return out
}

func load(t *testing.T, files model.FileSet) *model.Model {
	t.Helper()
	m, err := model.LoadHF(t.Context(), files, model.HFOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestGoldens compares whole files: key by key and tensor by tensor for a
// message that helps, then byte for byte.
func TestGoldens(t *testing.T) {
	for _, g := range readGoldens(t) {
		files, err := modeltest.Build(g.Model)
		if err != nil {
			t.Fatal(err)
		}
		m := load(t, files)
		f, _ := model.FamilyOf(m.Config.Architecture())
		// Reading a large tokenizer takes longer than all the rest.
		vocab, _, err := loadVocab(t.Context(), m)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range g.Outputs {
			if want.Tool != "convert_hf_to_gguf.py" {
				continue
			}
			mtp, ok := map[string]MTP{"": MTPWith, "--no-mtp": MTPWithout, "--mtp": MTPOnly}[strings.Join(want.Args[2:], " ")]
			if !ok || want.Args[0] != "--outtype" {
				t.Fatalf("%s: unknown arguments %q", want.File, want.Args)
			}
			t.Run(want.File, func(t *testing.T) {
				out, err := resolveOutType(want.Args[1], f, stored(m))
				if err != nil {
					t.Fatal(err)
				}
				got, err := assemble(t.Context(), m, f, out, Options{MTP: mtp}, vocab)
				if err != nil {
					t.Fatal(err)
				}
				compare(t, want, got)
			})
		}
	}
}

func compare(t *testing.T, want goldenFile, m *model.Model) {
	t.Helper()
	for i := range max(len(want.KV), m.Meta.Len()) {
		if i >= m.Meta.Len() {
			t.Fatalf("key %d is missing: %v", i, want.KV[i])
		}
		kv := m.Meta.At(i)
		if i >= len(want.KV) {
			t.Fatalf("key %d is too much: %s = %s", i, kv.Key, kv.Value)
		}
		if err := sameValue(want.KV[i], kv); err != nil {
			t.Errorf("key %d: %v", i, err)
		}
	}
	if len(m.Plan) != len(m.Tensors) {
		t.Errorf("%d plan entries for %d tensors", len(m.Plan), len(m.Tensors))
	}
	var specs []gguf.TensorSpec
	for i, x := range m.Tensors {
		specs = append(specs, gguf.TensorSpec{Name: x.Name, Type: x.Type, Shape: x.Shape})
		if m.Info(i).Reason == "" {
			t.Errorf("%s: no reason for its type", x.Name)
		}
		if x.Key.IsZero() || len(x.Origin) == 0 && x.Name != "rope_freqs.weight" {
			t.Errorf("%s: key %v, origin %v", x.Name, x.Key, x.Origin)
		}
	}
	l, err := gguf.NewLayout(m.Meta, specs, gguf.LayoutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	h := sha256.New()
	if err := l.WriteTo(t.Context(), h, m.Tensors); err != nil {
		t.Fatal(err)
	}
	if hex.EncodeToString(h.Sum(nil)) == want.SHA256 && l.Size == want.Size {
		return
	}
	t.Errorf("SHA-256 or size differ: %d bytes, want %d", l.Size, want.Size)
	for i := range max(len(want.Tensors), len(m.Tensors)) {
		if i >= len(m.Tensors) || i >= len(want.Tensors) {
			t.Fatalf("%d tensors, want %d", len(m.Tensors), len(want.Tensors))
		}
		x, p := m.Tensors[i], l.Tensors[i]
		dims := slices.Clone(x.Shape)
		slices.Reverse(dims)
		line := fmt.Sprint([]any{x.Name, x.Type, []int64(dims), p.Offset - l.DataStart(), ""})
		w := want.Tensors[i]
		if wantLine := fmt.Sprint([]any{w[0], w[1], w[2], w[3], ""}); line != wantLine {
			t.Fatalf("tensor %d: %s, want %s", i, line, wantLine)
		}
		b := make([]byte, x.Bytes())
		if err := x.ReadRows(t.Context(), b, 0, x.Rows()); err != nil {
			t.Fatal(err)
		}
		if sum := short(b); sum != w[4] {
			t.Errorf("tensor %s: SHA-256 %s, want %v", x.Name, sum, w[4])
		}
	}
}

func short(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}

// sameValue compares with [key, type, value] of a golden.
func sameValue(want [3]any, kv gguf.KV) error {
	got := [3]any{kv.Key, kv.Value.Type().String(), nil}
	switch v := kv.Value.Any().(type) {
	case string:
		got[2] = v
	case bool:
		got[2] = v
	case float32:
		n, ok := want[2].(json.Number)
		f, err := n.Float64()
		if ok && err == nil && math.Float32bits(float32(f)) == math.Float32bits(v) {
			got[2] = want[2]
		} else {
			got[2] = v
		}
	default:
		if kv.Value.IsArray() {
			got[2] = map[string]any{"of": kv.Value.Elem().String(), "count": json.Number(fmt.Sprint(kv.Value.Len())), "sha256": short(arrayBytes(kv.Value))}
		} else {
			got[2] = json.Number(fmt.Sprint(v))
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		return fmt.Errorf("%v, want %v", got, want)
	}
	return nil
}

func arrayBytes(v gguf.Value) []byte {
	var b bytes.Buffer
	if list, ok := v.Any().([]string); ok {
		for _, s := range list {
			b.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(s))))
			b.WriteString(s)
		}
		return b.Bytes()
	}
	if err := binary.Write(&b, binary.LittleEndian, v.Any()); err != nil {
		panic(err)
	}
	return b.Bytes()
}
