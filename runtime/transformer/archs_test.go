package transformer_test

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"quern/formats/gguf"
	"quern/internal/testmodel"
	"quern/model"
	"quern/model/modeltest"
	infer "quern/runtime"
	"quern/runtime/transformer"
	"quern/tensor"
)

// archGolden is what llama.cpp computes of a tiny model in float32, see
// interop/make_tiny.py.
type archGolden struct {
	Tokens  []int32     `json:"tokens"`
	IDs     []int       `json:"ids"`
	Largest float64     `json:"largest"`
	Logits  [][]float32 `json:"logits"`
}

func openBytes(t *testing.T, b []byte) *transformer.Model {
	t.Helper()
	g, set, err := model.LoadGGUF(t.Context(), "tiny.gguf", func(context.Context, string) (tensor.Blob, error) {
		return tensor.BytesBlob("tiny.gguf", b), nil
	}, gguf.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { set.Close() })
	m, err := transformer.FromGGUF(t.Context(), g)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func allLogits(t *testing.T, s infer.Session, tokens []int32) [][]float32 {
	t.Helper()
	want := make([]int, len(tokens))
	for i := range want {
		want[i] = i
	}
	var out [][]float32
	err := s.Eval(t.Context(), tokens, want, func(_ int, row []float32) error {
		out = append(out, slices.Clone(row))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

var tinyArchs = map[string]func(t *testing.T) *modeltest.Tiny{
	"tiny-qwen35":      func(t *testing.T) *modeltest.Tiny { return modeltest.TinyQwen35(t, tensor.F32, true) },
	"tiny-bailingmoe2": func(t *testing.T) *modeltest.Tiny { return modeltest.TinyBailing2(t, tensor.F32) },
}

// TestArchs compares with llama.cpp, and cuts the text in every way: states of
// linear attention must come out the same, to the bit.
func TestArchs(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(testmodel.Root(), "golden/runtime/tiny-archs.json"))
	if err != nil {
		t.Fatal(err)
	}
	var goldens map[string]archGolden
	if err := json.Unmarshal(text, &goldens); err != nil {
		t.Fatal(err)
	}
	if len(goldens) != len(tinyArchs) {
		t.Fatalf("%d goldens", len(goldens))
	}
	for name, want := range goldens {
		t.Run(name, func(t *testing.T) {
			m := openBytes(t, tinyArchs[name](t).Bytes())
			s, err := m.NewSession(infer.SessionOptions{Jobs: 1})
			if err != nil {
				t.Fatal(err)
			}
			got := allLogits(t, s, want.Tokens)
			worst := 0.0
			for i, row := range want.Logits {
				for j, v := range row {
					worst = max(worst, math.Abs(float64(got[i][want.IDs[j]])-float64(v)))
				}
			}
			if t.Logf("differs by %.1e of the largest", worst/want.Largest); worst > 1e-5*want.Largest {
				t.Errorf("differs from llama.cpp by %g of %g", worst, want.Largest)
			}
			for cut := range want.Tokens {
				other, err := m.NewSession(infer.SessionOptions{Jobs: 3})
				if err != nil {
					t.Fatal(err)
				}
				rows := append(allLogits(t, other, want.Tokens[:cut]), allLogits(t, other, want.Tokens[cut:])...)
				if err := other.Rewind(cut); err != nil {
					t.Fatal(err)
				}
				again := allLogits(t, other, want.Tokens[cut:])
				for i := range want.Tokens {
					if !slices.Equal(rows[i], got[i]) || i >= cut && !slices.Equal(again[i-cut], got[i]) {
						t.Fatalf("cut at %d, token %d has other logits", cut, i)
					}
				}
			}
			stop, cancel := context.WithCancel(t.Context())
			cancel()
			if err := s.Eval(stop, want.Tokens, nil, nil); err == nil {
				t.Fatal("a cancelled run succeeds")
			}
			if err := s.Rewind(0); err != nil {
				t.Fatal(err)
			}
			if again := allLogits(t, s, want.Tokens); !slices.Equal(again[len(again)-1], got[len(got)-1]) {
				t.Error("a run that failed is remembered")
			}
		})
	}
}

// TestArchsRefused bends settings out of shape: no panic, and an error that says
// what is wrong.
func TestArchsRefused(t *testing.T) {
	for _, c := range []struct {
		model, key string
		value      gguf.Value
	}{
		{"tiny-qwen35", "qwen35.ssm.group_count", gguf.Scalar(uint32(3))},
		{"tiny-qwen35", "qwen35.ssm.group_count", gguf.Scalar(uint32(0))},
		{"tiny-qwen35", "qwen35.ssm.state_size", gguf.Scalar(uint32(1 << 31))},
		{"tiny-qwen35", "qwen35.ssm.conv_kernel", gguf.Scalar(uint32(5))},
		{"tiny-qwen35", "qwen35.ssm.inner_size", gguf.Scalar(uint32(255))},
		{"tiny-qwen35", "qwen35.full_attention_interval", gguf.Scalar(uint32(0))},
		{"tiny-qwen35", "qwen35.attention.recurrent_layers", gguf.List([]bool{true})},
		{"tiny-qwen35", "qwen35.attention.recurrent_layers", gguf.Scalar("x")},
		{"tiny-qwen35", "qwen35.nextn_predict_layers", gguf.Scalar(uint32(9))},
		{"tiny-bailingmoe2", "bailingmoe2.expert_group_count", gguf.Scalar(uint32(3))},
		{"tiny-bailingmoe2", "bailingmoe2.expert_group_used_count", gguf.Scalar(uint32(5))},
		{"tiny-bailingmoe2", "bailingmoe2.leading_dense_block_count", gguf.Scalar(uint32(2))},
		{"tiny-bailingmoe2", "bailingmoe2.expert_shared_count", gguf.Scalar(uint32(2))},
	} {
		g := tinyArchs[c.model](t)
		g.Meta().Set(c.key, c.value)
		b := g.Bytes()
		m, set, err := model.LoadGGUF(t.Context(), "tiny.gguf", func(context.Context, string) (tensor.Blob, error) {
			return tensor.BytesBlob("tiny.gguf", bytes.Clone(b)), nil
		}, gguf.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := transformer.FromGGUF(t.Context(), m); err == nil {
			t.Errorf("%s = %v runs", c.key, c.value)
		}
		if err := set.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestKeysOfOtherArchitectures: what llama.cpp reads for other architectures only
// changes nothing here either.
func TestKeysOfOtherArchitectures(t *testing.T) {
	for _, name := range []string{"tiny-llama-hf", "tiny-mixtral", "tiny-qwen3"} {
		base := converted(t, name)
		arch, err := base.Meta.Text("general.architecture")
		if err != nil {
			t.Fatal(err)
		}
		want := logits(t, opened(t, base), infer.SessionOptions{}, text)
		for key, v := range map[string]gguf.Value{
			"attention.scale":               gguf.Scalar(float32(0.5)),
			"attention.sliding_window":      gguf.Scalar(uint32(3)),
			"expert_weights_scale":          gguf.Scalar(float32(0.5)),
			"expert_weights_norm":           gguf.Scalar(false),
			"expert_gating_func":            gguf.Scalar(uint32(2)),
			"final_logit_softcapping":       gguf.Scalar(float32(2)),
			"attn_logit_softcapping":        gguf.Scalar(float32(2)),
			"logit_scale":                   gguf.Scalar(float32(0.5)),
			"rope.freq_base_swa":            gguf.Scalar(float32(50)),
			"rope.scaling.yarn_ext_factor":  gguf.Scalar(float32(1)),
			"rope.scaling.yarn_attn_factor": gguf.Scalar(float32(2)),
		} {
			meta := base.Meta.Clone()
			meta.Set(arch+"."+key, v)
			if d := apart(want, logits(t, opened(t, base.WithMeta(meta)), infer.SessionOptions{}, text)); d != 0 {
				t.Errorf("%s: %s changes logits by %g", name, key, d)
			}
		}
	}
}
