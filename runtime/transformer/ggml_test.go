package transformer_test

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"quern/internal/testmodel"
	"quern/model"
	"quern/model/convert"
	infer "quern/runtime"
	"quern/runtime/transformer"
	"quern/tensor"
	"quern/tensor/quant"
)

// orderGolden is an entry of testdata/golden/runtime/ggml-order.json, see interop/make_order.py.
type orderGolden struct {
	Model   string                     `json:"model"`
	Config  map[string]json.RawMessage `json:"config"`
	Type    string                     `json:"type"`
	Other   string                     `json:"other"`
	Context int                        `json:"context"`
	Chunks  int                        `json:"chunks"`
	BOS     int32                      `json:"bos"`
	Vocab   int                        `json:"vocab"`
	First   []float32                  `json:"first"`
	SHA256  string                     `json:"sha256"`
}

func (g *orderGolden) String() string {
	name := g.Model
	if len(g.Config) > 0 {
		name += " with " + strings.Join(slices.Sorted(maps.Keys(g.Config)), ", ")
	}
	return fmt.Sprintf("%s in %s, %d chunks of %d", name, g.Type, g.Chunks, g.Context)
}

func orderGoldens(t *testing.T) []orderGolden {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(testmodel.Root(), "golden/runtime/ggml-order.json"))
	if err != nil {
		t.Fatal(err)
	}
	var all []orderGolden
	if err := json.Unmarshal(b, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

// typed is the golden's model with all matrices in its type.
func (g *orderGolden) typed(t *testing.T) *transformer.Model {
	t.Helper()
	var m *model.Model
	if strings.HasPrefix(g.Model, "stories") {
		m = converted(t, g.Model)
	} else {
		files := scaled(t, g.Model, g.Config, 0)
		h, err := model.LoadHF(t.Context(), files, model.HFOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if m, err = convert.ToGGUF(t.Context(), h, convert.Options{OutType: "f32"}); err != nil {
			t.Fatal(err)
		}
	}
	return opened(t, changed(m, func(x *tensor.Tensor) *tensor.Tensor {
		if len(x.Shape) < 2 {
			return x
		}
		name := g.Type
		typ, err := tensor.ParseType(name)
		if err != nil {
			t.Fatal(err)
		}
		if x.Shape.RowLen()%typ.BlockValues() != 0 {
			if typ, err = tensor.ParseType(g.Other); err != nil {
				t.Fatal(err)
			}
		}
		if typ == tensor.F32 || isRouter(x.Name) {
			return x
		}
		return plainEncoded(t, x, typ)
	}))
}

// isRouter tells the matrices that llama-quantize leaves alone.
func isRouter(name string) bool {
	ok, _ := filepath.Match("blk.*.ffn_gate_inp.weight", name)
	return ok
}

// plainEncoded is a tensor in another type, without an importance matrix.
func plainEncoded(t *testing.T, x *tensor.Tensor, typ tensor.Type) *tensor.Tensor {
	t.Helper()
	c, err := quant.For(typ)
	if err != nil {
		t.Fatal(err)
	}
	out := made(x.Name, typ, x.Shape, nil)
	b := make([]byte, out.Bytes())
	v := values(t, x)
	row, size := int(x.Shape.RowLen()), int(out.RowBytes())
	for r := range int(x.Rows()) {
		c.EncodeRow(b[r*size:][:size], v[r*row:][:row], nil)
	}
	return made(x.Name, typ, x.Shape, b)
}

// sum gives the digest of the golden's logits, and the first row.
func (g *orderGolden) sum(t *testing.T, m infer.Model, jobs int) (sum string, first []float32) {
	t.Helper()
	s, err := m.NewSession(infer.SessionOptions{Act: infer.Q8, Order: infer.OrderGGML, Context: g.Context, Jobs: jobs})
	if err != nil {
		t.Fatal(err)
	}
	w := s.(infer.SideBySide)
	var want []int
	for i := g.Context / 2; i < g.Context; i++ {
		want = append(want, i)
	}
	most := w.Together(g.Context)
	rows := make([][]byte, g.Chunks)
	for c := 0; c < g.Chunks; c += most {
		var texts [][]int32
		for k := c; k < min(c+most, g.Chunks); k++ {
			var text []int32
			for i := k * g.Context; i < (k+1)*g.Context; i++ {
				text = append(text, int32(3+(i*i*37+i*11)%(min(g.Vocab, 500)-3)))
			}
			if g.BOS >= 0 {
				text[0] = g.BOS
			}
			texts = append(texts, text)
		}
		err := w.EvalTogether(t.Context(), texts, want, func(text, i int, l []float32) error {
			if c+text == 0 && i == want[0] {
				first = append(first, l...)
			}
			for _, v := range l {
				rows[c+text] = binary.LittleEndian.AppendUint32(rows[c+text], math.Float32bits(v+0))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	h := sha256.New()
	for _, r := range rows {
		h.Write(r)
	}
	return hex.EncodeToString(h.Sum(nil)), first
}

// TestOrderGGML: logits are those of llama.cpp, to the bit.
func TestOrderGGML(t *testing.T) {
	all := orderGoldens(t)
	if len(all) < 53 {
		t.Fatalf("only %d goldens", len(all))
	}
	for i, g := range all {
		t.Run(g.String(), func(t *testing.T) {
			t.Parallel()
			got, first := g.sum(t, g.typed(t), i%3+1)
			if got == g.SHA256 {
				return
			}
			t.Errorf("the digest of logits is %s, want %s", got, g.SHA256)
			for j, v := range g.First {
				if first[j] != v {
					t.Errorf("logit %d is %v, want %v", j, first[j], v)
				}
			}
		})
	}
}

// TestOrderGGMLRefusals: what the order is not for is said.
func TestOrderGGMLRefusals(t *testing.T) {
	m := opened(t, converted(t, "stories260k"))
	if _, err := m.NewSession(infer.SessionOptions{Order: infer.OrderGGML}); !errors.Is(err, infer.ErrUnsupported) {
		t.Errorf("exact in ggml's order: %v", err)
	}
	if _, err := m.NewSession(infer.SessionOptions{Act: infer.Q8, Order: 7}); !errors.Is(err, infer.ErrUnsupported) {
		t.Errorf("order 7: %v", err)
	}
	s, err := m.NewSession(infer.SessionOptions{Act: infer.Q8, Order: infer.OrderGGML, Context: 8})
	if err != nil {
		t.Fatal(err)
	}
	w := s.(infer.SideBySide)
	none := func(int, int, []float32) error { return nil }
	if err := w.EvalTogether(t.Context(), [][]int32{{1, 2}, {1}}, nil, none); err == nil {
		t.Error("texts of two lengths went side by side")
	}
	if err := w.EvalTogether(t.Context(), [][]int32{make([]int32, 9), make([]int32, 9)}, nil, none); !errors.Is(err, infer.ErrContext) {
		t.Errorf("texts too long: %v", err)
	}
	if err := w.EvalTogether(t.Context(), [][]int32{{1, 2}, {1, -1}}, nil, none); !errors.Is(err, infer.ErrToken) {
		t.Errorf("a bad id: %v", err)
	}
}
