package source

import (
	"context"
	"encoding/binary"
	"errors"

	"quern/formats/cact"
	"quern/formats/pickle"
	"quern/formats/safetensors"
	"quern/model"
	"quern/model/needle"
	"quern/tensor"
)

// headBytes is how much of a file tells its format.
const headBytes = 9

// loadSingle opens a file that is a whole model: a .cact archive or a checkpoint of
// Needle. It gives nil for a file that is none. head is its beginning, key
// identifies its content and is zero while that is not known.
func loadSingle(ctx context.Context, head []byte, name string, content tensor.Blob, source string, key tensor.Key, h Headers) (*model.Model, error) {
	switch {
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
