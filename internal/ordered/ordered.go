// Package ordered makes chunks of bytes in parallel and hands them over
// strictly in order, within a budget of memory.
//
// One goroutine, the caller's, admits chunks in order and takes them in order;
// workers only fill buffers. Memory comes free only when a chunk has been
// taken, so the taker is also the one who knows when the next chunk may start,
// and neither locks nor a semaphore are needed:
//
//	       taken |  in flight, at most Budget bytes  | not admitted
//	chunk:  0 1 2  3 4 5 6 7 8                         9 10 11 ...
//	             ^ next to emit                       ^ next to start
//
// The next chunk in order is always the oldest admitted one, and workers take
// chunks oldest first, so it never waits for memory that a later one holds.
package ordered

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
)

// DefaultBudget is the memory for chunks in flight when Options names none.
const DefaultBudget = 64 << 20

// ErrCost marks a chunk whose cost is negative or more than this machine can
// address.
var ErrCost = errors.New("impossible chunk size")

// Options say how many workers may run and how much memory they may hold. They
// never change what is emitted.
type Options struct {
	// Jobs is the number of workers; zero or less means one a CPU. With one
	// job everything runs in the caller's goroutine.
	Jobs int
	// Budget bounds the bytes of all buffers, those in flight and those kept
	// for reuse; zero or less means DefaultBudget. A chunk that costs more
	// than all of it runs alone.
	Budget int64
}

// WorkFunc makes chunk i. buf has a length of exactly cost(i) bytes and any
// content; the result is usually a part of it, and the rest is scratch space.
// It is called from several goroutines at once.
type WorkFunc func(ctx context.Context, i int, buf []byte) ([]byte, error)

// Run calls work for chunks 0 to n-1 in parallel and emit for each of them in
// order, in the caller's goroutine. The bytes that emit gets are only valid
// until it returns.
//
// The first error in the order of chunks wins, whichever came first in time:
// chunks before a failed one are still finished and emitted. When ctx is
// cancelled its cause is returned. All goroutines are gone when Run returns.
func Run(ctx context.Context, opt Options, n int, cost func(i int) int64, work WorkFunc, emit func(i int, b []byte) error) error {
	if opt.Jobs <= 0 {
		opt.Jobs = runtime.GOMAXPROCS(0)
	}
	if opt.Budget <= 0 {
		opt.Budget = DefaultBudget
	}
	jobs := min(opt.Jobs, n)
	if jobs <= 1 {
		return runAlone(ctx, opt.Budget, n, cost, work, emit)
	}
	return runParallel(ctx, opt.Budget, jobs, n, cost, work, emit)
}

func runAlone(ctx context.Context, budget int64, n int, cost func(int) int64, work WorkFunc, emit func(int, []byte) error) error {
	bufs := buffers{budget: budget}
	for i := range n {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		c, err := checkedCost(cost, i)
		if err != nil {
			return err
		}
		buf, _ := bufs.get(c)
		b, err := work(ctx, i, buf)
		if err != nil {
			return causeOf(ctx, err)
		}
		if err := emit(i, b); err != nil {
			return causeOf(ctx, err)
		}
		bufs.put(buf)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// windowPerJob bounds how many chunks, however cheap, are admitted ahead for
// each worker. It only has to be large enough that one slow chunk does not
// leave the other workers idle.
const windowPerJob = 32

type task struct {
	i   int
	buf []byte
}

type result struct {
	buf []byte // the buffer to reuse
	b   []byte // the chunk
	err error
}

func runParallel(parent context.Context, budget int64, jobs, n int, cost func(int) int64, work WorkFunc, emit func(int, []byte) error) error {
	ctx, cancel := context.WithCancelCause(parent)
	window := min(n, jobs*windowPerJob)
	tasks := make(chan task, window)
	slots := make([]chan result, window) // chunk i answers in slot i mod window
	for i := range slots {
		slots[i] = make(chan result, 1)
	}

	// failed is the lowest chunk known to have failed: later ones need not run.
	var failed atomic.Int64
	failed.Store(math.MaxInt64)
	var wg sync.WaitGroup
	for range jobs {
		wg.Go(func() {
			for t := range tasks {
				r := result{buf: t.buf}
				switch {
				case ctx.Err() != nil:
					r.err = context.Cause(ctx)
				case failed.Load() < int64(t.i):
					r.err = errSkipped
				default:
					r.b, r.err = work(ctx, t.i, t.buf)
				}
				if r.err != nil {
					lower(&failed, int64(t.i))
				}
				slots[t.i%window] <- r
			}
		})
	}
	// Deferred so that a panic in emit leaves no worker behind either.
	defer wg.Wait()
	defer close(tasks)
	defer cancel(errSkipped)

	bufs := buffers{budget: budget}
	next := 0
	var pending error // a bad cost, reported when its turn comes
	for head := range n {
		for pending == nil && next < n && next-head < window && failed.Load() == math.MaxInt64 {
			var c int64
			if c, pending = checkedCost(cost, next); pending != nil {
				break
			}
			buf, ok := bufs.get(c)
			if !ok {
				break
			}
			tasks <- task{next, buf}
			next++
		}
		if head == next {
			// Nothing is in flight, so memory cannot be the reason.
			return causeOf(parent, pending)
		}
		var r result
		select {
		case r = <-slots[head%window]:
		case <-ctx.Done():
			return context.Cause(parent)
		}
		if r.err != nil {
			return causeOf(parent, r.err)
		}
		if parent.Err() != nil {
			return context.Cause(parent)
		}
		if err := emit(head, r.b); err != nil {
			return causeOf(parent, err)
		}
		bufs.put(r.buf)
	}
	if parent.Err() != nil {
		return context.Cause(parent)
	}
	return nil
}

// errSkipped is what chunks after a failed one get; it is never returned.
var errSkipped = errors.New("an earlier chunk failed")

// causeOf gives the cause of a cancelled context in place of the bare
// context.Canceled that work usually reports, and any other error as it is.
func causeOf(ctx context.Context, err error) error {
	if cerr := ctx.Err(); cerr != nil && errors.Is(err, cerr) {
		return context.Cause(ctx)
	}
	return err
}

func checkedCost(cost func(int) int64, i int) (int64, error) {
	c := cost(i)
	if c < 0 || c > math.MaxInt {
		return 0, fmt.Errorf("chunk %d: %w: %d bytes", i, ErrCost, c)
	}
	return c, nil
}

func lower(a *atomic.Int64, v int64) {
	for {
		old := a.Load()
		if old <= v || a.CompareAndSwap(old, v) {
			return
		}
	}
}
