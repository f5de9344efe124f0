package hub

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"quern/hub/hubtest"
)

// pattern is content of any size that is not held: a block of noise over and
// over, of a length that no request or buffer has.
type pattern struct{ size int64 }

var patternBlock = sync.OnceValue(func() []byte { return noise(7, 1<<20+7) })

func (p pattern) ReadAt(b []byte, off int64) (int, error) {
	n := int(min(int64(len(b)), max(p.size-off, 0)))
	block := patternBlock()
	for k := 0; k < n; {
		k += copy(b[k:n], block[(off+int64(k))%int64(len(block)):])
	}
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func checkPattern(t *testing.T, p []byte, off int64) {
	t.Helper()
	want := make([]byte, len(p))
	pattern{off + int64(len(p))}.ReadAt(want, off)
	if !bytes.Equal(p, want) {
		t.Errorf("bytes [%d,%d) are wrong", off, off+int64(len(p)))
	}
}

// TestNeedsAreFetchedWithinOnePercent: scattered tensors of many sizes, read in
// an order that is not the file's, cost at most 1 % more than they need, in
// few requests.
func TestNeedsAreFetchedWithinOnePercent(t *testing.T) {
	const size = 20 << 20
	for _, mode := range []struct {
		name   string
		change func(*Options)
	}{{"spool", func(*Options) {}}, {"memory", inMemory}} {
		t.Run(mode.name, func(t *testing.T) {
			r := newRig(t, hubtest.Options{}, map[string]*hubtest.File{weights: hubtest.LFSReader(pattern{size}, size)})
			s := r.snapshot(r.client(mode.change))
			rng := rand.New(rand.NewPCG(1, 2))
			var items []Range
			var needed int64
			for off := int64(200_000); ; {
				n := []int64{64, 4096, 4096, 70_000, 900_000}[rng.IntN(5)]
				if off+n > size*3/4 {
					break
				}
				items = append(items, Range{off, n})
				needed += n
				off += n + []int64{0, 0, 16, 100, 3000}[rng.IntN(5)]
			}
			rng.Shuffle(len(items), func(i, j int) {
				if i/8 == j/8 { // neighbours stay near each other, as in a layer
					items[i], items[j] = items[j], items[i]
				}
			})
			if err := s.Need(t.Context(), weights, items); err != nil {
				t.Fatal(err)
			}
			for _, x := range items {
				checkPattern(t, read(t, s, weights, x.Off, x.Len), x.Off)
			}
			st := s.Stats()
			if st.Needed != needed {
				t.Errorf("needed %d, stats say %d", needed, st.Needed)
			}
			if over := st.Fetched - needed; over < 0 || over*100 > needed {
				t.Errorf("fetched %d for %d needed", st.Fetched, needed)
			}
			if sent := r.hub.Sent(weights); sent != st.Fetched {
				t.Errorf("%d sent, %d counted", sent, st.Fetched)
			}
			if n := r.hub.Count(hubtest.CDN, ""); n > len(items)*2/3 {
				t.Errorf("%d requests for %d ranges", n, len(items))
			}
		})
	}
}

// TestWholeFileWhenLittleIsLeftOut: if the needs leave less than 1 % out, all
// of it is fetched and verified, in both modes.
func TestWholeFileWhenLittleIsLeftOut(t *testing.T) {
	const size = 2_000_000
	for _, mode := range []struct {
		name   string
		change func(*Options)
	}{{"spool", func(*Options) {}}, {"memory", inMemory}} {
		for _, c := range []struct {
			left int64
			bad  bool
			sent int64
			want error
		}{
			{10_000, false, size, nil},
			{10_000, true, size, ErrDigest},
			{100_000, true, size - 100_000, nil}, // a part cannot be verified
		} {
			r := newRig(t, hubtest.Options{}, map[string]*hubtest.File{weights: hubtest.LFSReader(pattern{size}, size)})
			if c.bad {
				r.hub.Inject(hubtest.Fault{On: hubtest.CDN, Times: -1, Flip: 1_900_000 - c.left})
			}
			s := r.snapshot(r.client(mode.change))
			if err := s.Need(t.Context(), weights, []Range{{0, 1_000_000}, {1_000_000 + c.left, 1_000_000 - c.left}}); err != nil {
				t.Fatal(err)
			}
			read(t, s, weights, 0, 1_000_000)
			read(t, s, weights, 1_000_000+c.left, 1_000_000-c.left)
			err := s.Finish(t.Context())
			if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
				t.Errorf("%s, %d left out, bad %v: %v", mode.name, c.left, c.bad, err)
			}
			if sent := r.hub.Sent(weights); c.want == nil && sent != c.sent {
				t.Errorf("%s, %d left out: %d bytes sent, want %d", mode.name, c.left, sent, c.sent)
			}
		}
	}
}

// TestMemoryIsBounded: a file many times the memory is streamed in its order,
// each byte once, with the buffers never over their limit.
func TestMemoryIsBounded(t *testing.T) {
	const size, limit = 48 << 20, 4 << 20
	r := newRig(t, hubtest.Options{}, map[string]*hubtest.File{weights: hubtest.LFSReader(pattern{size}, size)})
	s := r.snapshot(r.client(inMemory, func(o *Options) { o.Memory, o.Concurrency = limit, 4 }))
	if err := s.Need(t.Context(), weights, []Range{{0, size}}); err != nil {
		t.Fatal(err)
	}
	b, err := s.Open(t.Context(), weights)
	if err != nil {
		t.Fatal(err)
	}
	const rows = 300_000
	for off := int64(0); off < size; off += rows {
		p := make([]byte, min(rows, size-off))
		if err := b.ReadAt(t.Context(), p, off); err != nil {
			t.Fatal(err)
		}
		checkPattern(t, p[:min(len(p), 1000)], off)
		if used := s.eng.mem.total(); used > limit {
			t.Fatalf("%d bytes buffered, limit %d", used, limit)
		}
	}
	if err := s.Finish(t.Context()); err != nil {
		t.Error(err)
	}
	if sent := r.hub.Sent(weights); sent != size {
		t.Errorf("%d bytes sent for %d", sent, size)
	}
	if used := s.eng.mem.total(); used != 0 {
		t.Errorf("%d bytes left in memory", used)
	}
}

// TestMemoryReadsOutOfFileOrder: a whole file that is read in another order than
// its own, as the experts of a layer are, comes in that order, every byte once.
func TestMemoryReadsOutOfFileOrder(t *testing.T) {
	const part, size, limit = 1_500_000, 24 * 1_500_000, 4 << 20
	r := newRig(t, hubtest.Options{}, map[string]*hubtest.File{weights: hubtest.LFSReader(pattern{size}, size)})
	s := r.snapshot(r.client(inMemory, func(o *Options) { o.Memory, o.Concurrency = limit, 4 }))
	var order []Range
	for first := range int64(3) {
		for off := first * part; off < size; off += 3 * part {
			order = append(order, Range{off, part})
		}
	}
	if err := s.Need(t.Context(), weights, order); err != nil {
		t.Fatal(err)
	}
	b, err := s.Open(t.Context(), weights)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range order {
		p := make([]byte, x.Len)
		if err := b.ReadAt(t.Context(), p, x.Off); err != nil {
			t.Fatal(err)
		}
		checkPattern(t, p[:1000], x.Off)
	}
	if sent := r.hub.Sent(weights); sent != size {
		t.Errorf("%d bytes sent for %d", sent, size)
	}
}

// TestMemoryKeepsTheHead: what was read before it was declared, as headers are,
// is not fetched again however late its turn comes.
func TestMemoryKeepsTheHead(t *testing.T) {
	const part, size, limit = 1_500_000, 24 * 1_500_000, 4 << 20
	r := newRig(t, hubtest.Options{}, map[string]*hubtest.File{weights: hubtest.LFSReader(pattern{size}, size)})
	s := r.snapshot(r.client(inMemory, func(o *Options) { o.Memory, o.Concurrency = limit, 4 }))
	b, err := s.Open(t.Context(), weights)
	if err != nil {
		t.Fatal(err)
	}
	head := make([]byte, 5000)
	if err := b.ReadAt(t.Context(), head, 0); err != nil {
		t.Fatal(err)
	}
	var order []Range
	for off := int64(part); off < size; off += part {
		order = append(order, Range{off, part})
	}
	order = append(order, Range{0, part})
	if err := s.Need(t.Context(), weights, order); err != nil {
		t.Fatal(err)
	}
	for _, x := range order {
		p := make([]byte, x.Len)
		if err := b.ReadAt(t.Context(), p, x.Off); err != nil {
			t.Fatal(err)
		}
		checkPattern(t, p[:1000], x.Off)
	}
	if sent := r.hub.Sent(weights); sent != size {
		t.Errorf("%d bytes sent for %d", sent, size)
	}
}

// TestMemoryReadersInAnyOrder: readers that jump about in little memory all
// come to their end.
func TestMemoryReadersInAnyOrder(t *testing.T) {
	const size, limit = 8 << 20, 1 << 20
	r := newRig(t, hubtest.Options{}, map[string]*hubtest.File{weights: hubtest.LFSReader(pattern{size}, size)})
	for _, declare := range []bool{false, true} {
		s := r.snapshot(r.client(inMemory, func(o *Options) { o.Memory = limit }))
		if declare {
			if err := s.Need(t.Context(), weights, []Range{{0, size}}); err != nil {
				t.Fatal(err)
			}
		}
		b, err := s.Open(t.Context(), weights)
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for i := range 6 {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(i), 1))
				for range 12 {
					p := make([]byte, 1+rng.IntN(700_000))
					off := rng.Int64N(size - int64(len(p)))
					if err := b.ReadAt(t.Context(), p, off); err != nil {
						t.Error(err)
						return
					}
					checkPattern(t, p, off)
				}
			})
		}
		wg.Wait()
	}
}

// gauge counts requests under way.
type gauge struct {
	rt        http.RoundTripper
	now, most atomic.Int64
}

func (g *gauge) RoundTrip(r *http.Request) (*http.Response, error) {
	n := g.now.Add(1)
	for m := g.most.Load(); n > m && !g.most.CompareAndSwap(m, n); m = g.most.Load() {
	}
	res, err := g.rt.RoundTrip(r)
	if err != nil {
		g.now.Add(-1)
		return nil, err
	}
	res.Body = &gaugedBody{res.Body, sync.OnceFunc(func() { g.now.Add(-1) })}
	return res, nil
}

type gaugedBody struct {
	io.ReadCloser
	done func()
}

func (b *gaugedBody) Close() error { b.done(); return b.ReadCloser.Close() }

// TestConcurrencyIsGlobal: several snapshots of one client share its
// connections.
func TestConcurrencyIsGlobal(t *testing.T) {
	const size = 6 << 20
	files := map[string]*hubtest.File{}
	for i := range 4 {
		files[fmt.Sprint("w", i)] = hubtest.LFS(noise(uint64(50+i), size))
	}
	r := newRig(t, hubtest.Options{}, files)
	g := &gauge{rt: newTransport(3)}
	c := r.client(inMemory, func(o *Options) { o.Concurrency, o.Transport = 3, g })
	var wg sync.WaitGroup
	for i := range 4 {
		s := r.snapshot(c)
		wg.Go(func() {
			name := fmt.Sprint("w", i)
			if err := s.Need(t.Context(), name, []Range{{0, size}}); err != nil {
				t.Error(err)
				return
			}
			b, err := s.Open(t.Context(), name)
			if err != nil {
				t.Error(err)
				return
			}
			p := make([]byte, size)
			if err := b.ReadAt(t.Context(), p, 0); err != nil || !bytes.Equal(p, files[name].Data) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	wg.Wait()
	if most := g.most.Load(); most > 3 || most < 2 {
		t.Errorf("%d requests at once, limit 3", most)
	}
}

// TestPrefetchFollowsTheOrderOfReading with one connection, so that the order
// of requests is the order of the needs.
func TestPrefetchFollowsTheOrderOfReading(t *testing.T) {
	big := int64(5 << 20)
	files := map[string]*hubtest.File{"a": hubtest.LFSReader(pattern{3 * big}, 3*big), "b": hubtest.LFSReader(pattern{3*big + 1}, 3*big+1)}
	r := newRig(t, hubtest.Options{}, files)
	s := r.snapshot(r.client(func(o *Options) { o.Concurrency = 1 }))
	order := []struct {
		file string
		off  int64
	}{{"b", 2 * big}, {"a", 0}, {"b", 0}, {"a", 2 * big}}
	for _, x := range order {
		if err := s.Need(t.Context(), x.file, []Range{{x.off, big}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Prefetch(); err != nil {
		t.Fatal(err)
	}
	last := order[len(order)-1]
	checkPattern(t, read(t, s, last.file, last.off, 10), last.off)
	var got []string
	for _, q := range r.hub.Requests() {
		if q.Kind == hubtest.CDN {
			got = append(got, q.Path+" "+q.Range)
		}
	}
	// The waiting reader moves its range to the front, but what was under way
	// goes on.
	seen := map[string]bool{}
	for _, g := range got {
		seen[g] = true
	}
	first := fmt.Sprintf("b bytes=%d-%d", 2*big, 3*big-1)
	if got[0] != first || len(seen) != len(got) {
		t.Errorf("requests %v", got)
	}
	for _, x := range order {
		checkPattern(t, read(t, s, x.file, x.off, big), x.off)
	}
	if sent := r.hub.Sent(""); sent != 4*big {
		t.Errorf("%d bytes sent for %d", sent, 4*big)
	}
}

// TestReadsEndWithTheirContext: a stalled server does not hold a reader whose
// context ends, nor Close.
func TestReadsEndWithTheirContext(t *testing.T) {
	r := newRig(t, hubtest.Options{}, map[string]*hubtest.File{weights: hubtest.LFS(noise(60, 100_000))})
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("the user gave up")
	r.hub.Inject(hubtest.Fault{On: hubtest.CDN, Times: -1, Stall: true, CutAfter: 10, Stalled: func() { cancel(gone) }})
	s := r.snapshot(r.client())
	b, err := s.Open(t.Context(), weights)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.ReadAt(ctx, make([]byte, 1000), 0); !errors.Is(err, gone) {
		t.Errorf("read: %v", err)
	}
	s.Close()
	if err := b.ReadAt(t.Context(), make([]byte, 1000), 0); !errors.Is(err, ErrClosed) {
		t.Errorf("read after close: %v", err)
	}
	if _, err := r.client().Snapshot(ctx, Ref{rigID, "main"}, SnapshotOptions{}); !errors.Is(err, gone) {
		t.Errorf("snapshot: %v", err)
	}
}

// TestReadAheadFailureIsLeftToTheReader: what nobody waits for stops the
// read-ahead; the reader who gets there tries for himself.
func TestReadAheadFailureIsLeftToTheReader(t *testing.T) {
	big := int64(5 << 20)
	r := newRig(t, hubtest.Options{}, map[string]*hubtest.File{"a": hubtest.LFSReader(pattern{big}, big), "b": hubtest.LFSReader(pattern{big + 1}, big+1)})
	reached := make(chan struct{})
	var once sync.Once
	r.hub.Inject(hubtest.Fault{On: hubtest.Resolve, Path: "b", Status: 404, Code: "EntryNotFound"})
	s := r.snapshot(r.client(func(o *Options) {
		o.Concurrency = 1
		add := o.Events
		o.Events = func(e Event) {
			add(e)
			if e.Kind == EventWarning {
				once.Do(func() { close(reached) })
			}
		}
	}))
	for _, f := range []string{"b", "a"} {
		if err := s.Need(t.Context(), f, []Range{{0, big}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Prefetch(); err != nil {
		t.Fatal(err)
	}
	<-reached
	checkPattern(t, read(t, s, "b", 0, big), 0)
	checkPattern(t, read(t, s, "a", 0, big), 0)
}
