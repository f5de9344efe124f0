package hub

import (
	"errors"
	"io"
	"testing"

	"quern/hub/hubtest"
)

func TestHeaderReadsGrow(t *testing.T) {
	// A parser that reads a 3 MB header in little pieces.
	const size = 30 << 20
	for name, change := range map[string]func(*Options){"spool": func(*Options) {}, "memory": inMemory} {
		r := newRig(t, hubtest.Options{}, map[string]*hubtest.File{"x.gguf": hubtest.LFSReader(pattern{size}, size)})
		s := r.snapshot(r.client(change))
		b, err := s.Open(t.Context(), "x.gguf")
		if err != nil {
			t.Fatal(err)
		}
		for off := int64(0); off < 3<<20; off += 4096 {
			p := make([]byte, 4096)
			if err := b.ReadAt(t.Context(), p, off); err != nil {
				t.Fatal(err)
			}
			checkPattern(t, p, off)
		}
		if n := r.hub.Count(hubtest.CDN, ""); n > 10 {
			t.Errorf("%s: %d requests", name, n)
		}
		if sent := r.hub.Sent(""); sent > 8<<20 {
			t.Errorf("%s: %d bytes sent for a header of 3 MiB", name, sent)
		}
	}
}

// TestHeaderOfAnyLengthTakesTwoRequests: a head that grows with the file first,
// then the rest exactly.
func TestHeaderOfAnyLengthTakesTwoRequests(t *testing.T) {
	for _, header := range []int64{57, 4000, 4088, 4089, 99_992, 99_994, 100_001, 131_064, 131_072, 200_000} {
		const size, headBytes = 1 << 20, 4096
		r := newRig(t, hubtest.Options{}, map[string]*hubtest.File{weights: hubtest.LFSReader(pattern{size}, size)})
		s := r.snapshot(r.client())
		b, err := s.Open(t.Context(), weights)
		if err != nil {
			t.Fatal(err)
		}
		p := make([]byte, headBytes)
		if err := b.ReadAt(t.Context(), p, 0); err != nil {
			t.Fatal(err)
		}
		if rest := 8 + header - headBytes; rest > 0 {
			if err := b.ReadAt(t.Context(), make([]byte, rest), headBytes); err != nil {
				t.Fatal(err)
			}
		}
		n := r.hub.Count(hubtest.CDN, "")
		if sent := r.hub.Sent(weights); n > 2 || sent != max(headBytes, 8+header) {
			t.Errorf("header of %d: %d requests, %d bytes", header, n, sent)
		}
	}
	for size, want := range map[int64]int64{1000: 1000, 1 << 20: 4096, 8 << 20: 32 << 10, 1 << 30: 128 << 10} {
		if got := (&remote{size: size}).head(); got != want {
			t.Errorf("head of a file of %d bytes: %d, want %d", size, got, want)
		}
	}
}

func TestReadsOutOfRange(t *testing.T) {
	r := newRig(t, hubtest.Options{}, map[string]*hubtest.File{weights: hubtest.LFS(noise(61, 1000)), "empty": hubtest.Git("")})
	s := r.snapshot(r.client())
	b, err := s.Open(t.Context(), weights)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		off int64
		n   int
	}{{-1, 1}, {1000, 1}, {999, 2}, {1 << 62, 1}, {-1 << 63, 10}} {
		if err := b.ReadAt(t.Context(), make([]byte, c.n), c.off); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	for _, x := range []Range{{-1, 1}, {0, 1001}, {1 << 62, 1 << 62}, {5, -1}} {
		if err := s.Need(t.Context(), weights, []Range{x}); !errors.Is(err, ErrRange) {
			t.Errorf("need %+v: %v", x, err)
		}
	}
	if n := r.hub.Count(hubtest.CDN, ""); n != 0 {
		t.Errorf("%d requests", n)
	}
	e, err := s.Open(t.Context(), "empty")
	if err != nil || e.Size() != 0 || e.ReadAt(t.Context(), nil, 0) != nil {
		t.Errorf("empty file: %v", err)
	}
	if err := b.ReadAt(t.Context(), nil, 1000); err != nil {
		t.Errorf("nothing at the end: %v", err)
	}
}

// TestLateBytesOfAnOldVersion: a request that is still under way when the file
// turns out to have changed must not put its bytes among the new ones.
func TestLateBytesOfAnOldVersion(t *testing.T) {
	const size, half = 12 << 20, 6 << 20
	for name, change := range map[string]func(*Options){"spool": func(*Options) {}, "memory": func(o *Options) { o.SpoolDir, o.Memory = "", 2*size }} {
		r := newRig(t, hubtest.Options{}, map[string]*hubtest.File{weights: hubtest.LFSReader(pattern{size}, size)})
		restarted := make(chan struct{})
		r.hub.Inject(hubtest.Fault{On: hubtest.CDN, ETag: "old", Flip: 1 + 5_000_000, CutAfter: 1000, Hold: func() { <-restarted }})
		s := r.snapshot(r.client(change, func(o *Options) {
			o.Concurrency = 2
			add := o.Events
			o.Events = func(e Event) {
				add(e)
				if e.Kind == EventRefetch {
					close(restarted)
				}
			}
		}))
		if err := s.Need(t.Context(), weights, []Range{{0, half}, {half, half}}); err != nil {
			t.Fatal(err)
		}
		checkPattern(t, read(t, s, weights, half, half), half)
		checkPattern(t, read(t, s, weights, 0, half), 0)
		if err := s.Finish(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if n := len(r.events.of(EventRepair)); n != 0 {
			t.Errorf("%s: %d repairs", name, n)
		}
	}
}

// TestFinishWaitsForTheRest of a file that is fetched as a whole.
func TestFinishWaitsForTheRest(t *testing.T) {
	const size = 40 << 20
	r := newRig(t, hubtest.Options{}, map[string]*hubtest.File{weights: hubtest.LFSReader(pattern{size}, size)})
	s := r.snapshot(r.client(func(o *Options) { o.Concurrency = 1 }))
	if err := s.Need(t.Context(), weights, []Range{{0, size}}); err != nil {
		t.Fatal(err)
	}
	read(t, s, weights, 0, 10)
	if s.Proved(weights) {
		t.Error("proved by its head")
	}
	if err := s.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !s.Proved(weights) {
		t.Error("not proved when all was there")
	}
}
