package tokenizer

import (
	"container/heap"
	"strings"
	"unicode/utf8"
)

// bpePair is two neighbours that a merge rule joins.
type bpePair struct {
	left, right int
	rank        int32
	size        int
}

// bpeQueue gives the pair with the lowest rank, of equals the leftmost.
type bpeQueue []bpePair

func (q bpeQueue) Len() int { return len(q) }
func (q bpeQueue) Less(i, j int) bool {
	return q[i].rank < q[j].rank || q[i].rank == q[j].rank && q[i].left < q[j].left
}
func (q bpeQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *bpeQueue) Push(x any)   { *q = append(*q, x.(bpePair)) }
func (q *bpeQueue) Pop() any {
	old := *q
	x := old[len(old)-1]
	*q = old[:len(old)-1]
	return x
}

func (t *Tokenizer) encodeBPE(ids []int32, text string) ([]int32, error) {
	if t.cut.markSpaces {
		text = strings.ReplaceAll(text, " ", "\u2581")
	}
	s := bpeSession{t: t}
	err := t.cut.cut(looseUTF8(text), func(word string) {
		if !t.cut.rawUTF8 {
			word = toByteLevel(word)
		}
		ids = s.word(ids, word)
	})
	return ids, err
}

// bpeSession holds the buffers of one text.
type bpeSession struct {
	t     *Tokenizer
	queue bpeQueue
	line  []byte            // room for a line of merges
	made  func(text string) // told of every merge, unless nil
}

func (s *bpeSession) word(ids []int32, word string) []int32 {
	t := s.t
	if t.cut.ignoreMerges || t.cut.wholeLines && strings.Trim(word, "\n") == "" {
		if id, ok := t.id(word); ok {
			return append(ids, id)
		}
	}
	syms := s.merge(word)
	for i := 0; i >= 0 && i < len(syms); i = syms[i].next {
		text := word[syms[i].at : syms[i].at+syms[i].n]
		if id, ok := t.id(text); ok {
			ids = append(ids, id)
			continue
		}
		// What is no token goes byte by byte; bytes without a token are lost.
		for j := 0; j < len(text); j++ {
			name := string([]byte{text[j]})
			if t.cut.rawUTF8 {
				name = byteToken(text[j])
			}
			if id, ok := t.id(name); ok {
				ids = append(ids, id)
			}
		}
	}
	return ids
}

// merge joins the characters of a word by the merge rules.
func (s *bpeSession) merge(word string) []symbol {
	syms := symbolsOf(word)
	s.queue = s.queue[:0]
	for i := 1; i < len(syms); i++ {
		s.push(word, syms, i-1, i)
	}
	for len(s.queue) > 0 {
		p := heap.Pop(&s.queue).(bpePair)
		left, right := &syms[p.left], &syms[p.right]
		if left.n == 0 || right.n == 0 || left.n+right.n != p.size {
			continue // one of them has been merged meanwhile
		}
		left.n += right.n
		right.n = 0
		left.next = right.next
		if right.next >= 0 {
			syms[right.next].prev = p.left
		}
		if s.made != nil {
			s.made(word[left.at : left.at+left.n])
		}
		s.push(word, syms, left.prev, p.left)
		s.push(word, syms, p.left, left.next)
	}
	return syms
}

func (s *bpeSession) push(word string, syms []symbol, left, right int) {
	if left < 0 || right < 0 {
		return
	}
	l, r := syms[left], syms[right]
	var rank int32
	var ok bool
	if rank, ok, s.line = s.t.merges.find(word[l.at:r.at+r.n], l.n, s.line); ok {
		heap.Push(&s.queue, bpePair{left, right, rank, l.n + r.n})
	}
}

// looseUTF8 replaces each byte that starts no sequence by U+FFFD. Unlike
// lossyUTF8 it lets overlong forms through and replaces byte by byte, as the
// reader whose ids must be met does.
func looseUTF8(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); {
		n := 0
		var r rune
		switch b := s[i]; {
		case b < 0x80:
			n, r = 1, rune(b)
		case b < 0xC0 || b >= 0xF8:
		case b < 0xE0:
			n, r = 2, rune(b&0x1F)
		case b < 0xF0:
			n, r = 3, rune(b&0x0F)
		default:
			n, r = 4, rune(b&0x07)
		}
		if i+n > len(s) {
			n = 0
		}
		for j := 1; j < n; j++ {
			if s[i+j]&0xC0 != 0x80 {
				n = 0
				break
			}
			r = r<<6 | rune(s[i+j]&0x3F)
		}
		if n == 0 {
			n, r = 1, utf8.RuneError
		}
		out = utf8.AppendRune(out, r)
		i += n
	}
	return string(out)
}
