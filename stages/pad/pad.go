// Package pad is the step that grows axes with zeros without changing what the
// model computes: the feed-forward width, whose new neurons have no input and
// no output, and the vocabulary, whose new rows are unused tokens.
package pad

import (
	"context"
	"errors"
	"fmt"

	"quern/formats/gguf"
	"quern/model"
	"quern/recipes"
	"quern/tensor"
	"quern/tensor/view"
)

// ErrPad marks a model that cannot be padded as asked.
var ErrPad = errors.New("cannot pad")

// Stage is the step.
type Stage struct{ p recipes.Pad }

// New makes the step.
func New(p recipes.Pad) *Stage { return &Stage{p} }

// Name is the step's name.
func (s *Stage) Name() string { return "pad" }

// up rounds n up to a multiple of m; m of 0 leaves it.
func up(n, m int64) int64 {
	if m <= 0 {
		return n
	}
	return (n + m - 1) / m * m
}

// Plan pads the tensors of the roles concerned and the numbers that describe
// them.
func (s *Stage) Plan(_ context.Context, in *model.Model) (*model.Model, error) {
	if in.Form != model.HF && in.Form != model.GGUF {
		return nil, fmt.Errorf("%w: the model is in %s form; axes are padded in Hugging Face and GGUF models", model.ErrForm, in.Form)
	}
	ts := append([]*tensor.Tensor(nil), in.Tensors...)
	w := &work{in: in, ts: ts}
	if s.p.FFN > 0 {
		if err := w.ffn(s.p.FFN); err != nil {
			return nil, err
		}
	}
	if s.p.Vocab > 0 {
		if err := w.vocab(s.p.Vocab); err != nil {
			return nil, err
		}
	}
	out := in.WithTensors(w.ts).WithNotes(w.notes...)
	if in.Form == model.HF {
		if len(w.config) == 0 {
			return out, nil
		}
		return out.WithConfig(w.config...)
	}
	if w.meta != nil {
		out = out.WithMeta(w.meta)
	}
	return out, nil
}

type work struct {
	in     *model.Model
	ts     []*tensor.Tensor
	config []model.Setting
	meta   *gguf.Metadata
	notes  []model.Note
}

// ffn pads the rows of gate and up, their biases, and the columns of down. Every
// width that occurs is padded on its own: dense layers and experts of one model
// may differ.
func (w *work) ffn(multiple int64) error {
	widths := map[model.Role]int64{} // the width before, by role of down
	padded := 0
	for i, t := range w.ts {
		id, ok := w.in.ID(t.Name)
		if !ok {
			continue
		}
		var rows, cols bool
		switch id.Role {
		case model.FFNGate, model.FFNUp, model.FFNGateExps, model.FFNUpExps, model.FFNGateShexp, model.FFNUpShexp:
			rows = id.Suffix == ".weight"
			cols = id.Suffix == ".bias"
		case model.FFNDown, model.FFNDownExps, model.FFNDownShexp:
			cols = id.Suffix != ".bias"
			if cols {
				if old, ok := widths[id.Role]; ok && old != t.Shape.RowLen() {
					return fmt.Errorf("%w: tensor %s has rows of %d values, other layers %d", model.ErrTensors, t.Name, t.Shape.RowLen(), old)
				}
				widths[id.Role] = t.Shape.RowLen()
			}
		case model.FFNGateUpExps:
			return fmt.Errorf("%w: tensor %s holds gate and up in one; this layout is not padded", ErrPad, t.Name)
		default:
			continue
		}
		if !rows && !cols {
			continue
		}
		r, c := int64(1), t.Shape.RowLen()
		if len(t.Shape) > 1 {
			r = t.Shape[len(t.Shape)-2]
		}
		if rows {
			r = up(r, multiple)
		} else {
			c = up(c, multiple)
		}
		p, err := view.Pad(t, r, c)
		if err != nil {
			return err
		}
		if p != t {
			padded++
		}
		w.ts[i] = p
	}
	if len(widths) == 0 {
		return fmt.Errorf("%w: the model has no feed-forward tensors that quern knows", ErrPad)
	}
	if padded == 0 {
		w.notes = append(w.notes, model.Note{Text: fmt.Sprintf("pad: the feed-forward width is a multiple of %d already", multiple)})
		return nil
	}
	for _, role := range []model.Role{model.FFNDown, model.FFNDownExps, model.FFNDownShexp} {
		if old, ok := widths[role]; ok {
			w.setFFN(role, old, up(old, multiple))
		}
	}
	return nil
}

// setFFN writes the new width where the config or the metadata has the old one.
// Which key a role's width stands under depends on the architecture, so every
// key that holds exactly the old width is changed.
func (w *work) setFFN(role model.Role, old, now int64) {
	if old == now {
		return
	}
	keys := []string{"intermediate_size"}
	ggufKeys := []string{"feed_forward_length"}
	switch role {
	case model.FFNDownExps:
		keys = []string{"moe_intermediate_size", "intermediate_size"}
		ggufKeys = []string{"expert_feed_forward_length", "feed_forward_length"}
	case model.FFNDownShexp:
		keys = []string{"shared_expert_intermediate_size"}
		ggufKeys = []string{"expert_shared_feed_forward_length"}
	}
	if w.in.Form == model.HF {
		for _, k := range keys {
			if n, ok, err := w.in.Config.OptInt(k); err == nil && ok && n == old {
				w.config = append(w.config, model.Setting{Key: k, Value: now})
				break
			}
		}
		return
	}
	arch, err := w.in.Meta.Text("general.architecture")
	if err != nil {
		return
	}
	w.cloneMeta()
	for _, k := range ggufKeys {
		key := arch + "." + k
		v, ok := w.meta.Get(key)
		if !ok {
			continue
		}
		if n, err := gguf.AsInt[int64](v); err == nil && n == old {
			w.meta.Set(key, gguf.Scalar(uint32(now)))
			return
		}
	}
}

func (w *work) cloneMeta() {
	if w.meta == nil {
		w.meta = w.in.Meta.Clone()
	}
}

// vocab pads the rows of embedding and head. The new rows are tokens that
// nothing encodes to; the converter names them [PAD...] and marks them unused.
func (w *work) vocab(multiple int64) error {
	if w.in.Form != model.HF {
		return fmt.Errorf("%w: vocabulary rows are padded in the Hugging Face form only, where the tokenizer's list grows with them", ErrPad)
	}
	old := int64(-1)
	for i, t := range w.ts {
		id, ok := w.in.ID(t.Name)
		if !ok || id.Suffix != ".weight" || id.Role != model.TokenEmbd && id.Role != model.Output || len(t.Shape) != 2 {
			continue
		}
		rows := t.Shape[0]
		if old >= 0 && rows != old {
			return fmt.Errorf("%w: embedding and head have %d and %d rows", model.ErrTensors, old, rows)
		}
		old = rows
		p, err := view.Pad(t, up(rows, multiple), t.Shape[1])
		if err != nil {
			return err
		}
		w.ts[i] = p
	}
	if old < 0 {
		return fmt.Errorf("%w: the model has no token embedding", ErrPad)
	}
	if now := up(old, multiple); now != old {
		w.config = append(w.config, model.Setting{Key: "vocab_size", Value: now})
		w.notes = append(w.notes, model.Note{Text: fmt.Sprintf("pad: the vocabulary grows from %d to %d rows; the new ones are unused tokens of zeros, which a sampler must never pick", old, now)})
	}
	return nil
}
