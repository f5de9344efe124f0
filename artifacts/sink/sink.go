// Package sink sends finished bytes to where they are to live: a folder, standard
// output, an Android device, a machine with sshd, an HTTP server, an image for a
// flash chip. A model goes there in one pass and is nowhere here meanwhile.
//
//	producer ── Write ──► Transfer ──┬──► lane ── Sink (adb)    NAME.quern-part
//	    ▲                 hashes,    └──► lane ── Sink (ssh)         │ SHA-256 over there
//	    └── from offset n ─ marks                                    ▼ equal: rename
//	                                                               NAME
//
// A Sink is the small part that differs: it knows how to look at files, append to
// them, hash and rename them on the other side. Transfer is what they share:
// temporary name, comparison of digests, going on after a break, retries, free
// space, several targets at once. sinktest holds every Sink to the same promises.
package sink

import (
	"context"
	"errors"
	"fmt"
	"io"

	"quern/internal/digest"
)

// Sink reaches one target: a file of a given name and its neighbours. Names are
// base names, in the target's folder. Methods do not retry; an error that may
// pass by itself is marked with Passing. They may be called by several goroutines,
// but one name is written by one at a time.
type Sink interface {
	// String is the target as messages show it: without passwords, tokens and the
	// queries of addresses.
	String() string
	// Name is the base name of the target, Temp the name under which the file is
	// written. They are the same where nothing can be renamed.
	Name() string
	Temp() string
	// Stat gives a file's length, and ErrNotExist where there is none.
	Stat(ctx context.Context, name string) (int64, error)
	// Free gives the bytes that may still be written there, and
	// errors.ErrUnsupported where nobody says.
	Free(ctx context.Context) (int64, error)
	// Open appends to a file that has off bytes, or starts one anew when off is 0.
	// size is what it will have at the end. Close returns when the other side has
	// taken everything. The end of ctx breaks the transfer off.
	Open(ctx context.Context, name string, off, size int64) (io.WriteCloser, error)
	// Sum is the SHA-256 of the first n bytes of a file, as the other side reads
	// it; errors.ErrUnsupported where that cannot be had.
	Sum(ctx context.Context, name string, n int64) (digest.Digest, error)
	// Rename gives a file another name, in place of what has it.
	Rename(ctx context.Context, from, to string) error
	// Remove deletes a file; that there is none is no error.
	Remove(ctx context.Context, name string) error
	Close() error
}

// Limiter is a Sink that takes only files up to some length or of some form.
type Limiter interface {
	// Check returns an error, ErrTooLarge for one, for a file of size bytes.
	Check(size int64) error
}

// Stream is a Sink that can only be written to, once and from the start.
type Stream interface{ Stream() }

// TempSuffix ends the names of unfinished files on the other side.
const TempSuffix = ".quern-part"

var (
	// ErrTarget is in every error of a target.
	ErrTarget = errors.New("target failed")
	// ErrNotExist says that there is no such file.
	ErrNotExist = errors.New("no such file")
	// ErrFolder says that a folder has the name.
	ErrFolder = errors.New("is a folder")
	// ErrSyntax marks a target that cannot be read.
	ErrSyntax = errors.New("not a target")
	// ErrTooLarge marks a file that is larger than its partition.
	ErrTooLarge = errors.New("too large")
	// ErrNoSpace marks a target whose disk is full, or would be.
	ErrNoSpace = errors.New("no space left on the target")
	// ErrDigest marks a file that arrived with other bytes than were sent.
	ErrDigest = errors.New("the target has other bytes than were sent")
	// ErrRefused marks what the target does not allow.
	ErrRefused = errors.New("the target refuses")

	errPassing = errors.New("may pass by itself")
)

// Passing marks an error that may be gone when the same is tried again.
func Passing(err error) error {
	if err == nil {
		return nil
	}
	return &passing{err}
}

type passing struct{ err error }

func (p *passing) Error() string        { return p.err.Error() }
func (p *passing) Unwrap() error        { return p.err }
func (p *passing) Is(target error) bool { return target == errPassing }

// IsPassing reports whether an error was marked with Passing.
func IsPassing(err error) bool { return errors.Is(err, errPassing) }

// Error is a fault of a target.
type Error struct {
	Target string
	Op     string // what was being done
	Err    error
}

func (e *Error) Error() string        { return fmt.Sprintf("%s: %s: %v", e.Target, e.Op, e.Err) }
func (e *Error) Unwrap() error        { return e.Err }
func (e *Error) Is(target error) bool { return target == ErrTarget }
