//go:build !linux

package atomicfile

import (
	"errors"
	"io/fs"
	"os"
)

func createUnnamed(string, fs.FileMode) *os.File { return nil }

func unnamedPath(f *os.File) string { return f.Name() }

func linkUnnamed(*os.File, string) error { return errors.ErrUnsupported }

func reserve(*os.File, int64) error { return nil }

func cloneFile(_, _ *os.File) error { return errors.ErrUnsupported }
