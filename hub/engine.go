package hub

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// engine fetches the files of one snapshot (or one URL): it turns declared
// needs and reads into jobs, runs a bounded number of them at a time in the
// order of reading, and wakes the readers.
type engine struct {
	c      *Client
	ctx    context.Context
	cancel context.CancelCauseFunc
	count  counters
	mem    *memory // nil with a spool
	limits planLimits

	wg      sync.WaitGroup
	mu      sync.Mutex
	files   []*remote
	pending []need // declared and not made into jobs yet
	queue   []*job
	running int
	halted  bool // an undemanded fetch failed: prefetch no more
}

// need is a declared range, in the order of reading.
type need struct {
	f *remote
	x span
}

// job fetches one span of a file.
type job struct {
	f *remote
	span
	left    spans // declared bytes in it
	whole   bool  // from byte 0, without Range
	waiters int
	started bool
	gen     int
	done    bool
	err     error
	notify  chan struct{} // closed when bytes came or the job ended
}

func (j *job) wake() {
	close(j.notify)
	j.notify = make(chan struct{})
}

func (c *Client) newEngine(ctx context.Context, spooled bool) *engine {
	e := &engine{c: c, limits: planLimits{segment: 16 << 20, big: 4 << 20}}
	e.ctx, e.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	if !spooled {
		e.mem = newMemory(c.opt.Memory)
		seg := min(max(c.opt.Memory/int64(2*c.opt.Concurrency), 64<<10), 4<<20)
		e.limits = planLimits{segment: seg, big: seg / 4}
	}
	return e
}

// close stops all fetching and waits for it to end.
func (e *engine) close() {
	e.cancel(ErrClosed)
	e.mu.Lock()
	for _, j := range e.queue {
		e.end(j, ErrClosed)
	}
	e.queue, e.pending = nil, nil
	e.mu.Unlock()
	e.wg.Wait()
}

func (e *engine) add(f *remote) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.files = append(e.files, f)
}

// declare notes what will be read. Fetching starts with the first read or
// with start.
func (e *engine) declare(f *remote, ranges []Range) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range ranges {
		if r.Off < 0 || r.Len < 0 || r.Off > f.size || r.Len > f.size-r.Off {
			return fmt.Errorf("%s: %w: need of %d bytes at offset %d of %d", f.what, ErrRange, r.Len, r.Off, f.size)
		}
	}
	for _, r := range ranges {
		x := span{r.Off, r.Off + r.Len}
		f.needs = f.needs.add(x)
		f.asked = f.asked.add(x)
		e.pending = append(e.pending, need{f, x})
	}
	return nil
}

// enqueue adds a job, in front for a waiting reader. It is called with e.mu
// held.
func (e *engine) enqueue(f *remote, x span, front bool) *job {
	j := &job{f: f, span: x, notify: make(chan struct{})}
	j.left = f.asked.inside(x)
	f.jobs = append(f.jobs, j)
	if front {
		e.queue = slices.Insert(e.queue, 0, j)
	} else {
		e.queue = append(e.queue, j)
	}
	return j
}

// start begins to fetch what was declared without waiting for a read.
func (e *engine) start() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.plan()
	e.pump()
}

// kick looks for work after memory became free.
func (e *engine) kick() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.pump()
}

// cover returns the job that brings x.lo, making one if there is none, and
// counts the caller as its waiter.
func (e *engine) cover(ctx context.Context, f *remote, x span) (*job, <-chan struct{}, error) {
	miss, err := f.missing(ctx, x)
	if err != nil {
		return nil, nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := context.Cause(e.ctx); err != nil {
		return nil, nil, about(f.what, err)
	}
	if len(e.pending) > 0 {
		e.plan()
	}
	j := f.jobAt(x.lo)
	if j == nil && len(miss) > 0 {
		e.demand(f, x, miss)
		j = f.jobAt(x.lo)
	}
	if j == nil {
		// It arrived in between.
		done := make(chan struct{})
		close(done)
		return nil, done, nil
	}
	j.waiters++
	if e.mem != nil {
		e.mem.hold(f, x.lo)
	}
	e.pump()
	return j, j.notify, nil
}

// demand makes jobs for the missing parts of a read. It is called with e.mu
// held.
func (e *engine) demand(f *remote, x span, miss []span) {
	if f.noRange {
		e.enqueueWhole(f)
		return
	}
	if last := &miss[len(miss)-1]; last.hi == x.hi {
		*last = f.extend(*last)
	}
	var jobs spans
	for _, j := range f.jobs {
		jobs = jobs.add(j.span)
	}
	for i := len(miss) - 1; i >= 0; i-- {
		f.needs = f.needs.add(miss[i])
		parts := cutLong(jobs.missing(miss[i]), e.limits.segment)
		for k := len(parts) - 1; k >= 0; k-- {
			e.enqueue(f, parts[k], true)
		}
	}
}

func (f *remote) jobAt(off int64) *job {
	for _, j := range f.jobs {
		if j.lo <= off && off < j.hi {
			return j
		}
	}
	return nil
}

// uncover ends a wait and passes on why the job failed, unless bytes came.
func (e *engine) uncover(j *job, came bool, err error) error {
	if j == nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	j.waiters--
	if err == nil && !came && j.done {
		err = j.err
	}
	return err
}

// pump starts jobs while connections and memory allow. It is called with e.mu
// held.
func (e *engine) pump() {
	for e.running < e.c.opt.Concurrency {
		j := e.pick()
		if j == nil {
			return
		}
		j.started, j.gen = true, j.f.gen
		e.running++
		e.wg.Add(1)
		go e.run(j)
	}
}

// pick takes the next job: one that a reader waits for, else the first of the
// queue if there is room for it.
func (e *engine) pick() *job {
	for {
		j, held := e.next()
		if j == nil || !held {
			return j
		}
	}
}

// next takes a job from the queue. held is true when memory has all of its
// bytes, so that it has ended already.
func (e *engine) next() (j *job, held bool) {
	at := slices.IndexFunc(e.queue, func(j *job) bool { return j.waiters > 0 })
	urgent := at >= 0
	if !urgent {
		if len(e.queue) == 0 || e.halted {
			return nil, false
		}
		at = 0
	}
	j = e.queue[at]
	if e.mem != nil {
		if !urgent && !e.mem.room(j.len()) {
			return nil, false
		}
	}
	e.queue = slices.Delete(e.queue, at, at+1)
	if e.mem != nil {
		if !j.whole && !e.narrow(j) {
			e.end(j, nil)
			return j, true
		}
		e.mem.reserve(j.f, j.span, j.left, urgent, j.whole)
	}
	return j, false
}

// narrow cuts a job down to bytes that memory does not hold yet (the head of
// a file often is); false when none is left. What follows becomes jobs of its
// own.
func (e *engine) narrow(j *job) bool {
	miss := e.mem.missing(j.f, j.span)
	if len(miss) == 0 {
		return false
	}
	j.span, j.left = miss[0], j.left.inside(miss[0])
	for i := len(miss) - 1; i > 0; i-- {
		e.enqueue(j.f, miss[i], true)
	}
	return true
}

// end finishes a job and wakes its waiters. It is called with e.mu held.
func (e *engine) end(j *job, err error) {
	j.err, j.done = err, true
	j.f.jobs = slices.DeleteFunc(j.f.jobs, func(o *job) bool { return o == j })
	j.wake()
}

// unqueue takes back the jobs of a file that have not started.
func (e *engine) unqueue(f *remote) {
	e.queue = slices.DeleteFunc(e.queue, func(j *job) bool {
		if j.f != f {
			return false
		}
		e.end(j, nil)
		return true
	})
}

// errRestart: the file's generation changed while the job ran.
var errRestart = errors.New("the file is fetched again from the start")

func (e *engine) run(j *job) {
	defer e.wg.Done()
	err := e.fetch(j)
	if e.mem != nil {
		e.mem.end(j.f, j.span)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.running--
	err = e.recover(j, err)
	// When nobody waits for it, the reader who comes to it later will find
	// out for himself; until then more of the same would only do harm.
	if e.halted = err != nil && j.waiters == 0; e.halted {
		e.c.event(Event{Kind: EventWarning, What: j.f.what, Text: fmt.Sprintf("reading ahead stopped: %v", err)})
	}
	e.end(j, err)
	e.pump()
}

// fetch brings what is missing of the job's span.
func (e *engine) fetch(j *job) error {
	f := j.f
	if !j.whole && f.loc.ignoresRange() && (j.lo > 0 || j.hi < f.size) {
		return errIgnored
	}
	miss := []span{j.span}
	if !j.whole && f.spool != nil {
		var err error
		if miss, err = f.missing(e.ctx, j.span); err != nil {
			return err
		}
	}
	for _, x := range miss {
		err := f.loc.fetch(e.ctx, x.lo, x.hi, func(off int64, p []byte) error { return e.take(j, off, p) })
		if err != nil {
			return err
		}
	}
	return nil
}

// take keeps a fetched piece and wakes the readers.
func (e *engine) take(j *job, off int64, p []byte) error {
	if err := e.keep(j, off, p); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	j.f.fetched = j.f.fetched.add(span{off, off + int64(len(p))})
	j.wake()
	return nil
}

func (e *engine) keep(j *job, off int64, p []byte) error {
	f := j.f
	f.genMu.RLock()
	defer f.genMu.RUnlock()
	if j.gen != f.gen {
		return errRestart
	}
	if f.spool == nil {
		e.mem.write(f, off, p)
		return nil
	}
	keep := []span{{off, off + int64(len(p))}}
	if j.whole {
		var err error
		if keep, err = f.spool.missing(e.ctx, keep[0]); err != nil {
			return err
		}
	}
	for _, x := range keep {
		if err := f.spool.write(x.lo, p[x.lo-off:x.hi-off]); err != nil {
			return err
		}
	}
	return nil
}
