// Package sinktest holds every sink to the same promises, and puts faults between
// a transfer and its target: breaks at any byte, bytes that get lost or change on
// the way, a full disk, a rename that fails or whose answer is lost.
package sinktest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"quern/artifacts/sink"
	"quern/internal/digest"
)

// Place is a target as a test sees it from behind.
type Place interface {
	// Open makes a sink of the target, as another process would.
	Open(t *testing.T) sink.Sink
	// Read gives the content of a name beside the target.
	Read(t *testing.T, name string) ([]byte, bool)
	// Write puts a file there.
	Write(t *testing.T, name string, b []byte)
}

// Traits say what a sink cannot do.
type Traits struct {
	// NoKeep: an unfinished file is lost with the process.
	NoKeep bool
	// NoParts: it is lost with the connection.
	NoParts bool
	// Unproved: the beginning of a file is not compared before more is appended.
	Unproved bool
	// Late: bytes may come in after the connection has ended, so that some are
	// sent twice.
	Late bool
	// Direct: there is no temporary name.
	Direct bool
}

// Content is a file of the tests: it looks random and is the same every time.
func Content(n int) []byte {
	r := rand.New(rand.NewPCG(uint64(n), 6))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// interval is the distance of marks in tests.
const interval = 1000

// Send is a transfer of data by a producer that can start at every mark.
type Send struct {
	Data     []byte
	Key      string
	Known    bool
	Journal  sink.Journal
	Said     []string
	Produced int // bytes made, over all calls
	Pauses   int
	Stop     func(at int) error                         // the producer's own fault
	Wait     func(context.Context, time.Duration) error // between tries, nil for not at all
}

// Run sends and publishes.
func (s *Send) Run(ctx context.Context, sinks ...sink.Sink) error {
	opt := sink.TransferOptions{Size: int64(len(s.Data)), Key: s.Key, Journal: s.Journal, Interval: max(interval, int64(len(s.Data)/100)), Linger: 5 * time.Second,
		Say: func(m string) { s.Said = append(s.Said, m) },
		Pause: func(ctx context.Context, d time.Duration) error {
			s.Pauses++
			if s.Wait != nil {
				return s.Wait(ctx, d)
			}
			return context.Cause(ctx)
		}}
	if s.Known {
		opt.Known = digest.Of(s.Data)
	}
	tr := sink.NewTransfer(sinks, opt)
	defer tr.Close()
	err := tr.Run(ctx, func(ctx context.Context, m sink.Mark) error {
		for at := int(m.Offset); at < len(s.Data); {
			if s.Stop != nil {
				if err := s.Stop(at); err != nil {
					return err
				}
			}
			n := min(97, len(s.Data)-at)
			if _, err := tr.Write(s.Data[at : at+n]); err != nil {
				return err
			}
			s.Produced += n
			at += n
			if err := tr.Mark(func() (any, error) { return at, nil }); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if sum := tr.Sum(); sum != digest.Of(s.Data) {
		return fmt.Errorf("sum of the transfer: %s", sum)
	}
	return tr.Publish(ctx)
}

// Run holds a sink to the promises. place makes a fresh target.
func Run(t *testing.T, traits Traits, place func(t *testing.T) Place) {
	data := Content(10_000)
	type world struct {
		t *testing.T
		Place
		f    *Faulty
		name string
		temp string
	}
	begin := func(t *testing.T) *world {
		w := &world{t: t, Place: place(t)}
		w.f = &Faulty{Sink: w.Open(t)}
		w.name = w.f.Name()
		w.temp = w.name + sink.TempSuffix
		return w
	}
	want := func(w *world, b []byte) {
		w.t.Helper()
		got, ok := w.Read(w.t, w.name)
		if b == nil && ok {
			w.t.Errorf("the target has %d bytes, none were wanted", len(got))
		}
		if b != nil && (!ok || string(got) != string(b)) {
			w.t.Errorf("the target has %d bytes (%v), not the %d that it should", len(got), ok, len(b))
		}
	}
	noTemp := func(w *world) {
		w.t.Helper()
		if b, ok := w.Read(w.t, w.temp); ok {
			w.t.Errorf("%d bytes are left under the temporary name", len(b))
		}
	}
	old := []byte("what was there before")

	t.Run("new", func(t *testing.T) {
		w := begin(t)
		s := &Send{Data: data}
		if err := s.Run(t.Context(), w.f); err != nil {
			t.Fatal(err)
		}
		want(w, data)
		noTemp(w)
		if s.Produced != len(data) || w.f.Sent != int64(len(data)) {
			t.Errorf("%d bytes produced, %d sent", s.Produced, w.f.Sent)
		}
	})
	t.Run("empty", func(t *testing.T) {
		w := begin(t)
		if err := (&Send{}).Run(t.Context(), w.f); err != nil {
			t.Fatal(err)
		}
		want(w, []byte{})
	})
	t.Run("already there", func(t *testing.T) {
		w := begin(t)
		if err := (&Send{Data: data}).Run(t.Context(), w.f); err != nil {
			t.Fatal(err)
		}
		s := &Send{Data: data, Known: true}
		again := &Faulty{Sink: w.Open(t)}
		if err := s.Run(t.Context(), again); err != nil {
			t.Fatal(err)
		}
		if again.Opens != 0 || s.Produced != 0 || !strings.Contains(strings.Join(s.Said, "\n"), "already there") {
			t.Errorf("%d opens, %d bytes produced: %q", again.Opens, s.Produced, s.Said)
		}
		want(w, data)
	})
	t.Run("replaces", func(t *testing.T) {
		w := begin(t)
		w.Write(t, w.name, old)
		s := &Send{Data: data, Known: true, Stop: func(at int) error {
			if b, ok := w.Read(t, w.name); !traits.Direct && at == 97*50 && (!ok || string(b) != string(old)) {
				t.Errorf("the old file went before the new one was whole")
			}
			return nil
		}}
		if err := s.Run(t.Context(), w.f); err != nil {
			t.Fatal(err)
		}
		want(w, data)
		noTemp(w)
	})
	for _, at := range []int64{1, 96, 3333, int64(len(data)) - 1} {
		t.Run(fmt.Sprintf("break at %d", at), func(t *testing.T) {
			w := begin(t)
			w.f.BreakAt, w.f.Breaks = at, 1
			s := &Send{Data: data}
			if err := s.Run(t.Context(), w.f); err != nil {
				t.Fatal(err)
			}
			want(w, data)
			noTemp(w)
			if w.f.Opens < 2 || s.Pauses == 0 {
				t.Errorf("%d opens, %d pauses", w.f.Opens, s.Pauses)
			}
			if !traits.NoParts && !traits.Late && w.f.Sent > int64(len(data)) {
				t.Errorf("%d bytes were sent of a file of %d", w.f.Sent, len(data))
			}
		})
	}
	t.Run("breaks for ever", func(t *testing.T) {
		w := begin(t)
		if !traits.Direct {
			w.Write(t, w.name, old)
		}
		w.f.BreakAt, w.f.Breaks = 5000, 1000
		s := &Send{Data: data}
		err := s.Run(t.Context(), w.f)
		if !errors.Is(err, sink.ErrTarget) || !sink.IsPassing(err) || s.Pauses > 12 {
			t.Errorf("%v after %d pauses", err, s.Pauses)
		}
		if !traits.Direct {
			want(w, old)
		}
	})
	t.Run("goes on in another process", func(t *testing.T) {
		if traits.NoKeep || traits.NoParts {
			t.Skip("nothing stays of an unfinished file")
		}
		for _, journal := range []bool{false, true} {
			if !journal && traits.Direct {
				continue
			}
			w := begin(t)
			cause := errors.New("killed")
			var j sink.Journal
			if journal {
				j = &Memory{}
			}
			first := &Send{Data: data, Key: "k", Journal: j, Stop: func(at int) error {
				if at > 6500 {
					return cause
				}
				return nil
			}}
			// The producer's end stands for that of the process.
			if err := first.Run(t.Context(), w.f); !errors.Is(err, cause) {
				t.Fatal(err)
			}
			second := &Send{Data: data, Key: "k", Journal: j}
			f := &Faulty{Sink: w.Open(t)}
			if err := second.Run(t.Context(), f); err != nil {
				t.Fatal(err)
			}
			want(w, data)
			noTemp(w)
			if !traits.Late && w.f.Sent+f.Sent > int64(len(data)) || f.Sent == int64(len(data)) {
				t.Errorf("journal %v: %d and %d bytes were sent of a file of %d", journal, w.f.Sent, f.Sent, len(data))
			}
			if got := second.Produced; journal && w.f.Sent > 2*interval && got == len(data) || !journal && !traits.Late && got != len(data) {
				t.Errorf("journal %v: %d bytes were produced", journal, got)
			}
		}
	})
	t.Run("another beginning", func(t *testing.T) {
		if traits.NoKeep || traits.Direct {
			t.Skip("unfinished files have no name there")
		}
		w := begin(t)
		other := Content(7000)
		w.Write(t, w.temp, other)
		s := &Send{Data: data}
		if err := s.Run(t.Context(), w.f); err != nil {
			t.Fatal(err)
		}
		want(w, data)
		noTemp(w)
		if sent := w.f.Sent; sent != int64(len(data)) && !traits.Unproved {
			t.Errorf("%d bytes were sent", sent)
		}
	})
	t.Run("longer than the file", func(t *testing.T) {
		if traits.NoKeep || traits.Direct {
			t.Skip("unfinished files have no name there")
		}
		w := begin(t)
		w.Write(t, w.temp, append(append([]byte{}, data...), 'x'))
		if err := (&Send{Data: data}).Run(t.Context(), w.f); err != nil {
			t.Fatal(err)
		}
		want(w, data)
		noTemp(w)
	})
	t.Run("a byte changes", func(t *testing.T) {
		w := begin(t)
		w.f.FlipAt, w.f.Flips = 4321, 1
		s := &Send{Data: data}
		if err := s.Run(t.Context(), w.f); err != nil {
			t.Fatal(err)
		}
		want(w, data)
		if !strings.Contains(strings.Join(s.Said, "\n"), "other bytes") {
			t.Errorf("nothing was said: %q", s.Said)
		}
	})
	t.Run("a byte changes every time", func(t *testing.T) {
		w := begin(t)
		if !traits.Direct {
			w.Write(t, w.name, old)
		}
		w.f.FlipAt, w.f.Flips = 4321, 1000
		if err := (&Send{Data: data}).Run(t.Context(), w.f); !errors.Is(err, sink.ErrDigest) {
			t.Errorf("%v", err)
		}
		if !traits.Direct {
			want(w, old)
		}
		noTemp(w)
	})
	t.Run("a byte gets lost", func(t *testing.T) {
		w := begin(t)
		w.f.LoseAt = 2000
		if err := (&Send{Data: data}).Run(t.Context(), w.f); err != nil {
			t.Fatal(err)
		}
		want(w, data)
		noTemp(w)
	})
	t.Run("full", func(t *testing.T) {
		w := begin(t)
		if !traits.Direct {
			w.Write(t, w.name, old)
		}
		w.f.Full = 5000
		err := (&Send{Data: data}).Run(t.Context(), w.f)
		if !errors.Is(err, sink.ErrNoSpace) || !errors.Is(err, sink.ErrTarget) {
			t.Errorf("%v", err)
		}
		if !traits.Direct {
			want(w, old)
			noTemp(w)
		}
	})
	if !traits.Direct {
		t.Run("rename fails", func(t *testing.T) {
			w := begin(t)
			w.Write(t, w.name, old)
			w.f.Renames = []error{fmt.Errorf("%w: injected", sink.ErrRefused)}
			if err := (&Send{Data: data}).Run(t.Context(), w.f); !errors.Is(err, sink.ErrRefused) {
				t.Errorf("%v", err)
			}
			want(w, old)
		})
		t.Run("rename fails twice", func(t *testing.T) {
			w := begin(t)
			lost := sink.Passing(errors.New("injected"))
			w.f.Renames = []error{lost, lost}
			if err := (&Send{Data: data}).Run(t.Context(), w.f); err != nil {
				t.Fatal(err)
			}
			want(w, data)
			noTemp(w)
		})
		t.Run("the answer to the rename is lost", func(t *testing.T) {
			w := begin(t)
			w.f.Renames, w.f.After = []error{sink.Passing(errors.New("injected"))}, true
			if err := (&Send{Data: data}).Run(t.Context(), w.f); err != nil {
				t.Fatal(err)
			}
			want(w, data)
			noTemp(w)
		})
	}
	t.Run("interrupted", func(t *testing.T) {
		w := begin(t)
		if !traits.Direct {
			w.Write(t, w.name, old)
		}
		cause := errors.New("Ctrl-C")
		ctx, cancel := context.WithCancelCause(t.Context())
		s := &Send{Data: data, Stop: func(at int) error {
			if at > 5000 {
				cancel(cause)
				return ctx.Err()
			}
			return nil
		}}
		if err := s.Run(ctx, w.f); !errors.Is(err, cause) {
			t.Errorf("%v", err)
		}
		if !traits.Direct {
			want(w, old)
		}
		if w.f.Keeps() && !strings.Contains(strings.Join(s.Said, "\n"), "the same command goes on") {
			t.Errorf("it does not say what stays: %q", s.Said)
		}
	})
}

// Memory is a journal in memory.
type Memory struct{ B []byte }

// Load gives what was saved.
func (m *Memory) Load() ([]byte, error) { return m.B, nil }

// Save keeps a copy.
func (m *Memory) Save(b []byte) error {
	m.B = append([]byte{}, b...)
	return nil
}
