package sink

import (
	"fmt"
	"io"
	"time"

	"quern/internal/atomicfile"
)

// Options say how targets are reached. The zero value is right for most.
type Options struct {
	SSH    []string  // the ssh client and its first arguments; nil means ssh
	ADB    []string  // the adb client likewise; nil means adb
	Token  string    // bearer token for HTTP, sent to the target's host alone
	Stdout io.Writer // where - goes
	// UserAgent is what HTTP servers are told.
	UserAgent string
	// Before is atomicfile.Options.Before for files of this machine. Tests inject
	// faults with it.
	Before func(atomicfile.Step, string) error
	// Chunk is how much one HTTP request carries where servers take parts; 0
	// means 64 MiB.
	Chunk int64
	// Settle is how long an adb device may take for bytes that were handed over,
	// without getting any further; 0 means 5 s.
	Settle time.Duration
}

// Open makes the sink of a target. Nothing is reached yet. The target must name a
// file: see Target.At.
func Open(t Target, opt Options) (Sink, error) {
	if t.Folder {
		return nil, fmt.Errorf("%w: %s is a folder", ErrSyntax, t)
	}
	switch t.Kind {
	case File:
		return newFile(t, opt), nil
	case Flash:
		return newFlash(t, opt), nil
	case Stdout:
		if opt.Stdout == nil {
			return nil, fmt.Errorf("%w: standard output is not to be had here", ErrSyntax)
		}
		return &stdoutSink{opt.Stdout}, nil
	case ADB:
		return newADB(t, opt)
	case SSH:
		return newSSH(t, opt)
	case HTTP:
		return newHTTP(t, opt)
	}
	return nil, fmt.Errorf("%w: of no kind", ErrSyntax)
}
