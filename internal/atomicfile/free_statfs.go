//go:build linux || darwin

package atomicfile

import (
	"fmt"
	"math"

	"golang.org/x/sys/unix"
)

// FreeBytes is the space that the current user may still fill on the file
// system of dir.
func FreeBytes(dir string) (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, fmt.Errorf("free space of %s: %w", dir, err)
	}
	if size := uint64(s.Bsize); size > 0 && s.Bavail > math.MaxInt64/size {
		return math.MaxInt64, nil
	}
	return int64(s.Bavail) * int64(s.Bsize), nil
}
