package emit

import (
	"errors"
	"fmt"

	"quern/formats/repacked"
	"quern/model"
	"quern/pipeline"
	"quern/tensor"
	"quern/tensor/repack"
)

// MediaTypeRepack is the type of a repack cache in manifests.
const MediaTypeRepack = "application/vnd.quern.repack.v1"

// ErrRepack marks a model that has nothing for a layout.
var ErrRepack = errors.New("nothing to repack")

// looksUp reports whether a matrix is read row by row, by token: ggml leaves such
// ones plain. An embedding that serves as the head too is multiplied with.
func looksUp(m *model.Model, name string) bool {
	return name == "per_layer_token_embd.weight" || name == "token_embd.weight" && m.Tensor("output.weight") != nil
}

// repackCache lays out the cache of a GGUF file in one layout: every matrix of its
// type that is multiplied with and divides into groups. The rows come out of the
// file as written, so that nothing is quantized twice.
func repackCache(of *pipeline.Layout, m *model.Model, name string) (*pipeline.Layout, error) {
	l, err := repack.Parse(name)
	if err != nil {
		return nil, fmt.Errorf("%s: repack: %w", of.File, err)
	}
	out := &pipeline.Layout{
		File: of.File + "." + l.String() + ".repack", Format: "repack", MediaType: MediaTypeRepack, Version: "repack.v1",
		Model: m, Of: of, OfDigestAt: repacked.DigestAt,
	}
	var specs []repacked.Spec
	var plain []pipeline.Item
	for _, it := range of.Items {
		t := it.Tensor
		if t.Type != l.Type() || looksUp(m, t.Name) {
			continue
		}
		if err := l.Check(t.Type, t.Shape); err != nil {
			out.Notes = append(out.Notes, fmt.Sprintf("%s: tensor %s stays out of it: %v", out.File, t.Name, err))
			continue
		}
		p, err := repack.Interleave(t, l)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", out.File, err)
		}
		plain = append(plain, it)
		specs = append(specs, repacked.Spec{Name: t.Name, Shape: t.Shape})
		out.Items = append(out.Items, pipeline.Item{Tensor: p, From: t.Type, Reason: "repacked", Aside: true})
	}
	if len(specs) == 0 {
		return nil, fmt.Errorf("%s: %w: no matrix is %s with rows in groups of %d, as layout %s wants; quantize to %s, or leave the layout out",
			of.File, ErrRepack, l.Type(), l.GroupRows(), l, l.Type())
	}
	if l.Lossy() {
		out.Notes = append(out.Notes, fmt.Sprintf("%s: layout %s rounds, one scale stands for two: its weights are not quite the file's; quern verify CACHE --against FILE says by how much", out.File, l))
	}
	file, err := repacked.NewLayout(l, specs, of.Size)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", out.File, err)
	}
	out.Header, out.Size = file.Header, file.Size
	for i, p := range file.Tensors {
		out.Items[i].Offset = p.Offset
	}
	out.OfRows = func(written tensor.Blob) ([]tensor.Source, error) {
		rows := make([]tensor.Source, len(plain))
		for i, it := range plain {
			t := it.Tensor.With(func(t *tensor.Tensor) {
				t.Src = &tensor.Section{Blob: written, Offset: it.Offset, RowBytes: t.RowBytes()}
			})
			p, err := repack.Interleave(t, l)
			if err != nil {
				return nil, err
			}
			rows[i] = p.Src
		}
		return rows, nil
	}
	return out, nil
}
