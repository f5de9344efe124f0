package count

import (
	"context"
	"errors"
	"fmt"
	"io"

	"quern/internal/inflate"
)

// corpusFault puts damaged compression down to the corpus.
func corpusFault(err error) error {
	if errors.Is(err, inflate.ErrData) {
		return fmt.Errorf("%w: %w", ErrCorpus, err)
	}
	return err
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
			return n, false, corpusFault(err)
		}
	}
	return n, false, nil
}
