package convert

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"quern/internal/pattern"
)

// A model's name says more than its name: org/Base-7B-Instruct-v0.2 holds an
// organization, a base name, a size, a finetune and a version. The rules here
// are those of gguf-py's metadata module, oddities included, for the strings
// they produce are written into files.

// parts are the components of a name. An empty string stands for none,
// but an organization may be there and empty ("/name").
type parts struct {
	full, org          string
	hasOrg             bool
	basename, finetune string
	version, size      string
}

var (
	versionPart  = pattern.New(`(?i)^(?:(?:v|iter)?\p{Nd}+(?:[.]\p{Nd}+)*)$`)
	typePart     = pattern.New(`(?i)^(?:i?q\p{Nd}(?:_[\p{L}\p{N}_])*|b?fp?(?:16|32))$`)
	sizePart     = pattern.New(`(?i)^(?:(?:[A]|\p{Nd}+[x])?\p{Nd}+(?:[._]\p{Nd}+)?[KMBT]\p{Nd}?|small|mini|medium|large|x?xl)$`)
	finetunePart = pattern.New(`(?i)^(?:chat|instruct|vision|lora)$`)
	titleVersion = pattern.New(`^(?:v\p{Nd}+(?:\.\p{Nd}+)*|\p{Nd}.*)$`)
)

// label is the set of meanings that one word of a name may have.
type label struct{ basename, size, finetune, version, kind bool }

func (l label) none() bool { return l == label{} }

func (l label) several() bool {
	n := 0
	for _, b := range []bool{l.basename, l.size, l.finetune, l.version, l.kind} {
		if b {
			n++
		}
	}
	return n > 1
}

// identify takes a model id apart. params is the number of weights of the
// model, 0 when unknown; it tells sizes from context lengths.
func identify(id string, params int64) parts {
	if strings.Contains(id, " ") {
		// A sentence, not an id.
		return parts{full: id}
	}
	p := parts{full: id}
	if org, name, ok := strings.Cut(id, "/"); ok {
		p.org, p.full = org, name
		p.hasOrg = !strings.HasPrefix(org, ".")
	}
	words := slices.DeleteFunc(strings.Split(p.full, "-"), func(s string) bool { return s == "" })
	labels := make([]label, len(words))
	for i := range words {
		words[i], labels[i] = classify(words[i], i, params)
	}
	dropWordSizes(words, labels)
	markBasename(words, labels)

	pick := func(has func(label) bool) string {
		var out []string
		for i, w := range words {
			if has(labels[i]) {
				out = append(out, w)
			}
		}
		return strings.Join(out, "-")
	}
	p.basename = pick(func(l label) bool { return l.basename })
	p.finetune = pick(func(l label) bool { return l.finetune })
	p.version = pick(func(l label) bool { return l.version && !l.basename })
	var sizes []string
	for i, w := range words {
		if labels[i].size && !slices.Contains(sizes, w) {
			sizes = append(sizes, w)
		}
	}
	p.size = strings.Join(sizes, "-")
	if p.size == "" && p.finetune == "" && p.version == "" {
		// Too little to go by.
		p.basename = ""
	}
	return p
}

// classify gives the meaning of the i-th word, and the word in normal form.
func classify(word string, i int, params int64) (string, label) {
	var l label
	switch {
	case versionPart.MatchString(word):
		l.version = true
	case typePart.MatchString(word):
		l.kind = true
		word = strings.ToUpper(word)
	case i > 0 && sizePart.MatchString(word):
		word, l = sizeWord(word, params)
	case i > 0 && finetunePart.MatchString(word):
		l.finetune = true
	}
	return word, l
}

// sizeWord normalizes a size such as 7b1 or 1_5B. A number far from the model's
// own size is a context length, which belongs to the finetune.
func sizeWord(word string, params int64) (string, label) {
	r := []rune(strings.ReplaceAll(word, "_", "."))
	if last := len(r) - 1; unicode.Is(unicode.Nd, r[last]) {
		r = append(r[:last-1:last-1], '.', r[last], r[last-1])
	}
	last := len(r) - 1
	if last > 0 && unicode.Is(unicode.Nd, r[last-1]) && strings.ContainsRune("kmbt", r[last]) {
		r[last] = unicode.ToUpper(r[last])
	}
	if params != 0 {
		n, err := strconv.ParseFloat(string(r[:last]), 64)
		for range strings.IndexRune(" KMBT", r[last]) {
			n = float64(n * 1000)
		}
		if err == nil && math.Abs(n-float64(params)) > float64(7*params/8) {
			r[last] = unicode.ToLower(r[last])
			return string(r), label{finetune: true}
		}
	}
	return string(r), label{size: true}
}

// dropWordSizes lets sizes in words (small, large) count only when there is no
// size in numbers.
func dropWordSizes(words []string, labels []label) {
	isDigit := func(r rune) bool { return unicode.Is(unicode.Nd, r) }
	numeric := false
	for i, w := range words {
		numeric = numeric || labels[i].size && strings.ContainsFunc(w, isDigit)
	}
	if !numeric {
		return
	}
	for i, w := range words {
		if labels[i].size && !strings.ContainsFunc(w, func(r rune) bool { return !unicode.IsLetter(r) }) {
			labels[i].size = false
		}
	}
}

// markBasename finds the leading words that make the base name; what is left
// over belongs to the finetune.
func markBasename(words []string, labels []label) {
	start := true
	for i, w := range words {
		l := &labels[i]
		if start && (l.none() && unicode.IsLetter([]rune(w)[0]) || l.version) {
			l.basename = true
			continue
		}
		start = false
		if l.none() {
			l.finetune = true
		}
	}
	// A version at the end is no part of the base name.
	for i := len(words) - 1; i >= 0 && labels[i].basename && labels[i].several(); i-- {
		labels[i].basename = false
	}
}

// title writes an id as a title: each word in lower case gets capitals, but
// version numbers and sizes stay as they are.
func title(s string) string {
	words := strings.Fields(strings.ReplaceAll(strings.TrimSpace(s), "-", " "))
	for i, w := range words {
		if isLower(w) && !titleVersion.MatchString(w) {
			words[i] = capitals(w)
		}
	}
	return strings.Join(words, " ")
}

func cased(r rune) bool {
	return unicode.In(r, unicode.Lu, unicode.Ll, unicode.Lt, unicode.Other_Lowercase, unicode.Other_Uppercase)
}

// isLower: at least one cased letter, and none that is not in lower case.
func isLower(s string) bool {
	some := false
	for _, r := range s {
		if unicode.In(r, unicode.Lu, unicode.Lt, unicode.Other_Uppercase) {
			return false
		}
		some = some || cased(r)
	}
	return some
}

// capitals puts the first letter of each run of letters in title case.
func capitals(s string) string {
	in := false
	return strings.Map(func(r rune) rune {
		out := r
		if in {
			out = unicode.ToLower(r)
		} else {
			out = unicode.ToTitle(r)
		}
		in = cased(r)
		return out
	}, s)
}

// sizeLabel writes a number of parameters with at least two digits: 1.2B, 596M.
func sizeLabel(n int64) string {
	v, suffix := float64(float64(n)*1e-3), "K"
	switch {
	case float64(n) > 1e12:
		v, suffix = float64(float64(n)*1e-12), "T"
	case n > 1e9:
		v, suffix = float64(float64(n)*1e-9), "B"
	case n > 1e6:
		v, suffix = float64(float64(n)*1e-6), "M"
	}
	digits := len(strings.TrimLeft(strconv.FormatFloat(math.RoundToEven(v), 'f', 0, 64), "0"))
	return strconv.FormatFloat(v, 'f', max(2-digits, 0), 64) + suffix
}
