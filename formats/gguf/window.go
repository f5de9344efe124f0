package gguf

import (
	"context"
	"fmt"
	"math"

	"quern/tensor"
)

const (
	// DefaultFirstRead covers the header of a small model, so that a remote
	// header costs one request; larger ones cost one more for each doubling.
	DefaultFirstRead = 1 << 20
	// DefaultMaxHeader is far over the largest known header (about 20 MiB for
	// vocabularies of 260,000 tokens with merges).
	DefaultMaxHeader = 256 << 20
)

// window holds the start of a file and grows on demand, so that a header of
// unknown length is read in few requests and never further than one doubling.
type window struct {
	ctx  context.Context
	blob tensor.Blob
	size int64 // of the file
	max  int64 // how much of it may be read
	next int64 // length of the first read
	buf  []byte
}

func newWindow(ctx context.Context, blob tensor.Blob, opt Options) *window {
	w := &window{ctx: ctx, blob: blob, size: blob.Size(), max: opt.MaxHeader, next: opt.FirstRead}
	if w.max <= 0 {
		w.max = DefaultMaxHeader
	}
	if w.max > math.MaxInt32 && math.MaxInt == math.MaxInt32 {
		w.max = math.MaxInt32
	}
	if w.next <= 0 {
		w.next = DefaultFirstRead
	}
	return w
}

// at gives the n bytes at pos, reading more of the file if need be. The slice
// holds until the next call.
func (w *window) at(pos, n int64) ([]byte, error) {
	if n > w.size-pos {
		return nil, fmt.Errorf("%w: needs %d bytes, the file of %d bytes has %d left", ErrTruncated, n, w.size, w.size-pos)
	}
	end := pos + n
	if end > int64(len(w.buf)) {
		if end > w.max {
			return nil, fmt.Errorf("%w: it needs %d bytes or more, the limit is %d; if the file is right, raise it with --max-header", ErrHeaderLimit, end, w.max)
		}
		if err := w.grow(end); err != nil {
			return nil, err
		}
	}
	return w.buf[pos:end], nil
}

// grow reads on until at least end, which lies in the file and the limit.
func (w *window) grow(end int64) error {
	want := max(end, w.next)
	if have := int64(len(w.buf)); have > 0 {
		want = max(end, 2*have)
	}
	want = min(want, w.size, w.max)
	buf := make([]byte, want)
	have := copy(buf, w.buf)
	if err := w.blob.ReadAt(w.ctx, buf[have:], int64(have)); err != nil {
		return err
	}
	w.buf = buf
	return nil
}
