// Package inflate reads files that may be compressed by gzip or Zstandard, which
// their first bytes tell.
package inflate

import (
	"bufio"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// maxWindow is the most memory that a Zstandard stream may ask for.
const maxWindow = 128 << 20

// ErrData marks compressed data that is damaged or ends too early.
var ErrData = errors.New("damaged compression")

// NewReader gives the content of r. Errors of damaged data name the compression and wrap
// ErrData.
// Close gives back what reading took and leaves r open.
func NewReader(r io.Reader) (content io.Reader, close func(), err error) {
	br := bufio.NewReaderSize(r, 1<<16)
	head, err := br.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, nil, err
	}
	switch {
	case len(head) >= 3 && head[0] == 0x1f && head[1] == 0x8b && head[2] == 8:
		z, err := gzip.NewReader(br)
		if err != nil {
			return nil, nil, fmt.Errorf("%w: gzip: %w", ErrData, err)
		}
		return &tagged{z, "gzip"}, func() { z.Close() }, nil
	case len(head) == 4 && head[0] == 0x28 && head[1] == 0xb5 && head[2] == 0x2f && head[3] == 0xfd:
		z, err := zstd.NewReader(br, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, nil, fmt.Errorf("%w: zstd: %w", ErrData, err)
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
		err = fmt.Errorf("%w: %s: %w", ErrData, t.what, err)
	}
	return n, err
}
