package hub

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"

	"github.com/gofrs/flock"
)

const (
	// softStale is the age at which a soft lock's owner is taken for dead.
	// Soft locks are held for one small write.
	softStale = 30 * time.Second
	softRetry = 5 * time.Millisecond
)

// locks takes flock locks, and where the file system has none (some network
// shares) falls back to a file that exists while the lock is held.
type locks struct {
	// flock makes the lock of a path; tests put failing ones here.
	flock func(path string) flocker
}

type flocker interface {
	Lock() error
	RLock() error
	TryLock() (bool, error)
	Unlock() error
}

func newFlock(path string) flocker { return flock.New(path) }

func noFlock(err error) bool {
	return errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.ENOLCK)
}

// exclusive waits for the lock. It is for short critical sections.
func (l locks) exclusive(ctx context.Context, path string) (unlock func(), err error) {
	f := l.flock(path)
	err = f.Lock()
	switch {
	case err == nil:
		return func() { f.Unlock() }, nil
	case noFlock(err):
		return softLock(ctx, path)
	}
	return nil, fmt.Errorf("lock %s: %w", path, err)
}

// shared holds a lock that keeps exclusive ones out. Without flock there is
// no such lock; cleaners then go by age alone.
func (l locks) shared(path string) (unlock func(), err error) {
	f := l.flock(path)
	err = f.RLock()
	switch {
	case err == nil:
		return func() { f.Unlock() }, nil
	case noFlock(err):
		return func() {}, nil
	}
	return nil, fmt.Errorf("lock %s: %w", path, err)
}

// try takes the lock if nobody holds it.
func (l locks) try(path string) (unlock func(), ok bool, err error) {
	f := l.flock(path)
	ok, err = f.TryLock()
	switch {
	case err == nil && ok:
		return func() { f.Unlock() }, true, nil
	case err == nil:
		return nil, false, nil
	case noFlock(err):
		return func() {}, true, nil
	}
	return nil, false, fmt.Errorf("lock %s: %w", path, err)
}

func softLock(ctx context.Context, path string) (unlock func(), err error) {
	path += "-soft"
	for {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if err == nil {
			f.Close()
			return func() { os.Remove(path) }, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if st, err := os.Stat(path); err == nil && time.Since(st.ModTime()) > softStale {
			os.Remove(path)
			continue
		}
		if err := (systemClock{}).Sleep(ctx, softRetry); err != nil {
			return nil, err
		}
	}
}
