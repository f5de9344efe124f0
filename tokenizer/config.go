package tokenizer

import "strings"

// Config is what the tokenizer needs to know of a model's config.json.
type Config struct {
	Architecture   string // "LlamaForCausalLM"
	ModelType      string // "llama"
	TokenizerClass string // rarely given here; tokenizer_config.json comes first

	// VocabSize is vocab_size, with the model class's default when config.json
	// lacks it; 0 when unknown.
	VocabSize int64

	// TokenIDs holds the values of NAME_token_id that are single numbers, by
	// NAME: "bos", "eos", "pad", ...
	TokenIDs map[string]int64

	// EndIDs is eos_token_id when that is a list.
	EndIDs []int64
}

// ParseConfig reads the fields of a Config out of a config.json; name is used
// in messages. A text_config is merged over the top level, except that a token
// id at the top level wins. Bare Infinity and NaN are accepted.
func ParseConfig(name string, data []byte) (Config, error) {
	root, err := parseObject(name, data, true)
	if err != nil {
		return Config{}, err
	}
	c := Config{TokenIDs: map[string]int64{}}
	if l := root.list("architectures"); len(l) > 0 {
		c.Architecture, _ = l[0].(string)
	}
	text := root.object("text_config")
	c.ModelType, _ = root.str("model_type")
	c.TokenizerClass, _ = root.str("tokenizer_class")
	for _, o := range []*jsonObject{root, text} {
		if n, ok := o.integer("vocab_size"); ok {
			c.VocabSize = n
		}
	}
	if c.VocabSize == 0 {
		c.VocabSize = defaultVocabSize(c.ModelType)
	}
	for _, o := range []*jsonObject{root, text} {
		if o == nil {
			continue
		}
		for _, key := range o.keys {
			typ, ok := strings.CutSuffix(key, "_token_id")
			if !ok || o == text && root.get(key) != nil {
				continue
			}
			if id, ok := o.integer(key); ok {
				c.TokenIDs[typ] = id
			} else if b, ok := o.boolean(key); ok {
				// To Python, and so to the converter, true is 1.
				c.TokenIDs[typ] = 0
				if b {
					c.TokenIDs[typ] = 1
				}
			} else if l := o.list(key); typ == "eos" && len(l) > 0 {
				c.EndIDs = integers(l)
			}
		}
	}
	return c, nil
}

// defaultVocabSize is what the configuration class of a model type assumes.
func defaultVocabSize(modelType string) int64 {
	switch modelType {
	case "llama", "mistral", "mixtral":
		return 32000
	case "qwen2", "qwen3", "qwen3_moe":
		return 151936
	case "gemma3", "gemma3_text":
		return 262208
	}
	return 0
}

// integers returns the whole numbers of a list.
func integers(list []any) []int64 {
	var out []int64
	for _, e := range list {
		if n, ok := e.(jsonNumber); ok {
			if v, ok := n.integer(); ok {
				out = append(out, v)
			}
		}
	}
	return out
}

// endsOf reads eos_token_id of a generation_config.json, a number or a list.
// A file that is not valid JSON counts as absent: such files are published.
func endsOf(data []byte) []int64 {
	o, err := parseObject("generation_config.json", data, true)
	if err != nil {
		return nil
	}
	if id, ok := o.integer("eos_token_id"); ok {
		return []int64{id}
	}
	return integers(o.list("eos_token_id"))
}
