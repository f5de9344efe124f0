package source

import (
	"context"
	"fmt"

	"quern/formats/repacked"
	"quern/model"
	"quern/model/needle"
	"quern/tensor"
)

// headBytes is how much of a file tells its format.
const headBytes = needle.HeadBytes

// loadSingle opens a file that is a whole model: a .cact archive or a checkpoint of
// Needle. It gives nil for a file that is none. head is its beginning, key
// identifies its content and is zero while that is not known. A repack cache is no
// model, and refused as a plain file too.
func loadSingle(ctx context.Context, head []byte, name string, content tensor.Blob, source string, key tensor.Key, h Headers) (*model.Model, error) {
	if repacked.IsRepacked(head) {
		f, err := repacked.Open(ctx, name, content, repacked.Options{})
		if err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("%w: it is a repack cache in layout %s, whose rows are interleaved for one processor; take the GGUF file that it was made of, with SHA-256 %s",
			ErrKind, f.Layout, f.GGUF.Hex())
	}
	return needle.LoadFile(ctx, name, content, needle.FileOptions{Source: source, Key: key, MaxHeader: h.Max})
}
