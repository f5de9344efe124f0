package tokenizer

import (
	"fmt"
	"sort"
	"strconv"
)

// The converter does not read tokenizer.json itself for byte-level BPE: it asks
// the transformers library (4.57.6), whose tokenizer classes add special tokens
// of their own, change flags of added tokens and may replace the
// post-processor. hfTokenizer.auto follows them, as far as the classes go that
// the supported architectures use.

// autoTokenizer is the tokenizer that the library ends up with.
type autoTokenizer struct {
	enc      *hfEncoder
	added    *addedVocab
	pre      *jsonObject // effective pre_tokenizer
	specials map[string]bool
	cleanUp  bool
}

// autoClass is what a tokenizer class brings along.
type autoClass struct {
	defaults   map[string]string // special tokens unless the files name others
	asAdded    bool              // it turns these into special, not normalized tokens
	more       []string          // additional special tokens
	ownPost    bool              // post-processor made from add_bos_token and add_eos_token
	keepPrefix bool              // add_prefix_space is left to tokenizer.json
}

func classFor(name string) (autoClass, bool) {
	llama := map[string]string{"bos": "<s>", "eos": "</s>", "unk": "<unk>"}
	switch name {
	case "LlamaTokenizer", "LlamaTokenizerFast":
		return autoClass{defaults: llama, ownPost: true, keepPrefix: true}, true
	case "CodeLlamaTokenizer", "CodeLlamaTokenizerFast":
		return autoClass{defaults: llama, ownPost: true,
			more: []string{"\u2581<PRE>", "\u2581<MID>", "\u2581<SUF>", "\u2581<EOT>"}}, true
	case "GemmaTokenizer", "GemmaTokenizerFast":
		return autoClass{ownPost: true,
			defaults: map[string]string{"bos": "<bos>", "eos": "<eos>", "unk": "<unk>", "pad": "<pad>"}}, true
	case "Qwen2Tokenizer", "Qwen2TokenizerFast":
		return autoClass{asAdded: true,
			defaults: map[string]string{"eos": "<|endoftext|>", "unk": "<|endoftext|>", "pad": "<|endoftext|>"}}, true
	case "GPT2Tokenizer", "GPT2TokenizerFast":
		return autoClass{
			defaults: map[string]string{"bos": "<|endoftext|>", "eos": "<|endoftext|>", "unk": "<|endoftext|>"}}, true
	case "PreTrainedTokenizer", "PreTrainedTokenizerFast":
		return autoClass{}, true
	}
	return autoClass{}, false
}

// className finds the tokenizer class: tokenizer_config.json, config.json, the
// model type.
func (l *loader) className() string {
	if s, ok := l.side.config.str("tokenizer_class"); ok {
		return s
	}
	if l.cfg.TokenizerClass != "" {
		return l.cfg.TokenizerClass
	}
	switch l.cfg.ModelType {
	case "llama", "mistral", "mixtral":
		return "LlamaTokenizer"
	case "qwen2", "qwen3", "qwen2_moe", "qwen3_moe":
		return "Qwen2Tokenizer"
	case "gemma3", "gemma3_text":
		return "GemmaTokenizer"
	}
	return "PreTrainedTokenizerFast"
}

// specialToken is a special token of a class: flags are known when it came as
// an object, else it is bare text.
type specialToken struct {
	tok   addedToken
	flags bool
}

// auto builds the library's tokenizer.
func (l *loader) auto() (*autoTokenizer, error) {
	t, cfg := l.hf, l.side.config
	name := l.className()
	class, ok := classFor(name)
	if !ok {
		l.warnf("tokenizer class %q is not known; its tokenizer.json is taken as it is", name)
	}
	a := &autoTokenizer{added: newAddedVocab(), pre: t.pre, specials: map[string]bool{}}
	a.cleanUp, _ = cfg.boolean("clean_up_tokenization_spaces")
	a.added.add(t.added, &t.model)

	decoder, legacy, err := l.decoderTokens()
	if err != nil {
		return nil, err
	}
	specials, err := l.classSpecials(class, decoder, legacy)
	if err != nil {
		return nil, err
	}
	for _, s := range specials {
		a.specials[s.tok.content] = true
	}
	a.addMissing(decoder, specials, &t.model)
	a.prefixSpace(class, cfg)

	post := t.post
	if class.ownPost {
		post = nil
	}
	if a.enc, err = newHFEncoder(t, a.added, a.pre, post); err != nil {
		return nil, err
	}
	if class.ownPost {
		a.enc.post = l.ownPost(class, specials, a.added, t)
	}
	return a, nil
}

// decoderTokens gives the tokens by id that the side files list. Without
// added_tokens_decoder they come from added_tokens.json and tokenizer.json, and
// special_tokens_map.json counts (legacy).
func (l *loader) decoderTokens() (map[int64]addedToken, *jsonObject, error) {
	out := map[int64]addedToken{}
	cfg := l.side.config
	if cfg.has("added_tokens_decoder") {
		dec := cfg.object("added_tokens_decoder")
		if dec == nil {
			return out, nil, nil
		}
		for _, key := range dec.keys {
			id, err := strconv.ParseInt(key, 10, 64)
			tok, ok := addedFrom(dec.object(key))
			if err != nil || !ok || id < 0 {
				return nil, nil, fmt.Errorf("tokenizer_config.json: added_tokens_decoder %q is not an id with a content: %w", key, ErrFormat)
			}
			out[id] = tok
		}
		return out, nil, nil
	}
	legacy, err := l.readObject("special_tokens_map.json")
	if err != nil {
		return nil, nil, err
	}
	named := map[string]bool{}
	for _, typ := range defaultSpecials {
		for _, o := range []*jsonObject{cfg, legacy} {
			if s, ok := tokenText(o.get(typ + "_token")); ok {
				named[s] = true
			}
		}
	}
	if l.addedTokens != nil {
		for _, text := range l.addedTokens.keys {
			if id, ok := l.addedTokens.integer(text); ok && id >= 0 {
				out[id] = addedToken{content: text, normalized: !named[text], special: named[text]}
			}
		}
	}
	for _, tok := range l.hf.added {
		out[tok.id] = tok
	}
	return out, legacy, nil
}

// classSpecials lists the special tokens in the library's order.
func (l *loader) classSpecials(class autoClass, decoder map[int64]addedToken, legacy *jsonObject) ([]specialToken, error) {
	byText := map[string]addedToken{}
	for _, id := range sortedIDs(decoder) {
		byText[decoder[id].content] = decoder[id]
	}
	read := func(v any, special bool) (specialToken, bool) {
		switch v := v.(type) {
		case string:
			return specialToken{tok: addedToken{content: v}}, v != ""
		case *jsonObject:
			tok, ok := addedFrom(v)
			if special {
				tok.special = true
				if !v.has("normalized") {
					tok.normalized = false
				}
			}
			return specialToken{tok, true}, ok
		}
		return specialToken{}, false
	}
	var out []specialToken
	seen := map[string]bool{}
	put := func(s specialToken) {
		if !seen[s.tok.content] {
			seen[s.tok.content] = true
			out = append(out, s)
		}
	}
	for _, typ := range defaultSpecials {
		key := typ + "_token"
		var s specialToken
		ok := false
		switch {
		case legacy.has(key):
			s, ok = read(legacy.get(key), true)
		case l.side.config.has(key):
			s, ok = read(l.side.config.get(key), false)
		default:
			if text := class.defaults[typ]; text != "" {
				s, ok = specialToken{tok: addedToken{content: text}}, true
			}
		}
		if !ok {
			continue
		}
		if tok, found := byText[s.tok.content]; found && (legacy.has(key) || l.side.config.has(key)) {
			s = specialToken{tok, true}
		}
		if class.asAdded && !s.flags {
			s = specialToken{addedToken{content: s.tok.content, special: true}, true}
		}
		put(s)
	}
	for _, o := range []*jsonObject{l.side.config, legacy} {
		for _, v := range o.list("additional_special_tokens") {
			if s, ok := read(v, o == legacy); ok {
				put(s)
			}
		}
	}
	for _, text := range class.more {
		put(specialToken{tok: addedToken{content: text}})
	}
	return out, nil
}

func sortedIDs(m map[int64]addedToken) []int64 {
	ids := make([]int64, 0, len(m))
	for id := range m {
		ids = append(ids, id)
	}
	sort.Slice(ids, func(i, j int) bool { return ids[i] < ids[j] })
	return ids
}

// addMissing adds the listed tokens that differ from what tokenizer.json has,
// then the special tokens that nobody has yet.
func (a *autoTokenizer) addMissing(decoder map[int64]addedToken, specials []specialToken, m *hfModel) {
	have := map[addedToken]bool{}
	known := map[string]bool{}
	for _, tok := range a.added.byID {
		tok.id = 0
		have[tok] = true
		known[tok.content] = true
	}
	var add []addedToken
	queued := map[addedToken]bool{}
	for _, id := range sortedIDs(decoder) {
		tok := decoder[id]
		tok.id = 0
		if !have[tok] {
			add = append(add, tok)
			queued[tok] = true
			known[tok.content] = true
		}
	}
	for _, s := range specials {
		tok := s.tok
		tok.id = 0
		switch {
		case s.flags && !queued[tok]:
			add = append(add, tok)
		case !s.flags && !known[tok.content]:
			add = append(add, addedToken{content: tok.content, special: true})
		}
	}
	for i := range add {
		if a.specials[add[i].content] {
			add[i].special = true
		}
	}
	a.added.add(add, m)
}

// prefixSpace applies add_prefix_space, which the library sets on a
// pre-tokenizer that has the key at its top level.
func (a *autoTokenizer) prefixSpace(class autoClass, cfg *jsonObject) {
	have, ok := a.pre.boolean("add_prefix_space")
	if !ok {
		return
	}
	want, set := cfg.boolean("add_prefix_space")
	if class.keepPrefix && !set || have == want {
		return
	}
	a.pre = a.pre.clone()
	a.pre.set("add_prefix_space", want)
}

// ownPost is the post-processor of the Llama and Gemma classes.
func (l *loader) ownPost(class autoClass, specials []specialToken, added *addedVocab, t *hfTokenizer) []postStep {
	id := func(typ string, def bool) []int32 {
		if !l.side.config.flag("add_"+typ+"_token", def) {
			return nil
		}
		text := class.defaults[typ]
		if l.side.config.has(typ + "_token") {
			text, _ = tokenText(l.side.config.get(typ + "_token"))
		}
		if id, ok := added.ids[text]; ok {
			return []int32{id}
		}
		if id, ok := t.model.vocab[text]; ok {
			return []int32{id}
		}
		l.warnf("add_%s_token is set but token %q is not in the vocabulary", typ, text)
		return nil
	}
	return []postStep{{before: id("bos", true), after: id("eos", false)}}
}
