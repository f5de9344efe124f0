package tokenizer

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// Keys that hold ids in another form than KEY_token_id, or a tokenizer that would
// be another one than the cut.
const (
	keySuppress = "tokenizer.ggml.suppress_tokens"
	keyJSON     = "tokenizer.huggingface.json"
)

// vocabulary makes the vocabulary that has the tokens of ids alone.
func (c *pruning) vocabulary(ids []int32) *Vocabulary {
	v := c.v
	out := &Vocabulary{Model: v.Model, Pre: v.Pre, Warnings: v.Warnings, eatSpace: v.eatSpace, keys: v.keys.clone()}
	now := make(map[int32]int32, len(ids))
	for i, id := range ids {
		now[id] = int32(i)
		out.Tokens = append(out.Tokens, v.Tokens[id])
		out.Types = append(out.Types, v.Types[id])
		if v.Scores != nil {
			out.Scores = append(out.Scores, v.Scores[id])
		}
		if v.Types[id] != Unused {
			out.Size = int64(i) + 1
		}
	}
	for _, line := range v.Merges {
		if c.keepsMerge(line) {
			out.Merges = append(out.Merges, line)
		}
	}
	for _, id := range v.EndIDs {
		if n, ok := now[id]; ok {
			out.EndIDs = append(out.EndIDs, n)
		}
	}
	slices.Sort(out.EndIDs)
	c.translate(out.keys, now)
	source, size := ids, uint32(len(v.Tokens))
	if old := v.SourceIDs(); old != nil {
		source = make([]int32, len(ids))
		for i, id := range ids {
			source[i] = old[id]
		}
		if n, ok := v.keys.vals[KeySourceSize].(uint32); ok {
			size = n
		}
	}
	out.keys.reserve(KeySourceIDs)
	out.keys.vals[KeySourceIDs] = source
	out.keys.set(KeySourceSize, size)
	return out
}

// keepsMerge reports whether a merge rule has a use still. A rule cannot be left
// out whose parts and outcome are all met on the way to kept tokens; any other one
// would end in a text that is no token any more.
func (c *pruning) keepsMerge(line string) bool {
	at := strings.IndexByte(line[1:], ' ') + 1
	left, right := line[:at], line[at+1:]
	return c.meets(left) && c.meets(right) && c.texts[left+right]
}

// meets reports whether merging may come by a text. Characters are what it starts
// from.
func (c *pruning) meets(s string) bool { return c.texts[s] || utf8.RuneCountInString(s) == 1 }

// translate gives ids among the keys their new numbers. Where a key is absent and
// readers take a fixed id, which is another token now, the key is set.
func (c *pruning) translate(keys *keyList, now map[int32]int32) {
	keys.drop(keyJSON)
	for _, key := range keys.order {
		switch x := keys.vals[key].(type) {
		case uint32:
			if n, ok := now[int32(x)]; ok && isIDKey(key) {
				keys.vals[key] = uint32(n)
			}
		case []int32:
			if key == keySuppress {
				keys.vals[key] = translated(x, now)
			}
		case []uint32:
			if key == keySuppress {
				keys.vals[key] = translated(x, now)
			}
		}
	}
	if c.t == nil {
		return
	}
	fixed := []struct {
		typ string
		id  int32
	}{{"bos", c.t.bos}, {"eos", c.t.eos}}
	if c.v.Model == ModelSPM {
		fixed = append(fixed, struct {
			typ string
			id  int32
		}{"unk", 0})
	}
	for _, f := range fixed {
		key := specialKey(f.typ)
		if _, ok := keys.vals[key]; ok || f.id < 0 {
			continue
		}
		if n, ok := now[f.id]; ok && n != f.id {
			keys.set(key, uint32(n))
		}
	}
}

// translated leaves out ids that are gone.
func translated[T int32 | uint32](list []T, now map[int32]int32) []T {
	out := []T{}
	for _, id := range list {
		if n, ok := now[int32(id)]; ok {
			out = append(out, T(n))
		}
	}
	return out
}

// drop takes a key out.
func (k *keyList) drop(key string) {
	if _, ok := k.vals[key]; !ok {
		return
	}
	delete(k.vals, key)
	k.order = slices.DeleteFunc(k.order, func(s string) bool { return s == key })
}
