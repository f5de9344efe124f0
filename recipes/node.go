package recipes

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

const (
	// DefaultMaxBytes is the longest recipe text that is accepted.
	DefaultMaxBytes = 1 << 20
	// maxValues bounds a recipe after its aliases have been replaced by what
	// they stand for, so that a few lines cannot expand without end.
	maxValues = 100_000
	maxDepth  = 64
)

type nodeKind int

const (
	scalar nodeKind = iota
	list
	mapping
)

func (k nodeKind) String() string { return [...]string{"a value", "a list", "a mapping"}[k] }

// node is a YAML value with aliases replaced and duplicate keys reported.
type node struct {
	kind    nodeKind
	pos     Pos
	tag     string // scalars: !!str, !!int, !!float, !!bool, !!null
	text    string // scalars: without quotes and escapes
	plain   bool   // scalars: written without quotes
	items   []*node
	members []member
	// bad marks values that have been reported; nothing more is said of them.
	bad bool
	// set marks values that --set gave. The shell has eaten quotes there, so
	// any plain scalar may stand for a string.
	set bool
}

type member struct {
	key string
	pos Pos
	val *node
}

func (n *node) get(key string) *node {
	for i := range n.members {
		if n.members[i].key == key {
			return n.members[i].val
		}
	}
	return nil
}

func (n *node) isNull() bool { return n.kind == scalar && n.tag == "!!null" }

// what describes the value in messages.
func (n *node) what() string {
	switch {
	case n.kind != scalar:
		return n.kind.String()
	case n.tag == "!!null":
		return "nothing"
	}
	return quote(n.text)
}

// parseYAML turns text into a node tree. A nil tree comes with errors.
func (c *checker) parseYAML(file string, text []byte) *node {
	start := Pos{File: file, Line: 1, Column: 1}
	if pos, r := badRune(file, text); r != 0 {
		if r == utf8.RuneError {
			c.errorf(pos, "", "not UTF-8 text")
		} else {
			c.errorf(pos, "", "the character U+%04X is not allowed in YAML", r)
		}
		return nil
	}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	doc, err := decodeOne(dec)
	switch {
	case errors.Is(err, io.EOF):
		c.errorf(start, "", "the recipe is empty; it starts with version: 1")
		return nil
	case err != nil:
		c.yamlError(file, text, err)
		return nil
	}
	second, err := decodeOne(dec)
	switch {
	case err == nil:
		pos := Pos{File: file, Line: second.Line, Column: second.Column}
		c.errorf(pos, "", "a second document starts here; a recipe is one")
		return nil
	case !errors.Is(err, io.EOF):
		c.yamlError(file, text, err)
		return nil
	}
	if len(doc.Content) != 1 {
		c.errorf(start, "", "the recipe is empty; it starts with version: 1")
		return nil
	}
	conv := converter{c: c, file: file, open: map[*yaml.Node]bool{}}
	n := conv.node(doc.Content[0], "", 0)
	if conv.full {
		return nil // only a part of it is there
	}
	return n
}

// decodeOne reads a document. The library is not ours, so a panic of its
// becomes an error about this input.
func decodeOne(dec *yaml.Decoder) (doc *yaml.Node, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the YAML parser failed: %v", r)
		}
	}()
	doc = new(yaml.Node)
	err = dec.Decode(doc)
	return doc, err
}

func (c *checker) yamlError(file string, text []byte, err error) {
	pos := Pos{File: file, Line: 1, Column: 1}
	msg, hint := strings.TrimPrefix(err.Error(), "yaml: "), ""
	if le, ok := errors.AsType[*yaml.LoadError](err); ok {
		msg = le.Message
		if le.Mark.Line > 0 {
			pos.Line, pos.Column = le.Mark.Line, max(le.Mark.Column, 1)
		}
		if le.ContextMsg != "" && le.ContextMark.Line > 0 && le.ContextMark != le.Mark {
			hint = fmt.Sprintf(" (%s at line %d, column %d)", le.ContextMsg, le.ContextMark.Line, max(le.ContextMark.Column, 1))
		}
	}
	line := lineOf(text, pos.Line)
	indent := line[:len(line)-len(bytes.TrimLeft(line, " \t"))]
	switch i := bytes.IndexByte(indent, '\t'); {
	case i >= 0:
		pos.Column = i + 1
		hint += "; the line is indented with a tab, YAML wants spaces"
	case bytes.HasPrefix(line, []byte("%YAML")):
		hint += "; leave the %YAML line out"
	}
	c.errorf(pos, "", "not YAML: %s%s", msg, hint)
}

func lineOf(text []byte, line int) []byte {
	for ; line > 1; line-- {
		i := bytes.IndexByte(text, '\n')
		if i < 0 {
			return nil
		}
		text = text[i+1:]
	}
	text, _, _ = bytes.Cut(text, []byte("\n"))
	return text
}

// badRune finds the first character that YAML does not allow, or bytes that
// are not UTF-8 as RuneError. The rune is 0 when all is well.
func badRune(file string, text []byte) (Pos, rune) {
	pos := Pos{File: file, Line: 1, Column: 1}
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		switch {
		case r == utf8.RuneError && n == 1:
			return pos, r
		case r < 0x20 && r != '\t' && r != '\n' && r != '\r', r >= 0x7f && r < 0xa0 && r != 0x85, r == 0xfffe, r == 0xffff:
			if r == 0 {
				return pos, utf8.RuneError // UTF-16 or binary
			}
			return pos, r
		}
		pos.Column++
		if r == '\n' {
			pos.Line, pos.Column = pos.Line+1, 1
		}
		text = text[n:]
	}
	return pos, 0
}

// converter walks the library's tree. It stops at the first fault that makes
// the rest meaningless and goes on after the others.
type converter struct {
	c     *checker
	file  string
	setAs *Pos // position of every node, for --set values
	count int
	open  map[*yaml.Node]bool // anchored nodes being walked
	full  bool
}

func (v *converter) node(y *yaml.Node, path string, depth int) *node {
	n := &node{pos: Pos{File: v.file, Line: y.Line, Column: y.Column}}
	bad := func(format string, args ...any) *node {
		v.c.errorf(n.pos, path, format, args...)
		return &node{pos: n.pos, bad: true}
	}
	if v.setAs != nil {
		n.pos, n.set = *v.setAs, true
	}
	if v.count++; v.count > maxValues {
		if !v.full {
			v.full = true
			v.c.errorf(n.pos, "", "the recipe expands to more than %d values", maxValues)
		}
		return &node{pos: n.pos, bad: true}
	}
	if depth > maxDepth {
		return bad("values nested more than %d deep", maxDepth)
	}
	if v.open[y] {
		return bad("the anchor contains itself")
	}
	if y.Kind == yaml.AliasNode {
		return v.node(y.Alias, path, depth+1)
	}
	if y.Anchor != "" {
		v.open[y] = true
		defer delete(v.open, y)
	}
	tag := y.ShortTag()
	switch y.Kind {
	case yaml.ScalarNode:
		n.text = y.Value
		n.plain = y.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) == 0
		switch tag {
		case "!!str", "!!int", "!!float", "!!bool", "!!null":
			n.tag = tag
		case "!!timestamp":
			n.tag = "!!str" // a date is text here
		default:
			return bad("the tag %s is not part of the language", quote(tag))
		}
		return n
	case yaml.SequenceNode:
		n.kind = list
		if tag != "!!seq" {
			return bad("the tag %s is not part of the language", quote(tag))
		}
		for i, y := range y.Content {
			n.items = append(n.items, v.node(y, join(path, fmt.Sprint(i)), depth+1))
			if v.full {
				break
			}
		}
		return n
	case yaml.MappingNode:
		n.kind = mapping
		if tag != "!!map" {
			return bad("the tag %s is not part of the language", quote(tag))
		}
		return v.members(n, y, path, depth)
	}
	return bad("not a value, a list or a mapping")
}

func (v *converter) members(n *node, y *yaml.Node, path string, depth int) *node {
	first := map[string]Pos{}
	for i := 0; i+1 < len(y.Content); i += 2 {
		k := y.Content[i]
		pos := Pos{File: v.file, Line: k.Line, Column: k.Column}
		if v.setAs != nil {
			pos = *v.setAs
		}
		for k.Kind == yaml.AliasNode {
			k = k.Alias
		}
		if k.Kind != yaml.ScalarNode {
			v.c.errorf(pos, path, "a key must be a word, not a list or a mapping")
			continue
		}
		if k.ShortTag() == "!!merge" {
			v.c.errorf(pos, path, `"<<" is not part of the language; write the keys out`)
			continue
		}
		if p, dup := first[k.Value]; dup {
			v.c.errorf(pos, join(path, k.Value), "duplicate key, first at line %d, column %d", p.Line, p.Column)
			continue
		}
		first[k.Value] = pos
		n.members = append(n.members, member{k.Value, pos, v.node(y.Content[i+1], join(path, k.Value), depth+1)})
		if v.full {
			break
		}
	}
	return n
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// quote shows text of a recipe in messages, cut to a bearable length.
func quote(s string) string {
	const most = 80
	if len(s) > most {
		cut := most
		for cut > 0 && !utf8.RuneStart(s[cut]) {
			cut--
		}
		return fmt.Sprintf("%q...", s[:cut])
	}
	return fmt.Sprintf("%q", s)
}
