package load_test

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"quern/formats/safetensors"
	infer "quern/runtime"
	"quern/runtime/load"
	"quern/tensor"
	"quern/tensor/quant"
	"quern/tokenizer"
)

// golden is an entry of testdata/golden/runtime/golden.json, made by a float64
// forward pass of the same models.
type golden struct {
	Greedy     []int32 `json:"greedy_from_bos"`
	Text       string  `json:"text"`
	Perplexity float64 `json:"perplexity"`
	Tokens     int     `json:"eval_tokens"`
	Context    int     `json:"n_ctx"`
	Scored     int     `json:"scored"`
}

func readGolden(t *testing.T, name string) golden {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("../../testdata", "golden/runtime/golden.json"))
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]json.RawMessage
	var g golden
	if err := json.Unmarshal(b, &all); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(all[name], &g); err != nil {
		t.Fatal(err)
	}
	return g
}

// goldenLogits gives the tokens of a golden and the logits after each of them.
func goldenLogits(t *testing.T, name string) (tokens []int32, logits [][]float32) {
	t.Helper()
	blob, err := tensor.OpenFile(filepath.Join("../../testdata", "golden/runtime", name+"-logits.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer blob.Close()
	f, err := safetensors.Open(t.Context(), name, blob, safetensors.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range f.Metadata {
		if kv.Key == "tokens" {
			for _, s := range strings.Split(kv.Value, ",") {
				n, err := strconv.Atoi(s)
				if err != nil {
					t.Fatal(err)
				}
				tokens = append(tokens, int32(n))
			}
		}
	}
	x := f.Tensors[0]
	dec, err := quant.DecoderFor(x.Type)
	if err != nil {
		t.Fatal(err)
	}
	for i := range x.Rows() {
		b, row := make([]byte, x.RowBytes()), make([]float32, x.Shape.RowLen())
		if err := x.ReadRows(t.Context(), b, i, 1); err != nil {
			t.Fatal(err)
		}
		dec.Decode(row, b)
		logits = append(logits, row)
	}
	return tokens, logits
}

func open(t *testing.T, path string) infer.Model {
	t.Helper()
	m, err := load.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func session(t *testing.T, m infer.Model, opt infer.SessionOptions) infer.Session {
	t.Helper()
	s, err := m.NewSession(opt)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// all evaluates tokens and copies the logits after each.
func all(t *testing.T, s infer.Session, tokens []int32) [][]float32 {
	t.Helper()
	var out [][]float32
	want := make([]int, len(tokens))
	for i := range want {
		want[i] = i
	}
	err := s.Eval(t.Context(), tokens, want, func(i int, l []float32) error {
		if i != len(out) {
			t.Fatalf("logits of token %d come as number %d", i, len(out))
		}
		out = append(out, append([]float32(nil), l...))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func argmax(x []float32) int32 {
	best := 0
	for i, v := range x {
		if v > x[best] {
			best = i
		}
	}
	return int32(best)
}

func TestStoriesGiveTheGoldens(t *testing.T) {
	for _, name := range []string{"stories260k", "stories-wide", "stories-moe"} {
		t.Run(name, func(t *testing.T) {
			m := open(t, filepath.Join("../../testdata", "models", name))
			tokens, want := goldenLogits(t, name)
			s := session(t, m, infer.SessionOptions{})
			worst := 0.0
			for i, row := range all(t, s, tokens) {
				for j, v := range row {
					worst = math.Max(worst, math.Abs(float64(v)-float64(want[i][j])))
				}
			}
			t.Logf("logits differ by at most %.2g", worst)
			if !(worst <= 2e-4) {
				t.Errorf("logits differ by %g", worst)
			}

			g := readGolden(t, name)
			s = session(t, m, infer.SessionOptions{})
			got := g.Greedy[:1:1]
			for len(got) < len(g.Greedy) {
				l, err := infer.Last(context.Background(), s, got[len(got)-1:], nil)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, argmax(l))
			}
			for i, id := range g.Greedy {
				if got[i] != id {
					t.Fatalf("token %d is %d, want %d", i, got[i], id)
				}
			}
			tok, err := m.Tokenizer()
			if err != nil {
				t.Fatal(err)
			}
			if text := strings.TrimPrefix(tok.Decode(got, tokenizer.DecodeOptions{}), " "); text != g.Text {
				t.Errorf("text %q, want %q", text, g.Text)
			}
		})
	}
}
