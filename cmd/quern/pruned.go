package main

import (
	"context"
	"fmt"
	"slices"

	"quern/formats/gguf"
	"quern/model/prune"
	"quern/pipeline"
	"quern/tensor"
	"quern/tokenizer"
	"quern/verify"
)

// counterparts cuts the tensors of a source as those of a pruned GGUF file are cut.
func counterparts(ctx context.Context, f *verify.File, source []*tensor.Tensor) ([]*tensor.Tensor, []string, error) {
	var ids []int32
	var err error
	if f.Meta.Has(tokenizer.KeySourceIDs) {
		if ids, err = f.Meta.Int32s(tokenizer.KeySourceIDs); err != nil {
			return nil, nil, err
		}
	}
	return prune.Counterparts(ctx, f.Tensors, source, ids)
}

// withoutChoices takes the steps out of a recorded build whose choices the file
// itself tells: those that prune, that choose tokens for it, and that order experts
// by use. Their texts and traces may be anywhere by now. The file's digest is the
// recorded one, so it is believed.
func withoutChoices(prj *pipeline.Project) {
	prj.Stages = slices.DeleteFunc(slices.Clone(prj.Stages), func(st pipeline.PlacedStage) bool {
		switch st.Stage.Name() {
		case "prune-head", "select-tokens":
			return true
		case "reorder":
			_, byUse := st.Stage.(pipeline.SourceReader)
			return byUse
		}
		return false
	})
}

// prunedFields say how much of a GGUF file's head or vocabulary was pruned. shape
// gives that of a tensor, or nil.
func prunedFields(meta *gguf.Metadata, shape func(name string) tensor.Shape) []field {
	var out []field
	list, embed := shape(prune.OutputIDs), shape("token_embd.weight")
	if list != nil && embed != nil {
		text := fmt.Sprintf("%d of %d tokens", list.RowLen(), embed.Rows())
		if tied, err := meta.Bool(prune.KeyTied); err == nil && tied {
			text += ", rows of the embedding"
		}
		out = append(out, field{"pruned head", text})
	}
	if v, ok := meta.Get(tokenizer.KeySourceIDs); ok {
		text := fmt.Sprintf("%d tokens", v.Len())
		if n, err := meta.Int64(tokenizer.KeySourceSize); err == nil {
			text = fmt.Sprintf("%d of %d tokens", v.Len(), n)
		}
		out = append(out, field{"pruned vocabulary", text})
	}
	return out
}
