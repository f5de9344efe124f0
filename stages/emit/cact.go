package emit

import (
	"context"
	"errors"
	"fmt"

	"quern/formats/cact"
	"quern/model"
	"quern/model/needle"
	"quern/pipeline"
	"quern/recipes"
	"quern/tensor"
	"quern/tensor/cq"
	"quern/tokenizer"
)

// MediaTypeCact is the type of a .cact archive in manifests.
const MediaTypeCact = "application/vnd.quern.cact.v1"

// ErrCact marks a model that a .cact archive cannot hold.
var ErrCact = errors.New("not a model for .cact")

// Cact lays out a .cact archive. A checkpoint that no step has quantized is
// quantized as published archives are: 4 bits in groups of 128.
type Cact struct{ out recipes.Output }

// NewCact makes the emitter of a cact output.
func NewCact(out recipes.Output) *Cact { return &Cact{out} }

// Plan lays out the file with the tokenizer that the model has.
func (e *Cact) Plan(ctx context.Context, in *model.Model) (*pipeline.Layout, error) {
	return e.PlanWith(ctx, in, nil)
}

// PlanWith lays out the file with the tokenizer of the source of that name, or of
// the archive that the model came from.
func (e *Cact) PlanWith(ctx context.Context, in *model.Model, sources []*pipeline.Source) (*pipeline.Layout, error) {
	m := in
	if m.Form == model.Needle {
		var err error
		if m, err = needle.ToArchive(m, needle.Options{Bits: needle.OneWidth(cq.W4)}); err != nil {
			return nil, err
		}
	}
	if m.Form != model.Cact {
		return nil, fmt.Errorf("%w: the model is in %s form; archives are made from Needle checkpoints and from archives", ErrCact, in.Form)
	}
	a := m.Archive
	if g := int(e.out.Generation); g != 0 && g != a.Header.Generation {
		return nil, fmt.Errorf("%w: generation %d is asked for, the model is of generation %d: their layers differ", ErrCact, g, a.Header.Generation)
	}
	tok, err := cactTokenizer(ctx, m, sources)
	if err != nil {
		return nil, err
	}
	if m, err = m.WithArchive(a, append(withoutTokenizer(m), tok), planOf(m, tok)); err != nil {
		return nil, err
	}
	list, err := cactList(m)
	if err != nil {
		return nil, err
	}
	l, err := cact.NewLayout(a.Header, a.Codebooks, a.Heads, list)
	if err != nil {
		return nil, err
	}
	out := &pipeline.Layout{
		File: e.out.File, Format: "cact", MediaType: MediaTypeCact, Version: "cact.v1",
		Header: l.Header, Size: l.Size, Model: m,
	}
	k := 0
	item := func(off int64, aside bool) {
		info := m.Info(k)
		out.Items = append(out.Items, pipeline.Item{Tensor: m.Tensors[k], Offset: off, From: info.From, Reason: info.Reason, Aside: aside})
		k++
	}
	for _, t := range l.Tensors {
		item(t.Offset, t.Kind == cact.Raw)
		if t.Kind == cact.CQ {
			item(t.NormsOffset, true)
		}
	}
	out.Notes = append(out.Notes, fmt.Sprintf("%s: generation %d, %d layers, a KV window of %d positions", e.out.File, a.Header.Generation, a.Header.Layers, a.Header.KVWindow))
	return out, nil
}

// cactList names the tensors of a model in Cact form for the layout.
func cactList(m *model.Model) ([]cact.LayoutTensor, error) {
	var out []cact.LayoutTensor
	a := m.Archive
	specs := a.Header.Tensors(needle.RankOf(m), a.Heads)
	specs = append(specs, cact.Spec{Name: cact.NameTokenizer, Kind: cact.Raw})
	k := 0
	for _, s := range specs {
		if k >= len(m.Tensors) || m.Tensors[k].Name != s.Name {
			return nil, fmt.Errorf("%w: tensor %s is missing", model.ErrTensors, s.Name)
		}
		t := m.Tensors[k]
		k++
		x := cact.LayoutTensor{Spec: s}
		switch s.Kind {
		case cact.Raw:
			x.Bytes = t.Bytes()
		case cact.CQ:
			w, ok := cq.WidthOf(t.Type)
			if !ok || k >= len(m.Tensors) || m.Tensors[k].Name != cact.NormsName(s.Name) {
				return nil, fmt.Errorf("%w: tensor %s is %s, or its norms are missing", model.ErrTensors, s.Name, t.Type)
			}
			k++
			x.Width, x.Group = w, a.Group
		}
		out = append(out, x)
	}
	if k != len(m.Tensors) {
		return nil, fmt.Errorf("%w: the archive has no place for %s", model.ErrTensors, m.Tensors[k].Name)
	}
	return out, nil
}

func withoutTokenizer(m *model.Model) []*tensor.Tensor {
	ts := m.Tensors
	if n := len(ts); n > 0 && ts[n-1].Name == cact.NameTokenizer {
		ts = ts[:n-1]
	}
	return append([]*tensor.Tensor(nil), ts...)
}

// planOf gives the plan entries of the model's tensors and of the tokenizer.
func planOf(m *model.Model, tok *tensor.Tensor) []model.PlanInfo {
	var out []model.PlanInfo
	for i := range withoutTokenizer(m) {
		out = append(out, m.Info(i))
	}
	return append(out, model.PlanInfo{From: tok.Type, Reason: "tokenizer"})
}

// readTokenizer reads the tokenizer of another archive.
func readTokenizer(ctx context.Context, source string, t *tensor.Tensor) (*cact.Tokenizer, error) {
	if t.Bytes() > cact.MaxTokenizer {
		return nil, fmt.Errorf("%w: the tokenizer of source %s has %d bytes", ErrCact, source, t.Bytes())
	}
	b := make([]byte, t.Bytes())
	if err := t.ReadRows(ctx, b, 0, t.Rows()); err != nil {
		return nil, pipeline.SourceFault(err)
	}
	tok, err := cact.ParseTokenizer(b)
	if err != nil {
		return nil, pipeline.SourceFault(fmt.Errorf("source %s: %w", source, err))
	}
	return tok, nil
}

// speechTokenizer makes the tokenizer of a speech model made from a checkpoint.
func speechTokenizer(source string, a *model.Archive, base *cact.Tokenizer) (*tensor.Tensor, error) {
	t, err := needle.SpeechTokenizer(base, &a.Header, a.Languages, a.Pieces)
	if err != nil {
		return nil, fmt.Errorf("%w: source %s: %w", ErrCact, source, err)
	}
	return needle.TokenizerTensor(t)
}

// fits refuses a tokenizer with more pieces than the embedding has rows.
func fits(source string, t *cact.Tokenizer, h cact.Header) error {
	if len(t.Pieces) > int(h.Vocab) {
		return fmt.Errorf("%w: the tokenizer of source %s has %d pieces, the model's vocabulary %d rows", ErrCact, source, len(t.Pieces), h.Vocab)
	}
	return nil
}

// maxSPModel bounds a SentencePiece file; the largest published ones have 5 MB.
const maxSPModel = 64 << 20

// cactTokenizer finds the tokenizer: that of the source called tokenizer, which is
// a SentencePiece model or another archive, or the model's own.
func cactTokenizer(ctx context.Context, m *model.Model, sources []*pipeline.Source) (*tensor.Tensor, error) {
	h := m.Archive.Header
	for _, s := range sources {
		if s.Name != recipes.TokenizerSource {
			continue
		}
		if s.Model != nil {
			if t := s.Model.Tensor(cact.NameTokenizer); s.Model.Form == model.Cact && t != nil {
				tok, err := readTokenizer(ctx, s.Name, t)
				if err != nil {
					return nil, err
				}
				if m.Archive.Languages != nil {
					return speechTokenizer(s.Name, m.Archive, tok)
				}
				return t, fits(s.Name, tok, h)
			}
			return nil, fmt.Errorf("%w: source %s is a %s model; a SentencePiece model or an archive with a tokenizer is needed", ErrCact, s.Name, s.Model.Form)
		}
		if s.Content == nil || s.Content.Size() > maxSPModel {
			return nil, fmt.Errorf("%w: source %s: a SentencePiece model of up to %d bytes is needed", ErrCact, s.Name, maxSPModel)
		}
		b := make([]byte, s.Content.Size())
		if err := s.Content.ReadAt(ctx, b, 0); err != nil {
			return nil, pipeline.SourceFault(err)
		}
		sp, err := tokenizer.ParseSPModel(s.Name, b)
		if err != nil {
			return nil, pipeline.SourceFault(err)
		}
		if m.Archive.Languages != nil {
			t, err := needle.SpeechPieces(sp)
			if err != nil {
				return nil, fmt.Errorf("source %s: %w", s.Name, err)
			}
			return speechTokenizer(s.Name, m.Archive, t)
		}
		if h.Audio != nil {
			return nil, fmt.Errorf("%w: source %s: which languages the archive has is not known; its own tokenizer or another archive's is needed", ErrCact, s.Name)
		}
		t, err := needle.Tokenizer(sp, h.Generation)
		if err != nil {
			return nil, fmt.Errorf("source %s: %w", s.Name, err)
		}
		if err := fits(s.Name, t, h); err != nil {
			return nil, err
		}
		return needle.TokenizerTensor(t)
	}
	if t := m.Tensor(cact.NameTokenizer); t != nil {
		// Written as it is, but a damaged one is the source's fault, not the file's.
		tok, err := readTokenizer(ctx, m.Name, t)
		if err != nil {
			return nil, err
		}
		if err := fits(m.Name, tok, h); err != nil {
			return nil, err
		}
		return t, nil
	}
	return nil, fmt.Errorf("%w: it has no tokenizer; add a source called %s, a SentencePiece model or a published archive", ErrCact, recipes.TokenizerSource)
}
