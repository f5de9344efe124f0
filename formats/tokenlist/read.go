package tokenlist

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"quern/internal/digest"
)

// maxVocab bounds ids: they are I32 in files.
const maxVocab = math.MaxInt32 + 1

// header starts the first line of a list that says what it is of.
const header = "# quern token list:"

// Options bound Read. The zero value reads a strict list of up to
// DefaultMaxBytes.
type Options struct {
	// Name is what errors call the file; "token list" if empty.
	Name string
	// MaxBytes is the most that is read, DefaultMaxBytes if 0.
	MaxBytes int64
	// AnyOrder sorts ids that do not ascend. That they do is asked of a list
	// all the same that says what it is of. An id that is there twice is always
	// an error.
	AnyOrder bool
}

// Read reads a list to its end. Errors are ReadErrors of ErrFormat or ErrLimit,
// or what r says.
func Read(r io.Reader, opt Options) (*List, error) {
	most := opt.MaxBytes
	if most <= 0 {
		most = DefaultMaxBytes
	}
	b, err := io.ReadAll(io.LimitReader(r, most+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", opt.name(), err)
	}
	if int64(len(b)) > most {
		return nil, fmt.Errorf("%s: %w: more than %d bytes", opt.name(), ErrLimit, most)
	}
	return Parse(b, opt)
}

func (o *Options) name() string {
	if o.Name == "" {
		return "token list"
	}
	return o.Name
}

// Parse is Read for text that is in memory.
func Parse(b []byte, opt Options) (*List, error) {
	p := &parser{list: &List{}, file: opt.name(), anyOrder: opt.AnyOrder}
	line := 0
	for len(b) > 0 {
		line++
		text := b
		if i := bytes.IndexByte(b, '\n'); i >= 0 {
			text, b = b[:i], b[i+1:]
		} else {
			b = nil
		}
		if err := p.line(line, string(text)); err != nil {
			return nil, &ReadError{p.file, line, err}
		}
	}
	l := p.list
	if len(l.IDs) == 0 {
		return nil, &ReadError{p.file, max(line, 1), fmt.Errorf("%w: no ids", ErrFormat)}
	}
	if p.unsorted {
		if err := p.sort(); err != nil {
			return nil, err
		}
	}
	return l, nil
}

type parser struct {
	list     *List
	file     string
	anyOrder bool
	unsorted bool
	lines    []int32 // of each id, kept while ids may be in any order
}

func (p *parser) line(n int, s string) error {
	if strings.HasPrefix(s, header) {
		if n > 1 {
			return fmt.Errorf("%w: what the list is of is said in line 1", ErrFormat)
		}
		p.anyOrder = false
		return p.header(strings.TrimSuffix(s[len(header):], "\r"))
	}
	comma := false // an id stands before, and no comma since
	for i := 0; i < len(s); {
		switch c := s[i]; {
		case c == '#':
			return nil
		case c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f':
			i++
		case c == ',':
			if !comma {
				return fmt.Errorf("%w: a comma without an id before it", ErrFormat)
			}
			comma = false
			i++
		default:
			end := i
			for end < len(s) && !strings.ContainsRune(" \t\r\v\f,#", rune(s[end])) {
				end++
			}
			id, err := parseID(s[i:end])
			if err != nil {
				return err
			}
			if err := p.add(n, id); err != nil {
				return err
			}
			comma = true
			i = end
		}
	}
	return nil
}

// header reads " vocabulary N" and ", tokenizer sha256:HEX" behind it.
func (p *parser) header(s string) error {
	size, sum, has := strings.Cut(s, ", tokenizer ")
	num, ok := strings.CutPrefix(size, " vocabulary ")
	if !ok {
		return fmt.Errorf("%w: %.120q, where \" vocabulary N\" or \" vocabulary N, tokenizer sha256:...\" is wanted", ErrFormat, s)
	}
	v, err := strconv.ParseInt(num, 10, 64)
	if err != nil || v < 1 || v > maxVocab || strconv.FormatInt(v, 10) != num {
		return fmt.Errorf("%w: %.40q is no size of a vocabulary", ErrFormat, num)
	}
	p.list.Vocab = v
	if has {
		if p.list.Tokenizer, err = digest.Parse(sum); err != nil {
			return fmt.Errorf("%w: %w", ErrFormat, err)
		}
		if p.list.Tokenizer.IsZero() {
			return fmt.Errorf("%w: no tokenizer has the digest %s", ErrFormat, sum)
		}
	}
	return nil
}

func parseID(s string) (int32, error) {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, fmt.Errorf("%w: %.40q is no token id", ErrFormat, s)
		}
	}
	if len(s) > 1 && s[0] == '0' {
		return 0, fmt.Errorf("%w: the id %.40q begins with a zero", ErrFormat, s)
	}
	id, err := strconv.ParseInt(s, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%w: the id %.40q does not fit 31 bits", ErrFormat, s)
	}
	return int32(id), nil
}

func (p *parser) add(line int, id int32) error {
	l := p.list
	if l.Vocab != 0 && int64(id) >= l.Vocab {
		return fmt.Errorf("%w: id %d is outside the vocabulary of %d tokens that line 1 tells of", ErrFormat, id, l.Vocab)
	}
	if n := len(l.IDs); n > 0 && id <= l.IDs[n-1] {
		if id == l.IDs[n-1] {
			return fmt.Errorf("%w: id %d is there twice", ErrFormat, id)
		}
		if !p.anyOrder {
			return fmt.Errorf("%w: id %d comes after %d; ids ascend", ErrFormat, id, l.IDs[n-1])
		}
		p.unsorted = true
	}
	l.IDs = append(l.IDs, id)
	if p.anyOrder {
		p.lines = append(p.lines, int32(line))
	}
	return nil
}

// sort puts ids into order and finds those that are there twice.
func (p *parser) sort() error {
	at := make([]int32, len(p.list.IDs)) // places in the file
	for i := range at {
		at[i] = int32(i)
	}
	ids := p.list.IDs
	slices.SortStableFunc(at, func(a, b int32) int { return int(ids[a]) - int(ids[b]) })
	out := make([]int32, len(ids))
	for i, k := range at {
		out[i] = ids[k]
		if i > 0 && out[i-1] == out[i] {
			return &ReadError{p.file, int(p.lines[k]), fmt.Errorf("%w: id %d is there twice; the other is in line %d", ErrFormat, out[i], p.lines[at[i-1]])}
		}
	}
	p.list.IDs = out
	return nil
}
