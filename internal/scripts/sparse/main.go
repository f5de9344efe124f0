// Command sparse writes a Llama checkpoint of a given size whose weights are
// holes of the file system: all header, no data.
package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

const (
	dim   = 4096
	ffn   = 14336
	vocab = 32000
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: sparse FOLDER GIB")
		os.Exit(2)
	}
	gib, err := strconv.ParseInt(os.Args[2], 10, 64)
	if err == nil {
		err = write(os.Args[1], gib<<30)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "sparse:", err)
		os.Exit(1)
	}
}

type entry struct {
	DType   string   `json:"dtype"`
	Shape   []int64  `json:"shape"`
	Offsets [2]int64 `json:"data_offsets"`
}

func write(dir string, size int64) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
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
	add("model.embed_tokens.weight", vocab, dim)
	layers := 0
	for ; off < size; layers++ {
		p := fmt.Sprintf("model.layers.%d.", layers)
		add(p+"input_layernorm.weight", dim)
		add(p+"post_attention_layernorm.weight", dim)
		add(p+"self_attn.q_proj.weight", dim, dim)
		add(p+"self_attn.k_proj.weight", dim/4, dim)
		add(p+"self_attn.v_proj.weight", dim/4, dim)
		add(p+"self_attn.o_proj.weight", dim, dim)
		add(p+"mlp.gate_proj.weight", ffn, dim)
		add(p+"mlp.up_proj.weight", ffn, dim)
		add(p+"mlp.down_proj.weight", dim, ffn)
	}
	add("model.norm.weight", dim)
	head, err := json.Marshal(header)
	if err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(dir, "model.safetensors"))
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Write(append(binary.LittleEndian.AppendUint64(nil, uint64(len(head))), head...)); err != nil {
		return err
	}
	if err := f.Truncate(8 + int64(len(head)) + off); err != nil {
		return err
	}
	config := fmt.Sprintf(`{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": %d, "intermediate_size": %d,
"num_hidden_layers": %d, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": %d,
"max_position_embeddings": 2048, "hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "bos_token_id": 1,
"eos_token_id": 2, "tie_word_embeddings": true}
`, dim, ffn, layers, vocab)
	return os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o644)
}
