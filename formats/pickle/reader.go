package pickle

import (
	"context"
	"encoding/binary"
	"fmt"

	"quern/tensor"
)

var le = binary.LittleEndian

const (
	window = 64 << 10
	// maxText bounds one string that is kept, maxLine a number or name that ends
	// in a newline.
	maxText = 1 << 20
	maxLine = 1 << 10
	// inline is the length up to which bytes are kept rather than pointed to.
	inline = 256
)

// reader reads a blob from front to back through a small window.
type reader struct {
	ctx  context.Context
	blob tensor.Blob
	buf  []byte
	base int64 // of buf in the blob
	pos  int64
}

// need makes n bytes at pos available; n is at most window.
func (r *reader) need(n int64) ([]byte, error) {
	if n > r.blob.Size()-r.pos {
		return nil, fmt.Errorf("%w: %d bytes at %d, the file has %d", ErrTruncated, n, r.pos, r.blob.Size())
	}
	if at := r.pos - r.base; at < 0 || at+n > int64(len(r.buf)) {
		size := min(int64(window), r.blob.Size()-r.pos)
		if int64(cap(r.buf)) < size {
			r.buf = make([]byte, size)
		}
		r.buf = r.buf[:size]
		if err := r.blob.ReadAt(r.ctx, r.buf, r.pos); err != nil {
			return nil, err
		}
		r.base = r.pos
	}
	at := r.pos - r.base
	return r.buf[at : at+n], nil
}

func (r *reader) byte() (byte, error) {
	b, err := r.need(1)
	if err != nil {
		return 0, err
	}
	r.pos++
	return b[0], nil
}

// uint reads a little-endian number of n bytes.
func (r *reader) uint(n int64) (uint64, error) {
	b, err := r.need(n)
	if err != nil {
		return 0, err
	}
	var v uint64
	for i := n - 1; i >= 0; i-- {
		v = v<<8 | uint64(b[i])
	}
	r.pos += n
	return v, nil
}

// text reads n bytes that are kept.
func (r *reader) text(n uint64) ([]byte, error) {
	if n > maxText {
		return nil, fmt.Errorf("%w: a string of %d bytes, at most %d are kept", ErrLimit, n, maxText)
	}
	if int64(n) > r.blob.Size()-r.pos {
		return nil, fmt.Errorf("%w: a string of %d bytes, %d are left", ErrTruncated, n, r.blob.Size()-r.pos)
	}
	out := make([]byte, n)
	if err := r.blob.ReadAt(r.ctx, out, r.pos); err != nil {
		return nil, err
	}
	r.pos += int64(n)
	return out, nil
}

// bytes points to n bytes, or keeps a few.
func (r *reader) bytes(n uint64) (Bytes, error) {
	if n > uint64(r.blob.Size()) || int64(n) > r.blob.Size()-r.pos {
		return Bytes{}, fmt.Errorf("%w: %d bytes of data, %d are left", ErrTruncated, n, r.blob.Size()-r.pos)
	}
	b := Bytes{Offset: r.pos, Len: int64(n)}
	if n <= inline {
		var err error
		if b.Data, err = r.text(n); err != nil {
			return Bytes{}, err
		}
		return b, nil
	}
	r.pos += int64(n)
	return b, nil
}

// line reads up to a newline, which it drops.
func (r *reader) line() (string, error) {
	var out []byte
	for {
		c, err := r.byte()
		if err != nil {
			return "", err
		}
		if c == '\n' {
			return string(out), nil
		}
		if len(out) == maxLine {
			return "", fmt.Errorf("%w: a line of over %d bytes", ErrFormat, maxLine)
		}
		out = append(out, c)
	}
}
