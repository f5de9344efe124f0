package repacked

import (
	"fmt"
	"math"

	"quern/tensor"
	"quern/tensor/repack"
)

// Spec is a plain tensor that goes into a cache. Shape is outermost first.
type Spec struct {
	Name  string
	Shape tensor.Shape
}

// Placed is a tensor with its place in the file.
type Placed struct {
	Spec
	Offset int64 // from the start of the file
	Bytes  int64
}

// Layout is a cache planned to the last byte, without its data and without the
// digest of its GGUF file, which is zero in Header.
type Layout struct {
	// Header is everything before the data, padding included. It must not be
	// changed.
	Header  []byte
	Tensors []Placed
	// Size is the size of the file. Bytes that neither Header nor a tensor
	// covers are zero.
	Size int64
}

// NewLayout plans a cache in layout l of a GGUF file of source bytes.
func NewLayout(l *repack.Layout, tensors []Spec, source int64) (*Layout, error) {
	return newLayout(l, tensors, source, Alignment)
}

func newLayout(l *repack.Layout, tensors []Spec, source, align int64) (*Layout, error) {
	if len(tensors) == 0 || len(tensors) > maxTensors {
		return nil, fmt.Errorf("%w: %d tensors, 1 to %d are allowed", ErrWrite, len(tensors), maxTensors)
	}
	if source <= 0 {
		return nil, fmt.Errorf("%w: a GGUF file of %d bytes", ErrWrite, source)
	}
	out := &Layout{}
	dir := int64(0)
	seen := make(map[string]struct{}, len(tensors))
	for _, t := range tensors {
		if err := checkName(t.Name); err != nil {
			return nil, fmt.Errorf("%w: tensor %q: name: %w", ErrWrite, t.Name, err)
		}
		if _, dup := seen[t.Name]; dup {
			return nil, fmt.Errorf("%w: tensor %s: there are two of this name", ErrWrite, t.Name)
		}
		seen[t.Name] = struct{}{}
		if err := l.Check(l.Type(), t.Shape); err != nil {
			return nil, fmt.Errorf("%w: tensor %s: %w", ErrWrite, t.Name, err)
		}
		n, err := l.Bytes(t.Shape)
		if err != nil || n == 0 {
			return nil, fmt.Errorf("%w: tensor %s: shape %v holds no values", ErrWrite, t.Name, t.Shape)
		}
		out.Tensors = append(out.Tensors, Placed{Spec: t, Bytes: n})
		dir += 2 + 2 + int64(len(t.Name)) + 8*int64(len(t.Shape)) + 8 + 8
	}
	start := padTo(fixedHeader+dir, align)
	out.Size = start
	for i := range out.Tensors {
		t := &out.Tensors[i]
		if t.Bytes > math.MaxInt64-align-out.Size {
			return nil, fmt.Errorf("%w: tensor %s: the file would be larger than 2^63-1 bytes", ErrWrite, t.Name)
		}
		t.Offset = out.Size
		out.Size = padTo(t.Offset+t.Bytes, align)
	}
	out.encode(l, source, dir, align, start)
	return out, nil
}

func (l *Layout) encode(to *repack.Layout, source, dir, align, start int64) {
	b := make([]byte, fixedHeader, start)
	copy(b, magic)
	le.PutUint32(b[8:], version)
	le.PutUint32(b[12:], uint32(align))
	copy(b[16:16+layoutBytes], to.String())
	le.PutUint64(b[72:], uint64(source))
	le.PutUint64(b[80:], uint64(l.Size))
	le.PutUint32(b[88:], uint32(len(l.Tensors)))
	le.PutUint32(b[92:], uint32(dir))
	for _, t := range l.Tensors {
		b = le.AppendUint16(b, uint16(len(t.Name)))
		b = le.AppendUint16(b, uint16(len(t.Shape)))
		b = append(b, t.Name...)
		for i := len(t.Shape) - 1; i >= 0; i-- {
			b = le.AppendUint64(b, uint64(t.Shape[i]))
		}
		b = le.AppendUint64(b, uint64(t.Offset))
		b = le.AppendUint64(b, uint64(t.Bytes))
	}
	l.Header = append(b, make([]byte, start-int64(len(b)))...)
}

// checkName allows what a GGUF reader does, but for the empty name.
func checkName(name string) error {
	if name == "" || len(name) > MaxNameBytes {
		return fmt.Errorf("it has %d bytes, 1 to %d are allowed", len(name), MaxNameBytes)
	}
	for i := range len(name) {
		if name[i] == 0 {
			return fmt.Errorf("byte %d is NUL", i)
		}
	}
	return nil
}
