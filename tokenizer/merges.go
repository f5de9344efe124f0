package tokenizer

import (
	"fmt"
	"hash/maphash"
	"math"
	"strings"
)

// mergeTable finds the rank of a merge, which is the number of its line "left right".
// A line says nothing that the token does not which the merge makes, but where the
// token is cut in two, so that only this is kept.
type mergeTable struct {
	t    *Tokenizer
	made []uint32 // the token of a merge; for an odd line its place in odd, with isOdd
	cuts []uint16 // bytes of its left part
	rank index
	// odd are lines that have other spaces than that between the parts, or that make no
	// token. They are found by the whole line, whichever of its spaces is taken for
	// the one between.
	odd     []string
	oddRank map[string]int32
}

const isOdd = 1 << 31

// newMerges indexes merges. A line is cut at the first space after its first byte; of
// equal lines the first counts.
func (t *Tokenizer) newMerges(lines []string) (*mergeTable, error) {
	if len(lines) > math.MaxInt32 {
		return nil, fmt.Errorf("%d merges: %w", len(lines), ErrFormat)
	}
	m := &mergeTable{t: t, made: make([]uint32, len(lines)), cuts: make([]uint16, len(lines)), rank: newIndex(len(lines))}
	var both []byte
	for i, line := range lines {
		if len(line) < 3 || strings.IndexByte(line[1:], ' ') < 0 {
			return nil, fmt.Errorf("merge %d %q has no space between two parts: %w", i, line, ErrFormat)
		}
		left, right, _ := strings.Cut(line, " ")
		both = append(append(both[:0], left...), right...)
		id, ok := t.idOf(both)
		if !ok || left == "" || len(left) > math.MaxUint16 || strings.IndexByte(right, ' ') >= 0 {
			m.addOdd(i, line)
			continue
		}
		m.made[i], m.cuts[i] = uint32(id), uint16(len(left))
		if _, ok := m.even(left, right); !ok {
			m.rank.put(pairHash(left, right), uint32(i))
		}
	}
	return m, nil
}

func (m *mergeTable) addOdd(i int, line string) {
	m.made[i] = isOdd | uint32(len(m.odd))
	line = strings.Clone(line) // which may be part of all lines
	m.odd = append(m.odd, line)
	if m.oddRank == nil {
		m.oddRank = map[string]int32{}
	}
	if _, ok := m.oddRank[line]; !ok {
		m.oddRank[line] = int32(i)
	}
}

func pairHash(left, right string) uint64 {
	return maphash.String(seed, left)*0x9E3779B97F4A7C15 + maphash.String(seed, right)
}

// even finds the rank of two parts among lines that are not odd.
func (m *mergeTable) even(left, right string) (uint32, bool) {
	return m.rank.find(pairHash(left, right), func(i uint32) bool {
		if int(m.cuts[i]) != len(left) {
			return false
		}
		text := m.t.text(int32(m.made[i]))
		return len(text) == len(left)+len(right) && text[:len(left)] == left && text[len(left):] == right
	})
}

// find gives the rank of the merge of two parts. buf is room for a line, and is given
// back.
func (m *mergeTable) find(left, right string, buf []byte) (rank int32, ok bool, _ []byte) {
	if i, ok := m.even(left, right); ok {
		return int32(i), true, buf
	}
	if m.odd == nil {
		return 0, false, buf
	}
	buf = append(append(append(buf[:0], left...), ' '), right...)
	rank, ok = m.oddRank[string(buf)]
	return rank, ok, buf
}

// len is the number of lines, 0 without a table.
func (m *mergeTable) len() int {
	if m == nil {
		return 0
	}
	return len(m.made)
}

// line gives line i.
func (m *mergeTable) line(i int) string {
	if at := m.made[i]; at&isOdd != 0 {
		return m.odd[at&^isOdd]
	}
	text, cut := m.t.text(int32(m.made[i])), m.cuts[i]
	return text[:cut] + " " + text[cut:]
}
