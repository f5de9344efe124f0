package tokenizer

import "strings"

// Names of the GGUF keys of a tokenizer. Two carry the format's own spelling.
const (
	keyModel         = "tokenizer.ggml.model"
	keyPre           = "tokenizer.ggml.pre"
	keyTokens        = "tokenizer.ggml.tokens"
	keyScores        = "tokenizer.ggml.scores"
	keyTypes         = "tokenizer.ggml.token_type"
	keyMerges        = "tokenizer.ggml.merges"
	keyAddPrefix     = "tokenizer.ggml.add_space_prefix"
	keyLowercase     = "tokenizer.ggml.normalizer.lowercase"
	keyStripAccents  = "tokenizer.ggml.normalizer.strip_accents"
	keyChatTemplate  = "tokenizer.chat_template"
	keyChatTemplates = "tokenizer.chat_templates"
	keyTemplateN     = "tokenizer.chat_template." // + name
	keyPrefix        = "tokenizer."
)

// Keys of ours, of a pruned vocabulary: of each token its id in the whole one that
// the model was published with, and how many tokens that had.
const (
	KeySourceIDs  = "tokenizer.quern.ids"
	KeySourceSize = "tokenizer.quern.vocab_size"
)

// specialKey gives the GGUF key of a special token, "" when the converter has
// none (cls, and the fill-in-the-middle names prefix, suffix and middle).
func specialKey(typ string) string {
	switch typ {
	case "unk":
		return "tokenizer.ggml.unknown_token_id"
	case "sep":
		return "tokenizer.ggml.seperator_token_id"
	case "pad":
		return "tokenizer.ggml.padding_token_id"
	case "bos", "eos", "mask", "eot", "eom":
		return "tokenizer.ggml." + typ + "_token_id"
	}
	return ""
}

// addKey gives the GGUF key that says whether a special token is added.
func addKey(typ string) string {
	switch typ {
	case "bos", "eos", "sep":
		return "tokenizer.ggml.add_" + typ + "_token"
	}
	return ""
}

// KV is one GGUF key. The Go type of Value fixes the GGUF type: uint32, int32,
// float32, bool and string for scalars, []string, []float32, []int32 and []bool
// for arrays. Strings are bytes: they need not be UTF-8.
type KV struct {
	Key   string
	Value any
}

// keyList is the converter's dict of keys: a key set again keeps its place and
// takes the new value; empty strings and arrays are never stored.
type keyList struct {
	order []string
	vals  map[string]any
}

func newKeyList() *keyList { return &keyList{vals: map[string]any{}} }

func (k *keyList) set(key string, v any) {
	switch v := v.(type) {
	case string:
		if v == "" {
			return
		}
	case []string:
		if len(v) == 0 {
			return
		}
	}
	k.reserve(key)
	k.vals[key] = v
}

// reserve gives a key its place; the value comes later.
func (k *keyList) reserve(key string) {
	if _, ok := k.vals[key]; !ok {
		k.order = append(k.order, key)
		k.vals[key] = nil
	}
}

func (k *keyList) clone() *keyList {
	c := &keyList{order: append([]string(nil), k.order...), vals: make(map[string]any, len(k.vals))}
	for key, v := range k.vals {
		c.vals[key] = v
	}
	return c
}

// Keys returns the tokenizer's GGUF keys in the order of llama.cpp's
// converter. The slices inside are the vocabulary's own: do not change them.
func (v *Vocabulary) Keys() []KV {
	out := make([]KV, 0, len(v.keys.order))
	add := func(key string, n int, value any) {
		if n > 0 {
			out = append(out, KV{key, value})
		}
	}
	for _, key := range v.keys.order {
		switch key {
		case keyTokens:
			add(key, len(v.Tokens), v.Tokens)
		case keyScores:
			add(key, len(v.Scores), v.Scores)
		case keyTypes:
			types := make([]int32, len(v.Types))
			for i, t := range v.Types {
				types[i] = int32(t)
			}
			add(key, len(types), types)
		case keyMerges:
			if len(v.Merges) > 0 || v.SourceIDs() != nil && v.Model == ModelBPE {
				// Readers demand the key, though pruning may leave no merge.
				out = append(out, KV{key, append([]string{}, v.Merges...)})
			}
		default:
			out = append(out, KV{key, v.keys.vals[key]})
		}
	}
	return out
}

func isTokenizerKey(key string) bool { return strings.HasPrefix(key, keyPrefix) }

func isIDKey(key string) bool {
	return strings.HasPrefix(key, "tokenizer.ggml.") && strings.HasSuffix(key, "_token_id")
}
