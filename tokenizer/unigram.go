package tokenizer

import (
	"fmt"
	"math"
	"unicode/utf8"
)

// unigramLattice encodes with a Unigram model: of all ways to cut a word into
// tokens the one with the greatest sum of scores.
type unigramLattice struct {
	m       *hfModel
	maxLen  int // longest token in bytes
	unkCost float64
}

func newUnigramLattice(m *hfModel) (*unigramLattice, error) {
	u := &unigramLattice{m: m}
	least := math.Inf(1)
	for id, text := range m.byID {
		if len(text) > u.maxLen {
			u.maxLen = len(text)
		}
		if s := m.scores[id]; s < least {
			least = s
		}
	}
	if m.unkID >= int32(len(m.byID)) {
		return nil, fmt.Errorf("unk_id %d, the vocabulary has %d tokens: %w", m.unkID, len(m.byID), ErrFormat)
	}
	// A character outside the vocabulary costs this much more than any token.
	u.unkCost = least - 10
	return u, nil
}

// encode cuts one word. Neighbouring unknown characters become one unknown
// token, or the bytes' tokens with byte_fallback.
func (u *unigramLattice) encode(s string) ([]int32, error) {
	type node struct {
		score float64
		start int
		id    int32
	}
	best := make([]node, len(s)+1)
	for i := range best {
		best[i].start = -1
	}
	best[0].start = 0
	for at := 0; at < len(s); {
		_, n := utf8.DecodeRuneInString(s[at:])
		single := false
		for end := at + 1; end <= len(s) && end-at <= u.maxLen; end++ {
			if end < len(s) && !utf8.RuneStart(s[end]) {
				continue
			}
			id, ok := u.m.vocab[s[at:end]]
			if !ok {
				continue
			}
			if end-at == n {
				single = true
			}
			score := best[at].score + u.m.scores[id]
			if best[end].start < 0 || score > best[end].score {
				best[end] = node{score, at, id}
			}
		}
		if !single {
			score := best[at].score + u.unkCost
			if best[at+n].start < 0 || score > best[at+n].score {
				best[at+n] = node{score, at, -1}
			}
		}
		at += n
	}
	var cuts []node
	var ends []int
	for end := len(s); end > 0; end = best[end].start {
		cuts = append(cuts, best[end])
		ends = append(ends, end)
	}
	var out []int32
	for i := len(cuts) - 1; i >= 0; i-- {
		if cuts[i].id >= 0 {
			out = append(out, cuts[i].id)
			continue
		}
		start := cuts[i].start
		for i > 0 && cuts[i-1].id < 0 {
			i--
		}
		ids, err := u.unknown(s[start:ends[i]])
		if err != nil {
			return nil, err
		}
		out = append(out, ids...)
	}
	return out, nil
}

func (u *unigramLattice) unknown(text string) ([]int32, error) {
	if u.m.byteFallback {
		var ids []int32
		for i := 0; i < len(text); i++ {
			id, ok := u.m.vocab[byteToken(text[i])]
			if !ok {
				ids = nil
				break
			}
			ids = append(ids, id)
		}
		if ids != nil {
			return ids, nil
		}
	}
	if u.m.unkID < 0 {
		return nil, fmt.Errorf("%q is not in the vocabulary and there is no unknown token: %w", text, ErrUnsupported)
	}
	return []int32{u.m.unkID}, nil
}
