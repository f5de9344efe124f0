package convert

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"quern/internal/pyjson"
)

const cardName = "README.md"

// frontMatter finds the YAML between the first line, which must be ---, and the
// next such line. ok is false when the text does not start so.
func frontMatter(text string) (yaml string, ok bool) {
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n")
	lines := splitLines(text)
	if len(lines) == 0 || lines[0] != "---" {
		return "", false
	}
	var kept []string
	for _, l := range lines[1:] {
		if l == "---" {
			break
		}
		kept = append(kept, l)
	}
	yaml = strings.Join(kept, "\n") + "\n"
	// Both repairs are the converter's: the language no is not false, and tabs
	// indent.
	yaml = strings.ReplaceAll(yaml, "- no\n", "- \"no\"\n")
	return strings.ReplaceAll(yaml, "\t", "  "), true
}

// splitLines cuts where Python's str.splitlines does.
func splitLines(s string) []string {
	isEnd := func(r rune) bool {
		switch r {
		case '\n', '\v', '\f', 0x1c, 0x1d, 0x1e, 0x85, 0x2028, 0x2029:
			return true
		}
		return false
	}
	var out []string
	for s != "" {
		i := strings.IndexFunc(s, isEnd)
		if i < 0 {
			return append(out, s)
		}
		out = append(out, s[:i])
		_, n := utf8.DecodeRuneInString(s[i:])
		s = s[i+n:]
	}
	return out
}

// parseCard reads the front matter of a README; nil when there is none. A card
// that cannot be read is an error for the caller to report: a model can be
// converted without its card.
func parseCard(text []byte) (*pyjson.Object, error) {
	if !utf8.Valid(text) {
		return nil, fmt.Errorf("the text is not UTF-8")
	}
	front, ok := frontMatter(string(text))
	if !ok {
		return nil, nil
	}
	v, err := parseYAML(front)
	if err != nil {
		return nil, err
	}
	o, _ := v.(*pyjson.Object)
	return o, nil
}
