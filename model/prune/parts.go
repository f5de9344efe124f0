package prune

import (
	"context"
	"fmt"

	"quern/model"
	"quern/tensor"
	"quern/tensor/view"
)

// parts are the tensors of a model that have a row for each token.
type parts struct {
	m     *model.Model
	embed *tensor.Tensor
	head  *tensor.Tensor // nil when the embedding serves
	bias  *tensor.Tensor // of the head, may be nil
	list  *tensor.Tensor // output_ids, may be nil
	have  []int32        // what it says
	tied  bool           // the rows of the head are the embedding's
	// embedName is what the embedding is called: a tied checkpoint may keep its
	// one matrix under the head's name.
	embedName string
}

// partsOf finds them and holds their shapes against each other.
func partsOf(ctx context.Context, m *model.Model) (*parts, error) {
	if m.Form != model.HF && m.Form != model.GGUF {
		return nil, fmt.Errorf("%w: the model is in %s form; heads and vocabularies are pruned in Hugging Face and GGUF models", model.ErrForm, m.Form)
	}
	p := &parts{m: m, embed: m.ByRole(model.TokenEmbd, -1, ".weight"), head: m.ByRole(model.Output, -1, ".weight"),
		bias: m.ByRole(model.Output, -1, ".bias"), list: m.Tensor(OutputIDs)}
	if p.embed == nil && p.head != nil && p.list == nil && m.Form == model.HF {
		p.embed, p.head = p.head, nil
	}
	if p.embed == nil || len(p.embed.Shape) != 2 {
		return nil, fmt.Errorf("%w: %w: the model has no token embedding", ErrPrune, model.ErrTensors)
	}
	p.embedName = p.embed.Name
	if m.Form == model.HF && p.head == nil && m.ByRole(model.TokenEmbd, -1, ".weight") == nil {
		p.embedName = model.HFName(m.Config.Architecture(), model.ID{Role: model.TokenEmbd, Layer: -1, Expert: -1, Suffix: ".weight"})
	}
	vocab := p.embed.Shape[0]
	rows := vocab
	if p.list != nil {
		var err error
		if p.have, err = ReadIDs(ctx, p.list, vocab); err != nil {
			return nil, err
		}
		rows = int64(len(p.have))
		if p.head == nil {
			return nil, fmt.Errorf("%w: %s is there, and the head whose rows it names is not", model.ErrTensors, OutputIDs)
		}
	}
	if p.head != nil && !p.head.Shape.Equal(tensor.Shape{rows, p.embed.Shape[1]}) {
		return nil, fmt.Errorf("%w: %s is %v, the embedding is %v and %d rows are expected", model.ErrTensors, p.head.Name, p.head.Shape, p.embed.Shape, rows)
	}
	if p.bias != nil && !p.bias.Shape.Equal(tensor.Shape{rows}) {
		return nil, fmt.Errorf("%w: %s is %v, the head has %d rows", model.ErrTensors, p.bias.Name, p.bias.Shape, rows)
	}
	p.tied = p.head == nil || p.list != nil && p.saysTied()
	return p, nil
}

// saysTied reads what an earlier pruning has left word of.
func (p *parts) saysTied() bool {
	if p.m.Form == model.HF {
		return p.m.Pruned != nil && p.m.Pruned.HeadTied
	}
	tied, err := p.m.Meta.Bool(KeyTied)
	return err == nil && tied
}

// headName is what the head is called, be it there or not.
func (p *parts) headName() string {
	switch {
	case p.head != nil:
		return p.head.Name
	case p.m.Form == model.HF:
		return model.HFName(p.m.Config.Architecture(), model.ID{Role: model.Output, Layer: -1, Expert: -1, Suffix: ".weight"})
	}
	return "output.weight"
}

// rows gives the head's rows of a list of tokens, and its bias or nil.
func (p *parts) rows(ids []int32) (head, bias *tensor.Tensor, err error) {
	src, at := p.head, ids
	if p.head == nil {
		src = p.embed
	}
	if p.have != nil {
		var missing []int32
		if at, missing = places(ids, p.have); len(missing) > 0 {
			head, err := p.rebuilt(ids, at, missing)
			return head, nil, err
		}
	}
	if head, err = view.Pick(src, at); err != nil {
		return nil, nil, err
	}
	if p.bias != nil {
		if bias, err = view.Pick(p.bias, at); err != nil {
			return nil, nil, err
		}
	}
	return head.With(func(t *tensor.Tensor) { t.Name = p.headName() }), bias, nil
}

// rebuilt takes rows that are gone from the head out of the embedding, where that
// is exact. at and missing are places(ids, p.have).
func (p *parts) rebuilt(ids, at, missing []int32) (*tensor.Tensor, error) {
	gone := func(why string) error {
		return fmt.Errorf("%w: %w: %s keeps %d tokens and has no rows for %d of the list: %s; %s; start from the whole model",
			ErrPrune, ErrGone, p.head.Name, len(p.have), len(missing), some(missing), why)
	}
	switch {
	case !p.tied || p.bias != nil:
		return nil, gone("the head was trained on its own, so the embedding has no other copy of them")
	case p.head.Type != p.embed.Type:
		return nil, gone(fmt.Sprintf("the embedding has them in %s, which is not the head's %s", p.embed.Type, p.head.Type))
	}
	whole, err := view.Pick(p.embed, ids)
	if err != nil {
		return nil, err
	}
	return whole.With(func(t *tensor.Tensor) {
		t.Name, t.Src = p.head.Name, &rebuilt{whole: whole, head: p.head, at: at}
		t.Origin = append(append([]tensor.Extent(nil), whole.Origin...), p.head.Origin...)
		t.Key = tensor.Derive("rebuilt-head.v1", "", whole.Key, p.head.Key)
	}), nil
}
