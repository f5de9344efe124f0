// Package convert turns a Hugging Face model into the GGUF form that
// convert_hf_to_gguf.py of llama.cpp v0.5.0 gives it, byte for byte: the same
// keys in the same order, the same tensors with the same names, types and
// values. Nothing is read but side files and headers: the tensors of the result
// are views that make their rows on demand.
//
// What the converter would write silently wrong is an error here: tensors that
// have no place, tensors that are missing, shapes that the config does not
// explain, values that the output type cannot hold.
package convert

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"quern/formats/gguf"
	"quern/internal/pyjson"
	"quern/model"
	"quern/model/prune"
	"quern/tensor"
	"quern/tokenizer"
)

// Options are what the converter takes as flags. The zero value converts to
// F16.
type Options struct {
	// OutType is f32, f16, bf16, q8_0 or auto; empty means f16.
	OutType string
	// ModelName replaces the name that is found in the files (--model-name).
	ModelName string
	// Metadata replaces general.* values by key (--metadata); base models and
	// datasets are lists under general.base_models and general.datasets.
	Metadata *pyjson.Object
	// AllowNonFinite lists tensors, by GGUF name, whose NaN, infinities and
	// overflows are written as they come.
	AllowNonFinite []string
	// MTP says what becomes of the layers for multi-token prediction.
	MTP MTP
	// WithoutTokenizer leaves the tokenizer aside, and with it the check that
	// its tokens fit the rows: for models that are run by ids. What comes out is
	// no file that others would read.
	WithoutTokenizer bool
	// ForRuntime lets pass what GGUF has no place for, where the runtime reads it in
	// the config itself. What comes out is no file that others would read right.
	ForRuntime bool
}

// MTP says which layers of a model with multi-token prediction are converted: all
// of them, all but those for the prediction (--no-mtp), or those only, with the
// embedding and the head (--mtp). The last two are for Qwen3.5.
type MTP string

// The values of Options.MTP.
const (
	MTPWith    MTP = ""
	MTPWithout MTP = "without"
	MTPOnly    MTP = "only"
)

// ToGGUF converts a model in Hugging Face form.
//
// Errors wrap model.ErrForm, model.ErrArchitecture, model.ErrConfig,
// model.ErrTensors, ErrMetadata, ErrOutType, ErrQuantized or the tokenizer's
// sentinels. Reading rows of the result can fail with a ValueError.
func ToGGUF(ctx context.Context, m *model.Model, opt Options) (*model.Model, error) {
	if m.Form != model.HF {
		return nil, fmt.Errorf("%w: %s is in %s form, conversion starts from Hugging Face form", model.ErrForm, m.Name, m.Form)
	}
	f, ok := model.FamilyOf(m.Config.Architecture())
	if !ok {
		return nil, model.UnknownArchitecture(m.Config)
	}
	if err := unsupported(ctx, m, f); err != nil {
		return nil, err
	}
	if err := quantized(m); err != nil {
		return nil, err
	}
	out, err := resolveOutType(opt.OutType, f, stored(m))
	if err != nil {
		return nil, err
	}
	if opt.WithoutTokenizer {
		return assemble(ctx, m, f, out, opt, nil)
	}
	vocab, notes, err := loadVocab(ctx, m)
	if err != nil {
		return nil, err
	}
	return assemble(ctx, m.WithNotes(notes...), f, out, opt, vocab)
}

// assemble is the conversion with the tokenizer at hand, or without one.
func assemble(ctx context.Context, m *model.Model, f model.Family, out outType, opt Options, vocab *tokenizer.Vocabulary) (*model.Model, error) {
	scratch := &buffers{}
	tokens := int64(-1)
	if vocab != nil {
		tokens = int64(len(vocab.Tokens))
	}
	d, err := m.Dims()
	if err != nil {
		return nil, err
	}
	w := &walker{d: d, cfg: m.Config, scratch: scratch, mtp: opt.MTP, runtime: opt.ForRuntime, first: int(d.Layers - d.NextN)}
	if opt.MTP != MTPWith {
		if d.NextN == 0 || f != model.Qwen35 {
			return nil, fmt.Errorf("%s: %w: mtp %s is for Qwen3.5 models that have such layers", m.Config.File(), model.ErrConfig, opt.MTP)
		}
		if opt.MTP == MTPWithout {
			d.Layers, d.NextN = d.Layers-d.NextN, 0
		}
	}
	items, notes, err := w.plan(m, tokens)
	if err != nil {
		return nil, err
	}
	nameTypes(items, m.Stored)
	g := &model.Model{Form: model.GGUF, Name: m.Name, Notes: m.Notes}
	if err := out.apply(g, items, opt, scratch); err != nil {
		return nil, err
	}
	more, err := metadata(ctx, g, m, d, vocab, out, opt)
	if err != nil {
		return nil, err
	}
	return g.WithNotes(append(notes, more...)...), nil
}

// plan lists the output's tensors in order. tokens is the size of the
// vocabulary, negative when it is not known.
func (w *walker) plan(m *model.Model, tokens int64) ([]item, []model.Note, error) {
	d := w.d
	if d.Layers > int64(len(m.Tensors)) {
		return nil, nil, fmt.Errorf("%w: %s has %d layers, the folder only %d tensors", model.ErrTensors, m.Config.File(), d.Layers, len(m.Tensors))
	}
	w.experts, w.seen = map[int]*expertSet{}, map[model.ID]string{}
	w.all(m.Tensors)
	if err := w.finish(); err != nil {
		return nil, nil, err
	}
	if d.Family == model.Llama {
		rope, err := ropeFreqs(m.Config, d)
		if err != nil {
			return nil, nil, err
		}
		if rope != nil {
			w.items = slices.Insert(w.items, 0, *rope)
		}
	}
	for i, it := range w.items {
		if it.id.Role != model.TokenEmbd || tokens < 0 {
			continue
		}
		rows := it.t.Shape[0]
		switch {
		case rows > tokens && d.Family == model.Gemma3:
			w.items[i].t = leading(it.t, tokens)
			w.items[i].note = fmt.Sprintf("rows %d to %d have no token and are cut", tokens, rows-1)
		case rows != tokens:
			return nil, nil, fmt.Errorf("%w: %s has %d rows, the tokenizer has %d tokens", model.ErrTensors, it.t.Name, rows, tokens)
		}
	}
	return w.items, w.notes, nil
}

// nameTypes puts the types of the checkpoint where those of dequantized tensors
// stand.
func nameTypes(items []item, tensors []*tensor.Tensor) {
	at := make(map[string]tensor.Type, len(tensors))
	for _, t := range tensors {
		at[t.Name] = t.Type
	}
	for i, it := range items {
		if typ, ok := at[it.source]; ok {
			items[i].from = typ
		}
	}
}

// apply gives the items their types.
func (o outType) apply(g *model.Model, items []item, opt Options, scratch *buffers) error {
	known := map[string]bool{}
	for _, it := range items {
		if isIDList(it.t) {
			g.Tensors = append(g.Tensors, it.t)
			g.Plan = append(g.Plan, model.PlanInfo{From: it.from, Reason: it.note})
			continue
		}
		name := it.id.GGUFName()
		known[name] = true
		to, why := o.typeOf(it.id, it.t.Shape)
		if it.note != "" {
			why += "; " + it.note
		}
		t, err := newCast(it.t, name, to, slices.Contains(opt.AllowNonFinite, name))
		if err != nil {
			return err
		}
		g.Tensors = append(g.Tensors, t)
		g.Plan = append(g.Plan, model.PlanInfo{From: it.from, Reason: why})
	}
	for _, name := range opt.AllowNonFinite {
		if !known[name] {
			return fmt.Errorf("%w: values of %s are to be let through, but there is no such tensor", model.ErrTensors, name)
		}
	}
	return nil
}

// metadata sets the keys: what it is, where it comes from, its sizes, its
// tokenizer.
func metadata(ctx context.Context, g, m *model.Model, d *model.Dims, vocab *tokenizer.Vocabulary, out outType, opt Options) ([]model.Note, error) {
	total, label := sizes(g.Tensors)
	gen, notes, err := loadGeneral(ctx, m, opt, total)
	if err != nil {
		return nil, err
	}
	if gen.sizeLabel == nil && total > 0 {
		gen.sizeLabel = label
	}
	g.Meta = gguf.NewMetadata()
	w := &paramWriter{kvWriter: kvWriter{meta: g.Meta}, c: m.Config, d: d, arch: string(d.Family), runtime: opt.ForRuntime}
	g.Meta.Set("general.architecture", gguf.Scalar(w.arch))
	g.Meta.Set("general.type", gguf.Scalar("model"))
	gen.write(&w.kvWriter)
	notes = append(notes, w.base(out.fileType)...)
	w.family(ctx, m)
	if !opt.ForRuntime {
		notes = append(notes, w.lost()...)
	}
	if w.err != nil {
		return nil, w.err
	}
	g.Meta.Set("general.quantization_version", gguf.Scalar(uint32(2)))
	if m.Pruned != nil && m.Pruned.HeadTied {
		g.Meta.Set(prune.KeyTied, gguf.Scalar(true))
	}
	if vocab == nil {
		return notes, nil
	}
	for _, kv := range vocab.Keys() {
		v, err := gguf.ValueOf(kv.Value)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", kv.Key, err)
		}
		g.Meta.Set(kv.Key, v)
	}
	return notes, nil
}

// sizes counts parameters and writes the label of their number. Experts count
// once, with their number in front.
func sizes(ts []*tensor.Tensor) (total int64, label string) {
	var shared, expert, sum, stacks int64
	for _, t := range ts {
		if isIDList(t) {
			continue // no weights
		}
		n, _ := t.Shape.Values()
		total += n
		if strings.Contains(t.Name, "_exps.") && len(t.Shape) >= 3 {
			count := t.Shape[len(t.Shape)-3]
			expert += n / count
			sum += count
			stacks++
			continue
		}
		shared += n
	}
	experts := int64(0)
	if stacks > 0 {
		experts = sum / stacks
	}
	return total, sizeLabelOf(total, shared, expert, experts)
}

// sizeLabelOf writes 8x7B for experts, 7B for dense models. expert is the number
// of parameters of one expert in all layers.
func sizeLabelOf(total, shared, expert, experts int64) string {
	if experts > 0 {
		return fmt.Sprintf("%dx%s", experts, sizeLabel(shared+expert))
	}
	return sizeLabel(total)
}
