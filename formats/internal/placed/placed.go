// Package placed writes files that are planned before their data is there: a
// header, then pieces at known offsets in order, zeros in between.
package placed

import (
	"context"
	"errors"
	"fmt"
	"io"

	"quern/tensor"
)

// ErrPlan marks data that is not what was planned.
var ErrPlan = errors.New("data differs from the planned layout")

// Extent is the place of one piece in the file.
type Extent struct {
	Name   string
	Offset int64
	Bytes  int64
}

// Writer takes the pieces' bytes in order, in chunks of any length that may
// span pieces, and writes the zeros between them. Its first error sticks. It
// belongs to one goroutine.
type Writer struct {
	w    io.Writer
	ext  []Extent
	size int64
	at   int64 // bytes written
	cur  int   // the piece that the next byte belongs to
	done int64 // bytes of it written
	err  error
}

// New writes the header. The extents must follow it and each other, and end
// within size, the planned size of the file.
func New(w io.Writer, header []byte, ext []Extent, size int64) (*Writer, error) {
	at := int64(len(header))
	for _, e := range ext {
		if e.Offset < at || e.Bytes < 0 {
			return nil, fmt.Errorf("%w: %q at offset %d lies before %d, the end of what precedes it", ErrPlan, e.Name, e.Offset, at)
		}
		at = e.Offset + e.Bytes
	}
	if at > size {
		return nil, fmt.Errorf("%w: size %d is under the end of the data %d", ErrPlan, size, at)
	}
	p := &Writer{w: w, ext: ext, size: size}
	return p, p.raw(header)
}

func (p *Writer) raw(b []byte) error {
	if p.err != nil {
		return p.err
	}
	n, err := p.w.Write(b)
	p.at += int64(n)
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	if err != nil {
		p.err = fmt.Errorf("at offset %d: %w", p.at, err)
	}
	return p.err
}

// zeros writes zeros up to an offset.
func (p *Writer) zeros(to int64) error {
	if p.at >= to || p.err != nil {
		return p.err
	}
	buf := make([]byte, min(to-p.at, 64<<10))
	for p.at < to && p.err == nil {
		_ = p.raw(buf[:min(to-p.at, int64(len(buf)))])
	}
	return p.err
}

// skip passes over pieces that are complete.
func (p *Writer) skip() {
	for p.cur < len(p.ext) && p.done == p.ext[p.cur].Bytes {
		p.cur, p.done = p.cur+1, 0
	}
}

// Write takes the next bytes of data.
func (p *Writer) Write(b []byte) (int, error) {
	n := 0
	for n < len(b) && p.err == nil {
		p.skip()
		if p.cur == len(p.ext) {
			p.err = fmt.Errorf("%w: %d bytes more than all tensors have", ErrPlan, len(b)-n)
			break
		}
		e := p.ext[p.cur]
		if p.zeros(e.Offset) != nil {
			break
		}
		k := min(int64(len(b)-n), e.Bytes-p.done)
		if p.raw(b[n:n+int(k)]) != nil {
			break
		}
		n += int(k)
		p.done += k
	}
	return n, p.err
}

// Close writes the zeros at the end and fails when data is missing. It does not
// close the writer below.
func (p *Writer) Close() error {
	if p.err != nil {
		return p.err
	}
	p.skip()
	if p.cur < len(p.ext) {
		e := p.ext[p.cur]
		p.err = fmt.Errorf("%w: %q has %d of %d bytes, and %d more follow it", ErrPlan, e.Name, p.done, e.Bytes, len(p.ext)-p.cur-1)
		return p.err
	}
	return p.zeros(p.size)
}

// chunk is how many bytes of rows Copy reads at once.
const chunk = 1 << 20

// Copy writes the rows of the tensors, which are the pieces in order, and
// closes the Writer.
func (p *Writer) Copy(ctx context.Context, tensors []*tensor.Tensor) error {
	var buf []byte
	for _, t := range tensors {
		per := t.RowBytes()
		step := max(chunk/max(per, 1), 1)
		for first := int64(0); first < t.Rows(); first += step {
			if err := context.Cause(ctx); err != nil {
				return err
			}
			n := min(step, t.Rows()-first)
			if int64(cap(buf)) < n*per {
				buf = make([]byte, n*per)
			}
			if err := t.ReadRows(ctx, buf[:n*per], first, n); err != nil {
				return err
			}
			if _, err := p.Write(buf[:n*per]); err != nil {
				return fmt.Errorf("tensor %s: %w", t.Name, err)
			}
		}
	}
	return p.Close()
}
