package chat

import (
	"strings"
	"unicode"
)

// Names that prepare puts into a template.
const (
	enterMacro  = "__enter_macro"
	leaveMacro  = "__leave_macro"
	printed     = "__print"
	outerPrefix = "__outer_"
	filterMark  = "__filter_of_ours_"
)

// prepare rewrites a template for the library.
//
// What white space around tags means is settled here, as Jinja's lexer does with
// trim_blocks and lstrip_blocks: - takes away all of it, + none, and without
// a mark a block or comment takes the blanks before it if it begins its line, and
// the line end behind it. Then every text becomes an expression that prints it, so
// that nothing is left to be trimmed.
//
// Comments go. The marks of {% generation %} go, their text stays. Every macro
// gets a call at its beginning and its end, so that macros that call each other
// without end are found before the stack is full. A name that a loop sets has its
// outer value at the beginning of each round, as in Jinja: the library would
// keep that of the round before. What is printed goes through a function of ours, and
// so do some filters.
func prepare(source string) string {
	source = strings.ReplaceAll(strings.ReplaceAll(source, "\r\n", "\n"), "\r", "\n")
	p := &preparer{rest: strings.TrimSuffix(source, "\n"), lineStart: true}
	for p.next() {
	}
	return strings.Join(p.out, "")
}

type preparer struct {
	out   []string
	rest  string
	scope []scope
	// lineStart says that what follows begins a line although no line end comes
	// before it in rest: one was taken away, or nothing came before.
	lineStart bool
}

// next takes a text and the tag behind it.
func (p *preparer) next() bool {
	i := 0
	for ; i+1 < len(p.rest); i++ {
		if p.rest[i] == '{' && strings.IndexByte("%{#", p.rest[i+1]) >= 0 {
			break
		}
	}
	if i+1 >= len(p.rest) {
		p.text(p.rest)
		return false
	}
	text, kind := p.rest[:i], p.rest[i+1]
	tag := p.rest[i:][:tagEnd(p.rest[i:])]
	if !closed(tag) {
		// The library says what is wrong.
		p.text(text)
		p.put(p.rest[i:])
		return false
	}
	p.text(p.before(text, kind, tag[2]))
	p.rest = p.rest[i+len(tag):]
	if kind == '%' && tagName(tag) == "raw" {
		p.raw(tag)
		return true
	}
	p.after(kind, tag[len(tag)-3])
	switch kind {
	case '{':
		p.put("{{ " + printed + "(" + filters(inner(tag)) + ") }}")
	case '%':
		p.block(tag)
	}
	return true
}

func (p *preparer) put(s string) { p.out = append(p.out, s) }

// before takes away the white space of a text that a tag behind it asks for.
func (p *preparer) before(text string, kind, mark byte) string {
	switch {
	case mark == '-':
		return strings.TrimRightFunc(text, isSpace)
	case mark == '+', kind == '{':
		return text
	}
	at := strings.LastIndexByte(text, '\n') + 1
	if (at > 0 || p.lineStart) && strings.TrimLeftFunc(text[at:], isSpace) == "" {
		return text[:at]
	}
	return text
}

// after takes away the white space that a tag before it asks for.
func (p *preparer) after(kind, mark byte) {
	was := p.rest
	switch {
	case mark == '-':
		p.rest = strings.TrimLeftFunc(p.rest, isSpace)
	case mark == '+', kind == '{':
	default:
		p.rest = strings.TrimPrefix(p.rest, "\n")
	}
	gone := was[:len(was)-len(p.rest)]
	p.lineStart = strings.HasSuffix(gone, "\n")
}

// raw takes a raw part, whose opening tag is gone.
func (p *preparer) raw(open string) {
	if open[len(open)-3] == '-' {
		p.rest = strings.TrimLeftFunc(p.rest, isSpace)
	}
	p.lineStart = false
	for i := range len(p.rest) {
		if !strings.HasPrefix(p.rest[i:], "{%") {
			continue
		}
		tag := p.rest[i:][:tagEnd(p.rest[i:])]
		if closed(tag) && tagName(tag) == "endraw" {
			p.text(p.before(p.rest[:i], '%', tag[2]))
			p.rest = p.rest[i+len(tag):]
			p.after('%', tag[len(tag)-3])
			return
		}
	}
	p.put("{% raw %}" + p.rest) // not closed
	p.rest = ""
}

// text prints a text as it is.
func (p *preparer) text(s string) {
	if s == "" {
		return
	}
	p.put("{{ \"" + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\t", `\t`).Replace(s) + "\" }}")
}

// block writes a block tag and what belongs beside it.
func (p *preparer) block(tag string) {
	body := inner(tag)
	out := "{% " + filters(body) + " %}"
	switch name := tagName(tag); name {
	case "generation", "endgeneration":
		return
	case "macro":
		out += "{% if " + enterMacro + "() %}{% endif %}"
	case "endmacro":
		out = "{% if " + leaveMacro + "() %}{% endif %}" + out
	case "set":
		p.assigned(body)
	}
	p.scopes(tagName(tag), body, &out)
	p.put(out)
}

// inner is what a tag holds, without marks.
func inner(tag string) string {
	s := tag[2 : len(tag)-2]
	if s != "" && (s[0] == '-' || s[0] == '+') && tag[1] != '{' || strings.HasPrefix(s, "-") {
		s = s[1:]
	}
	if strings.HasSuffix(s, "-") || tag[1] != '{' && strings.HasSuffix(s, "+") {
		s = s[:len(s)-1]
	}
	return strings.TrimFunc(s, isSpace)
}

// tagName is the first word of a block tag.
func tagName(tag string) string {
	words := strings.Fields(inner(tag))
	if len(words) == 0 {
		return ""
	}
	return words[0]
}

// closed reports whether a tag has its end.
func closed(tag string) bool {
	return len(tag) >= 4 && strings.HasSuffix(tag, endOf[tag[1]])
}

// endOf are the ends of tags by their second character.
var endOf = map[byte]string{'%': "%}", '{': "}}", '#': "#}"}

// tagEnd is the length of the tag that a text starts with. Strings, and brackets
// of a mapping, may hold its end. One that is not closed takes all.
func tagEnd(s string) int {
	end := endOf[s[1]]
	if s[1] == '#' {
		if i := strings.Index(s[2:], end); i >= 0 {
			return i + 4
		}
		return len(s)
	}
	quote, open := byte(0), 0
	for i := 2; i < len(s); i++ {
		switch c := s[i]; {
		case quote != 0 && c == '\\':
			i++
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'':
			quote = c
		case open == 0 && strings.HasPrefix(s[i:], end):
			return i + 2
		case c == '{' || c == '(' || c == '[':
			open++
		case open > 0 && (c == '}' || c == ')' || c == ']'):
			open--
		}
	}
	return len(s)
}

// isSpace is white space to Python.
func isSpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }
