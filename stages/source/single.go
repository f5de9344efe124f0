package source

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"quern/formats/cact"
	"quern/formats/pickle"
	"quern/formats/repacked"
	"quern/formats/safetensors"
	"quern/model"
	"quern/model/needle"
	"quern/tensor"
)

// headBytes is how much of a file tells its format.
const headBytes = 9

// loadSingle opens a file that is a whole model: a .cact archive or a checkpoint of
// Needle. It gives nil for a file that is none. head is its beginning, key
// identifies its content and is zero while that is not known. A repack cache is no
// model, and refused as a plain file too.
func loadSingle(ctx context.Context, head []byte, name string, content tensor.Blob, source string, key tensor.Key, h Headers) (*model.Model, error) {
	switch {
	case repacked.IsRepacked(head):
		f, err := repacked.Open(ctx, name, content, repacked.Options{})
		if err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("%w: it is a repack cache in layout %s, whose rows are interleaved for one processor; take the GGUF file that it was made of, with SHA-256 %s",
			ErrKind, f.Layout, f.GGUF.Hex())
	case cact.IsCact(head):
		return model.LoadCact(ctx, name, content, cact.Options{Source: source, Key: key})
	case len(head) == headBytes && head[8] == '{' && binary.LittleEndian.Uint64(head) < uint64(content.Size()):
		return needle.LoadSafetensors(ctx, name, content, safetensors.Options{Source: source, Key: key, MaxHeader: h.Max})
	case pickle.IsPickle(head):
		m, err := needle.LoadPickle(ctx, name, content, pickle.Options{Source: source, Key: key})
		if errors.Is(err, pickle.ErrNotPickle) {
			return nil, nil // some other zip archive
		}
		return m, err
	}
	return nil, nil
}
