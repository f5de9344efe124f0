//go:build !unix

package atomicfile

// SyncDir does nothing where folders cannot be opened for syncing (Windows
// makes renames durable with the file's own metadata).
func SyncDir(string) error { return nil }
