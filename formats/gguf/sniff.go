package gguf

import (
	"fmt"

	"quern/formats/internal/alien"
)

// sniff says what a file is that does not start with the GGUF magic, from its
// first bytes.
func sniff(head []byte, size int64) error {
	if err := alien.Sniff(head, size, ErrNotGGUF); err != nil {
		return err
	}
	if len(head) > 9 && head[8] == '{' {
		return fmt.Errorf("%w: it looks like a safetensors file", ErrNotGGUF)
	}
	return fmt.Errorf("%w: it starts with %q", ErrNotGGUF, head[:min(len(head), 8)])
}
