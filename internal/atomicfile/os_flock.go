//go:build unix && !solaris && !illumos && !aix

package atomicfile

import "golang.org/x/sys/unix"

// flock takes the lock of an open file without waiting.
func flock(fd int) error {
	for {
		err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
		if err != unix.EINTR {
			return err
		}
	}
}
