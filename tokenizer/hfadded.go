package tokenizer

import (
	"sort"
	"strings"
	"unicode"
	"unicode/utf8"
)

// addedVocab holds the tokens that are cut out of a text before the model sees
// it. Tokens that are not normalized are looked for in the raw text, the others
// in the normalized text; of several at one place the longest wins.
type addedVocab struct {
	ids     map[string]int32
	byID    map[int32]addedToken
	special map[string]bool
	list    []addedToken // special ones first, else in order of addition
	normal  []addedToken

	raw, normed matchSet
}

func newAddedVocab() *addedVocab {
	return &addedVocab{ids: map[string]int32{}, byID: map[int32]addedToken{}, special: map[string]bool{}}
}

// sameFlags reports whether two tokens are equal in all but the id.
func sameFlags(a, b addedToken) bool {
	a.id, b.id = 0, 0
	return a == b
}

// add gives tokens their ids: that of the text in the model or among the added
// tokens, else the next free one. The id in the file does not count. A token
// that is added again with other flags takes the new ones.
func (a *addedVocab) add(tokens []addedToken, m *hfModel) {
	for _, t := range tokens {
		if t.special && t.content != "" && !a.special[t.content] {
			a.special[t.content] = true
			a.list = append(a.list, t)
		}
	}
	for _, t := range tokens {
		if t.content == "" {
			continue
		}
		id, known := a.ids[t.content]
		if known && sameFlags(a.byID[id], t) {
			continue
		}
		if !known {
			if id, known = m.vocab[t.content]; !known {
				id = a.nextID(m)
			}
		}
		t.id = int64(id)
		a.ids[t.content] = id
		a.byID[id] = t
		if !a.special[t.content] {
			a.normal = append(a.normal, t)
		}
	}
}

func (a *addedVocab) nextID(m *hfModel) int32 {
	next := int32(len(m.vocab))
	for id := range a.byID {
		if id >= next {
			next = id + 1
		}
	}
	return next
}

// build makes the two match sets; normalize is the tokenizer's normalizer.
func (a *addedVocab) build(normalize func(string) (string, error)) error {
	a.raw, a.normed = matchSet{}, matchSet{}
	for _, t := range append(append([]addedToken(nil), a.list...), a.normal...) {
		id := a.ids[t.content]
		if !t.normalized {
			a.raw.add(t.content, id)
			continue
		}
		text, err := normalize(t.content)
		if err != nil {
			return err
		}
		a.normed.add(text, id)
	}
	a.raw.sort()
	a.normed.sort()
	return nil
}

// matchSet finds the longest of its texts at a place, by first byte.
type matchSet struct {
	byFirst [256][]matchText
}

type matchText struct {
	text string
	id   int32
}

func (m *matchSet) add(text string, id int32) {
	if text != "" {
		m.byFirst[text[0]] = append(m.byFirst[text[0]], matchText{text, id})
	}
}

func (m *matchSet) sort() {
	for _, l := range m.byFirst {
		sort.SliceStable(l, func(i, j int) bool { return len(l[i].text) > len(l[j].text) })
	}
}

// next finds the first match in s from an offset on.
func (m *matchSet) next(s string, from int) (start, end int, id int32, ok bool) {
	for i := from; i < len(s); i++ {
		for _, c := range m.byFirst[s[i]] {
			if strings.HasPrefix(s[i:], c.text) {
				return i, i + len(c.text), c.id, true
			}
		}
	}
	return 0, 0, 0, false
}

// segment is a piece of text, or a token when id >= 0.
type segment struct {
	text  string
	id    int32
	first bool // text begins where the input begins
}

// split cuts s at the tokens of a set.
func (a *addedVocab) split(s string, set *matchSet, first bool) []segment {
	var out []segment
	done := 0
	for from := 0; ; {
		start, end, id, ok := set.next(s, from)
		if !ok {
			break
		}
		from = end
		t := a.byID[id]
		if t.singleWord && (endsWithWord(s[:start]) || startsWithWord(s[end:])) {
			continue
		}
		if t.lstrip {
			if left := len(strings.TrimRightFunc(s[:start], unicode.IsSpace)); left > done {
				start = left
			} else {
				start = done
			}
		}
		if t.rstrip {
			end = len(s) - len(strings.TrimLeftFunc(s[end:], unicode.IsSpace))
		}
		if done < start {
			out = append(out, segment{s[done:start], -1, first && done == 0})
		}
		out = append(out, segment{id: id})
		done = end
	}
	if done < len(s) {
		out = append(out, segment{s[done:], -1, first && done == 0})
	}
	return out
}

func endsWithWord(s string) bool {
	r, n := utf8.DecodeLastRuneInString(s)
	return n > 0 && wordRune(r)
}

func startsWithWord(s string) bool {
	r, n := utf8.DecodeRuneInString(s)
	return n > 0 && wordRune(r)
}

// wordRune is \w: letters, marks, decimal digits, connectors and joiners.
func wordRune(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsMark(r) || unicode.Is(unicode.Nd, r) || unicode.Is(unicode.Nl, r) ||
		unicode.Is(unicode.Pc, r) || unicode.Is(unicode.Other_Alphabetic, r) || unicode.Is(unicode.Join_Control, r)
}
