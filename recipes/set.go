package recipes

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// set applies one --set override to the tree, before it is decoded, so that
// an override is checked like the text that it stands for.
//
// The key is a path with dots: sources.base.dir, steps.0.quantize.type. Items
// of lists are named by index; steps and gates also by their kind when there
// is one of it, steps.quantize.type, and steps by id. Keys that are not there
// are added. A key that excludes others replaces them: setting sources.base.dir
// drops sources.base.hf. The value is YAML: a plain scalar, a quoted one or a
// flow collection.
func (c *checker) set(root *node, override string) {
	key, text, ok := strings.Cut(override, "=")
	pos := Pos{File: "--set " + quoteKey(key)}
	if !ok || key == "" {
		c.errorf(Pos{File: "--set"}, "", "%s must be key=value, for example name=test", quote(override))
		return
	}
	val := c.setValue(pos, key, text)
	if val == nil {
		return
	}
	s := setter{c: c, pos: pos, val: val}
	s.at(root, key, nil)
}

// quoteKey keeps error positions on one line.
func quoteKey(key string) string {
	if q := quote(key); q != `"`+key+`"` {
		return q
	}
	return key
}

func (c *checker) setValue(pos Pos, key, text string) *node {
	n := &node{kind: scalar, pos: pos, tag: "!!str", text: text, plain: true, set: true}
	if text == "" {
		return n
	}
	doc, err := decodeOne(yaml.NewDecoder(bytes.NewReader([]byte(text))))
	if !strings.ContainsRune(`[{"'`, rune(text[0])) {
		// What YAML does not read as this very scalar is text: C:\x, a: b, #1.
		if err == nil && len(doc.Content) == 1 {
			if y := doc.Content[0]; y.Kind == yaml.ScalarNode && y.Value == text && y.Style == 0 {
				switch tag := y.ShortTag(); tag {
				case "!!int", "!!float", "!!bool", "!!null":
					n.tag = tag
				}
			}
		}
		return n
	}
	if err != nil || len(doc.Content) != 1 {
		msg := "not one value"
		if err != nil {
			msg = strings.TrimPrefix(err.Error(), "yaml: ")
			if le, ok := errors.AsType[*yaml.LoadError](err); ok {
				msg = le.Message
			}
		}
		c.errorf(pos, key, "the value %s is not YAML: %s", quote(text), msg)
		return nil
	}
	conv := converter{c: c, setAs: &pos, open: map[*yaml.Node]bool{}}
	n = conv.node(doc.Content[0], key, 0)
	if conv.full {
		return nil
	}
	return n
}

type setter struct {
	c   *checker
	pos Pos
	val *node
}

func (s *setter) fail(path []string, format string, args ...any) {
	s.c.errorf(s.pos, strings.Join(path, "."), format, args...)
}

// at goes down from n, which path names, by the keys of rest.
func (s *setter) at(n *node, rest string, path []string) {
	if n.bad {
		return
	}
	if n.isNull() && len(path) > 0 {
		// "- tie-head:" takes keys like "- tie-head: {}".
		*n = node{kind: mapping, pos: n.pos}
	}
	switch n.kind {
	case mapping:
		s.member(n, rest, path)
	case list:
		s.item(n, rest, path)
	default:
		s.fail(path, "is %s and has no key %s", n.what(), quote(rest))
	}
}

func (s *setter) member(n *node, rest string, path []string) {
	// Names may hold dots: the longest key that is there wins.
	key, found := "", false
	for _, m := range n.members {
		if (m.key == rest || strings.HasPrefix(rest, m.key+".")) && (!found || len(m.key) > len(key)) {
			key, found = m.key, true
		}
	}
	if !found {
		key, _, _ = strings.Cut(rest, ".")
	}
	last := len(key) == len(rest)
	path = append(path, key)
	if key == "" || !last && len(key)+1 == len(rest) {
		s.fail(path, "the path has an empty part")
		return
	}
	if last {
		s.dropExclusive(n, path)
		if found {
			*n.get(key) = *s.val
		} else {
			n.members = append(n.members, member{key, s.pos, s.val})
		}
		return
	}
	if !found {
		var have []string
		for _, m := range n.members {
			have = append(have, m.key)
		}
		if near := nearest(key, have); near != "" {
			s.fail(path, "the recipe has no such key; did you mean %s?", near)
			return
		}
		n.members = append(n.members, member{key, s.pos, &node{kind: mapping, pos: s.pos, set: true}})
	}
	s.at(n.get(key), rest[len(key)+1:], path)
}

func (s *setter) item(n *node, rest string, path []string) {
	seg, after, more := strings.Cut(rest, ".")
	if more && after == "" || seg == "" {
		s.fail(append(path, seg), "the path has an empty part")
		return
	}
	if digits(seg) {
		i, err := strconv.Atoi(seg)
		if err != nil || i >= len(n.items) {
			s.fail(append(path, seg), "there are %d items, counted from 0", len(n.items))
			return
		}
		path = append(path, seg)
		if !more {
			*n.items[i] = *s.val
			return
		}
		s.at(n.items[i], after, path)
		return
	}
	// By kind, or by id.
	var hits []string
	var known []string
	hit := -1
	for i, item := range n.items {
		if item.kind != mapping || len(item.members) != 1 {
			continue
		}
		m := item.members[0]
		known = append(known, m.key)
		id := m.val.get("id")
		if id != nil && id.kind == scalar {
			known = append(known, id.text)
		}
		if m.key == seg || id != nil && id.kind == scalar && id.text == seg {
			hits = append(hits, strings.Join(append(slices.Clone(path), strconv.Itoa(i), m.key), "."))
			hit = i
		}
	}
	switch len(hits) {
	case 0:
		hint := suggest(seg, known)
		if len(known) == 0 {
			hint = fmt.Sprintf("; items are named by index, 0 to %d", len(n.items)-1)
		}
		s.fail(append(path, seg), "the recipe has no such item%s", hint)
	case 1:
		m := &n.items[hit].members[0]
		path = append(path, strconv.Itoa(hit), m.key)
		if !more {
			*m.val = *s.val
			return
		}
		s.at(m.val, after, path)
	default:
		s.fail(append(path, seg), "could be %s", list2(hits))
	}
}

// dropExclusive takes out the keys that the one being set excludes.
func (s *setter) dropExclusive(n *node, path []string) {
	var obj *object
	switch {
	case len(path) == 3 && path[0] == "sources":
		obj = s.c.lang.source
	case len(path) == 4 && path[0] == "steps":
		obj = find(s.c.lang.steps, path[2])
	}
	if obj == nil {
		return
	}
	key := path[len(path)-1]
	for _, group := range obj.oneOf {
		if slices.Contains(group, key) {
			n.members = slices.DeleteFunc(n.members, func(m member) bool { return m.key != key && slices.Contains(group, m.key) })
		}
	}
}
