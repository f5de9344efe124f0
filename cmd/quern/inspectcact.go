package main

import (
	"context"
	"fmt"

	"quern/formats/cact"
	"quern/model"
	checkpoint "quern/model/needle"
	"quern/runtime/needle"
	"quern/tensor"
)

// inspectCact shows a .cact archive: the words of its header, its codebooks, the
// memory that a device needs for it, and its tensors by the names that their places
// give them.
func inspectCact(ctx context.Context, name string, blob tensor.Blob) (*inspection, error) {
	f, err := cact.Open(ctx, name, blob, cact.Options{})
	if err != nil {
		return nil, err
	}
	doc := &inspection{Name: name, Format: "cact", Size: f.Size, Details: cactDetails(&f.Header, f.Heads)}
	var n int64
	for _, e := range f.Entries {
		x := inspectedTensor{Name: e.Name, Type: e.Kind.String(), Shape: e.Shape, Offset: e.Offset, Bytes: e.Bytes}
		if e.Kind == cact.CQ {
			x.Type = fmt.Sprintf("CQ%s/%d", e.Width, e.Group)
		}
		if e.Kind != cact.Raw {
			v, _ := e.Shape.Values()
			n += v
		}
		doc.Tensors = append(doc.Tensors, x)
	}
	doc.Details = append(doc.Details, field{"group", f.Group}, field{"weights", n}, field{"tensors", len(f.Entries)})
	var stored int64
	for _, e := range f.Entries {
		stored += e.Bytes
	}
	b := needle.BudgetOf(&f.Header, stored)
	doc.Details = append(doc.Details, field{"memory_weights", b.Weights}, field{"memory_kv_cache", b.KV}, field{"memory_engrams", b.Engram},
		field{"memory_activations", b.Activations})
	if b.Heard > 0 {
		doc.Details = append(doc.Details, field{"memory_sound_30s", b.Heard})
	}
	doc.Details = append(doc.Details, field{"memory_total", b.Total()})
	at := 0
	for _, bits := range []int{2, 3, 4} {
		c := 1 << bits
		doc.Metadata = append(doc.Metadata, metadataEntry{Key: fmt.Sprintf("codebook of %d bits", bits), Type: "f32", Value: f.Codebooks[at : at+c], Count: &c})
		at += c
	}
	tok, err := f.Tokenizer(ctx)
	switch {
	case err != nil:
		doc.Problems = append(doc.Problems, err.Error())
	case tok == nil:
		doc.Problems = append(doc.Problems, "the archive has no tokenizer")
	default:
		doc.Metadata = append(doc.Metadata, metadataEntry{Key: "tokenizer", Type: "sentencepiece BPE", Value: fmt.Sprintf(
			"%d pieces, pad %d, eos %d, bos %d, unk %d, add_dummy_prefix %v, byte_fallback %v", len(tok.Pieces), tok.Pad, tok.EOS, tok.BOS, tok.Unk, tok.AddDummyPrefix, tok.ByteFallback)})
	}
	return doc, nil
}

// cactDetails shows generation, the words of a header and the heads.
func cactDetails(h *cact.Header, heads []cact.Head) []field {
	out := []field{{"generation", h.Generation}}
	keys, values := h.Fields()
	for i, k := range keys {
		out = append(out, field{k, values[i]})
	}
	if h.Audio != nil {
		names, values := h.Audio.Fields()
		for i, k := range names {
			out = append(out, field{k, values[i]})
		}
	}
	for _, x := range heads {
		out = append(out, field{"head", fmt.Sprintf("%s: %d probes, %d queries, %d outputs", x.Key, x.Probes, x.Queries, x.Out)})
	}
	return out
}

// needleDetails shows the header that an archive of a checkpoint would have.
func needleDetails(m *model.Model) ([]field, error) {
	k, err := checkpoint.ConfigOf(m)
	if err != nil {
		return nil, err
	}
	heads, err := checkpoint.HeadsOf(m)
	if err != nil {
		return nil, err
	}
	h := k.Header()
	return cactDetails(&h, heads), nil
}
