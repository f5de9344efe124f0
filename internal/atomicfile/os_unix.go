//go:build unix

package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// SyncDir makes renames in dir durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync folder %s: %w", dir, err)
	}
	defer d.Close()
	// Some file systems (FUSE, network shares) refuse to sync a folder; the
	// rename itself has happened, and there is nothing better to do there.
	if err := d.Sync(); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOTSUP) {
		return fmt.Errorf("sync folder %s: %w", dir, err)
	}
	return nil
}

func rename(from, to string) error { return os.Rename(from, to) }

// IsDiskFull reports whether err is that of a full disk or a used-up quota.
func IsDiskFull(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
}

// IsReadOnly reports whether err says that the place cannot be written to.
func IsReadOnly(err error) bool {
	return errors.Is(err, unix.EROFS) || errors.Is(err, os.ErrPermission)
}

// tryLock locks an open file through a descriptor of its own, so that closing
// the file does not give up the lock. Without a lock, busy says whether somebody
// else has it or locks do not work here at all.
func tryLock(f *os.File) (lock io.Closer, busy bool) {
	c, err := f.SyscallConn()
	if err != nil {
		return nil, false
	}
	fd := -1
	if cerr := c.Control(func(u uintptr) {
		fd, err = unix.FcntlInt(u, unix.F_DUPFD_CLOEXEC, 0)
	}); cerr != nil || err != nil {
		return nil, false
	}
	if err := flock(fd); err != nil {
		unix.Close(fd)
		return nil, errors.Is(err, unix.EWOULDBLOCK)
	}
	return os.NewFile(uintptr(fd), f.Name()), false
}

// lockNew locks a new temporary file. lost says that a cleaner was quicker: it
// has the lock and is about to remove the name, or has done so. From a held
// lock on no cleaner can.
func lockNew(f *os.File, name string) (lock io.Closer, lost bool) {
	lock, busy := tryLock(f)
	if lock == nil {
		return nil, busy
	}
	open, err := f.Stat()
	if err == nil {
		var named os.FileInfo
		if named, err = os.Lstat(name); err == nil && os.SameFile(open, named) {
			return lock, false
		}
	}
	lock.Close()
	return nil, true
}

// removeUnlocked deletes a file whose lock nobody holds. The lock is kept until
// the name is gone, so that a writer who comes in between sees one or the other.
func removeUnlocked(path string) bool {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	open, err := f.Stat()
	if err != nil || !open.Mode().IsRegular() {
		return false
	}
	c, err := f.SyscallConn()
	if err != nil {
		return false
	}
	locked := false
	if err := c.Control(func(u uintptr) { locked = flock(int(u)) == nil }); err != nil || !locked {
		return false
	}
	// The name may have been given to another file meanwhile.
	named, err := os.Lstat(path)
	if err != nil || !os.SameFile(open, named) {
		return false
	}
	return os.Remove(path) == nil
}
