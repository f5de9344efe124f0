package pager

import (
	"errors"
	"fmt"
	"io"

	"quern/formats/trace"
)

// Run plays one trace with several settings at once. A trace that breaks off
// inside a token counts as far as its tokens are whole; cut tells of it.
func Run(name string, r io.Reader, opts []Options) (out []Result, cut bool, err error) {
	t, err := trace.NewReader(name, r)
	if err != nil {
		return nil, false, err
	}
	defer t.Close()
	sims := make([]*Simulation, len(opts))
	for i, o := range opts {
		if sims[i], err = New(t.Header, o); err != nil {
			return nil, false, fmt.Errorf("%s: %w", name, err)
		}
	}
	for {
		row, err := t.Next()
		cut = errors.Is(err, trace.ErrFormat) && errors.Is(err, io.ErrUnexpectedEOF)
		if cut || errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, false, err
		}
		for _, s := range sims {
			s.Add(row)
		}
	}
	out = make([]Result, len(sims))
	for i, s := range sims {
		out[i] = s.Result(t.Tokens())
	}
	return out, cut, nil
}
