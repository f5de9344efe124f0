package local

import (
	"context"
	"fmt"
	"time"

	"github.com/gofrs/flock"
)

// The locks. A process that needs several takes them in this order.
const (
	lockGC    = "quern/lock-gc"
	lockKeys  = "quern/lock-keys"
	lockIndex = "quern/lock-index"
)

// lockPoll is how often a lock that somebody else has is tried again. They are
// held for some milliseconds, but for lock-gc.
const lockPoll = 5 * time.Millisecond

// lock takes a lock that works between processes and between goroutines, as
// every call opens the file anew. The lock dies with the process. Waiting ends
// with ctx.
func (s *Store) lock(ctx context.Context, name string, exclusive bool) (release func(), err error) {
	l := flock.New(s.path(name), flock.SetPermissions(0o644))
	try := l.TryRLockContext
	if exclusive {
		try = l.TryLockContext
	}
	ok, err := try(ctx, lockPoll)
	if ctx.Err() != nil {
		if ok {
			l.Close()
		}
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", name, err)
	}
	return func() { l.Close() }, nil
}

// tryLock is an exclusive lock without waiting; release is nil if somebody else
// has it.
func (s *Store) tryLock(name string) (release func(), err error) {
	l := flock.New(s.path(name), flock.SetPermissions(0o644))
	ok, err := l.TryLock()
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", name, err)
	}
	if !ok {
		return nil, nil
	}
	return func() { l.Close() }, nil
}

// Hold keeps gc of this and other processes away until release is called. A
// build holds the store from its first look-up to its last tag, so that what it
// found stays, whatever its age. On a read-only store it does nothing.
func (s *Store) Hold(ctx context.Context) (release func(), err error) {
	if s.readOnly {
		return func() {}, nil
	}
	release, err = s.lock(ctx, lockGC, false)
	if err != nil {
		return nil, s.changeError(err)
	}
	return release, nil
}
