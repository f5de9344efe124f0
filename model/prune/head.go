package prune

import (
	"context"
	"fmt"

	"quern/formats/gguf"
	"quern/model"
	"quern/model/order"
	"quern/tensor"
)

// Head keeps the rows of the output head that a list of tokens names. A model whose
// head is pruned already is cut once more: to tokens that it still has, or, where the
// head is a copy of embedding rows, to any. A list of all tokens leaves the head
// whole.
//
// Errors wrap ErrPrune, ErrGone, model.ErrForm or model.ErrTensors.
func Head(ctx context.Context, m *model.Model, ids []int32) (*model.Model, error) {
	p, err := partsOf(ctx, m)
	if err != nil {
		return nil, err
	}
	ids = ascending(ids)
	vocab := p.embed.Shape[0]
	if err := inside(ids, vocab, p.embed.Name); err != nil {
		return nil, err
	}
	all := int64(len(ids)) == vocab
	if all && p.list == nil {
		return m.WithNotes(model.Note{Subject: p.headName(), Text: fmt.Sprintf("all %d tokens are kept, so nothing is pruned", vocab)}), nil
	}
	head, bias, err := p.rows(ids)
	if err != nil {
		return nil, err
	}
	if all {
		return nil, fmt.Errorf("%w: the list has every token, which would undo an earlier pruning; start from the whole model", ErrPrune)
	}
	out, err := p.with(head, bias, idTensor(ids))
	if err != nil {
		return nil, err
	}
	text := fmt.Sprintf("keeps %d of %d rows; tokens without one can be read, and are never said", len(ids), vocab)
	if p.head == nil {
		text = "the embedding no longer serves as head: the head " + text
	}
	return out.WithNotes(model.Note{Subject: head.Name, Text: text}), nil
}

func inside(ids []int32, vocab int64, embed string) error {
	if len(ids) == 0 {
		return fmt.Errorf("%w: the list of tokens is empty", ErrPrune)
	}
	if ids[0] < 0 || int64(ids[len(ids)-1]) >= vocab {
		return fmt.Errorf("%w: the list has token %d, and %s has %d rows: it is of another vocabulary", ErrPrune, ids[len(ids)-1], embed, vocab)
	}
	return nil
}

// with puts a pruned head in its place: that of the old one, else behind the
// embedding.
func (p *parts) with(head, bias, list *tensor.Tensor) (*model.Model, error) {
	m := p.m
	var ts []*tensor.Tensor
	var plan []model.PlanInfo
	put := func(t *tensor.Tensor, info model.PlanInfo) {
		ts, plan = append(ts, t), append(plan, info)
	}
	behind := func() {
		put(list, model.PlanInfo{From: tensor.I32, Reason: "the tokens of the head's rows"})
	}
	added, after := 0, -1
	for i, t := range m.Tensors {
		switch info := m.Info(i); t {
		case p.head:
			put(head, model.PlanInfo{From: info.From, Reason: info.Reason})
			if p.list == nil {
				added, after = 1, i
				behind()
			}
		case p.bias:
			put(bias, info)
		case p.list:
			behind()
		case p.embed:
			put(t.With(func(c *tensor.Tensor) { c.Name = p.embedName }), info)
			if p.head == nil {
				put(head, model.PlanInfo{From: t.Type, Reason: "rows of the tied embedding"})
				added, after = 2, i
				behind()
			}
		default:
			put(t, info)
		}
	}
	if len(m.Plan) == 0 {
		plan = nil
	}
	out := m.WithPlan(ts, plan)
	if m.Form == model.HF {
		out = out.WithPruned(model.Pruned{Vocab: m.Vocabulary(), HeadTied: p.tied})
		if p.head != nil {
			return out, nil
		}
		return out.WithConfig(model.Setting{Key: "tie_word_embeddings", Value: false})
	}
	meta := m.Meta.Clone()
	if p.tied {
		meta.Set(KeyTied, gguf.Scalar(true))
	}
	if added > 0 {
		if err := order.Inserted(m, meta, after, added); err != nil {
			return nil, err
		}
	}
	return out.WithMeta(meta), nil
}
