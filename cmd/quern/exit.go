package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"quern/artifacts"
	"quern/artifacts/registry"
	"quern/artifacts/sink"
	"quern/internal/atomicfile"
	"quern/pipeline"
	"quern/recipes"
	infer "quern/runtime"
	"quern/runtime/generate"
	"quern/runtime/importance"
	"quern/runtime/score"
)

// The exit codes; every command's help names them.
const (
	exitDone        = 0
	exitFailed      = 1
	exitUsage       = 2
	exitVerify      = 3
	exitSource      = 4
	exitInterrupted = 130
)

// errUsage marks a command line that makes no sense.
var errUsage = errors.New("usage")

type usageErr struct{ msg string }

func (e usageErr) Error() string        { return e.msg }
func (e usageErr) Is(target error) bool { return target == errUsage }

func usagef(format string, args ...any) error { return usageErr{fmt.Sprintf(format, args...)} }

// errVerify marks a file that is not what it should be.
var errVerify = errors.New("verification failed")

// exitCode is the one place where errors become exit codes.
func exitCode(err error) int {
	switch {
	case err == nil:
		return exitDone
	case errors.Is(err, errInterrupted), errors.Is(err, context.Canceled):
		return exitInterrupted
	case isUsage(err):
		return exitUsage
	case errors.Is(err, infer.ErrUnsupported) && !errors.Is(err, pipeline.ErrSource):
		// A model can be opened and does not do what it is asked for.
		return exitUsage
	case errors.Is(err, errVerify), errors.Is(err, pipeline.ErrGate), errors.Is(err, pipeline.ErrLocked):
		return exitVerify
	case errors.Is(err, pipeline.ErrSource), errors.Is(err, sink.ErrTarget), errors.Is(err, registry.ErrRegistry):
		return exitSource
	}
	return exitFailed
}

// isUsage finds what the user has to change: the command line, the recipe, a name or
// folder that one of them gives, or a text that does not fit the wish.
func isUsage(err error) bool {
	for _, target := range []error{
		infer.ErrToken, infer.ErrContext, infer.ErrNoTokenizer, generate.ErrShort, score.ErrShort, importance.ErrShort,
		errUsage, registry.ErrRef, recipes.ErrRecipe, pipeline.ErrRecipe, pipeline.ErrSameFile, pipeline.ErrOutput,
		sink.ErrSyntax, sink.ErrTooLarge, sink.ErrFolder, artifacts.ErrName, artifacts.ErrAmbiguous, artifacts.ErrNotStore, atomicfile.ErrNotRegular,
	} {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}

// isNotExist reports whether a file that the user named is not there.
func isNotExist(err error) bool { return errors.Is(err, fs.ErrNotExist) }
