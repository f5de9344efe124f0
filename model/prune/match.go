package prune

import (
	"context"
	"fmt"
	"slices"

	"quern/model"
	"quern/tensor"
	"quern/tensor/view"
)

// Counterparts cuts the tensors of a whole model, in GGUF's names, as those of a
// pruned file are cut, so that the two can be compared. sourceIDs is what the file's
// tokenizer.quern.ids says, nil for a vocabulary that is whole. Tensors that are cut
// the same way already are given back as they are. The sentences say what was done.
func Counterparts(ctx context.Context, file, whole []*tensor.Tensor, sourceIDs []int32) ([]*tensor.Tensor, []string, error) {
	whole = slices.Clone(whole)
	find := func(ts []*tensor.Tensor, name string) (*tensor.Tensor, int) {
		i := slices.IndexFunc(ts, func(t *tensor.Tensor) bool { return t.Name == name })
		if i < 0 {
			return nil, -1
		}
		return ts[i], i
	}
	var say []string
	fileEmbed, _ := find(file, "token_embd.weight")
	embed, at := find(whole, "token_embd.weight")
	if fileEmbed == nil || embed == nil || len(embed.Shape) != 2 {
		return whole, nil, nil
	}
	if rows := embed.Shape[0]; sourceIDs != nil && rows != fileEmbed.Shape.Rows() {
		headRows, headAt := rows, sourceIDs
		if have, i := find(whole, OutputIDs); have != nil {
			// Every row of a pruned vocabulary's head has its token again.
			old, err := ReadIDs(ctx, have, rows)
			if err != nil {
				return nil, nil, err
			}
			var missing []int32
			if headAt, missing = places(sourceIDs, old); len(missing) > 0 {
				return nil, nil, fmt.Errorf("%w: the file's vocabulary has tokens whose rows the source's head lacks: %s", model.ErrTensors, some(missing))
			}
			headRows, whole = int64(len(old)), slices.Delete(whole, i, i+1)
			_, at = find(whole, "token_embd.weight")
		}
		for i, t := range whole {
			wantRows, pickAt := rows, sourceIDs
			switch {
			case t.Name == "output.weight" || t.Name == "output.bias":
				wantRows, pickAt = headRows, headAt
			case i != at && !byToken(t.Name):
				continue
			}
			if len(t.Shape) == 0 || t.Shape[0] != wantRows {
				continue
			}
			p, err := view.Pick(t, pickAt)
			if err != nil {
				return nil, nil, err
			}
			whole[i] = p
		}
		embed = whole[at]
		say = append(say, fmt.Sprintf("the vocabulary is pruned: %d of the source's %d rows were compared", len(sourceIDs), rows))
	}
	list, _ := find(file, OutputIDs)
	if list == nil {
		return whole, say, nil
	}
	ids, err := ReadIDs(ctx, list, fileEmbed.Shape.Rows())
	if err != nil {
		return nil, nil, err
	}
	head, headAt := find(whole, "output.weight")
	have, haveAt := find(whole, OutputIDs)
	pickAt := ids
	switch {
	case have != nil:
		old, err := ReadIDs(ctx, have, embed.Shape.Rows())
		if err != nil {
			return nil, nil, err
		}
		if slices.Equal(old, ids) {
			return whole, say, nil
		}
		var missing []int32
		if pickAt, missing = places(ids, old); len(missing) > 0 || head == nil {
			return nil, nil, fmt.Errorf("%w: the file's head has tokens whose rows the source lacks: %s", model.ErrTensors, some(missing))
		}
		whole[haveAt] = idTensor(ids)
	default:
		whole = append(whole, idTensor(ids))
	}
	rows := embed.Shape.Rows()
	if head == nil {
		p, err := view.Pick(embed, pickAt)
		if err != nil {
			return nil, nil, err
		}
		whole = append(whole, p.With(func(t *tensor.Tensor) { t.Name = "output.weight" }))
		return whole, append(say, fmt.Sprintf("the head is pruned: it was compared with %d of %d rows of the embedding, which serves as head in the source", len(ids), rows)), nil
	}
	if whole[headAt], err = view.Pick(head, pickAt); err != nil {
		return nil, nil, err
	}
	if bias, i := find(whole, "output.bias"); bias != nil {
		if whole[i], err = view.Pick(bias, pickAt); err != nil {
			return nil, nil, err
		}
	}
	return whole, append(say, fmt.Sprintf("the head is pruned: %d of the source's %d rows were compared", len(ids), head.Rows())), nil
}
