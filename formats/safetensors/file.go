// Package safetensors reads and writes the weight files of Hugging Face
// models, alone or as the shards of an index.
//
//	offset  bytes  field
//	0       8      N, header length, unsigned little-endian
//	8       N      JSON object, starting with "{", spaces may follow it:
//	               {"__metadata__": {string: string},
//	                name: {"dtype": string, "shape": [n...], "data_offsets": [begin, end]}}
//	8+N     rest   tensor data, little-endian, outermost dimension first
//
// Offsets count from 8+N, end exclusive. Together the tensors cover the data
// without a gap or an overlap up to the end of the file, in any order. The
// data start is 8+N as it stands: files without padding are not aligned.
// (Source: the format section of the safetensors documentation and the checks
// of its reference library.)
package safetensors

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"quern/formats/internal/alien"
	"quern/tensor"
)

const (
	// DefaultMaxHeader is the header length that the reference library
	// accepts.
	DefaultMaxHeader = 100_000_000
	// The first read covers the header of nearly every file, so that a remote
	// header costs one request, and two when it is longer. It stays small
	// against the file: the tensors behind the header may not be wanted.
	minFirstRead  = 4 << 10
	maxFirstRead  = 128 << 10
	firstReadPart = 256

	metadataKey = "__metadata__"
)

// Options change how files are opened. The zero value is right for most.
type Options struct {
	// MaxHeader is the longest header accepted, in bytes; 0 means
	// DefaultMaxHeader.
	MaxHeader int64
	// Source is the recipe's name of the source, put into Tensor.Origin.
	Source string
	// Key identifies the file's content. Tensor keys derive from it; when it
	// is zero the tensors have no keys.
	Key tensor.Key
}

func (o Options) maxHeader() int64 {
	if o.MaxHeader > 0 {
		return o.MaxHeader
	}
	return DefaultMaxHeader
}

// KV is one entry of __metadata__.
type KV struct{ Key, Value string }

// File is an opened safetensors file: its header, and tensors that read from
// the blob.
type File struct {
	Name string
	// Metadata holds __metadata__ in file order, empty when absent.
	Metadata []KV
	// Tensors are sorted by name, byte-wise.
	Tensors []*tensor.Tensor
	// HeaderSHA256 is over the first DataStart bytes: length and header.
	HeaderSHA256 [32]byte
	// DataStart is the offset of the first tensor byte.
	DataStart int64
	// Size is the file's length.
	Size int64
}

// Tensor finds a tensor by name, or nil.
func (f *File) Tensor(name string) *tensor.Tensor {
	i, ok := slices.BinarySearchFunc(f.Tensors, name, func(t *tensor.Tensor, n string) int {
		return strings.Compare(t.Name, n)
	})
	if !ok {
		return nil
	}
	return f.Tensors[i]
}

// Open reads and checks the header; tensor data stays where it is. name is the
// file's name in messages and in Tensor.Origin. Errors wrap the package's
// sentinels or come from the blob.
func Open(ctx context.Context, name string, blob tensor.Blob, opt Options) (*File, error) {
	head, err := readHeader(ctx, blob, opt)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	f := &File{Name: name, Size: blob.Size(), DataStart: int64(len(head)), HeaderSHA256: sha256.Sum256(head)}
	h, err := parseHeader(head[8:])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, headerError(err))
	}
	if err := h.check(f.DataStart, f.Size); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	f.Metadata = h.metadata
	f.Tensors = h.tensors(name, blob, f.DataStart, opt)
	return f, nil
}

func firstRead(size int64) int64 {
	return min(size, max(minFirstRead, min(size/firstReadPart, maxFirstRead)))
}

// readHeader returns the first 8+N bytes in at most two reads.
func readHeader(ctx context.Context, blob tensor.Blob, opt Options) ([]byte, error) {
	size := blob.Size()
	if size == 0 {
		return nil, fmt.Errorf("%w: the file is empty", ErrTruncated)
	}
	head := make([]byte, firstRead(size))
	if err := blob.ReadAt(ctx, head, 0); err != nil {
		return nil, err
	}
	if err := alien.Sniff(head, size, ErrFormat); err != nil {
		return nil, err
	}
	if size < 8 {
		return nil, fmt.Errorf("%w: %d bytes, too short for the header length", ErrTruncated, size)
	}
	n := binary.LittleEndian.Uint64(head)
	if limit := opt.maxHeader(); n > uint64(limit) {
		return nil, fmt.Errorf("%w: it says %d bytes, the limit is %d; if the file is right, raise it with --max-header", ErrHeaderLimit, n, limit)
	}
	need := 8 + int64(n)
	if need > size {
		return nil, fmt.Errorf("%w: header of %d bytes needs %d bytes, the file has %d", ErrTruncated, n, need, size)
	}
	if need <= int64(len(head)) {
		return head[:need], nil
	}
	whole := make([]byte, need)
	have := copy(whole, head)
	if err := blob.ReadAt(ctx, whole[have:], int64(have)); err != nil {
		return nil, err
	}
	return whole, nil
}

// check demands that sizes match types and shapes, that the tensors tile the
// data, and that the file holds all of it.
func (h *header) check(start, size int64) error {
	order := make([]*entry, len(h.entries))
	for i := range h.entries {
		e := &h.entries[i]
		order[i] = e
		want, err := tensor.Bytes(e.typ, e.shape)
		if err != nil {
			return fmt.Errorf("%w: tensor %s: %w", ErrHeader, clip(e.name), err)
		}
		if e.end < e.begin {
			return fmt.Errorf("%w: tensor %s ends at %d before its begin %d", ErrHeader, clip(e.name), e.end, e.begin)
		}
		if e.end-e.begin != want {
			return fmt.Errorf("%w: tensor %s of %s %v takes %d bytes, its offsets %d to %d hold %d",
				ErrHeader, clip(e.name), e.typ, e.shape, want, e.begin, e.end, e.end-e.begin)
		}
	}
	slices.SortFunc(order, func(a, b *entry) int {
		return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.end, b.end), strings.Compare(a.name, b.name))
	})
	at := int64(0)
	var last *entry
	before := func() string {
		if last == nil {
			return "the data start"
		}
		return "tensor " + clip(last.name)
	}
	for _, e := range order {
		if e.begin > at {
			return fmt.Errorf("%w: gap of %d bytes at offsets %d to %d, between %s and tensor %s",
				ErrHeader, e.begin-at, at, e.begin, before(), clip(e.name))
		}
		if e.begin < at {
			return fmt.Errorf("%w: tensor %s at offsets %d to %d overlaps %s, which ends at %d",
				ErrHeader, clip(e.name), e.begin, e.end, before(), at)
		}
		at, last = e.end, e
	}
	data := size - start
	if at > data {
		for _, e := range order {
			if e.end > data {
				return fmt.Errorf("%w: expected %d+%d bytes, found %d (%d short); first damaged tensor %s at offsets %d to %d",
					ErrTruncated, start, at, size, at-data, clip(e.name), e.begin, e.end)
			}
		}
	}
	if at < data {
		return fmt.Errorf("%w: %d bytes after the last tensor: expected %d bytes, found %d", ErrHeader, data-at, start+at, size)
	}
	return nil
}

// tensors builds the lazy tensors in name order. check has passed.
func (h *header) tensors(name string, blob tensor.Blob, start int64, opt Options) []*tensor.Tensor {
	out := make([]*tensor.Tensor, len(h.entries))
	for i := range h.entries {
		e := &h.entries[i]
		t := &tensor.Tensor{Name: e.name, Type: e.typ, Shape: e.shape}
		rowBytes := t.RowBytes()
		t.Src = &tensor.Section{Blob: blob, Offset: start + e.begin, RowBytes: rowBytes}
		if e.end > e.begin {
			t.Origin = []tensor.Extent{{Source: opt.Source, File: name, Offset: start + e.begin, Bytes: e.end - e.begin}}
		}
		if !opt.Key.IsZero() {
			params := fmt.Sprintf("%s %v %d %d", e.typ, e.shape, start+e.begin, e.end-e.begin)
			t.Key = tensor.Derive("safetensors", params, opt.Key)
		}
		out[i] = t
	}
	return out
}
