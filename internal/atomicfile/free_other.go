//go:build !linux && !darwin && !windows

package atomicfile

import (
	"errors"
	"fmt"
)

// FreeBytes is not known here.
func FreeBytes(dir string) (int64, error) {
	return 0, fmt.Errorf("free space of %s: %w", dir, errors.ErrUnsupported)
}
