package hub

import (
	"errors"
	"syscall"
)

// ERROR_HANDLE_DISK_FULL and ERROR_DISK_FULL.
const (
	handleDiskFull = syscall.Errno(39)
	errorDiskFull  = syscall.Errno(112)
)

func diskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, handleDiskFull) || errors.Is(err, errorDiskFull)
}
