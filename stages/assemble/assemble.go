// Package assemble is the step that makes one model out of the tensors of several
// published ones.
package assemble

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"quern/model"
	"quern/model/convert"
	"quern/model/prune"
	"quern/pipeline"
	"quern/recipes"
	"quern/tensor"
)

// ErrAssemble marks models whose tensors do not go together.
var ErrAssemble = errors.New("models do not go together")

// Stage is the step. Tensors keep their keys, since no byte of them changes.
type Stage struct {
	p     recipes.Assemble
	match []*regexp.Regexp // of each item of p.Take
	allow []*regexp.Regexp
}

// New makes the step.
func New(p recipes.Assemble) (*Stage, error) {
	s := &Stage{p: p}
	for _, t := range p.Take {
		re, err := regexp.Compile(t.Match)
		if err != nil {
			return nil, err
		}
		s.match = append(s.match, re)
	}
	var err error
	s.allow, err = patterns(p.Allow)
	return s, err
}

func patterns(list []string) ([]*regexp.Regexp, error) {
	var out []*regexp.Regexp
	for _, p := range list {
		re, err := regexp.Compile(p)
		if err != nil {
			return nil, err
		}
		out = append(out, re)
	}
	return out, nil
}

// Name is the step's name.
func (s *Stage) Name() string { return "assemble" }

// Start is the source that the model starts from, empty for the model so far.
func (s *Stage) Start() string { return s.p.Base }

// Plan fails: the step needs its sources.
func (s *Stage) Plan(context.Context, *model.Model) (*model.Model, error) {
	return nil, fmt.Errorf("%w: planned without sources", ErrAssemble)
}

// PlanWith takes the tensors. A source that is in Hugging Face form is converted as
// with outtype f16 first.
func (s *Stage) PlanWith(ctx context.Context, in *model.Model, sources []*pipeline.Source) (*model.Model, error) {
	base, err := inGGUF(ctx, in)
	if err != nil {
		return nil, err
	}
	name := s.p.Base
	if name == "" {
		name = "the model so far"
	}
	a := &assembly{base: base, name: name, allow: s.allow, taken: map[string]int{}}
	converted := map[string]*model.Model{} // several items may take from one source
	for i, t := range s.p.Take {
		from := converted[t.From]
		if from == nil {
			src, err := pipeline.FindModel(sources, t.From)
			if err != nil {
				return nil, err
			}
			if from, err = inGGUF(ctx, src.Model); err != nil {
				return nil, fmt.Errorf("source %s: %w", t.From, err)
			}
			converted[t.From] = from
		}
		a.takes = append(a.takes, take{name: t.From, m: from, match: s.match[i], pattern: t.Match, add: t.Add})
	}
	return a.plan()
}

func inGGUF(ctx context.Context, in *model.Model) (*model.Model, error) {
	if in.Form == model.HF {
		g, err := convert.ToGGUF(ctx, in, convert.Options{OutType: "f16"})
		return g, pipeline.SourceFault(err)
	}
	if in.Form != model.GGUF {
		return nil, fmt.Errorf("%w: a %s model is not put together with others", model.ErrForm, in.Form)
	}
	return in, nil
}

// take is an item of the step with its model.
type take struct {
	name    string // of the source
	m       *model.Model
	match   *regexp.Regexp
	pattern string
	add     bool
	used    int
}

type assembly struct {
	base  *model.Model
	name  string
	allow []*regexp.Regexp
	own   map[string]bool // keys that the step changes itself
	takes []take
	taken map[string]int // tensors by the take that they come from

	tensors []*tensor.Tensor
	infos   []model.PlanInfo
	notes   []model.Note
	faults  []string
}

func (a *assembly) faultf(format string, args ...any) {
	a.faults = append(a.faults, fmt.Sprintf(format, args...))
}

// mostFaults is how many differences a message lists.
const mostFaults = 20

func (a *assembly) plan() (*model.Model, error) {
	seen := map[string]bool{}
	for i := range a.takes {
		if t := &a.takes[i]; !seen[t.name] {
			seen[t.name] = true
			a.compare(t)
		}
	}
	mixed := a.replace()
	a.extend()
	a.pairs()
	for i, t := range a.takes {
		if t.used > 0 {
			a.notes = append(a.notes, model.Note{Text: fmt.Sprintf("%d tensors come from %s", t.used, t.name)})
			continue
		}
		a.faultf("take %d: no tensor of %s that an item before has not taken matches %q", i+1, a.name, t.pattern)
	}
	if len(a.faults) > 0 {
		return nil, a.fault()
	}
	out := a.base.WithPlan(a.tensors, a.infos)
	if mixed && a.base.Meta.Has(keyFileType) {
		// It is no file of that type any more; readers tell by the tensors.
		meta := a.base.Meta.Clone()
		meta.Delete(keyFileType)
		out = out.WithMeta(meta)
	}
	return out.WithNotes(a.notes...), nil
}

// fault lists what does not go together.
func (a *assembly) fault() error {
	n := len(a.faults)
	more := ""
	if n > mostFaults {
		more = fmt.Sprintf("\n  and %d more", n-mostFaults)
	}
	return fmt.Errorf("%w: %w:\n  %s%s", pipeline.ErrRecipe, ErrAssemble, strings.Join(a.faults[:min(n, mostFaults)], "\n  "), more)
}

// replace walks the base's tensors in order, and reports whether one changes its
// type.
func (a *assembly) replace() (mixed bool) {
	for i, t := range a.base.Tensors {
		info := a.base.Info(i)
		for k := range a.takes {
			x := &a.takes[k]
			if !x.match.MatchString(t.Name) {
				continue
			}
			x.used++
			other := x.m.Tensor(t.Name)
			switch {
			case other == nil:
				a.faultf("%s has no tensor %s", x.name, t.Name)
			case !other.Shape.Equal(t.Shape):
				a.faultf("tensor %s is %v in %s and %v in %s", t.Name, t.Shape, a.name, other.Shape, x.name)
			default:
				mixed = mixed || other.Type != t.Type
				t, info = other, model.PlanInfo{From: other.Type, Reason: "from " + x.name}
				a.taken[t.Name] = k + 1
			}
			break
		}
		a.tensors = append(a.tensors, t)
		a.infos = append(a.infos, info)
	}
	return mixed
}

// extend adds tensors that match and that the base has not got.
func (a *assembly) extend() {
	for k := range a.takes {
		x := &a.takes[k]
		for _, t := range x.m.Tensors {
			if !x.match.MatchString(t.Name) || a.base.Tensor(t.Name) != nil || a.taken[t.Name] != 0 {
				continue
			}
			if !x.add {
				a.faultf("%s has a tensor %s that matches and %s has not; add: true takes it", x.name, t.Name, a.name)
				continue
			}
			x.used++
			a.taken[t.Name] = k + 1
			a.tensors = append(a.tensors, t)
			a.infos = append(a.infos, model.PlanInfo{From: t.Type, Reason: "from " + x.name})
		}
	}
}

// pairs makes sure that the rows of a reduced head and the ids that they stand for
// come from one file.
func (a *assembly) pairs() {
	const head, ids = "output.weight", prune.OutputIDs
	if a.taken[head] == a.taken[ids] {
		return
	}
	for _, m := range append([]take{{m: a.base}}, a.takes...) {
		if m.m.Tensor(ids) != nil {
			a.faultf("%s and %s are of different sources; the rows of the one are those that the other names", head, ids)
			return
		}
	}
}
