// Package trace reads and writes expert-use traces: which experts the router of
// each layer chose for each token, as a device or the reference runtime records
// them. They say how large a pool of experts must be and in what order experts
// are best kept.
//
// The form is text, so that a device's own program can print it:
//
//	quern-expert-trace 1        the first line
//	experts 128                 in a layer
//	used 6                      the most that a token goes to
//	layers 1-23                 layers with routed experts: numbers and ranges
//	scores yes                  rows hold all scores that experts were chosen by
//	ahead 2                     rows hold a guess for the layer two rows further
//	                            (an empty line ends the header)
//	0<TAB>1<TAB>17,3,90,...<TAB>0.125,...<TAB>4,90,...
//	|     |     |               |             the guess, or - where there is none
//	|     |     |               a score for each expert
//	|     |     the experts, the best first
//	|     the layer
//	the token, counted from 0
//
// scores and ahead are no and 0 where they are not given, and rows end before the
// columns that are not there. Every token has a row for every layer, in order.
// The whole may be compressed by gzip or zstd.
package trace

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ErrFormat marks what is no trace, or a broken one.
var ErrFormat = errors.New("bad expert trace")

const magic = "quern-expert-trace 1"

// Limits of what a header may say; rows are checked against the header.
const (
	maxExperts = 1 << 14
	maxLayers  = 1 << 12
)

// Header says what the rows of a trace hold.
type Header struct {
	// Experts is the number of routed experts in a layer, Used the most that a
	// token goes to.
	Experts, Used int
	// Layers are the numbers of the layers that have routed experts, ascending.
	Layers []int
	// Scores tells whether rows hold the scores that experts were chosen by.
	Scores bool
	// Ahead is how many rows further the guesses in the rows are for; 0 means that
	// there are none.
	Ahead int
}

// Row is what happened to one token in one layer. A reader gives the same Row
// anew: what is to be kept must be copied.
type Row struct {
	Token int64
	// Layer is an index into Header.Layers.
	Layer int
	// Chosen are the experts, the best first; between one and Header.Used.
	Chosen []int
	// Scores has a value for every expert, or is empty.
	Scores []float32
	// Ahead are the experts that layer Layer+Header.Ahead is guessed to choose.
	Ahead []int
}

// Check finds settings that no model has.
func (h Header) Check() error {
	switch {
	case h.Experts < 1 || h.Experts > maxExperts:
		return fmt.Errorf("%w: %d experts, 1 to %d can be", ErrFormat, h.Experts, maxExperts)
	case h.Used < 1 || h.Used > h.Experts:
		return fmt.Errorf("%w: %d of %d experts used", ErrFormat, h.Used, h.Experts)
	case len(h.Layers) == 0:
		return fmt.Errorf("%w: no layers", ErrFormat)
	case len(h.Layers) > maxLayers:
		return fmt.Errorf("%w: %d layers, at most %d can be", ErrFormat, len(h.Layers), maxLayers)
	case h.Ahead < 0 || h.Ahead > len(h.Layers):
		return fmt.Errorf("%w: guesses %d layers ahead of %d", ErrFormat, h.Ahead, len(h.Layers))
	}
	last := -1
	for _, l := range h.Layers {
		if l <= last {
			return fmt.Errorf("%w: layer %d after layer %d", ErrFormat, l, last)
		}
		last = l
	}
	return nil
}

// check finds a row that does not fit the header. seen has Experts places and is
// left as it was: false.
func (h Header) check(r *Row, seen []bool) error {
	if len(r.Chosen) < 1 || len(r.Chosen) > h.Used {
		return fmt.Errorf("%w: %d experts chosen, the header says at most %d", ErrFormat, len(r.Chosen), h.Used)
	}
	if h.Scores != (len(r.Scores) > 0) || h.Scores && len(r.Scores) != h.Experts {
		return fmt.Errorf("%w: %d scores for %d experts", ErrFormat, len(r.Scores), h.Experts)
	}
	for _, s := range r.Scores {
		if s-s != 0 {
			return fmt.Errorf("%w: a score of %v", ErrFormat, s)
		}
	}
	if h.Ahead == 0 && len(r.Ahead) > 0 {
		return fmt.Errorf("%w: a guess, and the header has no ahead", ErrFormat)
	}
	for _, list := range [][]int{r.Chosen, r.Ahead} {
		if err := h.distinct(list, seen); err != nil {
			return err
		}
	}
	return nil
}

func (h Header) distinct(list []int, seen []bool) (err error) {
	n := 0
	for _, e := range list {
		if e < 0 || e >= h.Experts {
			err = fmt.Errorf("%w: expert %d of %d", ErrFormat, e, h.Experts)
			break
		}
		if seen[e] {
			err = fmt.Errorf("%w: expert %d twice", ErrFormat, e)
			break
		}
		seen[e] = true
		n++
	}
	for _, e := range list[:n] {
		seen[e] = false
	}
	return err
}

// text gives the header as a file holds it.
func (h Header) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\nexperts %d\nused %d\nlayers %s\n", magic, h.Experts, h.Used, formatRanges(h.Layers))
	if h.Scores {
		b.WriteString("scores yes\n")
	}
	if h.Ahead > 0 {
		fmt.Fprintf(&b, "ahead %d\n", h.Ahead)
	}
	b.WriteByte('\n')
	return b.String()
}

// formatRanges writes ascending numbers as 1,4-7.
func formatRanges(list []int) string {
	var b strings.Builder
	for i := 0; i < len(list); {
		k := i
		for k+1 < len(list) && list[k+1] == list[k]+1 {
			k++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(list[i]))
		if k > i {
			b.WriteByte('-')
			b.WriteString(strconv.Itoa(list[k]))
		}
		i = k + 1
	}
	return b.String()
}

// parseRanges reads what formatRanges writes.
func parseRanges(s string) ([]int, error) {
	var out []int
	for part := range strings.SplitSeq(s, ",") {
		from, to, ranged := strings.Cut(part, "-")
		a, err := parseNumber(from)
		b := a
		if err == nil && ranged {
			b, err = parseNumber(to)
		}
		if err != nil || b < a {
			return nil, fmt.Errorf("%w: layers %q: numbers and ranges such as 1,4-7", ErrFormat, s)
		}
		if b-a >= maxLayers || len(out)+b-a >= maxLayers {
			return nil, fmt.Errorf("%w: more than %d layers", ErrFormat, maxLayers)
		}
		for n := a; n <= b; n++ {
			out = append(out, n)
		}
	}
	return out, nil
}

// parseNumber reads a plain decimal number, without sign.
func parseNumber(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 31)
	return int(n), err
}
