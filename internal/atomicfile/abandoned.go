package atomicfile

import (
	"os"
	"path/filepath"
	"strings"
)

// removeAbandoned deletes the temporary files of base that a killed process
// has left in dir. It is a courtesy: nothing that goes wrong with it matters
// to the write that follows.
func removeAbandoned(dir, base string) {
	d, err := os.Open(dir)
	if err != nil {
		return
	}
	defer d.Close()
	prefix := tempPrefix(base)
	for {
		names, err := d.Readdirnames(256)
		for _, n := range names {
			if IsTemp(n) && strings.HasPrefix(n, prefix) && len(n) == len(prefix)+8+len(TempMark) {
				RemoveAbandoned(filepath.Join(dir, n))
			}
		}
		if err != nil {
			return
		}
	}
}

// RemoveAbandoned deletes one temporary file if no process is writing it any
// more, and reports whether it did.
func RemoveAbandoned(path string) bool {
	if !IsTemp(filepath.Base(path)) {
		return false
	}
	return removeUnlocked(path)
}
