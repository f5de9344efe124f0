package imatrix

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"strings"

	"quern/tensor"
)

// maxName is the longest name of a tensor or a text that is accepted, in bytes.
const maxName = 4096

// minEntry is the size of the shortest entry: one character, one value.
const minEntry = 4 + 1 + 4 + 4 + 4

// legacy reads the older format.
func (r *reader) legacy() (*Matrix, error) {
	c := &cursor{reader: r}
	n, err := c.i32("number of entries")
	if err != nil {
		return nil, err
	}
	if n < 1 || n > (r.size-4)/minEntry {
		return nil, r.failf(0, "number of entries", "%d in a file of %d bytes; this is no importance matrix", n, r.size)
	}
	m := &Matrix{Legacy: true}
	for range n {
		e, err := c.entryOf()
		if err != nil {
			return nil, err
		}
		m.Entries = append(m.Entries, e)
	}
	r.entry = ""
	return m, c.trailer(m)
}

// cursor goes through a file once, reading ahead.
type cursor struct {
	*reader
	pos int64
	in  *bufio.Reader
	// at is where in reads; it stays behind when values are read past it.
	at int64
}

// bytes reads the next n bytes.
func (c *cursor) bytes(n int64, field string) ([]byte, error) {
	if n > c.size-c.pos {
		return nil, c.fail(c.pos, field, fmt.Errorf("%w: needs %d bytes, %d are left", ErrTruncated, n, c.size-c.pos))
	}
	if c.in == nil {
		c.in, c.at = bufio.NewReaderSize(nil, 4096), -1
	}
	if c.at != c.pos {
		c.in.Reset(io.NewSectionReader(tensor.ContextReaderAt(c.ctx, c.blob), c.pos, c.size-c.pos))
		c.at = c.pos
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(c.in, b); err != nil {
		return nil, c.fail(c.pos, field, err)
	}
	c.pos += n
	c.at = c.pos
	return b, nil
}

func (c *cursor) i32(field string) (int64, error) {
	b, err := c.bytes(4, field)
	if err != nil {
		return 0, err
	}
	return int64(int32(binary.LittleEndian.Uint32(b))), nil
}

// text reads a string of at least min bytes.
func (c *cursor) text(min int64, field string) (string, error) {
	at := c.pos
	n, err := c.i32("length of the " + field)
	if err != nil {
		return "", err
	}
	if n < min || n > maxName {
		return "", c.failf(at, "length of the "+field, "%d; %d to %d bytes are possible", n, min, maxName)
	}
	b, err := c.bytes(n, field)
	if err != nil {
		return "", err
	}
	if strings.ContainsRune(string(b), 0) {
		return "", c.failf(at+4, field, "%q holds a NUL byte", b)
	}
	return string(b), nil
}

func (c *cursor) entryOf() (e Entry, err error) {
	c.entry = ""
	if e.Name, err = c.text(1, "name"); err != nil {
		return e, err
	}
	c.entry = e.Name
	at := c.pos
	calls, err := c.i32("number of chunks")
	if err != nil {
		return e, err
	}
	if calls < 0 {
		return e, c.failf(at, "number of chunks", "%d", calls)
	}
	at = c.pos
	n, err := c.i32("number of values")
	if err != nil {
		return e, err
	}
	if n < 1 {
		return e, c.failf(at, "number of values", "%d", n)
	}
	if 4*n > c.size-c.pos {
		return e, c.fail(at, "number of values", fmt.Errorf("%w: %d values need %d bytes, %d are left", ErrTruncated, n, 4*n, c.size-c.pos))
	}
	if e.Weights, err = c.floats(c.pos, n, "values"); err != nil {
		return e, err
	}
	c.pos += 4 * n
	if calls > 0 {
		by := float32(calls)
		for i, v := range e.Weights {
			e.Weights[i] = v / by
		}
	}
	return e, nil
}

// trailer reads what newer versions put behind the entries.
func (c *cursor) trailer(m *Matrix) error {
	if c.pos == c.size {
		return nil
	}
	at := c.pos
	n, err := c.i32("chunks of the run")
	if err != nil {
		return err
	}
	if n < 0 {
		return c.failf(at, "chunks of the run", "%d", n)
	}
	m.Chunks = n
	if c.pos == c.size {
		return nil
	}
	text, err := c.text(0, "text's name")
	if err != nil {
		return err
	}
	if text != "" {
		m.Datasets = []string{text}
	}
	if c.pos != c.size {
		return c.failf(c.pos, "end", "%d bytes follow", c.size-c.pos)
	}
	return nil
}
