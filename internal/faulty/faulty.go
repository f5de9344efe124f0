// Package faulty wraps readers and writers so that they fail the way disks and
// networks do: full, short, broken off, or right in length and wrong in a bit.
// Only tests use it.
package faulty

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"syscall"
)

// ErrInjected is the error of every fault that is given no other.
var ErrInjected = errors.New("injected fault")

// ErrDiskFull is what a full disk answers.
var ErrDiskFull = fmt.Errorf("injected: %w", syscall.ENOSPC)

// Short ends r after n bytes as if the rest did not exist.
func Short(r io.Reader, n int64) io.Reader { return io.LimitReader(r, n) }

// Break makes r fail with err (ErrInjected if nil) after n bytes.
func Break(r io.Reader, n int64, err error) io.Reader {
	if err == nil {
		err = ErrInjected
	}
	return &breakReader{io.LimitReader(r, n), err}
}

type breakReader struct {
	r   io.Reader
	err error
}

func (b *breakReader) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if err == io.EOF {
		err = b.err
	}
	return n, err
}

// Flip inverts bit number bit of what r gives, counted from bit 0 of byte 0.
func Flip(r io.Reader, bit int64) io.Reader { return &flipReader{r: r, bit: bit} }

type flipReader struct {
	r       io.Reader
	at, bit int64
}

func (f *flipReader) Read(p []byte) (int, error) {
	n, err := f.r.Read(p)
	flip(p[:n], f.at, f.bit)
	f.at += int64(n)
	return n, err
}

// flip inverts a bit of p, which starts at byte off, if it is in there.
func flip(p []byte, off, bit int64) {
	if i := bit/8 - off; i >= 0 && i < int64(len(p)) {
		p[i] ^= 1 << (bit % 8)
	}
}

// Dribble reads r in pieces of 1 to 97 bytes, as a network does.
func Dribble(r io.Reader, seed uint64) io.Reader {
	return &dribble{r, rand.New(rand.NewPCG(seed, seed))}
}

type dribble struct {
	r   io.Reader
	rng *rand.Rand
}

func (d *dribble) Read(p []byte) (int, error) {
	if n := 1 + d.rng.IntN(97); n < len(p) {
		p = p[:n]
	}
	return d.r.Read(p)
}

// FlipAt is Flip for random access.
func FlipAt(r io.ReaderAt, bit int64) io.ReaderAt { return flipReaderAt{r, bit} }

type flipReaderAt struct {
	r   io.ReaderAt
	bit int64
}

func (f flipReaderAt) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.r.ReadAt(p, off)
	flip(p[:n], off, f.bit)
	return n, err
}

// BreakAt makes every read that touches byte n or a later one fail with err
// (ErrInjected if nil).
func BreakAt(r io.ReaderAt, n int64, err error) io.ReaderAt {
	if err == nil {
		err = ErrInjected
	}
	return breakReaderAt{r, n, err}
}

type breakReaderAt struct {
	r   io.ReaderAt
	n   int64
	err error
}

func (b breakReaderAt) ReadAt(p []byte, off int64) (int, error) {
	if off >= b.n {
		return 0, b.err
	}
	if int64(len(p)) <= b.n-off {
		return b.r.ReadAt(p, off)
	}
	n, err := b.r.ReadAt(p[:b.n-off], off)
	if err == nil {
		err = b.err
	}
	return n, err
}

// Full lets n bytes through to w and then fails with ErrDiskFull, after a
// partial write as real disks do.
func Full(w io.Writer, n int64) io.Writer { return &fullWriter{w, n} }

type fullWriter struct {
	w    io.Writer
	left int64
}

func (f *fullWriter) Write(p []byte) (int, error) {
	if int64(len(p)) <= f.left {
		n, err := f.w.Write(p)
		f.left -= int64(n)
		return n, err
	}
	n, err := f.w.Write(p[:f.left])
	f.left -= int64(n)
	if err == nil {
		err = ErrDiskFull
	}
	return n, err
}

// Countdown fails one call of many: the one after n others, or all from then
// on. It is safe for several goroutines.
type Countdown struct {
	mu    sync.Mutex
	left  int
	all   bool
	err   error
	fired bool
}

// FailOnce makes a Countdown that fails a single call.
func FailOnce(n int, err error) *Countdown { return &Countdown{left: n, err: err} }

// FailFrom makes a Countdown that fails every call after the first n.
func FailFrom(n int, err error) *Countdown { return &Countdown{left: n, all: true, err: err} }

// Next is the call; it returns nil or the error.
func (c *Countdown) Next() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left > 0 {
		c.left--
		return nil
	}
	if c.fired && !c.all {
		return nil
	}
	c.fired = true
	return c.err
}

// Fired reports whether a call has failed.
func (c *Countdown) Fired() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fired
}
