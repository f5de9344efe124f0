package trace

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"quern/internal/inflate"
)

// maxLine is the longest line that is read: scores of all experts take about
// twelve bytes each.
const maxLine = 1 << 20

// Reader reads a trace row by row, in memory for one line.
type Reader struct {
	Header Header

	name   string
	lines  *bufio.Scanner
	line   int
	next   int // index of the layer whose row comes next
	row    Row
	seen   []bool
	tokens int64
	cut    bool // the last line has no end
	closer func()
}

// NewReader reads the header of a trace; name is what errors call it.
func NewReader(name string, r io.Reader) (*Reader, error) {
	plain, closer, err := inflate.NewReader(r)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", name, ErrFormat, err)
	}
	t := &Reader{name: name, closer: closer}
	t.lines = bufio.NewScanner(plain)
	t.lines.Buffer(make([]byte, 0, 1<<16), maxLine)
	t.lines.Split(t.split)
	if err := t.header(); err != nil {
		t.Close()
		return nil, err
	}
	t.seen = make([]bool, t.Header.Experts)
	return t, nil
}

// Close gives back what reading took. The underlying reader stays open.
func (t *Reader) Close() { t.closer() }

func (t *Reader) fault(err error) error {
	if !errors.Is(err, ErrFormat) {
		err = fmt.Errorf("%w: %w", ErrFormat, err)
	}
	return fmt.Errorf("%s:%d: %w", t.name, t.line, err)
}

// split cuts off a line. What follows the last end of a line may be any part of
// one: 1 can have been going to be 17.
func (t *Reader) split(data []byte, atEOF bool) (int, []byte, error) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1, bytes.TrimSuffix(data[:i], []byte{'\r'}), nil
	}
	if atEOF && len(data) > 0 {
		t.cut = true
		return len(data), nil, nil
	}
	return 0, nil, nil
}

// scan gives the next line, io.EOF behind the last.
func (t *Reader) scan() (string, error) {
	t.line++
	if t.lines.Scan() {
		return t.lines.Text(), nil
	}
	err := t.lines.Err()
	switch {
	case errors.Is(err, bufio.ErrTooLong):
		return "", t.fault(fmt.Errorf("a line of more than %d bytes", maxLine))
	case err != nil:
		return "", fmt.Errorf("%s:%d: %w", t.name, t.line, err)
	}
	return "", io.EOF
}

func (t *Reader) header() error {
	first, err := t.scan()
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if first != magic {
		return t.fault(fmt.Errorf("the first line is not %q", magic))
	}
	given := map[string]bool{}
	for {
		line, err := t.scan()
		if errors.Is(err, io.EOF) || err == nil && line == "" {
			break
		}
		if err != nil {
			return err
		}
		key, value, _ := strings.Cut(line, " ")
		if given[key] {
			return t.fault(fmt.Errorf("%s twice", key))
		}
		given[key] = true
		h := &t.Header
		switch key {
		case "experts":
			h.Experts, err = parseNumber(value)
		case "used":
			h.Used, err = parseNumber(value)
		case "layers":
			h.Layers, err = parseRanges(value)
		case "ahead":
			h.Ahead, err = parseNumber(value)
		case "scores":
			if h.Scores = value == "yes"; value != "yes" && value != "no" {
				err = fmt.Errorf("scores %q: yes or no", value)
			}
		default:
			err = fmt.Errorf("unknown key %q; known are experts, used, layers, scores, ahead", key)
		}
		if err != nil {
			return t.fault(err)
		}
	}
	if err := t.Header.Check(); err != nil {
		return t.fault(err)
	}
	return nil
}

// Next gives the next row, io.EOF behind the last. A trace whose last token is
// not whole, as one is that a device stopped writing, is an error with
// io.ErrUnexpectedEOF behind its last row; Tokens says how many were whole.
func (t *Reader) Next() (*Row, error) {
	line, err := t.scan()
	if errors.Is(err, io.EOF) && (t.next > 0 || t.cut) {
		return nil, fmt.Errorf("%s: %w: the last token has whole rows of %d of %d layers: %w", t.name, ErrFormat, t.next, len(t.Header.Layers), io.ErrUnexpectedEOF)
	}
	if err != nil {
		return nil, err
	}
	if err := t.parse(line); err != nil {
		return nil, t.fault(err)
	}
	if t.next++; t.next == len(t.Header.Layers) {
		t.next = 0
		t.tokens++
	}
	return &t.row, nil
}

// Tokens is the number of tokens all of whose rows were read.
func (t *Reader) Tokens() int64 { return t.tokens }

func (t *Reader) parse(line string) error {
	h, r := &t.Header, &t.row
	columns := 3
	if h.Scores {
		columns++
	}
	if h.Ahead > 0 {
		columns++
	}
	fields := strings.Split(line, "\t")
	if len(fields) != columns {
		return fmt.Errorf("%d columns between tabs, the header asks for %d", len(fields), columns)
	}
	token, err := strconv.ParseUint(fields[0], 10, 63)
	if err != nil {
		return err
	}
	layer, err := parseNumber(fields[1])
	if err != nil {
		return err
	}
	if int64(token) != t.tokens || layer != h.Layers[t.next] {
		return fmt.Errorf("token %d in layer %d where token %d in layer %d comes next", token, layer, t.tokens, h.Layers[t.next])
	}
	r.Token, r.Layer = t.tokens, t.next
	if r.Chosen, err = parseInts(r.Chosen[:0], fields[2]); err != nil {
		return err
	}
	r.Scores, r.Ahead = r.Scores[:0], r.Ahead[:0]
	if h.Scores {
		for s := range strings.SplitSeq(fields[3], ",") {
			v, err := strconv.ParseFloat(s, 32)
			if err != nil {
				return err
			}
			r.Scores = append(r.Scores, float32(v))
		}
	}
	if h.Ahead > 0 && fields[columns-1] != "-" {
		if r.Ahead, err = parseInts(r.Ahead, fields[columns-1]); err != nil {
			return err
		}
	}
	return h.check(r, t.seen)
}

func parseInts(dst []int, s string) ([]int, error) {
	for part := range strings.SplitSeq(s, ",") {
		n, err := parseNumber(part)
		if err != nil {
			return dst, err
		}
		dst = append(dst, n)
	}
	return dst, nil
}
