package count

import (
	"cmp"
	"fmt"
	"slices"

	"quern/tokenizer"
)

// Kind says why a token is kept, or what it is.
type Kind string

// The kinds of tokens.
const (
	Special Kind = "special" // control and unknown tokens, and those with a part to play
	Byte    Kind = "byte"    // one byte, so that every text can be written
	Added   Kind = "added"   // defined by the user of the tokenizer
	Unused  Kind = "unused"  // padding and reserves, which no sampler may return
	Text    Kind = "text"
)

// Kinds tells the tokens of a vocabulary apart, by id.
func Kinds(t *tokenizer.Tokenizer) []Kind {
	out := make([]Kind, t.Size())
	for id := range out {
		switch t.Type(int32(id)) {
		case tokenizer.Control, tokenizer.Unknown:
			out[id] = Special
		case tokenizer.UserDefined:
			out[id] = Added
		case tokenizer.Byte:
			out[id] = Byte
		case tokenizer.Unused:
			out[id] = Unused
		default:
			out[id] = Text
		}
	}
	for _, id := range t.ByteTokens() {
		if out[id] == Text {
			out[id] = Byte
		}
	}
	for _, id := range t.SpecialIDs() {
		out[id] = Special
	}
	return out
}

// Rules say which tokens are chosen. Special, byte and added tokens always are.
type Rules struct {
	// Count is how many tokens are kept, 0 for no such number.
	Count int64
	// MinCount leaves out tokens that all corpora together have fewer of.
	MinCount int64
	// Coverage is the share, up to 1, of the merged corpora that the kept
	// tokens make up at least; 0 for no such share.
	Coverage float64
	// MultipleOf makes the number of tokens a multiple, by the next most
	// frequent ones. 0 is 1.
	MultipleOf int64
	// Keep are further tokens to keep.
	Keep []int32
}

// Selection is what Select has chosen.
type Selection struct {
	IDs []int32 // ascending
	// Scores are the merged shares, by id.
	Scores []float64
	Kinds  []Kind
	// Wanted is the number of tokens before it was made a multiple.
	Wanted int
	Rules  Rules
}

// Scores merges corpora: in each, a token's share is its count by the count of
// all tokens; the merged share is the mean of these, weighted. So a corpus counts
// by its weight and not by its size.
func Scores(c *Counts) []float64 {
	var weights float64
	for _, t := range c.Corpora {
		weights += t.Weight
	}
	out := make([]float64, c.Vocab)
	for _, t := range c.Corpora {
		w := t.Weight / weights / float64(t.Total)
		for id, n := range t.IDs {
			out[id] += float64(w * float64(n))
		}
	}
	return out
}

// Select chooses tokens. Of tokens of equal share the lower id comes first.
func Select(c *Counts, kinds []Kind, r Rules) (*Selection, error) {
	if len(kinds) != c.Vocab {
		return nil, fmt.Errorf("%w: counts of %d tokens for a vocabulary of %d", ErrSelect, c.Vocab, len(kinds))
	}
	s := &selecting{c: c, rules: r, kept: make([]bool, c.Vocab), scores: Scores(c), kinds: kinds}
	for id, k := range kinds {
		if k == Special || k == Byte || k == Added {
			s.keep(int32(id))
		}
	}
	for _, id := range r.Keep {
		if id < 0 || int(id) >= c.Vocab {
			return nil, fmt.Errorf("%w: token %d is to be kept, and the vocabulary ends with token %d", ErrSelect, id, c.Vocab-1)
		}
		s.keep(id)
	}
	for i := range c.Corpora {
		s.cover(&c.Corpora[i])
	}
	if err := s.fill(); err != nil {
		return nil, err
	}
	wanted := s.n
	if err := s.round(); err != nil {
		return nil, err
	}
	out := &Selection{Scores: s.scores, Kinds: kinds, Wanted: wanted, Rules: r}
	for id, k := range s.kept {
		if k {
			out.IDs = append(out.IDs, int32(id))
		}
	}
	return out, nil
}

type selecting struct {
	c      *Counts
	rules  Rules
	kept   []bool
	n      int
	scores []float64
	kinds  []Kind
	order  []int32 // what is left to choose from, the best first
}

func (s *selecting) keep(id int32) {
	if !s.kept[id] {
		s.kept[id] = true
		s.n++
	}
}

// cover keeps the most frequent tokens of one corpus until its share is met.
func (s *selecting) cover(t *Tokens) {
	if t.Cover <= 0 {
		return
	}
	order := s.ranked(func(a, b int32) int { return cmp.Compare(t.IDs[b], t.IDs[a]) })
	var inside uint64
	for id, k := range s.kept {
		if k {
			inside += t.IDs[id]
		}
	}
	for _, id := range order {
		if float64(inside) >= t.Cover*float64(t.Total) || t.IDs[id] == 0 {
			return
		}
		s.keep(id)
		inside += t.IDs[id]
	}
}

// ranked gives the tokens that may be chosen and are not yet, by a comparison and
// then by id.
func (s *selecting) ranked(by func(a, b int32) int) []int32 {
	var out []int32
	for id, k := range s.kept {
		if !k && s.kinds[id] != Unused {
			out = append(out, int32(id))
		}
	}
	slices.SortStableFunc(out, by)
	return out
}

// total is how often all corpora have a token.
func (s *selecting) total(id int32) uint64 {
	var n uint64
	for _, t := range s.c.Corpora {
		n += t.IDs[id]
	}
	return n
}

func (s *selecting) fill() error {
	r := s.rules
	s.order = s.ranked(func(a, b int32) int { return cmp.Compare(s.scores[b], s.scores[a]) })
	if r.Count > 0 && int64(s.n) > r.Count {
		return fmt.Errorf("%w: %d tokens are wanted, and %s; ask for more tokens", ErrSelect, r.Count, s.why())
	}
	var inside float64
	for id, k := range s.kept {
		if k {
			inside += s.scores[id]
		}
	}
	rest := s.order[:0:0]
	for _, id := range s.order {
		enough := r.Count > 0 && int64(s.n) >= r.Count || r.Count == 0 && s.scores[id] == 0 ||
			r.Coverage > 0 && (inside >= r.Coverage && r.Coverage < 1 || s.scores[id] == 0) || r.MinCount > 0 && s.total(id) < uint64(r.MinCount)
		if enough {
			rest = append(rest, id)
			continue
		}
		s.keep(id)
		inside += s.scores[id]
	}
	s.order = rest
	if r.Count > int64(s.n) && r.MinCount == 0 && r.Coverage == 0 {
		return fmt.Errorf("%w: %d tokens are wanted, and the vocabulary has %d that can be kept", ErrSelect, r.Count, s.n)
	}
	return nil
}

// why says what is kept that nobody has chosen.
func (s *selecting) why() string {
	n := map[Kind]int{}
	for id, k := range s.kept {
		if k {
			n[s.kinds[id]]++
		}
	}
	text := fmt.Sprintf("%d are kept in any case: %d special, %d bytes, %d added", s.n, n[Special], n[Byte], n[Added])
	if more := n[Text] + n[Unused]; more > 0 {
		text += fmt.Sprintf(", %d by name or for a corpus' coverage", more)
	}
	return text
}

func (s *selecting) round() error {
	m := int(s.rules.MultipleOf)
	if m <= 1 || s.n%m == 0 {
		return nil
	}
	want := (s.n + m - 1) / m * m
	if want-s.n > len(s.order) {
		return fmt.Errorf("%w: %d tokens are no multiple of %d, and %d more are not there; the vocabulary has %d that can be kept",
			ErrSelect, s.n, m, want-s.n, s.n+len(s.order))
	}
	for _, id := range s.order[:want-s.n] {
		s.keep(id)
	}
	return nil
}

// TextIDs gives the tokens of texts, each with and without a space before it, so
// that a word is kept wherever it stands. Texts of special tokens are these.
func TextIDs(t *tokenizer.Tokenizer, texts []string) ([]int32, error) {
	var out []int32
	for _, s := range texts {
		for _, form := range []string{s, " " + s} {
			ids, err := t.Encode(form, tokenizer.EncodeOptions{Parse: true})
			if err != nil {
				return nil, fmt.Errorf("%q: %w", s, err)
			}
			out = append(out, ids...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}
