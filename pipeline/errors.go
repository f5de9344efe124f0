package pipeline

import (
	"context"
	"errors"
	"fmt"

	"quern/internal/atomicfile"
	"quern/model"
)

var (
	// ErrLayout marks an emitter's plan that contradicts itself: a fault of
	// quern, never of the input.
	ErrLayout = errors.New("inconsistent layout")
	// ErrSource marks a source that cannot be reached, read or trusted.
	ErrSource = errors.New("source failed")
	// ErrRecipe marks a recipe that asks for what cannot be done.
	ErrRecipe = errors.New("recipe cannot be built")
	// ErrLocked marks a difference from the lock file under --locked.
	ErrLocked = errors.New("differs from the lock file")
	// ErrGate marks a written artifact that fails one of its gates.
	ErrGate = errors.New("gate failed")
	// ErrSameFile marks an output that would overwrite an input.
	ErrSameFile = errors.New("output is an input of the build")
	// ErrOutput marks an output whose name or folder is taken by something
	// that a build must not replace.
	ErrOutput = errors.New("output cannot stand there")
	// ErrTooLarge marks an output that does not fit its partition.
	ErrTooLarge = errors.New("output too large")
	// ErrRepaired is what a Fetcher's Finish returns after it has replaced
	// bytes that were read before.
	ErrRepaired = errors.New("source bytes were wrong and have been fetched again")
)

// SourceFault puts an error down to the source, unless it says already whose
// fault it is.
func SourceFault(err error) error {
	if err == nil || errors.Is(err, ErrSource) || errors.Is(err, ErrRecipe) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrSource, err)
}

// planFault says whose fault it is that a stage or an emitter cannot plan: the
// source's if it is no sound model, else the recipe's, which asks for what
// cannot be done with it.
func planFault(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, ErrSource), errors.Is(err, ErrRecipe), errors.Is(err, ErrLayout):
		return err
	case errors.Is(err, model.ErrConfig), errors.Is(err, model.ErrArchitecture), errors.Is(err, model.ErrTensors):
		return SourceFault(err)
	}
	return fmt.Errorf("%w: %w", ErrRecipe, err)
}

// readFault is the error of rows that cannot be made: the source's, be it that
// it cannot be read or that a weight cannot be stored.
func readFault(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return SourceFault(err)
}

// writeFault says what to do about a file that cannot be written.
func writeFault(what string, size int64, err error) error {
	switch {
	case atomicfile.IsDiskFull(err):
		return fmt.Errorf("%s: the disk is full: the file has %d bytes; make room, or choose another folder with -o: %w", what, size, err)
	case atomicfile.IsReadOnly(err):
		return fmt.Errorf("%s: the folder cannot be written to; choose another with -o: %w", what, err)
	}
	return err
}
