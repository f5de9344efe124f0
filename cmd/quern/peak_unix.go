//go:build linux || darwin

package main

import (
	"runtime"
	"syscall"
)

// peakMemory is the most memory that the process had at once, in bytes: its own and
// the pages of mapped files that it touched.
func peakMemory() int64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	if runtime.GOOS == "darwin" {
		return int64(u.Maxrss)
	}
	return int64(u.Maxrss) << 10
}
