package count

import (
	"bufio"
	"context"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// maxWindow is the most memory that a Zstandard stream may ask for.
const maxWindow = 128 << 20

// decompress looks at the first bytes of r.
func decompress(r io.Reader) (io.Reader, func(), error) {
	br := bufio.NewReaderSize(r, 1<<16)
	head, err := br.Peek(4)
	if err != nil && err != io.EOF {
		return nil, nil, err
	}
	switch {
	case len(head) >= 3 && head[0] == 0x1f && head[1] == 0x8b && head[2] == 8:
		z, err := gzip.NewReader(br)
		if err != nil {
			return nil, nil, fmt.Errorf("%w: gzip: %w", ErrCorpus, err)
		}
		return &tagged{z, "gzip"}, func() { z.Close() }, nil
	case len(head) == 4 && head[0] == 0x28 && head[1] == 0xb5 && head[2] == 0x2f && head[3] == 0xfd:
		z, err := zstd.NewReader(br, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, nil, fmt.Errorf("%w: zstd: %w", ErrCorpus, err)
		}
		return &tagged{z, "zstd"}, z.Close, nil
	}
	return br, func() {}, nil
}

// tagged says what failed.
type tagged struct {
	r    io.Reader
	what string
}

func (t *tagged) Read(p []byte) (int, error) {
	n, err := t.r.Read(p)
	if err != nil && err != io.EOF {
		err = fmt.Errorf("%w: %s: %w", ErrCorpus, t.what, err)
	}
	return n, err
}

// fill reads until b is full or r ends, and reports the end.
func fill(ctx context.Context, r io.Reader, b []byte) (n int, end bool, err error) {
	for n < len(b) {
		if err := context.Cause(ctx); err != nil {
			return n, false, err
		}
		m, err := r.Read(b[n:])
		n += m
		if err == io.EOF {
			return n, true, nil
		}
		if err != nil {
			return n, false, err
		}
	}
	return n, false, nil
}
