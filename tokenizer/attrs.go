package tokenizer

import (
	"sort"
	"strings"
)

// attr is what a reader knows of a token: its type, corrected by its text.
type attr uint8

const (
	attrNormal attr = 1 << iota
	attrUnknown
	attrControl
	attrUser
	attrUnused
	attrByte
)

func attrOf(t TokenType) attr {
	switch t {
	case Normal:
		return attrNormal
	case Unknown:
		return attrUnknown
	case Control:
		return attrControl
	case UserDefined:
		return attrUser
	case Unused:
		return attrUnused
	case Byte:
		return attrByte
	}
	return 0
}

// Texts that llama.cpp takes for special tokens whatever their type. In each
// list the first one present is the token that counts.
var (
	textsEOT = []string{"<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>", "<EOT>", "_<EOT>",
		"[EOT]", "<\uff5cend\u2581of\u2581sentence\uff5c>", "<end_of_utterance>"}
	textsEOM    = []string{"<|eom_id|>"}
	textsFimPre = []string{"<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<\uff5cfim\u2581begin\uff5c>", "<PRE>", "\u2581<PRE>", "<|code_prefix|>", "<|prefix|>"}
	textsFimSuf = []string{"<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<\uff5cfim\u2581hole\uff5c>", "<SUF>", "\u2581<SUF>", "<|code_suffix|>", "<|suffix|>"}
	textsFimMid = []string{"<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<\uff5cfim\u2581end\uff5c>", "<MID>", "\u2581<MID>", "<|code_middle|>", "<|middle|>"}
	textsFimPad = []string{"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"}
	textsFimRep = []string{"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"}
	textsFimSep = []string{"<|file_sep|>"}
	// textsEnd end a generation.
	textsEnd = []string{"<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "<end_of_turn>",
		"<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>", "<end_of_utterance>", "<eos>",
		"<turn|>", "<|tool_response>", "<\uff5cend\u2581of\u2581sentence\uff5c>", "[e~["}
	// textsShown are control tokens of one family whose text is always shown.
	textsShown = []string{"<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"}
)

// keyFim are keys of fill-in-the-middle ids, newer name first.
var (
	keysFimPre = []string{"tokenizer.ggml.prefix_token_id", "tokenizer.ggml.fim_pre_token_id"}
	keysFimSuf = []string{"tokenizer.ggml.suffix_token_id", "tokenizer.ggml.fim_suf_token_id"}
	keysFimMid = []string{"tokenizer.ggml.middle_token_id", "tokenizer.ggml.fim_mid_token_id"}
	keysFimPad = []string{"tokenizer.ggml.fim_pad_token_id"}
	keysFimRep = []string{"tokenizer.ggml.fim_rep_token_id"}
	keysFimSep = []string{"tokenizer.ggml.fim_sep_token_id"}
)

// settle corrects the attributes by the tokens' texts and finds the set of ids
// that end a generation.
func (t *Tokenizer) settle(types []TokenType) {
	for id, typ := range types {
		t.attrs[id] = attrOf(typ)
	}
	ends := map[int32]bool{}
	// pick finds a token by key, else by text; a token found by text is a
	// control token.
	pick := func(keys, texts []string) (int32, bool) {
		for _, key := range keys {
			if id, ok := t.v.keys.vals[key].(uint32); ok && int64(id) < int64(t.Size()) {
				return int32(id), true
			}
		}
		for _, text := range texts {
			if id, ok := t.id(text); ok {
				t.attrs[id] |= attrControl
				return id, true
			}
		}
		return 0, false
	}
	pick(keysFimPre, textsFimPre)
	pick(keysFimSuf, textsFimSuf)
	pick(keysFimMid, textsFimMid)
	for _, s := range []struct{ keys, texts []string }{
		{[]string{specialKey("eot")}, textsEOT}, {[]string{specialKey("eom")}, textsEOM},
		{keysFimPad, textsFimPad}, {keysFimRep, textsFimRep}, {keysFimSep, textsFimSep},
	} {
		if id, ok := pick(s.keys, s.texts); ok {
			ends[id] = true
		}
	}
	for id := range t.attrs {
		if t.attrs[id]&attrControl != 0 && strings.Contains(t.tokens.at(id), "unused") {
			t.attrs[id] |= attrUnused
		}
	}
	for _, text := range textsEnd {
		if id, ok := t.id(text); ok {
			ends[id] = true
			t.attrs[id] |= attrControl
		}
	}
	for _, text := range textsShown {
		if id, ok := t.id(text); ok {
			t.attrs[id] = attrUser
		}
	}
	if t.eos >= 0 {
		ends[t.eos] = true
	}
	t.exempt(ends)
	for _, id := range t.v.EndIDs {
		ends[id] = true
	}
	for id := range ends {
		t.ends = append(t.ends, id)
	}
	sort.Slice(t.ends, func(i, j int) bool { return t.ends[i] < t.ends[j] })
}

// exempt takes out end texts that mean something else in two families.
func (t *Tokenizer) exempt(ends map[int32]bool) {
	has := func(text string) (int32, bool) {
		id, ok := t.id(text)
		return id, ok && ends[id]
	}
	_, ret := has("<|return|>")
	_, call := has("<|call|>")
	_, calls := has("<|calls|>")
	_, flush := has("<|flush|>")
	if id, ok := has("<|end|>"); ok && (call || calls) && (ret || flush) {
		delete(ends, id)
		t.attrs[id] = attrUser
	}
	if _, tool := has("<|tool_response>"); tool {
		if id, ok := has("</s>"); ok {
			delete(ends, id)
			t.attrs[id] = attrNormal
		}
	}
}
