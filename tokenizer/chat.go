package tokenizer

import (
	"fmt"
	"strings"
)

// EncodeChat encodes a prompt that a chat template has made: the texts of
// control tokens count, and BOS is put first unless the template already did.
func (t *Tokenizer) EncodeChat(prompt string) ([]int32, error) {
	ids, err := t.Encode(prompt, EncodeOptions{Special: true, Parse: true})
	if err != nil {
		return nil, err
	}
	if t.addBOS && len(ids) > 1 && ids[0] == t.bos && ids[1] == t.bos {
		ids = ids[1:]
	}
	return ids, nil
}

// Lint reports what is legal but goes wrong in practice.
func (v *Vocabulary) Lint() []string {
	var out []string
	template := v.ChatTemplate()
	bos := ""
	if id, ok := v.ID("bos"); ok && int64(id) < int64(len(v.Tokens)) {
		bos = v.Tokens[id]
	}
	if add, _ := v.Adds("bos"); add && (strings.Contains(template, "bos_token") || bos != "" && strings.Contains(template, bos)) {
		out = append(out, fmt.Sprintf("the chat template writes the BOS token %q and add_bos_token is true: a reader that does both puts two", bos))
	}
	if len(v.Tokens) > 0 {
		if _, ok := v.ID("eos"); !ok {
			out = append(out, "there is no eos_token_id: readers assume one of their own")
		}
	}
	if i, j, ok := v.twins(); ok {
		out = append(out, fmt.Sprintf("tokens %d and %d are both %q: llama.cpp refuses such a file", i, j, v.Tokens[i]))
	}
	return out
}

// twins finds two tokens of one text.
func (v *Vocabulary) twins() (first, second int, ok bool) {
	seen := make(map[string]int, len(v.Tokens))
	for id, text := range v.Tokens {
		if old, dup := seen[text]; dup {
			return old, id, true
		}
		seen[text] = id
	}
	return 0, 0, false
}
