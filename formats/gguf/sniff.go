package gguf

import (
	"bytes"
	"fmt"
	"strings"
)

const lfsMagic = "version https://git-lfs.github.com/spec/"

// sniff says what a file is that does not start with the GGUF magic, from its
// first bytes.
func sniff(head []byte, size int64) error {
	if bytes.HasPrefix(head, []byte(lfsMagic)) {
		return lfsError(head)
	}
	text := bytes.TrimLeft(bytes.TrimPrefix(head, []byte("\xef\xbb\xbf")), " \t\r\n")
	for _, tag := range []string{"<!doctype", "<html", "<head", "<?xml"} {
		if len(text) >= len(tag) && strings.EqualFold(string(text[:len(tag)]), tag) {
			return fmt.Errorf("%w (%d bytes, starts with %q): the address was wrong or wants a login", ErrHTML, size, text[:min(len(text), 40)])
		}
	}
	for _, m := range []struct{ magic, name string }{
		{"FUGG", "a GGUF file with its bytes swapped"},
		{"ggjt", "a GGML file of the time before GGUF"},
		{"tjgg", "a GGML file of the time before GGUF"},
		{"lmgg", "a GGML file of the time before GGUF"},
		{"KMCU", "a KMCU file"},
		{"PK\x03\x04", "a ZIP archive, probably a PyTorch checkpoint"},
		{"\x1f\x8b", "gzip data"},
	} {
		if bytes.HasPrefix(head, []byte(m.magic)) {
			return fmt.Errorf("%w: it is %s", ErrNotGGUF, m.name)
		}
	}
	if len(head) > 9 && head[8] == '{' {
		return fmt.Errorf("%w: it looks like a safetensors file", ErrNotGGUF)
	}
	return fmt.Errorf("%w: it starts with %q", ErrNotGGUF, head[:min(len(head), 8)])
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
