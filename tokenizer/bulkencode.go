package tokenizer

import (
	"cmp"
	"container/heap"
	"fmt"
	"math"
	"slices"
	"strings"
)

// wordCoder gives the ids of words as Encode does, from tables of numbered
// symbols in place of texts. Symbols under the size of the vocabulary are tokens.
type wordCoder struct {
	t     *Tokenizer
	pairs *pairTable
	chars *charTable  // but for the byte alphabet
	bytes [256]uint32 // byte alphabet: the symbol of each byte
	// extra are the ids of symbols that are no tokens, from the size of the
	// vocabulary on.
	extra [][]int32
	ascii [1 << 14]struct{ rank, to uint32 } // merges of two ASCII characters
}

func newWordCoder(t *Tokenizer) (*wordCoder, *joinSet, error) {
	c := &wordCoder{t: t}
	if err := c.checkScores(); err != nil {
		return nil, nil, err
	}
	build := c.buildBPE
	if t.v.Model == ModelSPM {
		build = c.buildSPM
	}
	join := build()
	c.buildASCII()
	return c, join, nil
}

// checkScores refuses scores that have no order.
func (c *wordCoder) checkScores() error {
	for id, s := range c.t.v.Scores {
		if math.IsNaN(float64(s)) {
			return fmt.Errorf("token %d has the score NaN: %w", id, ErrFormat)
		}
	}
	return nil
}

// symbols numbers texts.
type symbolNames struct {
	t     *Tokenizer
	extra map[string]uint32
	texts []string
}

func (n *symbolNames) of(s string) uint32 {
	if id, ok := n.t.id(s); ok {
		return uint32(id)
	}
	if sym, ok := n.extra[s]; ok {
		return sym
	}
	sym := uint32(n.t.Size() + len(n.texts))
	n.extra[s] = sym
	n.texts = append(n.texts, s)
	return sym
}

// buildBPE makes a pair of every way to read a merge line as two parts.
func (c *wordCoder) buildBPE() *joinSet {
	t := c.t
	names := &symbolNames{t: t, extra: map[string]uint32{}}
	c.pairs = newPairTable(t.merges.len())
	join := newJoinSet(2 * t.merges.len())
	c.chars = newCharTable()
	for b := range c.bytes {
		c.bytes[b] = names.of(string(byteChar(byte(b))))
	}
	for rank, line := range t.merges.list() {
		for i := 1; i < len(line)-1; i++ {
			if line[i] != ' ' {
				continue
			}
			left, right := line[:i], line[i+1:]
			both := left + right
			c.pairs.put(names.of(left), names.of(right), uint32(rank), names.of(both))
			join.addText(both)
			if t.cut.rawUTF8 {
				c.addChars(names, both)
			}
		}
	}
	if t.cut.rawUTF8 {
		for id := range t.Size() {
			text := t.text(int32(id))
			if k, n := keyAt(text, 0); n == len(text) {
				c.chars.put(k, uint32(id))
			}
		}
	}
	for _, s := range names.texts {
		c.extra = append(c.extra, c.spelled(s))
	}
	return join
}

// addChars gives every character of a text its symbol.
func (c *wordCoder) addChars(names *symbolNames, s string) {
	for i := 0; i < len(s); {
		k, n := keyAt(s, i)
		c.chars.put(k, names.of(s[i:i+n]))
		i += n
	}
}

// spelled gives the ids of a text that is no token: its bytes', as far as they
// have tokens.
func (c *wordCoder) spelled(s string) []int32 {
	var ids []int32
	for j := 0; j < len(s); j++ {
		name := s[j : j+1]
		if c.t.cut.rawUTF8 {
			name = byteToken(s[j])
		}
		if id, ok := c.t.id(name); ok {
			ids = append(ids, id)
		}
	}
	return ids
}

// buildSPM makes a pair of every way to cut a token into two symbols. Its rank
// is that of the token's score among all scores.
func (c *wordCoder) buildSPM() *joinSet {
	t := c.t
	names := &symbolNames{t: t, extra: map[string]uint32{}}
	c.chars = newCharTable()
	scores := slices.Clone(t.v.Scores)
	slices.SortFunc(scores, func(a, b float32) int { return cmp.Compare(b, a) })
	scores = slices.Compact(scores)
	pairs := 0
	for id := range t.Size() {
		text := t.text(int32(id))
		c.addChars(names, text)
		pairs += len(text)
	}
	c.pairs = newPairTable(pairs / 4)
	join := newJoinSet(pairs / 2)
	known := func(s string) (uint32, bool) {
		if id, ok := t.id(s); ok {
			return uint32(id), true
		}
		sym, ok := names.extra[s]
		return sym, ok
	}
	for id := range t.Size() {
		text := t.text(int32(id))
		join.addText(text)
		rank, _ := slices.BinarySearchFunc(scores, t.v.Scores[id], func(a, b float32) int { return cmp.Compare(b, a) })
		for i := 0; i < len(text); {
			_, n := keyAt(text, i)
			if i += n; i == len(text) {
				break
			}
			left, ok := known(text[:i])
			if !ok {
				continue
			}
			if right, ok := known(text[i:]); ok {
				c.pairs.put(left, right, uint32(rank), uint32(id))
			}
		}
	}
	c.extra = make([][]int32, len(names.texts))
	return join
}

// first is the merge of two characters, given by their first bytes and symbols. For
// ASCII it has a table of its own, which stays in the processor's cache.
func (c *wordCoder) first(a, b byte, left, right uint32) (rank, to uint32) {
	if a|b < 128 {
		s := &c.ascii[uint(a&127)<<7|uint(b&127)]
		return s.rank, s.to
	}
	return c.pairs.get(left, right)
}

// buildASCII fills that table.
func (c *wordCoder) buildASCII() {
	sym := func(b int) uint32 {
		if c.t.v.Model == ModelSPM || c.t.cut.rawUTF8 {
			return c.chars.get(charKey(b))
		}
		return c.bytes[b]
	}
	for a := range 128 {
		for b := range 128 {
			s := &c.ascii[a<<7|b]
			s.rank, s.to = c.pairs.get(sym(a), sym(b))
		}
	}
}

// part is a symbol of a word: where it begins, and the merge with the next one.
type codePart struct {
	sym      uint32
	at       int32
	rank, to uint32
}

// wordBuffer is what coding a word needs besides.
type wordBuffer struct {
	parts []codePart
	text  []byte
	queue rankQueue
	links []codeLink
}

// word adds the ids of a word.
func (c *wordCoder) word(b *wordBuffer, ids []int32, w string) ([]int32, error) {
	spm := c.t.v.Model == ModelSPM
	if spm || c.t.cut.rawUTF8 {
		if (spm || c.t.cut.markSpaces) && strings.IndexByte(w, ' ') >= 0 {
			w = strings.ReplaceAll(w, " ", "\u2581")
		}
	}
	if !spm && (c.t.cut.ignoreMerges || c.t.cut.wholeLines && strings.Trim(w, "\n") == "") {
		if id, ok := c.whole(b, w); ok {
			return append(ids, id), nil
		}
	}
	b.parts = b.parts[:0]
	if spm || c.t.cut.rawUTF8 {
		for i := 0; i < len(w); {
			k, n := keyAt(w, i)
			b.parts = append(b.parts, codePart{sym: c.chars.get(k), at: int32(i), rank: noRank})
			i += n
		}
	} else {
		for i := range len(w) {
			b.parts = append(b.parts, codePart{sym: c.bytes[w[i]], at: int32(i), rank: noRank})
		}
	}
	for i := 1; i < len(b.parts); i++ {
		p := &b.parts[i-1]
		p.rank, p.to = c.first(w[p.at], w[b.parts[i].at], p.sym, b.parts[i].sym)
	}
	if len(b.parts) <= 64 {
		b.parts = c.mergeShort(b.parts)
	} else {
		b.parts = c.mergeLong(b)
	}
	for i := range b.parts {
		p := &b.parts[i]
		if p.sym < uint32(c.t.Size()) {
			ids = append(ids, int32(p.sym))
			continue
		}
		end := len(w)
		if i+1 < len(b.parts) {
			end = int(b.parts[i+1].at)
		}
		switch text := w[p.at:end]; {
		case spm:
			for j := range len(text) {
				id, err := c.t.byteID(text[j])
				if err != nil {
					return nil, err
				}
				ids = append(ids, id)
			}
		case p.sym == noSym:
			ids = append(ids, c.spelled(text)...)
		default:
			ids = append(ids, c.extra[p.sym-uint32(c.t.Size())]...)
		}
	}
	return ids, nil
}

// whole finds a word that is a token.
func (c *wordCoder) whole(b *wordBuffer, w string) (int32, bool) {
	if c.t.cut.rawUTF8 {
		id, ok := c.t.id(w)
		return id, ok
	}
	b.text = b.text[:0]
	for i := range len(w) {
		r := byteChar(w[i])
		if r < 0x80 {
			b.text = append(b.text, byte(r))
		} else {
			b.text = append(b.text, 0xC0|byte(r>>6), 0x80|byte(r&0x3F))
		}
	}
	id, ok := c.t.idOf(b.text)
	return id, ok
}

// mergeShort does the merge of lowest rank, of equals the leftmost, until there
// is none.
func (c *wordCoder) mergeShort(p []codePart) []codePart {
	for {
		best, at := noRank, -1
		for i := range p {
			if p[i].rank < best {
				best, at = p[i].rank, i
			}
		}
		if at < 0 {
			return p
		}
		p[at].sym = p[at].to
		p = append(p[:at+1], p[at+2:]...)
		if at+1 < len(p) {
			p[at].rank, p[at].to = c.pairs.get(p[at].sym, p[at+1].sym)
		} else {
			p[at].rank = noRank
		}
		if at > 0 {
			p[at-1].rank, p[at-1].to = c.pairs.get(p[at-1].sym, p[at].sym)
		}
	}
}

// rankQueue gives the lowest rank, of equals the leftmost: rank<<32 | place.
type rankQueue []uint64

func (q rankQueue) Len() int           { return len(q) }
func (q rankQueue) Less(i, j int) bool { return q[i] < q[j] }
func (q rankQueue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *rankQueue) Push(x any)        { *q = append(*q, x.(uint64)) }
func (q *rankQueue) Pop() any {
	old := *q
	x := old[len(old)-1]
	*q = old[:len(old)-1]
	return x
}

type codeLink struct{ prev, next int32 }

// mergeLong is mergeShort with a queue. An entry is good as long as the part at
// its place still has that rank: an equal rank is an equal claim.
func (c *wordCoder) mergeLong(b *wordBuffer) []codePart {
	p := b.parts
	b.queue, b.links = b.queue[:0], b.links[:0]
	for i := range p {
		b.links = append(b.links, codeLink{int32(i - 1), int32(i + 1)})
		if p[i].rank != noRank {
			b.queue = append(b.queue, uint64(p[i].rank)<<32|uint64(i))
		}
	}
	heap.Init(&b.queue)
	update := func(i int32) {
		next := b.links[i].next
		if int(next) == len(p) {
			p[i].rank = noRank
			return
		}
		if p[i].rank, p[i].to = c.pairs.get(p[i].sym, p[next].sym); p[i].rank != noRank {
			heap.Push(&b.queue, uint64(p[i].rank)<<32|uint64(i))
		}
	}
	for len(b.queue) > 0 {
		x := heap.Pop(&b.queue).(uint64)
		i := int32(x & 0xFFFFFFFF)
		if p[i].rank != uint32(x>>32) {
			continue
		}
		dead := b.links[i].next
		p[i].sym = p[i].to
		p[dead].rank, p[dead].at = noRank, -1
		next := b.links[dead].next
		b.links[i].next = next
		if int(next) < len(p) {
			b.links[next].prev = i
		}
		update(i)
		if prev := b.links[i].prev; prev >= 0 {
			update(prev)
		}
	}
	out := p[:0]
	for i := range p {
		if p[i].at >= 0 {
			out = append(out, p[i])
		}
	}
	return out
}
