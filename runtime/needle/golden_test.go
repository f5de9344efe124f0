package needle_test

import (
	"encoding/json"
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"quern/formats/cact"
	"quern/formats/safetensors"
	checkpoint "quern/model/needle"
	infer "quern/runtime"
	"quern/runtime/mapped"
	"quern/runtime/needle"
	"quern/tensor"
	"quern/tensor/quant"
)

const dir = "../../testdata/cact"

// openArchive runs an archive of testdata.
func openArchive(t testing.TB, name string) *needle.Model {
	t.Helper()
	blob, err := mapped.Open(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	f, err := cact.Open(t.Context(), name, blob, cact.Options{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := needle.FromArchive(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	m.Closers = append(m.Closers, blob.Close)
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// golden is a file of logits with the tokens they follow.
type golden struct {
	meta    map[string]string
	tensors map[string]*tensor.Tensor
}

func openGolden(t testing.TB, name string) *golden {
	t.Helper()
	blob, err := tensor.OpenFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { blob.Close() })
	f, err := safetensors.Open(t.Context(), name, blob, safetensors.Options{})
	if err != nil {
		t.Fatal(err)
	}
	g := &golden{map[string]string{}, map[string]*tensor.Tensor{}}
	for _, kv := range f.Metadata {
		g.meta[kv.Key] = kv.Value
	}
	for _, x := range f.Tensors {
		g.tensors[x.Name] = x
	}
	return g
}

// tokens reads the metadata's list, JSON or bare.
func (g *golden) tokens(t testing.TB, key string) []int32 {
	t.Helper()
	text := g.meta[key]
	if !strings.HasPrefix(text, "[") {
		text = "[" + text + "]"
	}
	var out []int32
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(key, err)
	}
	return out
}

// rows reads a tensor as rows of its last axis.
func (g *golden) rows(t testing.TB, name string) [][]float32 {
	t.Helper()
	x := g.tensors[name]
	if x == nil {
		t.Fatalf("no tensor %s", name)
	}
	b := make([]byte, x.Bytes())
	if err := x.ReadRows(t.Context(), b, 0, x.Rows()); err != nil {
		t.Fatal(err)
	}
	dec, err := quant.DecoderFor(x.Type)
	if err != nil {
		t.Fatal(err)
	}
	all := make([]float32, len(b)/4)
	dec.Decode(all, b)
	var out [][]float32
	for n := int(x.Shape.RowLen()); len(all) > 0; all = all[n:] {
		out = append(out, all[:n])
	}
	return out
}

// logits evaluates tokens in one call.
func logits(t testing.TB, s infer.Session, tokens []int32) [][]float32 {
	t.Helper()
	want := make([]int, len(tokens))
	for i := range want {
		want[i] = i
	}
	var out [][]float32
	err := s.Eval(t.Context(), tokens, want, func(_ int, row []float32) error {
		out = append(out, append([]float32(nil), row...))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// openCheckpoint runs a checkpoint of testdata.
func openCheckpoint(t testing.TB, name string) *needle.Model {
	t.Helper()
	blob, err := tensor.OpenFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { blob.Close() })
	c, err := checkpoint.LoadSafetensors(t.Context(), name, blob, safetensors.Options{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := needle.FromCheckpoint(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func session(t testing.TB, m *needle.Model, opt infer.SessionOptions, more needle.Options) infer.Session {
	t.Helper()
	s, err := m.NewSessionWith(opt, more)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// near compares within a part of the greatest value of all rows. Rows of got may
// go on with -Inf.
func near(t *testing.T, what string, got, want [][]float32, tolerance float64) {
	t.Helper()
	if len(got) != len(want) || len(want) == 0 {
		t.Fatalf("%s: %d rows, want %d", what, len(got), len(want))
	}
	var most, worst float64
	at := ""
	for i, row := range want {
		for j, v := range row {
			most = math.Max(most, math.Abs(float64(v)))
			d := math.Abs(float64(v) - float64(got[i][j]))
			if !(d <= worst) {
				worst, at = d, strconv.Itoa(j)+" of row "+strconv.Itoa(i)
			}
		}
		for _, v := range got[i][len(row):] {
			if !math.IsInf(float64(v), -1) {
				t.Fatalf("%s: row %d goes on with %v", what, i, v)
			}
		}
	}
	t.Logf("%s: within %.1e of the greatest value", what, worst/most)
	if !(worst <= tolerance*most) {
		t.Errorf("%s: value %s is off by %.2e of the greatest, %v", what, at, worst/most, tolerance)
	}
}

// TestGeneration2 compares with float64 logits, on the archives' weights and on those
// of the checkpoints.
func TestGeneration2(t *testing.T) {
	g := openGolden(t, "needle2-logits.safetensors")
	for _, c := range []struct {
		m      *needle.Model
		logits string
	}{
		{openArchive(t, "needle2-a-w4.cact"), "a-w4"}, {openArchive(t, "needle2-b-w4.cact"), "b-w4"},
		{openArchive(t, "needle2-a-mixed.cact"), "a-mixed"},
		{openCheckpoint(t, "needle2-a.safetensors"), "a-float"}, {openCheckpoint(t, "needle2-b.safetensors"), "b-float"},
	} {
		s := session(t, c.m, infer.SessionOptions{}, needle.Options{})
		near(t, c.logits, logits(t, s, g.tokens(t, "tokens")), g.rows(t, c.logits), 1e-4)
	}
}

// TestGeneration2Rounded compares W4A8 with the JAX model of generation 2.
func TestGeneration2Rounded(t *testing.T) {
	g := openGolden(t, "needle2-w4a8.safetensors")
	for i, tokens := range [][]int32{{2, 403, 407, 261}, {378, 432, 383, 286}} {
		for _, name := range []string{"a", "b"} {
			s := session(t, openArchive(t, "needle2-"+name+"-w4.cact"), infer.SessionOptions{Act: infer.Q8}, needle.Options{})
			near(t, name, logits(t, s, tokens), g.rows(t, name+"."+strconv.Itoa(i)), 2e-5)
		}
	}
}

// TestGeneration3 compares with the JAX model: float, W4A8, and W4A8 with int8
// keys and values.
func TestGeneration3(t *testing.T) {
	for _, name := range []string{"needle3-a", "needle3-b", "needle3-c"} {
		g, archive, float := openGolden(t, name+"-logits.safetensors"), openArchive(t, name+".cact"), openCheckpoint(t, name+".safetensors")
		for _, c := range []struct {
			m              *needle.Model
			tokens, prefix string
			opt            needle.Options
		}{
			{float, "tokens", "checkpoint", needle.Options{Window: -1}},
			{archive, "tokens", "archive", needle.Options{Window: -1}},
			{archive, "w4a8.tokens", "w4a8", needle.Options{Round8: true}},
			{archive, "w4a8kv8.tokens", "w4a8kv8", needle.Options{Round8: true, KV8: true}},
		} {
			what := name + " " + c.prefix
			tokens := g.tokens(t, c.tokens)
			near(t, what, logits(t, session(t, c.m, infer.SessionOptions{}, c.opt), tokens), g.rows(t, c.prefix+".logits"), 2e-5)
			if name != "needle3-a" {
				continue
			}
			r, err := c.m.Read(t.Context(), tokens, infer.SessionOptions{}, c.opt)
			if err != nil {
				t.Fatal(err)
			}
			near(t, what+" embedding", [][]float32{r.Embedding}, g.rows(t, c.prefix+".embedding"), 2e-5)
			near(t, what+" confidence", [][]float32{r.Confidence}, g.rows(t, c.prefix+".confidence"), 2e-5)
			near(t, what+" router", [][]float32{r.Router}, g.rows(t, c.prefix+".router"), 2e-5)
		}
	}
}
