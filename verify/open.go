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
	// Beside opens what lies beside the file, so that the first shard of a GGUF file
	// stands for all; without it every file stands for itself. What it opens is the
	// caller's to close.
	Beside gguf.Opener
}

// File is an opened file, or all shards of one.
type File struct {
	Format Format
	// Meta is the metadata of the model in a GGUF file, nil for the other formats.
	Meta *gguf.Metadata
	// Tensors are in file order.
	Tensors []*tensor.Tensor
}

// Tensors opens a file of any known format strictly and gives its tensors in
// file order.
func Tensors(ctx context.Context, name string, b tensor.Blob) (Format, []*tensor.Tensor, error) {
	f, err := Open(ctx, name, b, OpenOptions{})
	if err != nil {
		return "", nil, err
	}
	return f.Format, f.Tensors, nil
}

// Open opens a file of any known format strictly.
func Open(ctx context.Context, name string, b tensor.Blob, opt OpenOptions) (*File, error) {
	format, err := Sniff(ctx, name, b)
	if err != nil {
		return nil, err
	}
	f := &File{Format: format}
	switch format {
	case GGUF:
		err = f.openGGUF(ctx, name, b, opt)
	case KMCU:
		var file *kmcu.File
		if file, err = kmcu.Open(ctx, name, b, kmcu.Options{}); err != nil {
			break
		}
		for i := range file.Tensors {
			f.Tensors = append(f.Tensors, file.Tensors[i].Tensor)
		}
	case Cact:
		f.Tensors, err = cactTensors(ctx, name, b)
	case Repacked:
		f.Tensors, err = plainTensors(ctx, name, b)
	case Safetensors:
		var file *safetensors.File
		if file, err = safetensors.Open(ctx, name, b, safetensors.Options{MaxHeader: opt.MaxHeader}); err == nil {
			f.Tensors = file.Tensors
		}
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}

// borrowed is a blob that a set must not close.
type borrowed struct{ tensor.Blob }

// openGGUF opens a GGUF file, with its other shards if it is the first of them.
func (f *File) openGGUF(ctx context.Context, name string, b tensor.Blob, opt OpenOptions) error {
	var all func() ([]*tensor.Tensor, error)
	header := gguf.Options{MaxHeader: opt.MaxHeader}
	if _, i, n, ok := gguf.ParseSplitName(name); ok && i == 0 && n > 1 && opt.Beside != nil {
		set, err := gguf.OpenSet(ctx, name, func(ctx context.Context, other string) (tensor.Blob, error) {
			if other == name {
				return borrowed{b}, nil
			}
			x, err := opt.Beside(ctx, other)
			if err != nil {
				return nil, err
			}
			return borrowed{x}, nil
		}, header)
		if err != nil {
			return err
		}
		f.Meta, all = set.Meta, set.All
	} else {
		file, err := gguf.Open(ctx, name, b, header)
		if err != nil {
			return err
		}
		f.Meta, all = file.Meta, file.All
	}
	if opt.Meta != nil {
		f.Meta = opt.Meta
	}
	ts, err := all()
	if err != nil {
		return err
	}
	// Experts that were ordered by use are compared by the numbers that they had.
	f.Tensors, err = order.Original(f.Meta, ts)
	return err
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
