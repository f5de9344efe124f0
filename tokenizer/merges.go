package tokenizer

import (
	"fmt"
	"hash/maphash"
	"math"
	"strings"
)

// mergeTable finds the rank of a merge, which is the number of its line "left right".
// A line says no more than the token that the merge makes and where it is cut in two,
// and mostly a token is made by one merge, so that rank and cut are kept by token.
type mergeTable struct {
	t     *Tokenizer
	lines int
	ranks []uint32 // by token: 1 more than the rank of the first merge that makes it, 0 for none
	cuts  []uint8  // by token: bytes of its left part
	more  moreMerges
	odd   oddMerges
}

// moreMerges are merges that make a token which another makes too, or of which the left
// part is long.
type moreMerges struct {
	ranks []uint32
	made  []uint32 // tokens
	cuts  []uint16
	index index // of places in the lists above, by token and cut
}

// oddMerges are lines that have other spaces than that between the parts, or that make no
// token. They are found by the whole line, whichever of its spaces is taken for the
// one between.
type oddMerges struct {
	ranks []uint32
	lines []string
	rank  map[string]int32
}

// newMerges indexes merges. A line is cut at the first space after its first byte; of
// equal lines the first counts.
func (t *Tokenizer) newMerges(lines []string) (*mergeTable, error) {
	if len(lines) >= math.MaxInt32 {
		return nil, fmt.Errorf("%d merges: %w", len(lines), ErrFormat)
	}
	m := &mergeTable{t: t, lines: len(lines), ranks: make([]uint32, t.Size()), cuts: make([]uint8, t.Size())}
	var both []byte
	for i, line := range lines {
		if len(line) < 3 || strings.IndexByte(line[1:], ' ') < 0 {
			return nil, fmt.Errorf("merge %d %q has no space between two parts: %w", i, line, ErrFormat)
		}
		left, right, _ := strings.Cut(line, " ")
		both = append(append(both[:0], left...), right...)
		id, ok := t.idOf(both)
		switch {
		case !ok || left == "" || len(left) > math.MaxUint16 || strings.IndexByte(right, ' ') >= 0:
			m.odd.add(uint32(i), line)
		case m.ranks[id] == 0 && len(left) <= math.MaxUint8:
			m.ranks[id], m.cuts[id] = uint32(i)+1, uint8(len(left))
		default:
			m.more.ranks = append(m.more.ranks, uint32(i))
			m.more.made = append(m.more.made, uint32(id))
			m.more.cuts = append(m.more.cuts, uint16(len(left)))
		}
	}
	m.more.build(m)
	return m, nil
}

// build indexes what is not known from a line before.
func (x *moreMerges) build(m *mergeTable) {
	x.index = newIndex(len(x.ranks))
	for i, id := range x.made {
		if _, known := m.of(id, int(x.cuts[i])); !known {
			x.index.put(cutHash(id, int(x.cuts[i])), uint32(i))
		}
	}
}

// cutHash is the hash of a token and its cut, by the seed like those of texts: merges can
// be chosen so that they lie in one place under any hash that is known.
func cutHash(id uint32, cut int) uint64 {
	return maphash.Comparable(seed, uint64(id)<<16|uint64(cut))
}

func (x *oddMerges) add(rank uint32, line string) {
	line = strings.Clone(line) // which may be part of all lines
	x.ranks, x.lines = append(x.ranks, rank), append(x.lines, line)
	if x.rank == nil {
		x.rank = map[string]int32{}
	}
	if _, ok := x.rank[line]; !ok {
		x.rank[line] = int32(rank)
	}
}

// of finds the rank of the merge that makes a token of two parts.
func (m *mergeTable) of(id uint32, cut int) (int32, bool) {
	if r := m.ranks[id]; r != 0 && int(m.cuts[id]) == cut {
		return int32(r - 1), true
	}
	if len(m.more.ranks) == 0 {
		return 0, false
	}
	i, ok := m.more.index.find(cutHash(id, cut), func(i uint32) bool { return m.more.made[i] == id && int(m.more.cuts[i]) == cut })
	if !ok {
		return 0, false
	}
	return int32(m.more.ranks[i]), true
}

// find gives the rank of the merge of the two parts of a text. buf is room for a line,
// and is given back.
func (m *mergeTable) find(text string, cut int, buf []byte) (rank int32, ok bool, _ []byte) {
	if id, ok := m.t.id(text); ok {
		if rank, ok := m.of(uint32(id), cut); ok {
			return rank, true, buf
		}
	}
	if m.odd.rank == nil {
		return 0, false, buf
	}
	buf = append(append(append(buf[:0], text[:cut]...), ' '), text[cut:]...)
	rank, ok = m.odd.rank[string(buf)]
	return rank, ok, buf
}

// len is the number of lines, 0 without a table.
func (m *mergeTable) len() int {
	if m == nil {
		return 0
	}
	return m.lines
}

// list makes all lines again.
func (m *mergeTable) list() []string {
	if m.len() == 0 {
		return nil
	}
	out := make([]string, m.lines)
	put := func(rank, id uint32, cut int) {
		text := m.t.text(int32(id))
		out[rank] = text[:cut] + " " + text[cut:]
	}
	for id, r := range m.ranks {
		if r != 0 {
			put(r-1, uint32(id), int(m.cuts[id]))
		}
	}
	for i, r := range m.more.ranks {
		put(r, m.more.made[i], int(m.more.cuts[i]))
	}
	for i, r := range m.odd.ranks {
		out[r] = m.odd.lines[i]
	}
	return out
}
