package tokenizer

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// A Counter counts the tokens of texts much faster than Encode gives them: it
// counts distinct words and encodes each once. What it counts is what Encode
// gives for the whole text, with neither special tokens around it nor texts of
// control tokens taken for these. It is safe for use by several goroutines; each
// has a Tally.
type Counter struct {
	t       *Tokenizer
	coder   *wordCoder
	units   *unitCutter
	special *specialFinder
}

// NewCounter prepares counting. It fails for a vocabulary whose scores are not
// numbers.
func (t *Tokenizer) NewCounter() (*Counter, error) {
	coder, join, err := newWordCoder(t)
	if err != nil {
		return nil, err
	}
	c := &Counter{t: t, coder: coder, special: newSpecialFinder(t)}
	c.units = newUnitCutter(t, join, c.special)
	return c, nil
}

// Cut gives the last place inside a text where it can be cut in two so that the
// tokens of the parts are those of the whole, whatever comes behind it; 0 when
// there is none. Places that cannot be proved to be such do not count.
func (c *Counter) Cut(text []byte) int {
	// The end of a long text will do: strings of no more than this are copied.
	const tail = 4096
	for n := tail; ; n *= 16 {
		from := max(len(text)-n, 0)
		s := string(text[from:])
		if i := c.units.lastCut(s); i > utf8Slack || i > 0 && from == 0 {
			return from + i
		}
		if from == 0 {
			return 0
		}
	}
}

// utf8Slack is how far a cut stays from where a text was cut without regard to
// characters.
const utf8Slack = 8

// A Tally counts in one goroutine.
type Tally struct {
	c      *Counter
	counts []uint64
	words  wordTable
	buf    wordBuffer
	ids    []int32
	err    error
}

// NewTally makes a tally of zeros.
func (c *Counter) NewTally() *Tally {
	return &Tally{c: c, counts: make([]uint64, c.t.Size())}
}

const (
	// maxWord is the longest unit, in bytes, that is looked up; longer ones hardly ever
	// come again.
	maxWord = 256
	// maxWords and maxWordText bound what a Tally keeps before it encodes.
	maxWords    = 1 << 20
	maxWordText = 24 << 20
)

// Add counts the tokens of a text, or of a part of one that Cut has cut off:
// start says whether it begins the text.
func (y *Tally) Add(text []byte, start bool) error {
	s := string(text)
	if y.c.t.v.eatSpace {
		return y.addSlowly(s, start)
	}
	return y.c.special.cut(s, start, y.fragment, func(id int32) { y.counts[id]++ })
}

// addSlowly is for the family whose special tokens take along what follows.
func (y *Tally) addSlowly(s string, start bool) error {
	after := start
	for _, f := range y.c.t.fragments(s, false) {
		if f.id >= 0 {
			y.counts[f.id]++
			after = true
			continue
		}
		if err := y.fragment(f.text, after); err != nil {
			return err
		}
		after = false
	}
	return nil
}

// fragment counts a text without special tokens.
func (y *Tally) fragment(s string, after bool) error {
	t := y.c.t
	if t.v.Model == ModelSPM {
		if t.spacePrefix && after {
			s = " " + s
		}
		if !utf8.ValidString(s) {
			s = strings.ReplaceAll(s, " ", "\u2581") // which a broken character may take in
		}
	} else {
		s = looseUTF8(s)
	}
	y.c.units.units(s, y.unit)
	if y.words.len() > maxWords || len(y.words.text) > maxWordText {
		y.flush()
	}
	return y.err
}

func (y *Tally) unit(s string) {
	if len(s) <= maxWord {
		y.words.add(s, 1)
		return
	}
	y.encode(s, 1)
}

// encode adds n times the tokens of a unit.
func (y *Tally) encode(s string, n uint64) {
	var err error
	if y.ids, err = y.c.encode(&y.buf, y.ids[:0], s); err != nil {
		if y.err == nil {
			y.err = fmt.Errorf("%.60q: %w", s, err)
		}
		return
	}
	for _, id := range y.ids {
		y.counts[id] += n
	}
}

// encode gives the ids of a unit.
func (c *Counter) encode(b *wordBuffer, ids []int32, s string) ([]int32, error) {
	if c.t.v.Model == ModelSPM || c.units.rule != nil {
		return c.coder.word(b, ids, s)
	}
	if c.t.cut.markSpaces {
		s = strings.ReplaceAll(s, " ", "\u2581")
	}
	var inner error
	err := c.t.cut.cut(s, func(word string) {
		var err error
		if ids, err = c.coder.word(b, ids, word); err != nil {
			inner = errors.Join(inner, err)
		}
	})
	return ids, errors.Join(err, inner)
}

// flush encodes the words that are waiting.
func (y *Tally) flush() {
	y.words.each(y.encode)
	y.words.reset()
}

// Counts gives how often each id came, by id. The slice is the caller's.
func (y *Tally) Counts() ([]uint64, error) {
	y.flush()
	if y.err != nil {
		return nil, y.err
	}
	return append([]uint64(nil), y.counts...), nil
}
