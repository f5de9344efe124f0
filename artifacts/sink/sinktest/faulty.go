package sinktest

import (
	"context"
	"errors"
	"fmt"
	"io"

	"quern/artifacts/sink"
	"quern/internal/digest"
)

// Faulty is a sink with faults put in.
type Faulty struct {
	sink.Sink
	BreakAt int64 // the connection ends when the file has so many bytes; 0 never
	Breaks  int   // how often
	LoseAt  int64 // one byte from this offset on gets lost, once
	FlipAt  int64 // this byte changes on the way, Flips times
	Flips   int
	Full    int64 // the disk is full after so many bytes
	Renames []error
	After   bool // the rename happens all the same
	NoSum   bool
	Opens   int
	Sent    int64
}

func (f *Faulty) Open(ctx context.Context, name string, off, size int64) (io.WriteCloser, error) {
	f.Opens++
	w, err := f.Sink.Open(ctx, name, off, size)
	if err != nil {
		return nil, err
	}
	return &faultyWriter{f: f, w: w, at: off}, nil
}

func (f *Faulty) Sum(ctx context.Context, name string, n int64) (digest.Digest, error) {
	if f.NoSum {
		return digest.Digest{}, errors.ErrUnsupported
	}
	return f.Sink.Sum(ctx, name, n)
}

// ReadBack passes on what the sink underneath can do.
func (f *Faulty) ReadBack(ctx context.Context, name string, n int64) (digest.Digest, error) {
	if r, ok := f.Sink.(interface {
		ReadBack(context.Context, string, int64) (digest.Digest, error)
	}); ok && !f.NoSum {
		return r.ReadBack(ctx, name, n)
	}
	return digest.Digest{}, errors.ErrUnsupported
}

// CanAppend passes on what the sink underneath can do.
func (f *Faulty) CanAppend(ctx context.Context) (bool, error) {
	if a, ok := f.Sink.(interface {
		CanAppend(context.Context) (bool, error)
	}); ok {
		return a.CanAppend(ctx)
	}
	return true, nil
}

// Keeps passes on what the sink underneath does.
func (f *Faulty) Keeps() bool {
	k, ok := f.Sink.(interface{ Keeps() bool })
	return !ok || k.Keeps()
}

// Check passes on what the sink underneath takes.
func (f *Faulty) Check(n int64) error {
	if l, ok := f.Sink.(sink.Limiter); ok {
		return l.Check(n)
	}
	return nil
}

func (f *Faulty) Rename(ctx context.Context, from, to string) error {
	if len(f.Renames) == 0 {
		return f.Sink.Rename(ctx, from, to)
	}
	err := f.Renames[0]
	f.Renames = f.Renames[1:]
	if f.After {
		if err := f.Sink.Rename(ctx, from, to); err != nil {
			return err
		}
	}
	return err
}

type faultyWriter struct {
	f    *Faulty
	w    io.WriteCloser
	at   int64
	fail error
}

func (w *faultyWriter) Write(p []byte) (int, error) {
	if w.fail != nil {
		return 0, w.fail
	}
	b, cut := append([]byte{}, p...), false
	limit := func(at int64, err error) {
		if at > 0 && w.at+int64(len(b)) > at {
			b, cut, w.fail = b[:max(0, at-w.at)], true, err
		}
	}
	if w.f.Breaks > 0 {
		limit(w.f.BreakAt, sink.Passing(errors.New("injected break")))
	}
	limit(w.f.Full, fmt.Errorf("%w: injected", sink.ErrNoSpace))
	if x := w.f.FlipAt - w.at; w.f.Flips > 0 && x >= 0 && x < int64(len(b)) {
		b[x] ^= 1
		w.f.Flips--
	}
	lost := 0
	if x := w.f.LoseAt - w.at; w.f.LoseAt > 0 && x >= 0 && x < int64(len(b)) {
		b = append(b[:x], b[x+1:]...)
		w.f.LoseAt, lost = 0, 1
	}
	n, err := w.w.Write(b)
	w.f.Sent += int64(n)
	w.at += int64(n + lost)
	switch {
	case err != nil:
		return n, err
	case cut:
		if w.f.Breaks > 0 {
			w.f.Breaks--
		}
		return n, w.fail
	}
	return len(p), nil
}

func (w *faultyWriter) Close() error {
	err := w.w.Close()
	if w.fail != nil {
		return w.fail
	}
	return err
}
