// Package alien says what a file is that is not of the format it should be: what
// is often found under a weight file's name. Every reader asks it with the
// file's first bytes.
package alien

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
)

var (
	// ErrLFSPointer marks the text that Git LFS leaves in place of a file.
	ErrLFSPointer = errors.New("Git LFS pointer instead of the file")
	// ErrHTML marks a web page that was saved under a model file's name.
	ErrHTML = errors.New("HTML page instead of the file")
)

// LFSMagic starts every pointer of Git LFS.
const LFSMagic = "version https://git-lfs.github.com/spec/"

// kinds are files that their first bytes give away.
var kinds = []struct{ magic, name string }{
	{"GGUF", "a GGUF file"},
	{"FUGG", "a GGUF file with its bytes swapped"},
	{"ggjt", "a GGML file of the time before GGUF"},
	{"tjgg", "a GGML file of the time before GGUF"},
	{"lmgg", "a GGML file of the time before GGUF"},
	{"KMCU", "a KMCU file"},
	{"QUERNRPK", "a repack cache, whose rows are interleaved for one processor; take the GGUF file that it was made of"},
	{"PK\x03\x04", "a ZIP archive, probably a PyTorch checkpoint"},
	{"\x1f\x8b", "gzip data"},
	{"\x89HDF", "an HDF5 file"},
}

// Sniff says what a file of size bytes is that starts with head. A pointer of
// Git LFS and a web page are errors of their own, a known kind of file is wrong
// with its name. It returns nil when nothing is known. The format's own magic
// must have been looked at before, unless it has none.
func Sniff(head []byte, size int64, wrong error) error {
	if bytes.HasPrefix(head, []byte(LFSMagic)) {
		return lfsError(head)
	}
	text := bytes.TrimLeft(bytes.TrimPrefix(head, []byte("\xef\xbb\xbf")), " \t\r\n")
	for _, tag := range []string{"<!doctype", "<html", "<head", "<?xml"} {
		if len(text) >= len(tag) && strings.EqualFold(string(text[:len(tag)]), tag) {
			return fmt.Errorf("%w (%d bytes, starts with %q): the address was wrong or wants a login", ErrHTML, size, text[:min(len(text), 40)])
		}
	}
	for _, k := range kinds {
		if bytes.HasPrefix(head, []byte(k.magic)) {
			return fmt.Errorf("%w: it is %s", wrong, k.name)
		}
	}
	return nil
}

// lfsError reads oid and size from a pointer text of the Git LFS
// specification, version 1.
func lfsError(head []byte) error {
	oid, size := "unknown", "unknown"
	for line := range strings.Lines(string(head[:min(len(head), 1024)])) {
		key, val, ok := strings.Cut(strings.TrimRight(line, "\r\n"), " ")
		if !ok {
			continue
		}
		switch key {
		case "oid":
			oid = val
		case "size":
			size = val
		}
	}
	return fmt.Errorf("%w: the real one has oid %.80q and %.80q bytes; fetch it with git lfs pull", ErrLFSPointer, oid, size)
}
