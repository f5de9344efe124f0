package recipes

import (
	"fmt"
	"slices"
	"strings"
)

// checkSource looks at one source as a whole.
func checkSource(c *checker, v any, n *node, path string) {
	s := v.(*sourceFields)
	if s.Path != "" && s.HF == "" {
		c.errorf(n.get("path").pos, join(path, "path"), "goes with hf; the other kinds name their file themselves")
	}
	if s.SHA256 != "" && s.File == "" && s.GGUF == "" && s.URL == "" {
		c.errorf(n.get("sha256").pos, join(path, "sha256"), "goes with file, gguf or url; folders and repositories are pinned by the lock file")
	}
}

func checkQuantize(c *checker, v any, n *node, path string) {
	q := v.(*Quantize)
	if q.Bits != "" || strings.HasPrefix(q.Type, "CQ") {
		checkCQ(c, q, n, path)
		return
	}
	for _, key := range []string{"group", "codebook"} {
		if x := n.get(key); x != nil {
			c.errorf(x.pos, join(path, key), "is unused: it goes with bits or a CQ type")
		}
	}
	if q.Pure && q.Preset == "" {
		c.errorf(n.get("pure").pos, join(path, "pure"), "goes with preset; type alone is pure already")
	}
	if q.Imatrix == "" {
		for _, key := range []string{"imatrix-name", "missing", "max-unseen-experts", "include-weights", "exclude-weights"} {
			if x := n.get(key); x != nil {
				c.errorf(x.pos, join(path, key), "is unused: it goes with imatrix")
			}
		}
	}
	if q.Types != nil && q.Budget == 0 && q.BitsPerWeight == 0 {
		c.errorf(n.get("types").pos, join(path, "types"), "is unused: it goes with budget or bits-per-weight")
	}
	if q.IncludeWeights != nil && q.ExcludeWeights != nil {
		c.errorf(n.get("exclude-weights").pos, join(path, "exclude-weights"), "include-weights and exclude-weights exclude each other; write one of them")
	}
	if q.LeaveOutput && q.OutputType != "" {
		c.errorf(n.get("output-type").pos, join(path, "output-type"), "is unused: leave-output keeps the type that the head has")
	}
	if q.Fallback != "" && q.Type == "" && len(q.Rules) == 0 {
		c.errorf(n.get("fallback").pos, join(path, "fallback"), "is unused: a preset has fallbacks of its own; it goes with type or rules")
	}
}

func checkReorder(c *checker, v any, n *node, path string) {
	r := v.(*Reorder)
	if r.By != "" && r.Experts == "restore" {
		c.errorf(n.get("by").pos, join(path, "by"), "is unused: it goes with last")
	}
	switch {
	case r.Align == 0:
	case r.Experts == "restore":
		c.errorf(n.get("align").pos, join(path, "align"), "is unused: it goes with last")
	case r.Align&(r.Align-1) != 0:
		c.errorf(n.get("align").pos, join(path, "align"), "must be a power of two, not %d", r.Align)
	}
}

func checkCodebook(c *checker, v any, n *node, path string) {
	if g := v.(*Codebook).Group; g&(g-1) != 0 {
		c.errorf(n.get("group").pos, join(path, "group"), "must be 32, 64, 128 or 256, not %d", g)
	}
}

// checkCQ finds keys that the codebook quantization of Needle checkpoints has no use
// for.
func checkCQ(c *checker, q *Quantize, n *node, path string) {
	if q.Group&(q.Group-1) != 0 {
		c.errorf(n.get("group").pos, join(path, "group"), "must be 32, 64, 128 or 256, not %d", q.Group)
	}
	for _, m := range n.members {
		switch m.key {
		case "type", "bits", "group", "codebook", "id":
		default:
			c.errorf(m.pos, join(path, m.key), "is unused: it does not go with bits or a CQ type")
		}
	}
}

// checkRecipe looks at what the parts say of one another.
func (c *checker) checkRecipe(r *Recipe, n *node) {
	c.checkOutputs(r.Outputs)
	c.checkGates(r)
	c.checkRefs(r, n)
	c.checkConvert(r)
}

// checkRefs resolves names, and finds sources and ids that nothing names.
func (c *checker) checkRefs(r *Recipe, n *node) {
	sources := map[string]bool{}
	for _, s := range r.Sources {
		sources[s.Name] = true
	}
	ids := map[string]int{}
	for _, s := range r.Steps {
		if s.ID == "" {
			continue
		}
		path := fmt.Sprintf("steps.%d.%s.id", s.index, s.Kind)
		if _, dup := ids[s.ID]; dup {
			c.errorf(s.IDPos, path, "a step before has the id %s", s.ID)
			continue
		}
		if sources[s.ID] {
			c.errorf(s.IDPos, path, "a source has the name %s", s.ID)
			continue
		}
		ids[s.ID] = s.index
	}
	used := map[string]bool{BaseSource: true, TokenizerSource: true}
	for _, ref := range c.refs {
		if sources[ref.name] {
			used[ref.name] = true
			continue
		}
		at, isID := ids[ref.name]
		if ref.kind == kindResult && isID {
			if ref.step >= 0 && at >= ref.step {
				c.errorf(ref.pos, ref.path, "the step with the id %s comes later", ref.name)
			}
			continue
		}
		if isID {
			c.errorf(ref.pos, ref.path, "%s is the id of a step; a source is needed", ref.name)
			continue
		}
		var known []string
		for _, s := range r.Sources {
			known = append(known, s.Name)
		}
		if ref.kind == kindResult {
			for _, s := range r.Steps {
				if s.ID != "" {
					known = append(known, s.ID)
				}
			}
		}
		c.errorf(ref.pos, ref.path, "nothing has the name %s%s", quote(ref.name), suggest(ref.name, known))
	}
	base := sources[BaseSource]
	for _, s := range r.Sources {
		if used[s.Name] {
			continue
		}
		hint := ""
		if near := nearest(s.Name, []string{BaseSource, TokenizerSource}); near != "" && !sources[near] {
			hint = "; did you mean " + near + "?"
			base = base || near == BaseSource
		}
		c.errorf(s.Pos, join("sources", s.Name), "unused source: no step or gate names it%s", hint)
	}
	makes := slices.ContainsFunc(r.Steps, func(s Step) bool { return find(c.lang.steps, s.Kind).makesModel })
	if x := n.get("sources"); !base && !makes && x != nil && len(x.members) > 0 {
		c.errorf(x.pos, "sources", "no source is called base, which the steps start from")
	}
}

// checkConvert finds convert steps and outtypes that could change nothing.
func (c *checker) checkConvert(r *Recipe) {
	gguf := "" // why the model is in GGUF form already
	if s := r.Source(BaseSource); s != nil && s.Kind == SourceGGUF {
		gguf = "the base is a GGUF file"
	}
	for _, s := range r.Steps {
		switch s.Kind {
		case "convert":
			if gguf != "" {
				c.errorf(s.Pos, fmt.Sprintf("steps.%d.convert", s.index), "is unused: %s", gguf)
			}
			gguf = "a convert step came before"
		case "quantize", "reorder", "assemble", "graft":
			if gguf == "" {
				article := "a"
				if s.Kind == "assemble" {
					article = "an"
				}
				gguf = fmt.Sprintf("%s %s step came before, which implies one; put convert in front of it", article, s.Kind)
			}
		}
	}
	for i, o := range r.Outputs {
		if o.OutType != "" && gguf != "" {
			c.errorf(o.Pos, fmt.Sprintf("outputs.%d.outtype", i), "is unused: %s", gguf)
		}
	}
}
