package transformer

import (
	"quern/formats/gguf"
	"quern/model"
)

// keysOf makes the settings of a yarn model of these rope.scaling keys.
func keysOf(kv map[string]any) *keys {
	meta := gguf.NewMetadata(gguf.KV{Key: "llama.rope.scaling.type", Value: gguf.Scalar("yarn")})
	for k, v := range kv {
		meta.Set("llama.rope.scaling."+k, gguf.Scalar(float32(v.(float64))))
	}
	return &keys{meta: meta, arch: "llama"}
}

func dimsOf(theta float64) *model.Dims { return &model.Dims{RopeTheta: theta} }
