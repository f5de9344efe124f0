package trace

import (
	"cmp"
	"errors"
	"io"
	"slices"
)

// Use counts how often experts were chosen.
type Use struct {
	Header Header
	Tokens int64
	// Counts has a row for each of Header.Layers with a count for each expert.
	Counts [][]int64
}

// ReadUse counts a whole trace. Of one that breaks off inside a token, the rows
// that are there count, and cut is true.
func ReadUse(name string, r io.Reader) (u *Use, cut bool, err error) {
	t, err := NewReader(name, r)
	if err != nil {
		return nil, false, err
	}
	defer t.Close()
	u = &Use{Header: t.Header, Counts: make([][]int64, len(t.Header.Layers))}
	for i := range u.Counts {
		u.Counts[i] = make([]int64, t.Header.Experts)
	}
	for {
		row, err := t.Next()
		u.Tokens = t.Tokens()
		switch {
		case errors.Is(err, io.EOF):
			return u, false, nil
		case errors.Is(err, io.ErrUnexpectedEOF) && errors.Is(err, ErrFormat):
			return u, true, nil
		case err != nil:
			return nil, false, err
		}
		for _, e := range row.Chosen {
			u.Counts[row.Layer][e]++
		}
	}
}

// Ranked gives the experts of a layer, the most used first, the lower number
// where two are equal.
func (u *Use) Ranked(layer int) []int {
	out := make([]int, u.Header.Experts)
	for i := range out {
		out[i] = i
	}
	slices.SortStableFunc(out, func(a, b int) int { return cmp.Compare(u.Counts[layer][b], u.Counts[layer][a]) })
	return out
}

// Warm gives the n most used experts of each layer: what a pool is best filled
// with at the start.
func (u *Use) Warm(n int) [][]int {
	out := make([][]int, len(u.Counts))
	for i := range out {
		ranked := u.Ranked(i)
		out[i] = ranked[:min(n, len(ranked))]
	}
	return out
}
