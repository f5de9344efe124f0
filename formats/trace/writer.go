package trace

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
)

// Writer writes a trace row by row.
type Writer struct {
	header Header
	w      *bufio.Writer
	line   []byte
	seen   []bool
	token  int64
	next   int
}

// NewWriter writes the header.
func NewWriter(w io.Writer, h Header) (*Writer, error) {
	if err := h.Check(); err != nil {
		return nil, err
	}
	t := &Writer{header: h, w: bufio.NewWriterSize(w, 1<<16), seen: make([]bool, h.Experts)}
	_, err := t.w.WriteString(h.text())
	return t, err
}

// Write writes the next row. Its token and its layer are those that come next and
// need not be set.
func (t *Writer) Write(r Row) error {
	if err := t.header.check(&r, t.seen); err != nil {
		return fmt.Errorf("token %d, layer %d: %w", t.token, t.header.Layers[t.next], err)
	}
	b := strconv.AppendInt(t.line[:0], t.token, 10)
	b = append(b, '\t')
	b = strconv.AppendInt(b, int64(t.header.Layers[t.next]), 10)
	b = appendInts(append(b, '\t'), r.Chosen)
	if t.header.Scores {
		sep := byte('\t')
		for _, s := range r.Scores {
			b = strconv.AppendFloat(append(b, sep), float64(s), 'g', -1, 32)
			sep = ','
		}
	}
	if t.header.Ahead > 0 {
		b = append(b, '\t')
		if len(r.Ahead) == 0 {
			b = append(b, '-')
		}
		b = appendInts(b, r.Ahead)
	}
	t.line = append(b, '\n')
	if t.next++; t.next == len(t.header.Layers) {
		t.next = 0
		t.token++
	}
	_, err := t.w.Write(t.line)
	return err
}

// Flush ends the trace. Tokens must be whole.
func (t *Writer) Flush() error {
	if t.next > 0 {
		return fmt.Errorf("%w: the last token has rows of %d of %d layers", ErrFormat, t.next, len(t.header.Layers))
	}
	return t.w.Flush()
}

func appendInts(b []byte, list []int) []byte {
	for i, n := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(n), 10)
	}
	return b
}
