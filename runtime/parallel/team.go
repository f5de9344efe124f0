package parallel

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Team is a number of workers for phases of work that follow each other so
// closely, hundreds for one token, that starting goroutines for each would cost
// more than the work. Within Work its goroutines stay awake between phases:
// they look for the next piece for a short while before they go to sleep.
//
// A Team is for one goroutine, like the session that owns it. Outside of Work it
// has no goroutines, so that it need not be closed.
type Team struct {
	jobs int
	// patience is how long a worker looks for work before it sleeps; 0 where
	// there are more workers than processors and looking would keep one from
	// working.
	patience time.Duration

	// pieces are those of the present phase: how many there are, shifted by 32,
	// and how many are taken. A piece is taken by comparing and swapping, so a
	// worker that was held up for long cannot take one that is not there.
	pieces atomic.Uint64
	left   atomic.Int64 // pieces that are taken, or to be taken, and not done

	// The phase. Written before pieces says that there is one, read by whoever
	// took a piece, and a phase lasts until its pieces are done.
	ctx   context.Context
	do    func(i, worker int) error
	fault fault

	working bool
	helpers []func() // what the goroutines of Work do, made once
	helping sync.WaitGroup
	ended   atomic.Bool
	asleep  atomic.Int32 // workers that sleep, or are about to
	waiting atomic.Bool  // whether the owner sleeps until left is 0, or is about to
	mu      sync.Mutex
	wake    sync.Cond // for all of them
}

// fault is the error of the lowest piece that failed.
type fault struct {
	mu    sync.Mutex
	piece int
	err   error
}

func (f *fault) set(i int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil || i < f.piece {
		f.piece, f.err = i, err
	}
}

const (
	patience = 200 * time.Microsecond
	// looks is how often a worker looks for work between two looks at the clock.
	looks = 500
	// mostPieces is the most that a phase can have.
	mostPieces = 1<<31 - 1
)

// NewTeam makes a team of Jobs(jobs) workers, of which the owner is one.
func NewTeam(jobs int) *Team {
	t := &Team{jobs: Jobs(jobs)}
	if t.jobs <= runtime.GOMAXPROCS(0) {
		t.patience = patience
	}
	t.wake.L = &t.mu
	for w := 1; w < t.jobs; w++ {
		t.helpers = append(t.helpers, func() {
			defer t.helping.Done()
			var room stack
			room.take()
			t.help(w)
		})
	}
	return t
}

// stack is what the work of a new goroutine takes of its stack. Taken at once, before
// there is anything on it, the stack need not be copied again and again as calls go
// deeper.
type stack [16 << 10]byte

//go:noinline
func (s *stack) take() { s[0] = 1 }

// Jobs is the number of workers.
func (t *Team) Jobs() int { return t.jobs }

// Work runs f, within which Each finds the workers awake, and gives its error.
func (t *Team) Work(f func() error) error {
	if t.jobs <= 1 || t.working {
		return f()
	}
	t.working = true
	t.ended.Store(false)
	t.helping.Add(len(t.helpers))
	for _, help := range t.helpers {
		go help()
	}
	defer func() {
		t.ended.Store(true)
		t.rouse()
		t.helping.Wait()
		t.working = false
	}()
	return f()
}

// Each is the function Each on the team's workers.
func (t *Team) Each(ctx context.Context, n int, f func(i, worker int) error) error {
	if n <= 1 || t.jobs <= 1 || !t.working || n > mostPieces {
		return Each(ctx, t.jobs, n, f)
	}
	t.ctx, t.do = ctx, f
	t.fault.err = nil
	t.left.Store(int64(n))
	t.pieces.Store(uint64(n) << 32)
	if t.asleep.Load() > 0 {
		t.rouse()
	}
	t.take(0)
	if t.left.Load() > 0 && !t.look(func() bool { return t.left.Load() == 0 }) {
		t.mu.Lock()
		t.waiting.Store(true)
		for t.left.Load() > 0 {
			t.wake.Wait()
		}
		t.waiting.Store(false)
		t.mu.Unlock()
	}
	t.ctx, t.do = nil, nil
	return t.fault.err
}

// look looks for something to become true until patience ends, and tells
// whether it did.
func (t *Team) look(ready func() bool) bool {
	if t.patience == 0 {
		return ready()
	}
	start := time.Now()
	for {
		for range looks {
			if ready() {
				return true
			}
		}
		if time.Since(start) > t.patience {
			return false
		}
	}
}

// open tells whether the present phase has pieces that nobody took.
func (t *Team) open() bool {
	p := t.pieces.Load()
	return p&(1<<32-1) < p>>32
}

// take does pieces of the present phase until none is left.
func (t *Team) take(worker int) {
	for {
		p := t.pieces.Load()
		i, n := p&(1<<32-1), p>>32
		if i >= n {
			return
		}
		if !t.pieces.CompareAndSwap(p, p+1) {
			continue
		}
		err := context.Cause(t.ctx)
		if err == nil {
			err = t.do(int(i), worker)
		}
		done := int64(1)
		if err != nil {
			t.fault.set(int(i), err)
			// Nobody is to begin another; those count as done.
			rest := t.pieces.Swap(n<<32 | n)
			done += int64(n - rest&(1<<32-1))
		}
		if t.left.Add(-done) == 0 && t.waiting.Load() {
			t.rouse()
		}
	}
}

// help takes pieces of phase after phase until the team's work ends.
func (t *Team) help(worker int) {
	ready := func() bool { return t.ended.Load() || t.open() }
	for !t.ended.Load() {
		t.take(worker)
		if t.look(ready) {
			continue
		}
		t.mu.Lock()
		t.asleep.Add(1)
		for !ready() {
			t.wake.Wait()
		}
		t.asleep.Add(-1)
		t.mu.Unlock()
	}
}

// rouse wakes all that sleep. Whoever is about to sleep holds the lock from its
// last look on, and so is not missed.
func (t *Team) rouse() {
	t.mu.Lock()
	t.wake.Broadcast()
	t.mu.Unlock()
}
