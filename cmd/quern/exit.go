package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"quern/pipeline"
	"quern/recipes"
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
	case errors.Is(err, errUsage), errors.Is(err, recipes.ErrRecipe), errors.Is(err, pipeline.ErrRecipe):
		return exitUsage
	case errors.Is(err, errVerify), errors.Is(err, pipeline.ErrGate), errors.Is(err, pipeline.ErrLocked):
		return exitVerify
	case errors.Is(err, pipeline.ErrSource):
		return exitSource
	}
	return exitFailed
}

// isNotExist reports whether a file that the user named is not there.
func isNotExist(err error) bool { return errors.Is(err, fs.ErrNotExist) }
