package count

import (
	"fmt"
	"strconv"

	"quern/tokenizer"
)

// Report says how a list of tokens covers the corpora.
type Report struct {
	Vocabulary int `json:"vocabulary"`
	Kept       int `json:"kept"`
	Special    int `json:"special"`
	Bytes      int `json:"bytes"`
	Added      int `json:"added"`
	Text       int `json:"text"`
	// Rounded is how many tokens were taken to make the number a multiple.
	Rounded    int        `json:"rounded"`
	MultipleOf int64      `json:"multiple_of,omitempty"`
	Corpora    []Coverage `json:"corpora"`
}

// Coverage is that of one corpus. Shares are of 1.
type Coverage struct {
	Name         string  `json:"name"`
	Language     string  `json:"language,omitempty"`
	Weight       float64 `json:"weight"`
	Files        int     `json:"files"`
	Bytes        int64   `json:"bytes"`
	Tokens       uint64  `json:"tokens"`
	Distinct     int     `json:"distinct_tokens"`
	Outside      uint64  `json:"tokens_outside"`
	OutsideShare float64 `json:"tokens_outside_share"`
	BytesOutside uint64  `json:"bytes_outside"`
	BytesShare   float64 `json:"bytes_outside_share"`
	DistinctOut  int     `json:"distinct_outside"`
	MostFrequent []int32 `json:"most_frequent_outside,omitempty"`
}

// TokenBytes gives how many bytes of text each token stands for.
func TokenBytes(t *tokenizer.Tokenizer) []int {
	out := make([]int, t.Size())
	for id := range out {
		out[id] = len(t.Piece(int32(id), true))
	}
	return out
}

// mostShown is how many tokens outside are named.
const mostShown = 8

// Cover describes a list of ids, which ascend.
func Cover(c *Counts, kinds []Kind, size []int, ids []int32) *Report {
	r := &Report{Vocabulary: c.Vocab, Kept: len(ids)}
	kept := make([]bool, c.Vocab)
	for _, id := range ids {
		kept[id] = true
		switch kinds[id] {
		case Special:
			r.Special++
		case Byte:
			r.Bytes++
		case Added:
			r.Added++
		default:
			r.Text++
		}
	}
	for _, t := range c.Corpora {
		v := Coverage{Name: t.Name, Language: t.Language, Weight: t.Weight, Files: t.Files, Bytes: t.Bytes, Tokens: t.Total}
		var all uint64
		for id, n := range t.IDs {
			if n == 0 {
				continue
			}
			v.Distinct++
			all += n * uint64(size[id])
			if kept[id] {
				continue
			}
			v.DistinctOut++
			v.Outside += n
			v.BytesOutside += n * uint64(size[id])
			v.note(int32(id), t.IDs)
		}
		if t.Total > 0 {
			v.OutsideShare = float64(v.Outside) / float64(t.Total)
		}
		if all > 0 {
			v.BytesShare = float64(v.BytesOutside) / float64(all)
		}
		r.Corpora = append(r.Corpora, v)
	}
	return r
}

// note keeps the most frequent tokens outside; ids come in ascending order.
func (v *Coverage) note(id int32, counts []uint64) {
	m := v.MostFrequent
	i := len(m)
	for i > 0 && counts[m[i-1]] < counts[id] {
		i--
	}
	if i == mostShown {
		return
	}
	m = append(m[:i:i], append([]int32{id}, m[i:]...)...)
	v.MostFrequent = m[:min(len(m), mostShown)]
}

// Report describes a selection.
func (s *Selection) Report(c *Counts, size []int) *Report {
	r := Cover(c, s.Kinds, size, s.IDs)
	r.Rounded = len(s.IDs) - s.Wanted
	if s.Rules.MultipleOf > 1 {
		r.MultipleOf = s.Rules.MultipleOf
	}
	return r
}

// Lines are the report as sentences.
func (r *Report) Lines() []string {
	first := fmt.Sprintf("%d of %d tokens: %d special, %d bytes, %d added, %d more", r.Kept, r.Vocabulary, r.Special, r.Bytes, r.Added, r.Text)
	if r.Rounded > 0 {
		first += fmt.Sprintf(", the last %d of them for a multiple of %d", r.Rounded, r.MultipleOf)
	}
	out := []string{first}
	for _, v := range r.Corpora {
		name := v.Name
		if v.Language != "" && v.Language != v.Name {
			name = v.Language + " (" + v.Name + ")"
		}
		out = append(out, fmt.Sprintf("%s: %s of %d tokens and %s of the bytes fall outside", name, Percent(v.OutsideShare), v.Tokens, Percent(v.BytesShare)))
	}
	return out
}

// Percent writes a share with two digits that count, or more from 10 % on.
func Percent(share float64) string {
	p := float64(100 * share)
	switch {
	case p == 0:
		return "0 %"
	case p < 0.001:
		return "under 0.001 %"
	case p < 10:
		return strconv.FormatFloat(p, 'g', 2, 64) + " %"
	}
	return strconv.FormatFloat(p, 'f', 1, 64) + " %"
}
