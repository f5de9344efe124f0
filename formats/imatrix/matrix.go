package imatrix

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"quern/formats/gguf"
	"quern/tensor"
)

// Matrix is an importance matrix in the form in which quantizing uses it.
type Matrix struct {
	// Entries are in byte-wise order of their names.
	Entries []Entry
	// Datasets are the names of the calibration texts, as the file has them.
	Datasets []string
	// Chunks is the number of pieces of text that went in, 0 when the file
	// does not say; ChunkSize is their length in tokens, 0 in the older format.
	Chunks    int64
	ChunkSize int64
	// Legacy is true for the older format.
	Legacy bool
	// Ignored names tensors of a GGUF file that belong to no entry.
	Ignored []string
}

// Entry is what is known of one weight tensor.
type Entry struct {
	Name string
	// Weights are the mean squares of the columns' inputs: as many as a row has
	// values, for stacked matrices one set after another. All are finite and at
	// least 0. A matrix that no input reached has the neutral weight 1.
	Weights []float32
	// Counts are the rows of inputs that the means are over: one for each of
	// the stacked matrices, or one for all. Nil in the older format, which
	// does not keep them.
	Counts []int64
}

// Find gives the entry of a tensor.
func (m *Matrix) Find(name string) (*Entry, bool) {
	i, ok := slices.BinarySearchFunc(m.Entries, name, func(e Entry, name string) int { return strings.Compare(e.Name, name) })
	if !ok {
		return nil, false
	}
	return &m.Entries[i], true
}

// Unseen lists which of n stacked matrices no input has reached. The older
// format marks them by weights that are all exactly 1.
func (e *Entry) Unseen(n int64) []int64 {
	if n < 1 || int64(len(e.Weights))%n != 0 {
		return nil
	}
	row := int64(len(e.Weights)) / n
	var out []int64
	for i := range n {
		var unseen bool
		switch int64(len(e.Counts)) {
		case n:
			unseen = e.Counts[i] == 0
		case 0:
			unseen = !slices.ContainsFunc(e.Weights[i*row:(i+1)*row], func(w float32) bool { return w != 1 })
		default:
			unseen = e.Counts[0] == 0
		}
		if unseen {
			out = append(out, i)
		}
	}
	return out
}

// DefaultMaxBytes is far over the largest known file, about 1.5 GB for a model
// of 60 layers of 256 experts.
const DefaultMaxBytes = 8 << 30

// Options change how files are read. The zero value is right for most.
type Options struct {
	// MaxBytes is the largest file read, whose values are held in memory; 0
	// means DefaultMaxBytes.
	MaxBytes int64
}

// Read reads a file of either format. name is the file's name in messages.
// Errors are of type ReadError around the package's sentinels or an error of
// the blob, or those of formats/gguf.
func Read(ctx context.Context, name string, blob tensor.Blob, opt Options) (*Matrix, error) {
	most := opt.MaxBytes
	if most <= 0 {
		most = DefaultMaxBytes
	}
	if math.MaxInt == math.MaxInt32 && most > 1<<30 {
		most = 1 << 30
	}
	r := &reader{ctx: ctx, name: name, blob: blob, size: blob.Size()}
	if r.size > most {
		return nil, r.fail(0, "size", fmt.Errorf("%w: %d bytes, at most %d are read", ErrLimit, r.size, most))
	}
	var magic [4]byte
	if r.size < int64(len(magic)) {
		return nil, r.fail(0, "first bytes", fmt.Errorf("%w: it has %d bytes", ErrTruncated, r.size))
	}
	if err := blob.ReadAt(ctx, magic[:], 0); err != nil {
		return nil, r.fail(0, "first bytes", err)
	}
	m, err := r.read(magic)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(m.Entries, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	for i := 1; i < len(m.Entries); i++ {
		if n := m.Entries[i].Name; n == m.Entries[i-1].Name {
			r.entry = n
			return nil, r.failf(0, "name", "it occurs twice")
		}
	}
	return m, nil
}

func (r *reader) read(magic [4]byte) (*Matrix, error) {
	if string(magic[:]) == "GGUF" {
		return r.gguf()
	}
	// What is neither format may be a page or pointer that stands in its place.
	_, err := gguf.Open(r.ctx, r.name, r.blob, gguf.Options{FirstRead: 1024})
	if errors.Is(err, gguf.ErrLFSPointer) || errors.Is(err, gguf.ErrHTML) {
		return nil, err
	}
	return r.legacy()
}

// reader reads a file of either format.
type reader struct {
	ctx   context.Context
	name  string
	blob  tensor.Blob
	size  int64
	entry string // being read
	buf   []byte
}

func (r *reader) fail(off int64, field string, err error) error {
	return &ReadError{File: r.name, Offset: off, Entry: r.entry, Field: field, Err: err}
}

func (r *reader) failf(off int64, field, format string, args ...any) error {
	return r.fail(off, field, fmt.Errorf("%w: "+format, append([]any{ErrFormat}, args...)...))
}

// floats reads n values from off, where the file is known to hold them, and
// refuses those that no mean of squares can have.
func (r *reader) floats(off, n int64, field string) ([]float32, error) {
	const piece = 1 << 20
	out := make([]float32, 0, n)
	for done := int64(0); done < n; {
		run := n - done
		if run > piece/4 {
			run = piece / 4
		}
		if int64(cap(r.buf)) < 4*run {
			r.buf = make([]byte, 4*run)
		}
		b := r.buf[:4*run]
		if err := r.blob.ReadAt(r.ctx, b, off+4*done); err != nil {
			return nil, r.fail(off+4*done, field, err)
		}
		for i := range run {
			v := math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
			if !(v >= 0) || v > math.MaxFloat32 {
				return nil, r.fail(off+4*(done+i), field, fmt.Errorf("%w: value %d is %g; make the matrix again", ErrValue, done+i, v))
			}
			out = append(out, v)
		}
		done += run
	}
	return out, nil
}
