package model

import (
	"strconv"
	"strings"
)

// Block takes a GGUF name apart: blk.3.attn_q.weight is attn_q.weight of block 3.
// ok is false for names outside of blocks.
func Block(name string) (n int, rest string, ok bool) {
	after, ok := strings.CutPrefix(name, "blk.")
	if !ok {
		return 0, "", false
	}
	number, rest, ok := strings.Cut(after, ".")
	if !ok {
		return 0, "", false
	}
	b, err := strconv.ParseUint(number, 10, 31)
	return int(b), rest, err == nil
}
