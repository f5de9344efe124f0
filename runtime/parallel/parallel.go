// Package parallel shares pieces of work among goroutines. Which of them does a
// piece makes no difference to the result.
package parallel

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
)

// Jobs is the number of workers that a wish stands for: 0 is one a processor.
func Jobs(n int) int {
	if n <= 0 {
		return runtime.GOMAXPROCS(0)
	}
	return n
}

// Each runs f for i from 0 to n-1, in any order, on up to jobs goroutines. worker is below
// jobs and tells those that run at once apart, so that each can have its own
// scratch. It gives the error of the lowest i that failed; what had not begun
// by then is left out.
func Each(ctx context.Context, jobs, n int, f func(i, worker int) error) error {
	workers := min(jobs, n)
	if workers <= 1 {
		for i := range n {
			if err := context.Cause(ctx); err != nil {
				return err
			}
			if err := f(i, 0); err != nil {
				return err
			}
		}
		return nil
	}
	var next atomic.Int64
	var mu sync.Mutex
	var first error
	failed := n
	work := func(worker int) {
		for {
			i := int(next.Add(1)) - 1
			if i >= n {
				return
			}
			err := context.Cause(ctx)
			if err == nil {
				err = f(i, worker)
			}
			if err != nil {
				next.Store(int64(n))
				mu.Lock()
				if i < failed {
					first, failed = err, i
				}
				mu.Unlock()
				return
			}
		}
	}
	var wg sync.WaitGroup
	for w := 1; w < workers; w++ {
		wg.Go(func() { work(w) })
	}
	work(0)
	wg.Wait()
	return first
}
