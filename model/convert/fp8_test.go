package convert

import (
	"math"
	"testing"

	"quern/formats/safetensors"
	"quern/internal/testmodel"
	"quern/tensor"
)

// fp8Toy has an up projection of 130 x 200 in 8-bit floats, with a 2 x 2 grid of
// factors for blocks of 128: the blocks at both edges are cut.
func fp8Toy(t *testing.T) *toy {
	m := newToy(t)
	m.config["hidden_size"], m.config["intermediate_size"] = 200, 130
	m.config["quantization_config"] = map[string]any{"quant_method": "fp8", "weight_block_size": []int{128, 128}, "activation_scheme": "dynamic"}
	m.tensors = nil
	m.add("model.embed_tokens.weight", 512, 200)
	m.add("model.norm.weight", 200)
	l := "model.layers.0."
	m.add(l+"input_layernorm.weight", 200)
	m.add(l+"post_attention_layernorm.weight", 200)
	m.add(l+"self_attn.q_proj.weight", 16, 200)
	m.add(l+"self_attn.k_proj.weight", 8, 200)
	m.add(l+"self_attn.v_proj.weight", 8, 200)
	m.add(l+"self_attn.o_proj.weight", 200, 16)
	m.add(l+"mlp.gate_proj.weight", 130, 200)
	m.add(l+"mlp.down_proj.weight", 200, 130)
	w := m.add(l+"mlp.up_proj.weight", 130, 200)
	w.DType, w.Data = "F8_E4M3", make([]byte, 130*200)
	for i := range w.Data {
		w.Data[i] = []byte{0x7e, 0x01, 0x38, 0xb8}[i%4]
	}
	m.add(l+"mlp.up_proj.weight_scale_inv", 2, 2).Data = f32s(0.5, 3, 0.1, -7)
	return m
}

func TestFP8Blocks(t *testing.T) {
	g := fp8Toy(t).mustConvert(t, "f32")
	got := values(t, g.Tensor("blk.0.ffn_up.weight"))
	codes := []float32{448, 0x1p-9, 1, -1} // 0x7e, 0x01, 0x38, 0xb8
	grid := []float32{0.5, 3, 0.1, -7}
	for r := range 130 {
		for c := range 200 {
			i := r*200 + c
			if want := float32(codes[i%4] * grid[r/128*2+c/128]); got[i] != want {
				t.Fatalf("row %d, column %d: %g, want %g", r, c, got[i], want)
			}
		}
	}
	for i, x := range g.Tensors {
		if x.Name == "blk.0.ffn_up.weight" && (g.Info(i).From != tensor.F8E4M3 || len(x.Origin) != 2) {
			t.Errorf("from %s, origin %v", g.Info(i).From, x.Origin)
		}
	}
}

func TestFP8Errors(t *testing.T) {
	m := fp8Toy(t)
	m.drop("scale_inv")
	_, err := m.convert(t, Options{})
	wantError(t, err, safetensors.ErrScale, "up_proj.weight", "scale_inv is missing")

	m = fp8Toy(t)
	m.at(t, "model.layers.0.mlp.up_proj.weight_scale_inv").Data = nil
	m.at(t, "model.layers.0.mlp.up_proj.weight_scale_inv").Shape = []int64{2, 1}
	_, err = m.convert(t, Options{})
	wantError(t, err, safetensors.ErrScale, "scale_inv has shape [2, 1]", "[2, 2]")

	m = fp8Toy(t)
	m.add("model.layers.0.mlp.side_proj.weight_scale_inv", 2, 2)
	_, err = m.convert(t, Options{})
	wantError(t, err, safetensors.ErrScale, "side_proj.weight_scale_inv", "not there")

	m = fp8Toy(t)
	m.at(t, "model.layers.0.mlp.up_proj.weight").Data[777] = 0x7f
	g := m.mustConvert(t, "f16")
	u := g.Tensor("blk.0.ffn_up.weight")
	err = u.ReadRows(t.Context(), make([]byte, u.Bytes()), 0, u.Rows())
	wantError(t, err, ErrValue, "row 3, column 177", "not a number")

	for _, c := range []struct {
		config map[string]any
		words  string
	}{
		{map[string]any{"quant_method": "gptq", "bits": 4}, "gptq"},
		{map[string]any{"quant_method": true}, "quant_method true"},
		{map[string]any{"quant_method": "compressed-tensors", "format": "pack-quantized"}, "pack-quantized"},
	} {
		m = newToy(t)
		m.config["quantization_config"] = c.config
		_, err = m.convert(t, Options{})
		wantError(t, err, ErrQuantized, c.words)
	}
}

// Scales in 16 bits count when the converter looks for the type of the weights.
func TestFP8AutoOutType(t *testing.T) {
	for _, c := range []struct {
		scale string
		want  tensor.Type
	}{{"BF16", tensor.BF16}, {"F32", tensor.F16}} {
		m := fp8Toy(t)
		s := m.at(t, "model.layers.0.mlp.up_proj.weight_scale_inv")
		s.DType, s.Data = c.scale, nil
		g := m.mustConvert(t, "auto")
		if got := g.Tensor("blk.0.attn_q.weight").Type; got != c.want {
			t.Errorf("scales in %s: %s", c.scale, got)
		}
	}
}

// Packed queries go through the same permutation, each row with its factor.
func TestFP8Permuted(t *testing.T) {
	m := newToy(t)
	m.config["quantization_config"] = map[string]any{"quant_method": "fp8", "weight_block_size": []int{3, 5}}
	name := "model.layers.0.self_attn.q_proj.weight"
	w := m.at(t, name)
	w.DType, w.Data = "F8_E4M3", make([]byte, 256)
	for i := range w.Data {
		w.Data[i] = byte(0x30 + i%16 + i/16%2*0x80)
	}
	m.add(name+"_scale_inv", 6, 4)
	got := values(t, m.mustConvert(t, "f32").Tensor("blk.0.attn_q.weight"))
	scales := testmodel.Values(name+"_scale_inv", 24)
	for row := range 16 {
		below := row/8*8 + row%2*4 + row%8/2
		for c := range 16 {
			code := w.Data[below*16+c]
			v := math.Ldexp(1+float64(code&7)/8, int(code>>3&15)-7)
			if code >= 0x80 {
				v = -v
			}
			if want := float32(float32(v) * scales[below/3*4+c/5]); got[row*16+c] != want {
				t.Fatalf("row %d, column %d: %g, want %g", row, c, got[row*16+c], want)
			}
		}
	}
}
