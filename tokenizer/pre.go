package tokenizer

import (
	"fmt"
	"slices"
	"strings"
)

// preSignature writes a pre_tokenizer in one normal form: its steps, one a
// line, with only what changes how text is cut. ok is false when a step is of a
// kind that no signature covers.
func preSignature(p *jsonObject) (sig string, ok bool) {
	var lines []string
	ok = appendSignature(&lines, p)
	return strings.Join(lines, "\n"), ok
}

func appendSignature(lines *[]string, p *jsonObject) bool {
	put := func(format string, args ...any) bool {
		*lines = append(*lines, fmt.Sprintf(format, args...))
		return true
	}
	switch typ := typeOf(p); typ {
	case "Sequence":
		for _, e := range p.list("pretokenizers") {
			o, _ := e.(*jsonObject)
			if !appendSignature(lines, o) {
				return false
			}
		}
		return true
	case "Split":
		o := p.object("pattern")
		kind, text := "regex", ""
		text, ok := o.str("Regex")
		if !ok {
			kind = "literal"
			if text, ok = o.str("String"); !ok {
				return false
			}
		}
		behavior, _ := p.str("behavior")
		suffix := ""
		// What a pattern that matches every character leaves is nothing, so to keep its
		// matches alone is to cut by it.
		inverted := p.flag("invert", false)
		if kind == "regex" && behavior == "Removed" && inverted && slices.Contains(totalPatterns, text) {
			behavior = "Isolated"
		}
		if behavior != "Isolated" {
			suffix = " " + behavior
			if inverted {
				suffix += " inverted"
			}
		}
		return put("%s%s %s", kind, suffix, text)
	case "ByteLevel":
		prefix, regex := "", ""
		if p.flag("add_prefix_space", true) {
			prefix = " prefix-space"
		}
		if p.flag("use_regex", true) {
			regex = " gpt2"
		}
		return put("bytes%s%s", prefix, regex)
	case "Digits":
		if p.flag("individual_digits", false) {
			return put("digits individual")
		}
		return put("digits")
	case "Punctuation":
		behavior, ok := p.str("behavior")
		if !ok {
			behavior = "Isolated"
		}
		return put("punctuation %s", behavior)
	case "":
		return put("none")
	default:
		put("%s", typ)
		return false
	}
}

// preClass is one way of cutting text that has a name in GGUF.
type preClass struct {
	name  string   // the representative: written when the hash is unknown
	names []string // names with this cutting whose published definition is known
	sigs  []string // signatures
}

// Patterns beside those that scan.go cuts by hand.
const (
	patternTekken = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternGPT4o  = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternSeed   = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternLing   = `'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+`
	patternExaone = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+`
	patternDeep3  = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"
)

// totalPatterns match every character of every text.
var totalPatterns = []string{patternLlama3, patternQwen2, patternQwen35, patternTekken, patternGPT4o}

// preClasses is the table of known cuttings.
func preClasses() []preClass {
	lines := func(l ...string) string { return strings.Join(l, "\n") }
	one := func(pattern string) []string { return []string{lines("regex "+pattern, "bytes")} }
	return []preClass{
		{"llama-bpe", []string{"llama-bpe", "smaug-bpe", "dbrx"}, one(patternLlama3)},
		{"qwen2", []string{"qwen2"}, one(patternQwen2)},
		{"qwen35", []string{"qwen35"}, one(patternQwen35)},
		{"gpt-2", []string{"gpt-2", "olmo"}, []string{"bytes gpt2"}},
		{"smollm", []string{"smollm", "starcoder"}, []string{lines("digits individual", "bytes gpt2")}},
		{"tekken", []string{"tekken"}, one(patternTekken)},
		{"gpt-4o", []string{"gpt-4o", "llama4"}, one(patternGPT4o)},
		{"seed-coder", []string{"seed-coder"}, one(patternSeed)},
		{"bailingmoe2", []string{"bailingmoe", "bailingmoe2"}, one(patternLing)},
		{"exaone-moe", []string{"exaone-moe"}, one(patternExaone)},
		{"deepseek-v3", []string{"deepseek-v3"}, []string{lines(`regex \p{N}{1,3}`, "regex [\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+", "regex "+patternDeep3, "bytes")}},
		{"deepseek-coder", []string{"deepseek-coder"},
			[]string{lines("regex [\r\n]", `regex \s?\p{L}+`, `regex \s?\p{P}+`, "regex [\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+", "digits individual", "bytes")}},
		{"falcon", []string{"falcon"},
			[]string{lines("punctuation Contiguous", "bytes gpt2", "digits", "regex [0-9][0-9][0-9]")}},
	}
}

// classBySignature and classByName look the table up.
func classBySignature(sig string) (preClass, bool) {
	for _, c := range preClasses() {
		for _, s := range c.sigs {
			if s == sig {
				return c, true
			}
		}
	}
	return preClass{}, false
}

func classByName(name string) (preClass, bool) {
	for _, c := range preClasses() {
		for _, n := range c.names {
			if n == name {
				return c, true
			}
		}
	}
	return preClass{}, false
}

// preName finds the value of tokenizer.ggml.pre. The converter goes by the hash
// of the encoded probe text alone, which holds for whole published vocabularies
// but says nothing of a vocabulary that was cut down, and cannot tell two
// definitions apart that happen to treat the probe alike. So the definition is
// compared too:
//
//   - hash and definition known and of one kind: the hash's name;
//   - hash known, definition not in the table: the hash's name, with a warning;
//   - hash known, definition of another kind: ErrPreConflict;
//   - only the definition known: its representative, with a warning;
//   - neither: ErrUnknownPre with the pattern and the nearest known name.
func (l *loader) preName(a *autoTokenizer) (string, error) {
	ids, err := a.enc.encode(probeText, true)
	if err != nil {
		return "", fmt.Errorf("probe text: %w", err)
	}
	hash := hashIDs(ids)
	sig, covered := preSignature(a.pre)
	byDef, defKnown := classBySignature(sig)
	defKnown = defKnown && covered
	name, hashKnown := nameByHash(hash)
	switch {
	case hashKnown && defKnown:
		byName, ok := classByName(name)
		if ok && byName.name != byDef.name {
			return "", fmt.Errorf("the probe hash %s is that of %q, but tokenizer.json cuts text as %q does:\n%s\n%w",
				hash, name, byDef.name, sig, ErrPreConflict)
		}
		if !ok {
			l.warnf("pre-tokenizer %q goes by its hash; tokenizer.json cuts text as %q does", name, byDef.name)
		}
		return name, nil
	case hashKnown:
		if byName, ok := classByName(name); ok {
			return "", fmt.Errorf("the probe hash %s is that of %q, but tokenizer.json cuts text in another way:\n%s\nwant\n%s\n%w",
				hash, name, sig, byName.sigs[0], ErrPreConflict)
		}
		l.warnf("pre-tokenizer %q goes by its hash alone", name)
		return name, nil
	case defKnown:
		name = l.representative(a, byDef)
		l.warnf("the probe hash %s is not in the converter's list; pre-tokenizer %q goes by the definition in tokenizer.json", hash, name)
		return name, nil
	}
	near, differs := nearestClass(sig)
	return "", fmt.Errorf("tokenizer.json cuts text in a way that no name stands for (probe hash %s):\n%s\nnearest is %q, which has\n%s\n%w",
		hash, sig, near, differs, ErrUnknownPre)
}

// representative picks the name for a definition without a known hash. The
// name llama-bpe also says that a word which is a token is taken whole
// (ignore_merges). For a tokenizer without that rule the name is right only if
// the merges lead to every token anyway.
func (l *loader) representative(a *autoTokenizer, c preClass) string {
	m := &a.enc.t.model
	if c.name != "llama-bpe" || m.ignoreMerges || a.mergesReachAll() {
		return c.name
	}
	return "smaug-bpe"
}

// mergesReachAll reports whether encoding each token's text by merges gives
// that token.
func (a *autoTokenizer) mergesReachAll() bool {
	for id, text := range a.enc.t.model.byID {
		if _, added := a.added.byID[int32(id)]; added || a.enc.t.model.holes[int32(id)] {
			continue
		}
		ids, err := a.enc.symbols(text)
		if err != nil {
			return false
		}
		if ids = mergeIDs(ids, a.enc.merges); len(ids) != 1 || ids[0] != int32(id) {
			return false
		}
	}
	return true
}

// nearestClass finds the known definition with the fewest edits from sig.
func nearestClass(sig string) (name, want string) {
	best := -1
	for _, c := range preClasses() {
		for _, s := range c.sigs {
			if d := editDistance(sig, s); best < 0 || d < best {
				best, name, want = d, c.name, s
			}
		}
	}
	return name, want
}

// editDistance counts inserted, removed and changed characters. Only the first
// 2000 of each text count.
func editDistance(a, b string) int {
	x, y := []rune(a), []rune(b)
	const most = 2000
	if len(x) > most {
		x = x[:most]
	}
	if len(y) > most {
		y = y[:most]
	}
	row := make([]int, len(y)+1)
	for j := range row {
		row[j] = j
	}
	for i, r := range x {
		diagonal := row[0]
		row[0] = i + 1
		for j, s := range y {
			cost := diagonal
			if r != s {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(y)]
}
