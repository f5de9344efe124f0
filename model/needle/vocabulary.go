package needle

import (
	"fmt"
	"slices"

	"quern/formats/cact"
	"quern/model"
	"quern/tensor"
	"quern/tensor/view"
)

// addVocabulary gives a speech model the pieces and languages of an adapter, and
// their rows of the embedding:
//
//	pieces of the text | new pieces | tags of its languages | tags of new languages
//
// Rows come as float32, as the exporter's concatenation makes them. An adapter of a
// text model is none for a speech model, nor the other way round.
func addVocabulary(m *model.Model, a *Adapter) (*model.Model, error) {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%s: %w: "+format, append([]any{a.Name, ErrAdapter}, args...)...)
	}
	k, err := ConfigOf(m)
	if err != nil {
		return nil, err
	}
	switch {
	case k.Speech == nil && a.Languages != nil:
		return nil, bad("it is for a speech model, the model is one of text")
	case k.Speech != nil && a.Languages == nil:
		return nil, bad("it is for a model of text, the model is one of speech")
	case k.Speech == nil:
		return m, nil
	}
	if n := len(k.Speech.Languages); len(a.Languages) < n || !slices.Equal(a.Languages[:n], k.Speech.Languages) {
		return nil, bad("its languages are %v, which do not begin with the model's %v", a.Languages, k.Speech.Languages)
	}
	fresh := a.Languages[len(k.Speech.Languages):]
	rows, want := int64(0), int64(len(a.Pieces)+len(fresh))
	if a.Rows != nil {
		rows = a.Rows.Shape.Rows()
	}
	switch {
	case rows != want:
		return nil, bad("it has %d rows for %d pieces and %d languages", rows, len(a.Pieces), len(fresh))
	case rows == 0:
		return m, nil
	case len(a.Rows.Shape) != 2 || a.Rows.Shape[1] != k.DModel:
		return nil, bad("rows are %v, the embedding has %d values a row", a.Rows.Shape, k.DModel)
	}
	e := m.Tensor(nameEmbedding)
	if e == nil || len(e.Shape) != 2 || e.Shape[0] != k.Vocab || e.Shape[1] != k.DModel {
		return nil, fmt.Errorf("%w: %s is missing, or not of %d rows of %d values", model.ErrTensors, nameEmbedding, k.Vocab, k.DModel)
	}
	text, added := int64(k.Speech.Text), int64(len(a.Pieces))
	var parts []*tensor.Tensor
	for _, p := range []struct {
		of        *tensor.Tensor
		first, to int64
	}{{e, 0, text}, {a.Rows, 0, added}, {e, text, k.Vocab}, {a.Rows, added, rows}} {
		if p.first == p.to {
			continue
		}
		t, err := view.Span(p.of, p.first*k.DModel, tensor.Shape{p.to - p.first, k.DModel})
		if err != nil {
			return nil, err
		}
		if t, err = view.Cast(t, tensor.F32, view.CastOptions{Name: nameEmbedding, Check: true}); err != nil {
			return nil, err
		}
		parts = append(parts, t)
	}
	whole, err := view.Concat(parts...)
	if err != nil {
		return nil, err
	}
	whole = whole.With(func(n *tensor.Tensor) { n.Name = nameEmbedding })
	ts := slices.Clone(m.Tensors)
	ts[slices.Index(ts, e)] = whole
	out, err := m.WithConfig(model.Setting{Key: "text", Value: text + added}, model.Setting{Key: "languages", Value: list(a.Languages)},
		model.Setting{Key: keyPieces, Value: list(append(slices.Clone(k.Speech.Pieces), a.Pieces...))})
	if err != nil {
		return nil, err
	}
	return out.WithTensors(ts).WithNotes(model.Note{Subject: a.Name, Text: fmt.Sprintf("%d new pieces, %d new languages", added, len(fresh))}), nil
}

func list(texts []string) []any {
	out := make([]any, len(texts))
	for i, s := range texts {
		out[i] = s
	}
	return out
}

// SpeechTokenizer extends the tokenizer of a speech model's text by the pieces that
// adapters have added and the tags of its languages. base is that of the text, or of
// an archive, whose tags at the end do not count.
func SpeechTokenizer(base *cact.Tokenizer, h *cact.Header, languages, pieces []string) (*cact.Tokenizer, error) {
	t := *base
	text := int(h.Audio.Text) - len(pieces)
	if n := len(base.Pieces); n > text && isTag(base.Pieces[n-1]) {
		for n > text && isTag(base.Pieces[n-1]) {
			n--
		}
		t.Pieces = base.Pieces[:n]
	}
	if len(t.Pieces) != text {
		return nil, fmt.Errorf("%w: it has %d pieces, the text of the model %d", cact.ErrTokenizer, len(t.Pieces), text)
	}
	t.Pieces = slices.Clone(t.Pieces)
	low := t.Pieces[0].Score
	for _, p := range t.Pieces {
		if p.Score < low {
			low = p.Score
		}
	}
	known := map[string]bool{}
	for _, p := range t.Pieces {
		known[p.Text] = true
	}
	for i, p := range pieces {
		if known[p] {
			return nil, fmt.Errorf("%w: the adapter's piece %q is there already", cact.ErrTokenizer, p)
		}
		known[p] = true
		t.Pieces = append(t.Pieces, cact.Piece{Text: p, Score: float32(float64(low) - 1 - float64(i)), Type: cact.Normal})
	}
	for _, l := range languages {
		t.Pieces = append(t.Pieces, cact.Piece{Text: Tag(l), Type: cact.UserDefined})
	}
	return &t, nil
}

func isTag(p cact.Piece) bool {
	return p.Type == cact.UserDefined && p.Score == 0 && len(p.Text) > 4 && p.Text[:2] == "<|" && p.Text[len(p.Text)-2:] == "|>"
}
