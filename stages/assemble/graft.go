package assemble

import (
	"context"
	"fmt"
	"reflect"
	"regexp"
	"strings"

	"quern/formats/gguf"
	"quern/model"
	"quern/model/convert"
	"quern/pipeline"
	"quern/recipes"
	"quern/tensor"
	"quern/tensor/view"
)

// GraftStage is the step that puts the layers for multi-token prediction of a
// checkpoint onto a model:
//
//	mtp.fc.weight                     blk.N.nextn.eh_proj.weight
//	mtp.pre_fc_norm_embedding.weight  blk.N.nextn.enorm.weight
//	mtp.pre_fc_norm_hidden.weight     blk.N.nextn.hnorm.weight
//	mtp.norm.weight                   blk.N.nextn.shared_head_norm.weight
//	mtp.layers.K.*                    blk.N+K.* as in the other layers
//
// N is the number of layers that the model had. They go behind all other tensors, as
// convert_hf_to_gguf.py writes them, and ARCH.block_count and
// ARCH.nextn_predict_layers count them.
type GraftStage struct {
	p     recipes.Graft
	typ   tensor.Type
	allow []*regexp.Regexp
}

// NewGraft makes the step.
func NewGraft(p recipes.Graft) (*GraftStage, error) {
	s := &GraftStage{p: p}
	var err error
	if s.typ, err = tensor.ParseType(p.Type); err != nil {
		return nil, err
	}
	s.allow, err = patterns(p.Allow)
	return s, err
}

// Name is the step's name.
func (s *GraftStage) Name() string { return "graft" }

// Plan fails: the step needs its source.
func (s *GraftStage) Plan(context.Context, *model.Model) (*model.Model, error) {
	return nil, fmt.Errorf("%w: planned without sources", ErrAssemble)
}

// outType is the float type that the checkpoint is brought into first: that of a
// conversion for quantizing, or the one that is asked for.
func (s *GraftStage) outType() string {
	switch s.typ {
	case tensor.F32:
		return "f32"
	case tensor.BF16:
		return "bf16"
	}
	return "f16"
}

// PlanWith takes the layers.
func (s *GraftStage) PlanWith(ctx context.Context, in *model.Model, sources []*pipeline.Source) (*model.Model, error) {
	base, err := inGGUF(ctx, in)
	if err != nil {
		return nil, err
	}
	src, err := pipeline.FindModel(sources, s.p.From)
	if err != nil {
		return nil, err
	}
	if src.Model.Form != model.HF {
		return nil, fmt.Errorf("%w: source %s is in %s form; layers are grafted from checkpoints in Hugging Face form, and assemble takes tensors of GGUF files", pipeline.ErrRecipe, s.p.From, src.Model.Form)
	}
	from, err := convert.ToGGUF(ctx, src.Model, convert.Options{OutType: s.outType(), MTP: convert.MTPOnly})
	if err != nil {
		return nil, pipeline.SourceFault(fmt.Errorf("source %s: %w", s.p.From, err))
	}
	g := &graft{assembly: assembly{base: base, name: "the model", allow: s.allow}, from: take{name: s.p.From, m: from}, typ: s.typ}
	return g.plan()
}

type graft struct {
	assembly
	from  take
	typ   tensor.Type
	arch  string
	first int64 // the number of layers that the model has
	more  int64
}

func (g *graft) plan() (*model.Model, error) {
	meta, err := g.counts()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", pipeline.ErrRecipe, err)
	}
	g.compare(&g.from)
	g.sameRows()
	tensors := append([]*tensor.Tensor(nil), g.base.Tensors...)
	var infos []model.PlanInfo
	for i := range tensors {
		infos = append(infos, g.base.Info(i))
	}
	n := 0
	for i, t := range g.from.m.Tensors {
		if n, _, ok := model.Block(t.Name); !ok || int64(n) < g.first {
			continue
		}
		if g.base.Tensor(t.Name) != nil {
			g.faultf("tensor %s is there already", t.Name)
			continue
		}
		info := g.from.m.Info(i)
		info.Reason = "from " + g.from.name
		if len(t.Shape) > 1 && t.Type != g.typ {
			if t, err = view.Cast(t, g.typ, view.CastOptions{}); err != nil {
				g.faultf("%v", err)
				continue
			}
		}
		tensors, infos = append(tensors, t), append(infos, info)
		n++
	}
	if n == 0 && len(g.faults) == 0 {
		g.faultf("%s has no tensor of a layer from %d on", g.from.name, g.first)
	}
	if len(g.faults) > 0 {
		return nil, g.fault()
	}
	g.notes = append(g.notes, model.Note{Text: fmt.Sprintf("%d tensors of %d layers for multi-token prediction come from %s", n, g.more, g.from.name)})
	return g.base.WithPlan(tensors, infos).WithMeta(meta).WithNotes(g.notes...), nil
}

// counts gives the metadata with the new number of layers.
func (g *graft) counts() (*gguf.Metadata, error) {
	var err error
	if g.arch, err = g.base.Meta.Text("general.architecture"); err != nil {
		return nil, err
	}
	blocks, nextn := g.arch+".block_count", g.arch+".nextn_predict_layers"
	g.own = map[string]bool{blocks: true, nextn: true}
	if g.first, err = g.base.Meta.Int64(blocks); err != nil {
		return nil, err
	}
	if n, err := g.base.Meta.Int64(nextn); err == nil && n > 0 {
		return nil, fmt.Errorf("%w: the model has %d layers for multi-token prediction already", ErrAssemble, n)
	}
	if was, _ := g.from.m.Meta.Text("general.architecture"); was != g.arch {
		return nil, fmt.Errorf("%w: the model is of architecture %q, %s of %q", ErrAssemble, g.arch, g.from.name, was)
	}
	all, err := g.from.m.Meta.Int64(blocks)
	if err != nil {
		return nil, err
	}
	if g.more, err = g.from.m.Meta.Int64(nextn); err != nil {
		return nil, err
	}
	if all-g.more != g.first {
		return nil, fmt.Errorf("%w: the model has %d layers, %s has %d and %d for multi-token prediction", ErrAssemble, g.first, g.from.name, all-g.more, g.more)
	}
	// The new key stands where a conversion puts it.
	meta := &gguf.Metadata{}
	before := predecessor(g.from.m.Meta, nextn)
	for key, v := range g.base.Meta.All() {
		switch w, _ := g.from.m.Meta.Get(key); {
		case key == nextn:
			continue
		case key == blocks:
			v = gguf.Scalar(uint32(all))
		case strings.HasPrefix(key, g.arch+".") && g.perLayer(v, w, all):
			v = w
			g.own[key] = true
		}
		meta.Set(key, v)
		if key == before {
			meta.Set(nextn, gguf.Scalar(uint32(g.more)))
		}
	}
	meta.Set(nextn, gguf.Scalar(uint32(g.more)))
	return meta, nil
}

// perLayer reports whether a value is a list with an item for each layer that goes
// on in the other model as it is in this one.
func (g *graft) perLayer(v, w gguf.Value, all int64) bool {
	if !v.IsArray() || !w.IsArray() || v.Elem() != w.Elem() || int64(v.Len()) != g.first || int64(w.Len()) != all {
		return false
	}
	start := reflect.ValueOf(w.Any()).Slice(0, v.Len()).Interface()
	return reflect.DeepEqual(start, v.Any())
}

// predecessor is the key before another one.
func predecessor(m *gguf.Metadata, key string) string {
	last := ""
	for k := range m.All() {
		if k == key {
			break
		}
		last = k
	}
	return last
}

// sameRows holds what both models have against one another: the embedding, and the
// head, which the prediction uses too.
func (g *graft) sameRows() {
	for _, name := range []string{"token_embd.weight", "output_norm.weight"} {
		a, b := g.base.Tensor(name), g.from.m.Tensor(name)
		if a != nil && b != nil && !a.Shape.Equal(b.Shape) {
			g.faultf("tensor %s is %v in %s and %v in %s", name, a.Shape, g.name, b.Shape, g.from.name)
		}
	}
}
