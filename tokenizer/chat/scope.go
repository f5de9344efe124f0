package chat

import (
	"slices"
	"strconv"
	"strings"
)

// scope is a block that names are set in.
type scope struct {
	loop bool
	// before and body are the places in out for what comes before the loop and at
	// the beginning of each round.
	before, body int
	targets      []string // the loop's own names
	set          []string
}

// scopes follows blocks that have names of their own. A loop's tag gets places
// around it, which are filled at its end.
func (p *preparer) scopes(name, body string, out *string) {
	switch name {
	case "for":
		head, _, _ := strings.Cut(strings.TrimPrefix(body, "for"), " in ")
		s := scope{loop: true, before: len(p.out), body: len(p.out) + 2, targets: names(head)}
		p.put("")
		p.put(*out)
		*out = ""
		p.scope = append(p.scope, s)
	case "macro", "call", "filter":
		p.scope = append(p.scope, scope{})
	case "set":
		if !strings.Contains(body, "=") {
			p.scope = append(p.scope, scope{})
		}
	case "endfor", "endmacro", "endcall", "endfilter", "endset":
		if len(p.scope) == 0 {
			return
		}
		s := p.scope[len(p.scope)-1]
		p.scope = p.scope[:len(p.scope)-1]
		if !s.loop {
			return
		}
		for _, n := range s.set {
			outer := outerPrefix + strconv.Itoa(s.before) + "_" + n
			p.out[s.before] += "{% set " + outer + " = " + n + " %}"
			p.out[s.body] += "{% set " + n + " = " + outer + " %}"
		}
	}
}

// assigned notes the names that a set tag gives values.
func (p *preparer) assigned(body string) {
	if len(p.scope) == 0 || !p.scope[len(p.scope)-1].loop {
		return
	}
	s := &p.scope[len(p.scope)-1]
	left, _, _ := strings.Cut(strings.TrimPrefix(body, "set"), "=")
	for _, n := range names(left) {
		if !strings.ContainsAny(n, ".[") && n != "loop" && !slices.Contains(s.targets, n) && !slices.Contains(s.set, n) {
			s.set = append(s.set, n)
		}
	}
}

// names are words between commas.
func names(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return isSpace(r) || strings.ContainsRune(",()", r) })
}

// ours are the filters that are not the library's.
var ours = []string{"tojson", "string"}

// filters renames filters that are ours.
func filters(code string) string {
	var b strings.Builder
	quote := byte(0)
	for i := 0; i < len(code); i++ {
		c := code[i]
		b.WriteByte(c)
		switch {
		case quote != 0 && c == '\\' && i+1 < len(code):
			i++
			b.WriteByte(code[i])
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'':
			quote = c
		case c == '|':
			rest := strings.TrimLeftFunc(code[i+1:], isSpace)
			for _, f := range ours {
				if after, ok := strings.CutPrefix(rest, f); ok && (after == "" || !isName(after[0])) {
					b.WriteString(" " + filterMark + f)
					i = len(code) - len(after) - 1
				}
			}
		}
	}
	return b.String()
}

func isName(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}
