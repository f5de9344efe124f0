package tokenizer

import (
	"container/heap"
	"fmt"
	"strings"
	"unicode/utf8"
)

// mergeRule is what two adjacent tokens become, and how early.
type mergeRule struct {
	rank int32
	id   int32
}

// mergeTable makes the BPE merges by pair of ids; each must join two tokens into
// a third. Of a pair that occurs twice the later rank counts.
func (m *hfModel) mergeTable() (map[uint64]mergeRule, error) {
	table := make(map[uint64]mergeRule, len(m.merges))
	for i, p := range m.merges {
		var ids [3]int32
		for j, text := range [3]string{p[0], p[1], p[0] + strings.TrimPrefix(p[1], m.prefix)} {
			id, ok := m.vocab[text]
			if !ok {
				return nil, fmt.Errorf("merge %d (%q %q): %q is not in the vocabulary: %w", i, p[0], p[1], text, ErrFormat)
			}
			ids[j] = id
		}
		table[pairKey(ids[0], ids[1])] = mergeRule{int32(i), ids[2]}
	}
	return table, nil
}

func pairKey(a, b int32) uint64 { return uint64(uint32(a))<<32 | uint64(uint32(b)) }

// bpeWord encodes one word.
func (e *hfEncoder) bpeWord(word string) ([]int32, error) {
	m := &e.t.model
	if m.ignoreMerges {
		if id, ok := m.vocab[word]; ok {
			return []int32{id}, nil
		}
	}
	if ids, ok := e.cache[word]; ok {
		return ids, nil
	}
	ids, err := e.symbols(word)
	if err != nil {
		return nil, err
	}
	ids = mergeIDs(ids, e.merges)
	if len(word) < 256 && len(e.cache) < 1<<14 {
		e.cache[word] = ids
	}
	return ids, nil
}

// symbols gives the first ids of a word: characters, else their bytes, else the
// unknown token, else nothing.
func (e *hfEncoder) symbols(word string) ([]int32, error) {
	m := &e.t.model
	var ids []int32
	unknown := false // an unknown token waits to be put down
	unkID := int32(0)
	flush := func() {
		if unknown {
			ids = append(ids, unkID)
			unknown = false
		}
	}
	for i := 0; i < len(word); {
		_, n := utf8.DecodeRuneInString(word[i:])
		text := word[i : i+n]
		if i > 0 {
			text = m.prefix + text
		}
		i += n
		if i == len(word) {
			text += m.suffix
		}
		if id, ok := m.vocab[text]; ok {
			flush()
			ids = append(ids, id)
			continue
		}
		if m.byteFallback {
			if bytes, ok := e.byteIDs(text); ok {
				// A waiting unknown token stays behind the bytes: that is how
				// the Hugging Face library has it.
				ids = append(ids, bytes...)
				continue
			}
		}
		if m.hasUnk {
			id, ok := m.vocab[m.unk]
			if !ok {
				return nil, fmt.Errorf("unknown token %q is not in the vocabulary: %w", m.unk, ErrFormat)
			}
			if !m.fuseUnk {
				flush()
			}
			unknown, unkID = true, id
		}
	}
	flush()
	return ids, nil
}

func (e *hfEncoder) byteIDs(text string) ([]int32, bool) {
	var out []int32
	for i := 0; i < len(text); i++ {
		id, ok := e.t.model.vocab[byteToken(text[i])]
		if !ok {
			return nil, false
		}
		out = append(out, id)
	}
	return out, true
}

// mergeIDs applies merges by lowest rank, leftmost first, until none is left.
func mergeIDs(ids []int32, table map[uint64]mergeRule) []int32 {
	if len(ids) < 2 {
		return ids
	}
	next := make([]int32, len(ids))
	prev := make([]int32, len(ids))
	for i := range ids {
		next[i], prev[i] = int32(i+1), int32(i-1)
	}
	next[len(ids)-1] = -1
	var q mergeQueue
	push := func(left int32) {
		if left < 0 || next[left] < 0 {
			return
		}
		if r, ok := table[pairKey(ids[left], ids[next[left]])]; ok {
			heap.Push(&q, mergeCandidate{r.rank, left, r.id})
		}
	}
	for i := range ids[:len(ids)-1] {
		if r, ok := table[pairKey(ids[i], ids[i+1])]; ok {
			q = append(q, mergeCandidate{r.rank, int32(i), r.id})
		}
	}
	heap.Init(&q)
	for len(q) > 0 {
		c := heap.Pop(&q).(mergeCandidate)
		if ids[c.left] < 0 || next[c.left] < 0 {
			continue
		}
		right := next[c.left]
		// An entry is stale when its pair has changed meanwhile.
		if r, ok := table[pairKey(ids[c.left], ids[right])]; !ok || r.id != c.id {
			continue
		}
		ids[c.left], ids[right] = c.id, -1
		next[c.left] = next[right]
		if next[right] >= 0 {
			prev[next[right]] = c.left
		}
		push(prev[c.left])
		push(c.left)
	}
	out := ids[:0]
	for _, id := range ids {
		if id >= 0 {
			out = append(out, id)
		}
	}
	return out
}

type mergeCandidate struct {
	rank int32
	left int32
	id   int32
}

type mergeQueue []mergeCandidate

func (q mergeQueue) Len() int { return len(q) }
func (q mergeQueue) Less(i, j int) bool {
	return q[i].rank < q[j].rank || q[i].rank == q[j].rank && q[i].left < q[j].left
}
func (q mergeQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *mergeQueue) Push(x any)   { *q = append(*q, x.(mergeCandidate)) }
func (q *mergeQueue) Pop() any {
	old := *q
	x := old[len(old)-1]
	*q = old[:len(old)-1]
	return x
}
