//go:build !unix && !windows

package atomicfile

import (
	"io"
	"os"
)

// SyncDir does nothing where folders cannot be opened for syncing.
func SyncDir(string) error { return nil }

func rename(from, to string) error { return os.Rename(from, to) }

// IsDiskFull cannot tell here.
func IsDiskFull(error) bool { return false }

// IsReadOnly reports whether err says that the place cannot be written to.
func IsReadOnly(err error) bool { return os.IsPermission(err) }

func tryLock(*os.File) (io.Closer, bool) { return nil, false }

func lockNew(*os.File, string) (io.Closer, bool) { return nil, false }

func removeUnlocked(string) bool { return false }
