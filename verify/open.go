package verify

import (
	"context"
	"errors"
	"fmt"

	"quern/formats/cact"
	"quern/formats/gguf"
	"quern/formats/kmcu"
	"quern/formats/repacked"
	"quern/formats/safetensors"
	"quern/model/order"
	"quern/tensor"
)

// ErrFormat marks a file that is none of the formats quern reads.
var ErrFormat = errors.New("unknown file format")

// Format names a file format by its first bytes.
type Format string

// The formats that files are told apart as.
const (
	GGUF        Format = "gguf"
	KMCU        Format = "kmcu"
	Cact        Format = "cact"
	Safetensors Format = "safetensors"
	Repacked    Format = "repack"
)

// Sniff tells the format of a file by its first bytes.
func Sniff(ctx context.Context, name string, b tensor.Blob) (Format, error) {
	n := int64(9)
	if b.Size() < n {
		n = b.Size()
	}
	head := make([]byte, n)
	if err := b.ReadAt(ctx, head, 0); err != nil {
		return "", err
	}
	switch {
	case n >= 4 && string(head[:4]) == "GGUF":
		return GGUF, nil
	case n >= 4 && string(head[:4]) == "KMCU":
		return KMCU, nil
	case cact.IsCact(head):
		return Cact, nil
	case repacked.IsRepacked(head):
		return Repacked, nil
	case n == 9 && head[8] == '{':
		return Safetensors, nil
	}
	// The readers know what else is found under a model file's name.
	if _, err := gguf.Open(ctx, name, b, gguf.Options{}); errors.Is(err, gguf.ErrLFSPointer) || errors.Is(err, gguf.ErrHTML) {
		return "", err
	}
	return "", fmt.Errorf("%s: %w: it starts with %q; GGUF, KMCU, .cact and safetensors files and repack caches are read", name, ErrFormat, head)
}

// OpenOptions change how a file is opened. The zero value is right for most.
type OpenOptions struct {
	// MaxHeader is the longest header accepted, in bytes; 0 means the
	// format's own limit.
	MaxHeader int64
	// Meta is the metadata of the whole model, for shards of a GGUF file that have
	// none of their own; nil takes the file's.
	Meta *gguf.Metadata
}

// Tensors opens a file of any known format strictly and gives its tensors in
// file order.
func Tensors(ctx context.Context, name string, b tensor.Blob) (Format, []*tensor.Tensor, error) {
	return TensorsWith(ctx, name, b, OpenOptions{})
}

// TensorsWith is Tensors with options.
func TensorsWith(ctx context.Context, name string, b tensor.Blob, opt OpenOptions) (Format, []*tensor.Tensor, error) {
	f, err := Sniff(ctx, name, b)
	if err != nil {
		return "", nil, err
	}
	switch f {
	case GGUF:
		file, err := gguf.Open(ctx, name, b, gguf.Options{MaxHeader: opt.MaxHeader})
		if err != nil {
			return f, nil, err
		}
		ts, err := file.All()
		if err == nil {
			// Experts that were ordered by use are compared by the numbers that they had.
			meta := file.Meta
			if opt.Meta != nil {
				meta = opt.Meta
			}
			ts, err = order.Original(meta, ts)
		}
		return f, ts, err
	case KMCU:
		file, err := kmcu.Open(ctx, name, b, kmcu.Options{})
		if err != nil {
			return f, nil, err
		}
		ts := make([]*tensor.Tensor, len(file.Tensors))
		for i := range file.Tensors {
			ts[i] = file.Tensors[i].Tensor
		}
		return f, ts, nil
	case Cact:
		ts, err := cactTensors(ctx, name, b)
		return f, ts, err
	case Repacked:
		ts, err := plainTensors(ctx, name, b)
		return f, ts, err
	}
	file, err := safetensors.Open(ctx, name, b, safetensors.Options{MaxHeader: opt.MaxHeader})
	if err != nil {
		return f, nil, err
	}
	return f, file.Tensors, nil
}

// plainTensors gives the matrices of a repack cache with their rows in order.
func plainTensors(ctx context.Context, name string, b tensor.Blob) ([]*tensor.Tensor, error) {
	file, err := repacked.Open(ctx, name, b, repacked.Options{})
	if err != nil {
		return nil, err
	}
	ts := make([]*tensor.Tensor, len(file.Entries))
	for i := range file.Entries {
		if ts[i], err = file.Plain(&file.Entries[i]); err != nil {
			return nil, err
		}
	}
	return ts, nil
}

// cactTensors gives the weights of an archive, matrices read back from their
// codebook, and leaves out the tokenizer.
func cactTensors(ctx context.Context, name string, b tensor.Blob) ([]*tensor.Tensor, error) {
	file, err := cact.Open(ctx, name, b, cact.Options{})
	if err != nil {
		return nil, err
	}
	if _, err := file.Tokenizer(ctx); err != nil {
		return nil, err
	}
	var ts []*tensor.Tensor
	for i := range file.Entries {
		e := &file.Entries[i]
		if e.Kind == cact.Raw {
			continue
		}
		t, err := file.Decoded(e)
		if err != nil {
			return nil, err
		}
		ts = append(ts, t)
	}
	return ts, nil
}

// storedAs gives the type and size that a file holds a tensor in, where its source
// reads it back from another.
func storedAs(t *tensor.Tensor) (typ string, bytes int64) {
	if s, ok := t.Src.(interface {
		StoredType() tensor.Type
		StoredBytes() int64
	}); ok {
		return s.StoredType().String(), s.StoredBytes()
	}
	return t.Type.String(), t.Bytes()
}
