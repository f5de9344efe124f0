package pager

import (
	"errors"
	"fmt"
	"io"

	"quern/formats/trace"
)

// Run plays one trace with several settings at once. A trace that breaks off
// between rows counts as far as its tokens are whole.
func Run(name string, r io.Reader, opts []Options) ([]Result, error) {
	t, err := trace.NewReader(name, r)
	if err != nil {
		return nil, err
	}
	defer t.Close()
	sims := make([]*Simulation, len(opts))
	for i, o := range opts {
		if sims[i], err = New(t.Header, o); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	for {
		row, err := t.Next()
		if errors.Is(err, io.EOF) || errors.Is(err, trace.ErrFormat) && errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		for _, s := range sims {
			s.Add(row)
		}
	}
	out := make([]Result, len(sims))
	for i, s := range sims {
		out[i] = s.Result(t.Tokens())
	}
	return out, nil
}
