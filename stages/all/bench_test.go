package all_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"testing"

	"quern/internal/digest"
	"quern/pipeline"
	"quern/recipes"
	"quern/stages/all"
	"quern/stages/source"
)

// benchLayers and the widths give a checkpoint of about 220 MiB of float32: much
// larger than any cache of a processor, and small enough to stay in memory on
// machines that lend memory to others.
const (
	benchLayers = 2
	benchDim    = 1536
	benchFFN    = 4096
)

// benchModel writes a dense Llama checkpoint of pseudo-random weights, once for
// all benchmarks of a run.
func benchModel(b *testing.B) string {
	b.Helper()
	dir := filepath.Join(os.TempDir(), "quern-bench-model-2")
	if st, err := os.Stat(filepath.Join(dir, "done")); err == nil && st.Mode().IsRegular() {
		return dir
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		b.Fatal(err)
	}
	type entry struct {
		DType   string   `json:"dtype"`
		Shape   []int64  `json:"shape"`
		Offsets [2]int64 `json:"data_offsets"`
	}
	header := map[string]entry{}
	var off int64
	add := func(name string, shape ...int64) {
		n := int64(4)
		for _, d := range shape {
			n *= d
		}
		header[name] = entry{"F32", shape, [2]int64{off, off + n}}
		off += n
	}
	add("model.embed_tokens.weight", 512, benchDim)
	for i := range benchLayers {
		p := fmt.Sprintf("model.layers.%d.", i)
		add(p+"input_layernorm.weight", benchDim)
		add(p+"post_attention_layernorm.weight", benchDim)
		for _, n := range []string{"q", "k", "v", "o"} {
			add(p+"self_attn."+n+"_proj.weight", benchDim, benchDim)
		}
		add(p+"mlp.gate_proj.weight", benchFFN, benchDim)
		add(p+"mlp.up_proj.weight", benchFFN, benchDim)
		add(p+"mlp.down_proj.weight", benchDim, benchFFN)
	}
	add("model.norm.weight", benchDim)
	head, err := json.Marshal(header)
	if err != nil {
		b.Fatal(err)
	}
	for len(head)%8 != 0 {
		head = append(head, ' ')
	}
	f, err := os.Create(filepath.Join(dir, "model.safetensors"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(append(binary.LittleEndian.AppendUint64(nil, uint64(len(head))), head...)); err != nil {
		b.Fatal(err)
	}
	buf := make([]byte, 1<<20)
	state := uint64(1)
	for left := off; left > 0; left -= int64(len(buf)) {
		if left < int64(len(buf)) {
			buf = buf[:left]
		}
		for i := 0; i < len(buf); i += 4 {
			state = state*6364136223846793005 + 1442695040888963407
			v := float32(int32(state>>32)) / (1 << 34)
			binary.LittleEndian.PutUint32(buf[i:], math.Float32bits(v))
		}
		if _, err := f.Write(buf); err != nil {
			b.Fatal(err)
		}
	}
	config := fmt.Sprintf(`{"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_size":%d,"intermediate_size":%d,
"num_hidden_layers":%d,"num_attention_heads":12,"num_key_value_heads":12,"head_dim":128,"vocab_size":512,
"max_position_embeddings":512,"hidden_act":"silu","rms_norm_eps":1e-5,"rope_theta":10000.0,"bos_token_id":1,"eos_token_id":2,
"tie_word_embeddings":true}`, benchDim, benchFFN, benchLayers)
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o644); err != nil {
		b.Fatal(err)
	}
	for _, n := range []string{"tokenizer.model", "tokenizer_config.json"} {
		data, err := os.ReadFile(filepath.Join(testdata, "models/stories260k", n))
		if err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, n), data, 0o644); err != nil {
			b.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "done"), nil, 0o644); err != nil {
		b.Fatal(err)
	}
	return dir
}

// BenchmarkSHA256 is the yardstick: one goroutine hashing the checkpoint.
func BenchmarkSHA256(b *testing.B) {
	f, err := os.Open(filepath.Join(benchModel(b), "model.safetensors"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(st.Size())
	buf := make([]byte, 1<<20)
	for b.Loop() {
		h := digest.New()
		if _, err := io.CopyBuffer(struct{ io.Writer }{h}, io.NewSectionReader(f, 0, st.Size()), buf); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkEmit reads, quantizes, orders and hashes the checkpoint's tensors
// into files that are thrown away. The rate counts bytes of the source.
func BenchmarkEmit(b *testing.B) {
	dir := benchModel(b)
	for _, c := range []struct{ name, steps string }{
		{"F32-Q8_0", "[{convert: {outtype: f32}}, {quantize: {type: Q8_0}}]"},
		{"F32-F16-Q8_0", "[{quantize: {type: Q8_0}}]"},
		{"F32-F16", "[{convert: {outtype: f16}}]"},
		{"F32-F16-Q4_0", "[{quantize: {type: Q4_0}}]"},
	} {
		b.Run(c.name, func(b *testing.B) {
			text := fmt.Sprintf("version: 1\nname: bench\nsources: {base: {dir: %q}}\nsteps: %s\noutputs: [{format: gguf, file: out.gguf}]\n", dir, c.steps)
			r, err := recipes.Parse("bench.yaml", []byte(text), recipes.Options{})
			if err != nil {
				b.Fatal(err)
			}
			prj, err := all.Project(r, source.Env{})
			if err != nil {
				b.Fatal(err)
			}
			p, err := pipeline.NewPlan(context.Background(), prj, pipeline.PlanOptions{})
			if err != nil {
				b.Fatal(err)
			}
			defer p.Close()
			var n int64
			for _, t := range p.Models[0].Tensors {
				n += t.Bytes()
			}
			b.SetBytes(n)
			for b.Loop() {
				if _, err := pipeline.Emit(context.Background(), p.Layouts[0], nil, io.Discard, pipeline.EmitOptions{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
