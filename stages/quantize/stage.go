// Package quantize is the step that chooses a type for every tensor of a GGUF
// model: one type for all, or llama-quantize's mix under a preset's name, with
// rules of the recipe on top.
//
// A model in Hugging Face form is converted first, to F16 as
// convert_hf_to_gguf.py does unless the recipe says otherwise, so that the
// result is byte for byte that of the two tools in a row.
package quantize

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"quern/formats/gguf"
	"quern/model"
	"quern/model/convert"
	"quern/model/order"
	"quern/pipeline"
	"quern/recipes"
	"quern/tensor"
)

var (
	// ErrPreset marks a preset name that llama-quantize does not have.
	ErrPreset = errors.New("unknown preset")
	// ErrRows marks rows that do not divide into the blocks of the type asked
	// for, where no fallback is named.
	ErrRows = errors.New("rows do not divide into blocks")
	// ErrRequantize marks a source tensor that is quantized already.
	ErrRequantize = errors.New("source is quantized already")
	// ErrImatrix marks a type that needs an importance matrix.
	ErrImatrix = errors.New("an importance matrix is needed")
	// ErrRule marks a rule that no tensor meets.
	ErrRule = errors.New("rule matches no tensor that may be quantized")
)

// Stage is the step.
type Stage struct {
	p recipes.Quantize
	o Options

	tensorTypes []tensorType
	types       []tensor.Type // what a budget chooses from, nil for the ladder
	ft          ftype
	pure        bool
	strict      bool // no fallback but the recipe's
	fallback    tensor.Type
	output      tensor.Type
	embed       tensor.Type
	rules       []rule
	missing     tensor.Type // what tensors get that lack weights, Invalid for none
	blind       []string    // tensors that need weights and have none, in a dry run
}

// New checks the parameters of a quantize step.
func New(p recipes.Quantize) (*Stage, error) {
	s := &Stage{p: p, pure: p.Pure}
	missing := p.Missing
	if missing == "note" || missing == "error" {
		missing = ""
	}
	var err error
	if p.Type != "" {
		t, err := tensor.ParseType(p.Type)
		if err != nil {
			return nil, err
		}
		ft, ok := ftypeOfType(t)
		if !ok {
			return nil, fmt.Errorf("%s: no GGUF file type; a type that llama.cpp can load is needed here", t)
		}
		s.ft, s.pure, s.strict = ft, true, true
		s.ft.def = t
	} else if s.budgeted() {
		if err := s.newBudget(); err != nil {
			return nil, err
		}
	} else if s.ft, err = presetByName(p.Preset); err != nil {
		return nil, err
	}
	for _, o := range []struct {
		name string
		text string
		to   *tensor.Type
	}{{"fallback", p.Fallback, &s.fallback}, {"output-type", p.OutputType, &s.output}, {"embedding-type", p.EmbeddingType, &s.embed}, {"missing", missing, &s.missing}} {
		if o.text == "" {
			continue
		}
		if *o.to, err = tensor.ParseType(o.text); err != nil {
			return nil, fmt.Errorf("%s: %w", o.name, err)
		}
	}
	for _, r := range p.Rules {
		c := rule{role: r.Role, pos: r.Pos}
		if c.t, err = tensor.ParseType(r.Type); err != nil {
			return nil, fmt.Errorf("%s: %w", r.Pos, err)
		}
		if r.Match != "" {
			if c.re, err = regexp.Compile(r.Match); err != nil {
				return nil, fmt.Errorf("%s: match: %w", r.Pos, err)
			}
		}
		s.rules = append(s.rules, c)
	}
	return s, nil
}

// Name is the step's name.
func (s *Stage) Name() string { return "quantize" }

// Lossy marks the stage as one that changes values beyond a declared transform.
func (s *Stage) Lossy() {}

// intermediate is the outtype of the implied conversion. A float type is
// reached in one rounding from the source.
func (s *Stage) intermediate() string {
	switch {
	case s.o.Copy:
	case s.ft.def == tensor.F32, s.ft.def == tensor.BF16:
		return strings.ToLower(s.ft.def.String())
	}
	return "f16"
}

// Plan picks the types and links the casts, for a recipe without an importance
// matrix.
func (s *Stage) Plan(ctx context.Context, in *model.Model) (*model.Model, error) {
	return s.PlanWith(ctx, in, nil)
}

// PlanWith is Plan with the sources that the importance matrix is one of.
func (s *Stage) PlanWith(ctx context.Context, in *model.Model, sources []*pipeline.Source) (*model.Model, error) {
	s.blind = nil
	in, im, err := s.prepared(ctx, in, sources)
	if err != nil {
		return nil, err
	}
	layers := 0
	if s.o.Prune != nil {
		var old map[string]string
		if in, old, layers, err = s.prune(in); err != nil {
			return nil, err
		}
		im.rename(old)
	}
	order := s.visitOrder(in)
	picks, err := s.assign(in, order, im != nil)
	if err != nil {
		return nil, err
	}
	ft := s.ft
	if s.budgeted() {
		c, err := chosen(ctx, sources)
		if err != nil {
			return nil, err
		}
		if err := c.apply(in, order, picks); err != nil {
			return nil, err
		}
		ft = commonType(in, order, picks)
	}
	ts := make([]*tensor.Tensor, 0, len(order))
	infos := make([]model.PlanInfo, 0, len(order))
	for k, i := range order {
		t := in.Tensors[i].With(func(n *tensor.Tensor) { n.Shape = dropOnes(n.Shape) })
		info := in.Info(i)
		if p := picks[k]; p.to != tensor.Invalid {
			if p.to != t.Type {
				if p, err = s.weighed(im, t, p); err != nil {
					return nil, err
				}
			}
			if t, err = s.cast(t, p.to, im); err != nil {
				return nil, err
			}
			info.Reason = p.why
		} else if t, err = s.cast(t, t.Type, nil); err != nil {
			return nil, err
		}
		ts, infos = append(ts, t), append(infos, info)
	}
	meta, notes, err := s.metadata(in, ft)
	if err != nil {
		return nil, err
	}
	for _, kv := range s.o.Overrides {
		meta.Delete(kv.Key)
		meta.Append(kv.Key, kv.Value)
	}
	if im != nil {
		im.metadata(meta, s.p.ImatrixName)
		notes = append(notes, im.summary()...)
	}
	if layers > 0 {
		arch, err := meta.Text("general.architecture")
		if err != nil {
			return nil, pipeline.SourceFault(err)
		}
		meta.Delete(arch + ".block_count")
		meta.Append(arch+".block_count", gguf.Scalar(uint32(layers)))
	}
	if s.blind != nil {
		notes = append(notes, model.Note{Text: fmt.Sprintf("%d tensors need an importance matrix, such as %s: give one with --imatrix", len(s.blind), s.blind[0])})
	}
	return in.WithMeta(meta).WithPlan(ts, infos).WithNotes(notes...), nil
}

// prepared gives the model in GGUF form and the importance matrix laid against
// it, nil without one.
func (s *Stage) prepared(ctx context.Context, in *model.Model, sources []*pipeline.Source) (*model.Model, *importance, error) {
	var im *importance
	var err error
	if s.p.Imatrix != "" {
		if im, err = readImportance(ctx, s.p, sources); err != nil {
			return nil, nil, err
		}
		if !im.choose(s.p) {
			im = nil
		}
	}
	if in.Form == model.HF {
		g, err := convert.ToGGUF(ctx, in, convert.Options{OutType: s.intermediate()})
		if err != nil {
			return nil, nil, pipeline.SourceFault(err)
		}
		in = g
	}
	if in.Form == model.Needle || in.Form == model.Cact {
		return nil, nil, fmt.Errorf("%w: the model is in %s form, which has types of its own: CQ4, CQ3, CQ2, CQ1.58 and CQ1, or bits", model.ErrForm, in.Form)
	}
	if in.Form != model.GGUF {
		return nil, nil, fmt.Errorf("a %s model cannot be quantized again; start from its source", in.Form)
	}
	if im != nil {
		if in.Meta.Has(order.KeyFrom) {
			return nil, nil, fmt.Errorf("%w: experts of the model were ordered by use, those of the matrix were not; put reorder behind quantize", ErrImatrixFit)
		}
		if err := im.lay(in, s.p); err != nil {
			return nil, nil, err
		}
	}
	return in, im, nil
}

// pick is the decision for one tensor; an invalid type leaves it as it is.
type pick struct {
	to  tensor.Type
	why string
	// fixed is set where the recipe names the type for this very tensor.
	fixed bool
}

// assign decides every tensor, in the order given. The decision for one depends
// on those before it.
func (s *Stage) assign(in *model.Model, order []int, imatrix bool) ([]pick, error) {
	m, err := mixModelOf(in)
	if err != nil {
		return nil, pipeline.SourceFault(err)
	}
	m.imatrix = imatrix
	x := &mixer{ft: s.ft, m: m}
	used := make([]bool, len(s.rules))
	picks := make([]pick, len(order))
	for k, i := range order {
		t := in.Tensors[i]
		if s.o.Copy || s.p.LeaveOutput && t.Name == "output.weight" || !quantizable(t.Name, len(dropOnes(t.Shape))) {
			continue
		}
		p, err := s.choose(x, in, t, used)
		if err != nil {
			return nil, err
		}
		picks[k] = p
	}
	for i, u := range used {
		if !u {
			return nil, fmt.Errorf("%s: %w: %s; names are those of the GGUF file, such as blk.0.ffn_down.weight, and norms are never quantized",
				s.rules[i].pos, ErrRule, s.rules[i])
		}
	}
	return picks, nil
}

// needsImatrix is llama-quantize's list of types that it does not make blindly.
func (s *Stage) needsImatrix(name string, to tensor.Type) bool {
	if c := categoryOf(name); c == catOutput || c == catEmbedding {
		return false
	}
	switch to {
	case tensor.IQ1_S, tensor.IQ1_M, tensor.IQ2_XXS, tensor.IQ2_XS, tensor.IQ2_S, tensor.IQ3_XXS:
		return true
	}
	return to == tensor.Q2_K && s.ft.name == "Q2_K_S"
}

// choose gives the type of one tensor that may be quantized.
func (s *Stage) choose(x *mixer, in *model.Model, t *tensor.Tensor, used []bool) (pick, error) {
	row := t.Shape.RowLen()
	first := s.firstRule(in, t.Name, used)
	named, isNamed, err := s.tensorTypeOf(t.Name)
	if err != nil {
		return pick{}, err
	}
	switch {
	case s.embed != tensor.Invalid && categoryOf(t.Name) == catEmbedding && (t.Name == "token_embd.weight" || first < 0 && !isNamed):
		return pick{s.embed, "embedding-type", true}, nil
	case s.output != tensor.Invalid && t.Name == "output.weight":
		return pick{s.output, "output-type", true}, nil
	}
	to, why := s.ft.def, "type "+s.ft.def.String()
	if !s.strict {
		why = "preset " + s.ft.name
	}
	switch {
	case first >= 0:
		to, why = s.rules[first].t, "rule "+s.rules[first].String()
	case isNamed && isQuantized(s.ft.def):
		to, why = named.t, "tensor-type "+named.pattern
	case s.pure || !isQuantized(s.ft.def):
		// One type for everything.
	default:
		experts := int64(1)
		if len(t.Shape) > 2 {
			experts = t.Shape[len(t.Shape)-3]
		}
		// With no head of its own the embedding is the head, and then
		// output-type is meant for it.
		if s.output != tensor.Invalid && !x.m.hasOutput && categoryOf(t.Name) == catEmbedding {
			return pick{s.output, "output-type, tied head", true}, nil
		}
		to, why = x.pick(t.Name, row, experts)
	}
	to, why, err = s.fit(t, to, why)
	return pick{to, why, first >= 0 || isNamed}, err
}

func isQuantized(t tensor.Type) bool { return t.IsBlock() }

// fit replaces a type whose blocks do not divide the rows.
func (s *Stage) fit(t *tensor.Tensor, to tensor.Type, why string) (tensor.Type, string, error) {
	row := t.Shape.RowLen()
	if row%to.BlockValues() == 0 {
		return to, why, nil
	}
	if s.fallback != tensor.Invalid {
		if row%s.fallback.BlockValues() != 0 {
			return 0, "", fmt.Errorf("tensor %s: %w: rows of %d values fit neither %s (blocks of %d) nor the fallback %s (blocks of %d); fallback: F16 always fits",
				t.Name, ErrRows, row, to, to.BlockValues(), s.fallback, s.fallback.BlockValues())
		}
		return s.fallback, fmt.Sprintf("fallback: rows of %d do not divide into %s blocks of %d", row, to, to.BlockValues()), nil
	}
	if s.strict {
		return 0, "", s.rowsError(t, to)
	}
	f, ok := fallback(to, row)
	if !ok {
		return 0, "", s.rowsError(t, to)
	}
	return f, fmt.Sprintf("%s; rows of %d do not divide into %s blocks of %d", why, row, to, to.BlockValues()), nil
}

func (s *Stage) rowsError(t *tensor.Tensor, to tensor.Type) error {
	row, block := t.Shape.RowLen(), to.BlockValues()
	padded := (row + block - 1) / block * block
	hint := ""
	if id, ok := model.GGUFID(t.Name); ok {
		switch id.Role {
		case model.FFNDown, model.FFNDownExps:
			hint = fmt.Sprintf("pad the feed-forward width to %d (step pad: {ffn: %d}), ", padded, block)
		}
	}
	return fmt.Errorf("tensor %s: %w: its rows have %d values and a block of %s has %d; %sset fallback: F16, or give it a type with a rule",
		t.Name, ErrRows, row, to, block, hint)
}

func mixModelOf(in *model.Model) (mixModel, error) {
	var m mixModel
	var err error
	if m.arch, err = in.Meta.Text("general.architecture"); err != nil {
		return m, err
	}
	get := func(key string) int {
		v, ok := in.Meta.Get(m.arch + "." + key)
		if !ok {
			return 0
		}
		if n, err := gguf.AsInt[int32](v); err == nil {
			return int(n)
		}
		// Head counts by layer: the first layer's counts.
		if list, err := gguf.AsInts[int32](v); err == nil && len(list) > 0 {
			return int(list[0])
		}
		return 0
	}
	m.layers = get("block_count")
	m.heads = get("attention.head_count")
	m.kvHeads = m.heads
	if in.Meta.Has(m.arch + ".attention.head_count_kv") {
		m.kvHeads = get("attention.head_count_kv")
	}
	m.experts = get("expert_count")
	for _, t := range in.Tensors {
		if t.Name == "output.weight" {
			m.hasOutput = true
		}
		if categoryOf(t.Name) == catAttnV {
			m.attnV++
		}
	}
	return m, nil
}

// metadata is that of the input with llama-quantize's changes.
func (s *Stage) metadata(in *model.Model, ft ftype) (*gguf.Metadata, []model.Note, error) {
	id := ft.id
	if s.o.Copy {
		var err error
		if id, err = copiedType(in); err != nil {
			return nil, nil, pipeline.SourceFault(fmt.Errorf("general.file_type: %w", err))
		}
	}
	out := in.Meta.Clone()
	var notes []model.Note
	for _, key := range []string{"general.quantization_version", "general.file_type", "split.no", "split.count", "split.tensors.count"} {
		out.Delete(key)
	}
	if v, ok := out.Get(gguf.KeyAlignment); ok {
		if n, err := gguf.AsInt[int64](v); err != nil || n != gguf.DefaultAlignment {
			out.Delete(gguf.KeyAlignment)
			notes = append(notes, model.Note{Subject: gguf.KeyAlignment, Text: fmt.Sprintf("dropped: the file is laid out with the default of %d", gguf.DefaultAlignment)})
		}
	}
	out.Append("general.quantization_version", gguf.Scalar(uint32(2)))
	out.Append("general.file_type", gguf.Scalar(id))
	return out, notes, nil
}
