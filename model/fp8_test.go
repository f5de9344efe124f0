package model_test

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"quern/formats/safetensors"
	"quern/internal/testmodel"
	"quern/model"
	"quern/model/modeltest"
	"quern/tensor"
)

// fp8Folder is a checkpoint of one 5 x 7 matrix of 8-bit floats, its scales and
// what qc says of them.
func fp8Folder(t *testing.T, qc any, scale testmodel.Tensor, more ...testmodel.Tensor) *modeltest.Files {
	t.Helper()
	w := testmodel.Tensor{Name: "x.weight", DType: "F8_E4M3", Shape: []int64{5, 7}, Data: make([]byte, 35)}
	for i := range w.Data {
		w.Data[i] = byte(0x38 + i) // from 1 on
	}
	w.Data[0], w.Data[1], w.Data[2] = 0x7e, 0x01, 0x80
	tensors := append([]testmodel.Tensor{w, {Name: "norm.weight", DType: "F32", Shape: []int64{7}}}, more...)
	if scale.Name != "" {
		tensors = append(tensors, scale)
	}
	st, err := testmodel.Safetensors(tensors)
	if err != nil {
		t.Fatal(err)
	}
	cfg := map[string]any{"architectures": []string{"LlamaForCausalLM"}, "model_type": "llama"}
	if qc != nil {
		cfg["quantization_config"] = qc
	}
	text, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return modeltest.New("fp8", map[string][]byte{"config.json": text, "model.safetensors": st})
}

func floats(b []byte) []float32 {
	out := make([]float32, len(b)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return out
}

func floatBytes(x ...float32) []byte {
	var b []byte
	for _, v := range x {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

// TestFP8 loads checkpoints with each kind of scales. The values are worked out
// here from the definition: sign, 4 bits of exponent with bias 7, 3 of mantissa.
func TestFP8(t *testing.T) {
	grid := testmodel.Tensor{Name: "x.weight_scale_inv", DType: "F32", Shape: []int64{2, 3}, Data: floatBytes(0.5, 3, -1, 0.1, 7, 1e-3)}
	rows := testmodel.Tensor{Name: "x.weight_scale", DType: "F32", Shape: []int64{5, 1}, Data: floatBytes(1, 2, 3, 0.1, 0.2)}
	one := testmodel.Tensor{Name: "x.weight_scale", DType: "F32", Data: floatBytes(0.3)}
	block := func(r, c int) []any { return []any{r, c} }
	groups := func(list ...any) map[string]any {
		g := map[string]any{}
		for i, b := range list {
			g["group_"+string(rune('0'+i))] = map[string]any{"weights": map[string]any{"num_bits": 8, "type": "float", "block_structure": b}}
		}
		return map[string]any{"quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": g}
	}
	inGrid := func(r, c int) float32 { return []float32{0.5, 3, -1, 0.1, 7, 1e-3}[r/4*3+c/3] }
	for _, c := range []struct {
		name  string
		qc    any
		scale testmodel.Tensor
		at    func(r, c int) float32
	}{
		{"fp8, blocks", map[string]any{"quant_method": "fp8", "weight_block_size": block(4, 3)}, grid, inGrid},
		{"compressed-tensors, blocks", groups(block(4, 3), block(4, 3)), grid, inGrid},
		{"compressed-tensors, rows", groups(nil), rows, func(r, _ int) float32 { return []float32{1, 2, 3, 0.1, 0.2}[r] }},
		{"fp8, one scale", map[string]any{"quant_method": "fp8", "weight_block_size": nil}, one, func(int, int) float32 { return 0.3 }},
		{"modelopt", map[string]any{"quant_method": "modelopt", "quant_algo": "FP8"}, one, func(int, int) float32 { return 0.3 }},
		{"no word of it", nil, one, func(int, int) float32 { return 0.3 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			files := fp8Folder(t, c.qc, c.scale)
			m, err := model.LoadHF(t.Context(), files, model.HFOptions{Source: "base"})
			if err != nil {
				t.Fatal(err)
			}
			if len(m.Tensors) != 2 || len(m.Stored) != 3 || len(m.Notes) > 0 && strings.Contains(m.Notes[0].Text, "scale") {
				t.Fatalf("%d tensors, %d stored, notes %v", len(m.Tensors), len(m.Stored), m.Notes)
			}
			x := m.Tensor("x.weight")
			if x == nil || x.Type != tensor.F32 || x.Key.IsZero() || len(x.Origin) != 2 {
				t.Fatalf("%+v", x)
			}
			b := make([]byte, x.Bytes())
			if err := x.ReadRows(t.Context(), b, 0, 5); err != nil {
				t.Fatal(err)
			}
			for i, got := range floats(b) {
				code := byte(0x38 + i)
				if i < 3 {
					code = []byte{0x7e, 0x01, 0x80}[i]
				}
				e, f := int(code>>3&15), float64(code&7)
				v := math.Ldexp(8+f, e-10)
				if e == 0 {
					v = math.Ldexp(f, -9)
				}
				if code >= 0x80 {
					v = -v
				}
				if want := float32(float32(v) * c.at(i/7, i%7)); got != want {
					t.Errorf("row %d, column %d: %g, want %g", i/7, i%7, got, want)
				}
			}
			if v := floats(b); c.name == "fp8, one scale" && (v[0] != 448*float32(0.3) || v[1] != 0x1p-9*float32(0.3)) {
				t.Errorf("0x7e and 0x01 times 0.3: %g, %g", v[0], v[1])
			}
		})
	}
	bad := func(name string, qc any, scale testmodel.Tensor, sentinel error, words ...string) {
		t.Helper()
		_, err := model.LoadHF(t.Context(), fp8Folder(t, qc, scale), model.HFOptions{})
		if !errors.Is(err, sentinel) {
			t.Errorf("%s: %v", name, err)
			return
		}
		for _, w := range words {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %q does not say %q", name, err, w)
			}
		}
	}
	fp8 := func(b any) any { return map[string]any{"quant_method": "fp8", "weight_block_size": b} }
	bad("no scale", fp8(block(4, 3)), testmodel.Tensor{}, safetensors.ErrScale, "x.weight_scale_inv is missing")
	bad("other blocks", fp8(block(5, 3)), grid, safetensors.ErrScale, "[2, 3]", "[1, 3]")
	bad("blocks of unknown size", fp8(nil), grid, safetensors.ErrScale, "not known")
	bad("one size", fp8([]any{4}), grid, model.ErrConfig, "config.json", "weight_block_size", "two sizes")
	bad("size 0", fp8(block(0, 3)), grid, model.ErrConfig, "weight_block_size")
	bad("a text", fp8("4x3"), grid, model.ErrConfig, "weight_block_size")
	bad("groups differ", groups(block(4, 3), block(2, 3)), grid, model.ErrConfig, "different sizes")
	bad("a list", []any{1}, grid, model.ErrConfig, "quantization_config")
}

// Scales of activations are no part of the weights: left out, and told.
func TestFP8ActivationScales(t *testing.T) {
	one := testmodel.Tensor{Name: "x.weight_scale", DType: "F32", Data: floatBytes(0.5)}
	in := testmodel.Tensor{Name: "x.input_scale", DType: "F32", Data: floatBytes(9)}
	out := testmodel.Tensor{Name: "x.activation_scale", DType: "F32", Shape: []int64{1}, Data: floatBytes(9)}
	m, err := model.LoadHF(t.Context(), fp8Folder(t, nil, one, in, out), model.HFOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Tensors) != 2 || m.Tensor("x.input_scale") != nil || m.Tensor("x.activation_scale") != nil {
		t.Errorf("%d tensors", len(m.Tensors))
	}
	last := m.Notes[len(m.Notes)-1].String()
	if want := "x.activation_scale: a scale of activations, left out with 1 more"; last != want {
		t.Errorf("note %q, want %q", last, want)
	}
}
