package prune

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"quern/formats/gguf"
	"quern/internal/pyjson"
	"quern/model"
	"quern/tensor"
	"quern/tensor/view"
	"quern/tokenizer"
)

// VocabOptions steer Vocab.
type VocabOptions struct {
	// MultipleOf fills the vocabulary up, so that its rows divide; 0 does not.
	MultipleOf int64
}

// Vocab keeps the tokens of a list, and those that the tokenizer needs besides, and
// drops all others from the tokenizer, the embedding and the head. v is the model's
// vocabulary. Special ids in the config or the metadata are translated.
//
// Errors wrap ErrPrune, ErrGone, model.ErrForm, model.ErrTensors or the tokenizer's
// sentinels.
func Vocab(ctx context.Context, m *model.Model, v *tokenizer.Vocabulary, ids []int32, opt VocabOptions) (*model.Model, error) {
	p, err := partsOf(ctx, m)
	if err != nil {
		return nil, err
	}
	ids = ascending(ids)
	tokens, rows := int64(len(v.Tokens)), p.embed.Shape[0]
	if err := inside(ids, tokens, "the tokenizer"); err != nil {
		return nil, err
	}
	if tokens > rows {
		return nil, fmt.Errorf("%w: the tokenizer has %d tokens, %s has %d rows; ids without rows: %s: %w",
			ErrPrune, tokens, p.embed.Name, rows, span(rows, tokens), tokenizer.ErrVocabSize)
	}
	pruned, err := v.Prune(ids, tokenizer.PruneOptions{MultipleOf: opt.MultipleOf, Also: p.named(tokens)})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPrune, err)
	}
	ts, plan, err := p.shrunk(pruned.IDs)
	if err != nil {
		return nil, err
	}
	if len(m.Plan) == 0 {
		plan = nil
	}
	out := m.WithPlan(ts, plan).WithNotes(vocabNotes(pruned, tokens, rows)...)
	now := make(map[int32]int32, len(pruned.IDs))
	for i, id := range pruned.IDs {
		now[id] = int32(i)
	}
	if m.Form == model.HF {
		return out.WithPruned(model.Pruned{Vocab: pruned.Vocab}).WithConfig(settings(m.Config, now)...)
	}
	meta, err := vocabMeta(m.Meta, pruned.Vocab, now)
	if err != nil {
		return nil, err
	}
	return out.WithMeta(meta), nil
}

func span(from, to int64) string {
	if to-from == 1 {
		return fmt.Sprint(from)
	}
	return fmt.Sprintf("%d to %d", from, to-1)
}

func vocabNotes(p *tokenizer.Pruned, tokens, rows int64) []model.Note {
	text := fmt.Sprintf("prune-head: the vocabulary shrinks from %d to %d tokens: %d of the list, %d that are special or spell what has no token, %d parts that others are merged from",
		tokens, len(p.IDs), p.Asked, p.Protected, p.Parts)
	if p.Filled > 0 {
		text += fmt.Sprintf(", %d to fill up", p.Filled)
	}
	notes := []model.Note{{Text: text}}
	if rows > tokens {
		notes = append(notes, model.Note{Text: fmt.Sprintf("prune-head: rows %s of the embedding have no token and are dropped", span(tokens, rows))})
	}
	return notes
}

// named lists ids that stand in the config or among the metadata's other keys.
func (p *parts) named(tokens int64) []int32 {
	var out []int32
	add := func(id int64) {
		if id >= 0 && id < tokens {
			out = append(out, int32(id))
		}
	}
	if p.m.Form == model.HF {
		for _, key := range idKeys(p.m.Config) {
			v, _, _ := p.m.Config.Find(key)
			for _, n := range numbersOf(v) {
				add(n)
			}
		}
		return out
	}
	for key, v := range p.m.Meta.All() {
		if n, err := gguf.AsInt[int64](v); err == nil && isIDKey(key) {
			add(n)
		}
	}
	return out
}

// isIDKey reports whether a metadata key outside the tokenizer's is a token's id.
func isIDKey(key string) bool {
	return strings.HasSuffix(key, "_token_id") && !strings.HasPrefix(key, "tokenizer.")
}

// idKeys lists the config's keys that hold ids of tokens.
func idKeys(c *model.Config) []string {
	raw := c.RawObject()
	keys := slices.Clone(raw.Keys())
	if v, _ := raw.Get("text_config"); v != nil {
		if text, ok := v.(*pyjson.Object); ok {
			keys = append(keys, text.Keys()...)
		}
	}
	keys = slices.DeleteFunc(keys, func(k string) bool {
		return !strings.HasSuffix(k, "_token_id") && !strings.HasSuffix(k, "_token_index")
	})
	slices.Sort(keys)
	return slices.Compact(keys)
}

func numbersOf(v any) []int64 {
	var out []int64
	switch v := v.(type) {
	case pyjson.Number:
		if n, ok := v.Int64(); ok {
			out = append(out, n)
		}
	case []any:
		for _, e := range v {
			out = append(out, numbersOf(e)...)
		}
	}
	return out
}

// settings changes the config: its size and the ids in it. An id that never was a
// token's stays.
func settings(c *model.Config, now map[int32]int32) []model.Setting {
	out := []model.Setting{{Key: "vocab_size", Value: int64(len(now))}}
	var translate func(v any) any
	translate = func(v any) any {
		switch v := v.(type) {
		case pyjson.Number:
			if n, ok := v.Int64(); ok && n == int64(int32(n)) {
				if to, ok := now[int32(n)]; ok {
					return pyjson.Number(fmt.Sprint(to))
				}
			}
		case []any:
			list := make([]any, len(v))
			for i, e := range v {
				list[i] = translate(e)
			}
			return list
		}
		return v
	}
	for _, key := range idKeys(c) {
		v, _, _ := c.Find(key)
		out = append(out, model.Setting{Key: key, Value: translate(v)})
	}
	return out
}

// vocabMeta is the metadata with the tokenizer's keys, the size and ids changed.
// Keys keep their places.
func vocabMeta(old *gguf.Metadata, v *tokenizer.Vocabulary, now map[int32]int32) (*gguf.Metadata, error) {
	meta := old.Clone()
	has := map[string]bool{}
	for _, kv := range v.Keys() {
		x, err := gguf.ValueOf(kv.Value)
		if err != nil {
			return nil, fmt.Errorf("key %s: %w", kv.Key, err)
		}
		has[kv.Key] = true
		meta.Set(kv.Key, x)
	}
	for key, x := range old.All() {
		n, err := gguf.AsInt[int64](x)
		switch {
		case strings.HasPrefix(key, "tokenizer.") && !has[key]:
			meta.Delete(key)
		case err == nil && isIDKey(key) && n == int64(int32(n)):
			if to, ok := now[int32(n)]; ok {
				meta.Set(key, gguf.Scalar(uint32(to)))
			}
		case err == nil && strings.HasSuffix(key, ".vocab_size") && !strings.HasPrefix(key, "tokenizer."):
			meta.Set(key, gguf.Scalar(uint32(len(now))))
		}
	}
	meta.Delete(KeyTied)
	return meta, nil
}

// byToken are further tensors of GGUF files with a row for each token.
func byToken(name string) bool {
	if name == "per_layer_token_embd.weight" {
		return true
	}
	return strings.HasPrefix(name, "blk.") && (strings.HasSuffix(name, ".nextn.embed_tokens.weight") || strings.HasSuffix(name, ".nextn.shared_head_head.weight"))
}

// shrunk gives the tensors with the rows of the tokens that are left.
func (p *parts) shrunk(ids []int32) (ts []*tensor.Tensor, plan []model.PlanInfo, err error) {
	var head, bias *tensor.Tensor
	if p.head != nil {
		if head, bias, err = p.rows(ids); err != nil {
			return nil, nil, err
		}
	}
	for i, t := range p.m.Tensors {
		info := p.m.Info(i)
		switch {
		case t == p.list:
			continue // every row has its token again
		case t == p.head:
			t = head
		case t == p.bias:
			t = bias
		case t == p.embed || p.m.Form == model.GGUF && byToken(t.Name) && len(t.Shape) == 2 && t.Shape[0] == p.embed.Shape[0]:
			if t, err = view.Pick(t, ids); err != nil {
				return nil, nil, err
			}
		}
		ts, plan = append(ts, t), append(plan, info)
	}
	return ts, plan, nil
}
