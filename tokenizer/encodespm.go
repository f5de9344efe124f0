package tokenizer

import (
	"container/heap"
	"fmt"
)

// symbol is a stretch of the text that is one token so far; symbols form a
// list. A merged symbol has n 0.
type symbol struct {
	at, n      int
	prev, next int
}

// symbolsOf cuts a text into characters by the lead byte alone.
func symbolsOf(s string) []symbol {
	var syms []symbol
	for at := 0; at < len(s); {
		n := leadLen(s[at])
		if n > len(s)-at {
			n = len(s) - at
		}
		i := len(syms)
		syms = append(syms, symbol{at, n, i - 1, i + 1})
		at += n
	}
	if len(syms) > 0 {
		syms[len(syms)-1].next = -1
	}
	return syms
}

// leadLen gives the length that a lead byte announces.
func leadLen(b byte) int {
	switch b >> 4 {
	case 0xC, 0xD:
		return 2
	case 0xE:
		return 3
	case 0xF:
		return 4
	}
	return 1
}

// spmPair is two neighbours whose texts together are a token.
type spmPair struct {
	left, right int
	score       float32
	size        int
}

// spmQueue gives the pair with the highest score, of equals the leftmost.
type spmQueue []spmPair

func (q spmQueue) Len() int { return len(q) }
func (q spmQueue) Less(i, j int) bool {
	return q[i].score > q[j].score || q[i].score == q[j].score && q[i].left < q[j].left
}
func (q spmQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *spmQueue) Push(x any)   { *q = append(*q, x.(spmPair)) }
func (q *spmQueue) Pop() any {
	old := *q
	x := old[len(old)-1]
	*q = old[:len(old)-1]
	return x
}

// spmSession encodes one text by SentencePiece's BPE: merge the best pair until
// none is left.
type spmSession struct {
	t     *Tokenizer
	text  string
	syms  []symbol
	queue spmQueue
	made  func(text string) // told of every merge, unless nil
}

func (t *Tokenizer) encodeSPM(ids []int32, text string) ([]int32, error) {
	s := &spmSession{t: t, text: text, syms: symbolsOf(text)}
	s.merge()
	var err error
	for i := 0; i >= 0 && i < len(s.syms); i = s.syms[i].next {
		if ids, err = s.emit(ids, i); err != nil {
			return nil, err
		}
	}
	return ids, nil
}

// merge joins characters to tokens.
func (s *spmSession) merge() {
	for i := 1; i < len(s.syms); i++ {
		s.push(i-1, i)
	}
	for len(s.queue) > 0 {
		p := heap.Pop(&s.queue).(spmPair)
		left, right := &s.syms[p.left], &s.syms[p.right]
		if left.n == 0 || right.n == 0 || left.n+right.n != p.size {
			continue // one of them has been merged meanwhile
		}
		left.n += right.n
		right.n = 0
		left.next = right.next
		if right.next >= 0 {
			s.syms[right.next].prev = p.left
		}
		if s.made != nil {
			s.made(s.text[left.at : left.at+left.n])
		}
		s.push(left.prev, p.left)
		s.push(p.left, left.next)
	}
}

func (s *spmSession) push(left, right int) {
	if left < 0 || right < 0 {
		return
	}
	at := s.syms[left].at
	size := s.syms[left].n + s.syms[right].n
	text := s.text[at : at+size]
	if id, ok := s.t.id(text); ok {
		heap.Push(&s.queue, spmPair{left, right, s.t.v.Scores[id], size})
	}
}

// emit puts down a symbol: its token, else its bytes. Only a single character
// can be without a token, since pairs are queued by their token.
func (s *spmSession) emit(ids []int32, i int) ([]int32, error) {
	text := s.text[s.syms[i].at : s.syms[i].at+s.syms[i].n]
	if id, ok := s.t.id(text); ok {
		return append(ids, id), nil
	}
	for j := 0; j < len(text); j++ {
		id, err := s.t.byteID(text[j])
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// byteID finds the token of a byte.
func (t *Tokenizer) byteID(b byte) (int32, error) {
	if id, ok := t.id(byteToken(b)); ok {
		return id, nil
	}
	if id, ok := t.id(string([]byte{b})); ok {
		return id, nil
	}
	return 0, fmt.Errorf("byte 0x%02X has no token: %w", b, ErrUnsupported)
}
