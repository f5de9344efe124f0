package safetensors

import (
	"bytes"
	"fmt"
	"strings"
)

const lfsMagic = "version https://git-lfs.github.com/spec/"

// sniff recognises what is often found under a weight file's name and is not
// weights, from the file's first bytes. It returns nil when nothing is known.
func sniff(head []byte, size int64) error {
	if bytes.HasPrefix(head, []byte(lfsMagic)) {
		return lfsError(head)
	}
	text := bytes.TrimLeft(bytes.TrimPrefix(head, []byte("\xef\xbb\xbf")), " \t\r\n")
	for _, tag := range []string{"<!doctype", "<html", "<head", "<?xml"} {
		if len(text) >= len(tag) && strings.EqualFold(string(text[:len(tag)]), tag) {
			return fmt.Errorf("%w (%d bytes, starts with %s): the address was wrong or wants a login", ErrHTML, size, clip(string(text[:min(len(text), 40)])))
		}
	}
	for _, m := range []struct{ magic, name string }{
		{"GGUF", "a GGUF file"},
		{"PK\x03\x04", "a ZIP archive, probably a PyTorch checkpoint"},
		{"KMCU", "a KMCU file"},
		{"\x1f\x8b", "gzip data"},
		{"\x89HDF", "an HDF5 file"},
	} {
		if bytes.HasPrefix(head, []byte(m.magic)) {
			return fmt.Errorf("%w: it is %s", ErrFormat, m.name)
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
	return fmt.Errorf("%w: the real one has oid %s and %s bytes; fetch it with git lfs pull", ErrLFSPointer, clip(oid), clip(size))
}
