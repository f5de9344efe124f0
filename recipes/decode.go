package recipes

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// checker collects the faults of one recipe while it is decoded.
type checker struct {
	lang *language
	errs Errors
	refs []ref
	step int // index of the step being decoded, -1 outside of steps
}

// ref is a use of a source's name or a step's id.
type ref struct {
	pos  Pos
	path string
	name string
	kind valueKind
	step int // of the step that holds it, or -1
}

func (c *checker) errorf(pos Pos, path, format string, args ...any) {
	// Paths hold keys as they were written.
	if len(path) > 300 || strings.ContainsFunc(path, func(r rune) bool { return !unicode.IsGraphic(r) }) {
		path = quote(path)
	}
	c.errs = append(c.errs, &Error{Pos: pos, Path: path, Msg: fmt.Sprintf(format, args...)})
}

var posType = reflect.TypeFor[Pos]()

// object decodes a mapping into obj's struct and returns a pointer to it, or
// nil when n is no mapping at all. Nothing is taken for an empty mapping.
func (c *checker) object(n *node, path string, obj *object) any {
	if n.bad {
		return nil
	}
	if n.kind != mapping && !n.isNull() {
		c.errorf(n.pos, path, "must be a mapping with keys such as %s, not %s", obj.fields[0].key, n.what())
		return nil
	}
	v := obj.new()
	s := reflect.ValueOf(v).Elem()
	if p := s.FieldByName("Pos"); p.IsValid() && p.Type() == posType {
		p.Set(reflect.ValueOf(n.pos))
	}
	before := len(c.errs)
	for _, m := range n.members {
		f := obj.field(m.key)
		if f == nil {
			c.errorf(m.pos, join(path, m.key), "unknown key%s", suggest(m.key, obj.keys()))
			continue
		}
		if f.goName == "" {
			continue // decoded by the caller
		}
		c.value(m.val, join(path, m.key), f, s.FieldByName(f.goName))
		if p := s.FieldByName(f.goName + "Pos"); p.IsValid() && p.Type() == posType {
			p.Set(reflect.ValueOf(m.val.pos))
		}
	}
	c.groups(n, path, obj)
	for i := range obj.fields {
		f := &obj.fields[i]
		if n.get(f.key) != nil {
			continue
		}
		if f.required {
			if !misspelt(n, obj, []string{f.key}) {
				c.errorf(n.pos, path, "the key %s is missing", f.key)
			}
		} else if f.def != "" {
			c.value(f.defaultNode(), join(path, f.key), f, s.FieldByName(f.goName))
		}
	}
	// A struct with faults of its own has been spoken of enough.
	if obj.check != nil && len(c.errs) == before {
		obj.check(c, v, n, path)
	}
	return v
}

func (f *field) defaultNode() *node {
	tag := "!!str"
	switch f.kind {
	case kindBool:
		tag = "!!bool"
	case kindInt, kindSize, kindNumber:
		tag = "!!int"
	}
	return &node{kind: scalar, tag: tag, text: f.def}
}

// groups checks keys that exclude or need one another.
func (c *checker) groups(n *node, path string, obj *object) {
	for _, group := range obj.oneOf {
		var have []string
		var second Pos
		for _, m := range n.members {
			if slices.Contains(group, m.key) {
				if len(have) == 1 {
					second = m.pos
				}
				have = append(have, m.key)
			}
		}
		switch {
		case len(have) == 0 && !misspelt(n, obj, group):
			c.errorf(n.pos, path, "exactly one of %s is needed", list2(group))
		case len(have) > 1:
			c.errorf(second, path, "%s exclude each other; write one of them", list2(have))
		}
	}
	for _, group := range obj.anyOf {
		if !slices.ContainsFunc(n.members, func(m member) bool { return slices.Contains(group, m.key) }) && !misspelt(n, obj, group) {
			c.errorf(n.pos, path, "at least one of %s is needed", list2(group))
		}
	}
}

// misspelt reports whether an unknown key is probably one of the group, so
// that one slip gives one error.
func misspelt(n *node, obj *object, group []string) bool {
	for _, m := range n.members {
		if obj.field(m.key) == nil && slices.Contains(group, nearest(m.key, obj.keys())) {
			return true
		}
	}
	return false
}

// list2 writes "a, b and c".
func list2(words []string) string {
	s := ""
	for i, w := range words {
		switch {
		case i == 0:
		case i == len(words)-1:
			s += " and "
		default:
			s += ", "
		}
		s += w
	}
	return s
}

// recipe decodes the whole tree.
func (c *checker) recipe(n *node) *Recipe {
	c.step = -1
	v := c.object(n, "", c.lang.root)
	if v == nil {
		return nil
	}
	r := v.(*Recipe)
	if x := n.get("sources"); x != nil {
		c.sources(r, x)
	}
	if x := n.get("steps"); x != nil {
		c.steps(r, x)
	}
	if x := n.get("outputs"); x != nil {
		c.outputs(r, x)
	}
	if x := n.get("gates"); x != nil {
		c.gates(r, x)
	}
	c.checkRecipe(r, n)
	return r
}

func (c *checker) sources(r *Recipe, n *node) {
	if n.bad {
		return
	}
	if n.kind != mapping {
		c.errorf(n.pos, "sources", "must be a mapping of names to sources, not %s", n.what())
		return
	}
	if len(n.members) == 0 {
		c.errorf(n.pos, "sources", "no sources")
	}
	for _, m := range n.members {
		path := join("sources", m.key)
		if err := checkName(m.key); err != nil {
			c.errorf(m.pos, path, "%v", err)
		}
		src := Source{Name: m.key, Pos: m.pos}
		if v := c.object(m.val, path, c.lang.source); v != nil {
			src.fill(v.(*sourceFields))
		}
		r.Sources = append(r.Sources, src)
	}
}

func (s *Source) fill(f *sourceFields) {
	s.SHA256, s.Path = f.SHA256, f.Path
	for _, x := range []struct {
		kind SourceKind
		val  string
	}{{SourceDir, f.Dir}, {SourceFile, f.File}, {SourceGGUF, f.GGUF}, {SourceURL, f.URL}, {SourceHF, f.HF}, {SourceArtifact, f.Artifact}} {
		if x.val != "" {
			s.Kind, s.Value = x.kind, x.val
			return
		}
	}
}

// single takes the only key of an item of steps or gates.
func (c *checker) single(n *node, path, what string, known []*object) (*object, *member) {
	if n.bad {
		return nil, nil
	}
	if n.kind != mapping || len(n.members) == 0 {
		hint := ""
		if n.kind == scalar && find(known, n.text) != nil {
			hint = fmt.Sprintf("; write %s: {}", n.text)
		}
		c.errorf(n.pos, path, "must be a mapping with one key, the %s, not %s%s", what, n.what(), hint)
		return nil, nil
	}
	m := &n.members[0]
	obj := find(known, m.key)
	if obj == nil {
		c.errorf(m.pos, path, "unknown %s %s%s", what, quote(m.key), suggest(m.key, names(known)))
	}
	if len(n.members) > 1 {
		second := n.members[1]
		hint := fmt.Sprintf("start a new item with \"- %s:\"", second.key)
		if obj != nil && obj.field(second.key) != nil {
			hint = fmt.Sprintf("move it to the right to make it a key of %s", m.key)
		}
		c.errorf(second.pos, join(path, second.key), "an item is one %s, and %s is here already; %s", what, m.key, hint)
		return nil, nil
	}
	if obj == nil {
		return nil, nil
	}
	return obj, m
}

// listOf checks that n is a list and gives its items. No value is an empty one.
func (c *checker) listOf(n *node, path string) []*node {
	switch {
	case n.bad || n.isNull():
		return nil
	case n.kind != list:
		c.errorf(n.pos, path, "must be a list, not %s; start each item with \"- \"", n.what())
		return nil
	}
	return n.items
}

func (c *checker) steps(r *Recipe, n *node) {
	for i, item := range c.listOf(n, "steps") {
		path := "steps." + strconv.Itoa(i)
		obj, m := c.single(item, path, "step", c.lang.steps)
		if obj == nil {
			continue
		}
		path = join(path, m.key)
		m.val = obj.shorten(m.val)
		c.step = i
		step := Step{Kind: m.key, Pos: m.pos, index: i}
		v := c.object(m.val, path, obj)
		c.step = -1
		if v == nil {
			continue
		}
		step.Params = reflect.ValueOf(v).Elem().Interface()
		if id := m.val.get("id"); id != nil {
			c.value(id, join(path, "id"), obj.field("id"), reflect.ValueOf(&step.ID).Elem())
			step.IDPos = id.pos
		}
		r.Steps = append(r.Steps, step)
	}
}

// shorten makes the mapping that a plain value stands for.
func (o *object) shorten(n *node) *node {
	if o.short == "" || n.kind != scalar || n.bad || n.isNull() {
		return n
	}
	return &node{kind: mapping, pos: n.pos, members: []member{{o.short, n.pos, n}}}
}

func (c *checker) outputs(r *Recipe, n *node) {
	items := c.listOf(n, "outputs")
	if len(items) == 0 && !n.bad && (n.kind == list || n.isNull()) {
		c.errorf(n.pos, "outputs", "no outputs")
	}
	for i, item := range items {
		path := "outputs." + strconv.Itoa(i)
		if item.bad {
			continue
		}
		if item.kind != mapping {
			c.errorf(item.pos, path, "must be a mapping with format and file, not %s", item.what())
			continue
		}
		obj := c.formatOf(item, path)
		if obj == nil {
			continue
		}
		c.foreignKeys(item, path, obj)
		if v := c.object(item, path, obj); v != nil {
			r.Outputs = append(r.Outputs, *v.(*Output))
		}
	}
}

func (c *checker) formatOf(n *node, path string) *object {
	f := n.get("format")
	switch {
	case f == nil:
		c.errorf(n.pos, path, "the key format is missing; known are %s", list2(names(c.lang.outputs)))
	case f.bad:
	case f.kind != scalar || f.isNull():
		c.errorf(f.pos, join(path, "format"), "must be one of %s, not %s", list2(names(c.lang.outputs)), f.what())
	default:
		if obj := find(c.lang.outputs, f.text); obj != nil {
			return obj
		}
		c.errorf(f.pos, join(path, "format"), "unknown format %s%s", quote(f.text), suggest(f.text, names(c.lang.outputs)))
	}
	return nil
}

// foreignKeys reports keys that other formats have, and takes them out so that
// they are not called unknown.
func (c *checker) foreignKeys(n *node, path string, obj *object) {
	n.members = slices.DeleteFunc(n.members, func(m member) bool {
		if obj.field(m.key) != nil {
			return false
		}
		for _, o := range c.lang.outputs {
			if o.field(m.key) != nil {
				c.errorf(m.pos, join(path, m.key), "is a key of %s outputs, not of %s", o.name, obj.name)
				return true
			}
		}
		return false
	})
}

func (c *checker) gates(r *Recipe, n *node) {
	for i, item := range c.listOf(n, "gates") {
		path := "gates." + strconv.Itoa(i)
		obj, m := c.single(item, path, "gate", c.lang.gates)
		if obj == nil {
			continue
		}
		if v := c.object(m.val, join(path, m.key), obj); v != nil {
			r.Gates = append(r.Gates, Gate{Kind: m.key, Params: reflect.ValueOf(v).Elem().Interface(), Pos: m.pos, index: i})
		}
	}
}
