//go:build !windows

package hub

import (
	"errors"
	"syscall"
)

// diskFull: no space, or over the user's quota.
func diskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
