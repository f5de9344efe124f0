package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// createUnnamed opens a file in dir that has no name, or returns nil where the
// file system, or a missing /proc through which the name is given later, does
// not allow it.
func createUnnamed(dir string, mode fs.FileMode) *os.File {
	f, err := os.OpenFile(dir, os.O_RDWR|unix.O_TMPFILE, mode)
	if err != nil {
		return nil
	}
	if _, err := os.Stat(unnamedPath(f)); err != nil {
		f.Close()
		return nil
	}
	return f
}

func unnamedPath(f *os.File) string {
	return fmt.Sprintf("/proc/self/fd/%d", descriptor(f))
}

// descriptor gives the number of an open file without the change to blocking
// mode that f.Fd makes.
func descriptor(f *os.File) int {
	fd := -1
	if c, err := f.SyscallConn(); err == nil {
		c.Control(func(u uintptr) { fd = int(u) })
	}
	return fd
}

func linkUnnamed(f *os.File, path string) error {
	return unix.Linkat(unix.AT_FDCWD, unnamedPath(f), unix.AT_FDCWD, path, unix.AT_SYMLINK_FOLLOW)
}

// reserve allocates disk space without changing the file's length, which
// Commit still checks. Only a full disk counts as a failure.
func reserve(f *os.File, size int64) error {
	for {
		err := unix.Fallocate(descriptor(f), unix.FALLOC_FL_KEEP_SIZE, 0, size)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case IsDiskFull(err):
			return fmt.Errorf("reserve %d bytes: %w", size, err)
		}
		return nil
	}
}

func cloneFile(dst, src *os.File) error {
	err := unix.IoctlFileClone(descriptor(dst), descriptor(src))
	if err != nil && !IsDiskFull(err) {
		return fmt.Errorf("%w: %w", errors.ErrUnsupported, err)
	}
	return err
}
