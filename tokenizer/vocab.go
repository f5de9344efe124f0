package tokenizer

import "sort"

// TokenType is a token's type as GGUF numbers it.
type TokenType int32

const (
	Undefined   TokenType = 0
	Normal      TokenType = 1
	Unknown     TokenType = 2
	Control     TokenType = 3
	UserDefined TokenType = 4
	Unused      TokenType = 5
	Byte        TokenType = 6
)

// String names the type in messages.
func (t TokenType) String() string {
	names := [...]string{"undefined", "normal", "unknown", "control", "user-defined", "unused", "byte"}
	if t >= 0 && int(t) < len(names) {
		return names[t]
	}
	return "undefined"
}

// Model kinds of a Vocabulary, the values of tokenizer.ggml.model.
const (
	ModelSPM = "llama" // SentencePiece: merges by score
	ModelBPE = "gpt2"  // byte-level BPE: merges by rank

	modelGemma4 = "gemma4" // BPE over characters; read only
)

// A Vocabulary is the tokenizer of a model in GGUF terms. The index of a token
// is its id. It is made by Load or FromGGUF and not changed afterwards; methods
// that change something return a copy.
type Vocabulary struct {
	Model  string // ModelSPM or ModelBPE
	Pre    string // tokenizer.ggml.pre: "default" for ModelSPM
	Tokens []string
	Scores []float32 // nil for ModelBPE
	Types  []TokenType
	Merges []string // "left right", nil for ModelSPM

	// EndIDs are the ids that end a generation according to the model's files:
	// the eos key, eot and eom, and every id of the eos lists in config.json
	// and generation_config.json. Ascending.
	EndIDs []int32

	// Size is how many ids the tokenizer files themselves define: one past the
	// highest. Ids from there on are padding.
	Size int64

	// Warnings tell what was left out or guessed, for the report of a build.
	Warnings []string

	keys     *keyList
	eatSpace bool // special tokens take along the space behind them
}

// ID returns the id of a special token: "bos", "eos", "unk", "sep", "pad",
// "mask", "eot" or "eom".
func (v *Vocabulary) ID(special string) (int32, bool) {
	id, ok := v.keys.vals[specialKey(special)].(uint32)
	return int32(id), ok
}

// Adds reports the flag add_bos_token, add_eos_token or add_sep_token; set is
// false when the key is absent and the reader's default holds.
func (v *Vocabulary) Adds(special string) (add, set bool) {
	add, set = v.keys.vals[addKey(special)].(bool)
	return add, set
}

// AddSpacePrefix reports the flag add_space_prefix.
func (v *Vocabulary) AddSpacePrefix() (add, set bool) {
	add, set = v.keys.vals[keyAddPrefix].(bool)
	return add, set
}

// ChatTemplate returns the default template, "" for none.
func (v *Vocabulary) ChatTemplate() string {
	s, _ := v.keys.vals[keyChatTemplate].(string)
	return s
}

// NamedTemplate returns one of several templates by its name.
func (v *Vocabulary) NamedTemplate(name string) (string, bool) {
	s, ok := v.keys.vals[keyTemplateN+name].(string)
	return s, ok
}

// SourceIDs gives, for each token of a pruned vocabulary, its id in the whole one that
// the model was published with; nil for a whole vocabulary. The slice must not be
// changed.
func (v *Vocabulary) SourceIDs() []int32 {
	if v.keys == nil {
		return nil
	}
	ids, _ := v.keys.vals[KeySourceIDs].([]int32)
	return ids
}

// setEnds makes EndIDs from the vocabulary's own special ids and extra ones;
// ids outside the vocabulary are left out.
func (v *Vocabulary) setEnds(extra []int64) {
	seen := map[int32]bool{}
	for _, typ := range []string{"eos", "eot", "eom"} {
		if id, ok := v.ID(typ); ok {
			seen[id] = true
		}
	}
	for _, id := range extra {
		if id >= 0 && id < int64(len(v.Tokens)) {
			seen[int32(id)] = true
		}
	}
	v.EndIDs = make([]int32, 0, len(seen))
	for id := range seen {
		v.EndIDs = append(v.EndIDs, id)
	}
	sort.Slice(v.EndIDs, func(i, j int) bool { return v.EndIDs[i] < v.EndIDs[j] })
}
