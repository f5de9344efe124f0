package atomicfile

import (
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/windows"
)

// SyncDir does nothing: Windows has no such call, and makes renames durable
// with the file's own metadata.
func SyncDir(string) error { return nil }

// rename tries again for a while: virus scanners and readers of the old file
// make it fail for moments.
func rename(from, to string) error {
	for wait := time.Millisecond; ; wait *= 2 {
		err := os.Rename(from, to)
		busy := errors.Is(err, windows.ERROR_ACCESS_DENIED) || errors.Is(err, windows.ERROR_SHARING_VIOLATION)
		if !busy || wait > time.Second {
			return err
		}
		time.Sleep(wait)
	}
}

// IsDiskFull reports whether err is that of a full disk or a used-up quota.
func IsDiskFull(err error) bool {
	return errors.Is(err, windows.ERROR_DISK_FULL) || errors.Is(err, windows.ERROR_HANDLE_DISK_FULL) ||
		errors.Is(err, windows.ERROR_DISK_QUOTA_EXCEEDED)
}

// IsReadOnly reports whether err says that the place cannot be written to.
func IsReadOnly(err error) bool {
	return errors.Is(err, windows.ERROR_WRITE_PROTECT) || errors.Is(err, os.ErrPermission)
}

func tryLock(*os.File) (io.Closer, bool) { return nil, false }

func lockNew(*os.File, string) (io.Closer, bool) { return nil, false }

// abandonedAfter is how long a temporary file must have been left alone. An
// open file cannot be removed here, so only the moment between its close and
// its rename is to be bridged.
const abandonedAfter = time.Hour

func removeUnlocked(path string) bool {
	st, err := os.Lstat(path)
	if err != nil || !st.Mode().IsRegular() || time.Since(st.ModTime()) < abandonedAfter {
		return false
	}
	return os.Remove(path) == nil
}
