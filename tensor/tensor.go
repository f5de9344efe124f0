// Package tensor holds the lazy tensor that everything in quern passes
// around: a name, a type, a shape and a source that produces rows on demand.
//
// A row is the last axis. Blocks of quantized types never cross it, byte
// ranges map to it and workers split by it.
package tensor

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Shape lists dimensions outermost first, as safetensors and NumPy do; the
// last one is the row length. A scalar has an empty shape and one value.
type Shape []int64

// Values is the number of values, or an error when the product overflows or
// a dimension is negative.
func (s Shape) Values() (int64, error) {
	n := int64(1)
	for _, d := range s {
		if d < 0 {
			return 0, fmt.Errorf("%w: negative dimension in %v", ErrShape, s)
		}
		if d != 0 && n > math.MaxInt64/d {
			return 0, fmt.Errorf("%w: %v has more than 2^63-1 values", ErrShape, s)
		}
		n *= d
	}
	return n, nil
}

// RowLen is the length of the last axis; 1 for a scalar.
func (s Shape) RowLen() int64 {
	if len(s) == 0 {
		return 1
	}
	return s[len(s)-1]
}

// Rows is the product of all axes but the last; 1 for scalars and vectors.
// It assumes a shape that Values accepts.
func (s Shape) Rows() int64 {
	n := int64(1)
	for i := 0; i+1 < len(s); i++ {
		n *= s[i]
	}
	return n
}

// Equal reports whether both shapes have the same dimensions.
func (s Shape) Equal(o Shape) bool {
	if len(s) != len(o) {
		return false
	}
	for i := range s {
		if s[i] != o[i] {
			return false
		}
	}
	return true
}

// String writes the shape as [a, b, c].
func (s Shape) String() string {
	parts := make([]string, len(s))
	for i, d := range s {
		parts[i] = strconv.FormatInt(d, 10)
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

// RowBytes is the size of one row of n values of type t. n must be a multiple
// of the type's block.
func RowBytes(t Type, n int64) (int64, error) {
	if !t.Valid() {
		return 0, fmt.Errorf("%w: %v", ErrUnknownType, t)
	}
	b := t.BlockValues()
	if n < 0 || n%b != 0 {
		return 0, fmt.Errorf("%w: rows of %d values do not divide into %s blocks of %d", ErrShape, n, t, b)
	}
	if n/b > math.MaxInt64/t.BlockBytes() {
		return 0, fmt.Errorf("%w: a row of %d values of %s is too large", ErrShape, n, t)
	}
	return n / b * t.BlockBytes(), nil
}

// Bytes is the size of a tensor of type t and shape s.
func Bytes(t Type, s Shape) (int64, error) {
	if _, err := s.Values(); err != nil {
		return 0, err
	}
	rb, err := RowBytes(t, s.RowLen())
	if err != nil {
		return 0, err
	}
	r := s.Rows()
	if rb != 0 && r > math.MaxInt64/rb {
		return 0, fmt.Errorf("%w: %v of %s is too large", ErrShape, s, t)
	}
	return rb * r, nil
}

// Source produces the rows of one tensor.
type Source interface {
	// ReadRows fills dst with rows first to first+n-1 in the tensor's own
	// type. len(dst) is exactly n rows. It may be called from several
	// goroutines at once and gives the same bytes for the same rows always.
	ReadRows(ctx context.Context, dst []byte, first, n int64) error
}

// Tensor is one named, typed, shaped tensor whose rows come from Src. It is
// immutable once built; views make new ones.
type Tensor struct {
	Name  string
	Type  Type
	Shape Shape
	Src   Source
	// Key identifies the bytes: equal keys promise equal bytes. See Key.
	Key Key
	// Origin lists the byte ranges of source files that Src reads, in file
	// order, for fetch planning and provenance. Views keep those of the
	// tensors below them.
	Origin []Extent
}

// Extent is a byte range of a source file. File is the source's own name for
// it (relative path), Source the recipe's name of the source.
type Extent struct {
	Source string
	File   string
	Offset int64
	Bytes  int64
}

// RowBytes is the size of one row in bytes.
func (t *Tensor) RowBytes() int64 {
	n, err := RowBytes(t.Type, t.Shape.RowLen())
	if err != nil {
		return 0
	}
	return n
}

// Rows is the number of rows.
func (t *Tensor) Rows() int64 { return t.Shape.Rows() }

// Bytes is the size of all rows.
func (t *Tensor) Bytes() int64 { return t.RowBytes() * t.Rows() }

// Validate checks type, shape and the presence of a source.
func (t *Tensor) Validate() error {
	if t.Name == "" {
		return fmt.Errorf("%w: tensor without a name", ErrShape)
	}
	if _, err := Bytes(t.Type, t.Shape); err != nil {
		return fmt.Errorf("tensor %s: %w", t.Name, err)
	}
	if t.Src == nil {
		return fmt.Errorf("tensor %s: no source of rows", t.Name)
	}
	return nil
}

// ReadRows checks the request and reads rows from the source.
func (t *Tensor) ReadRows(ctx context.Context, dst []byte, first, n int64) error {
	if first < 0 || n < 0 || first > t.Rows()-n {
		return fmt.Errorf("tensor %s: %w: %d rows from %d of %d", t.Name, ErrRange, n, first, t.Rows())
	}
	if int64(len(dst)) != n*t.RowBytes() {
		return fmt.Errorf("tensor %s: %w: buffer of %d bytes for %d rows of %d bytes", t.Name, ErrRange, len(dst), n, t.RowBytes())
	}
	if n == 0 {
		return nil
	}
	return t.Src.ReadRows(ctx, dst, first, n)
}

// With returns a copy of t that f has changed.
func (t *Tensor) With(f func(*Tensor)) *Tensor {
	c := *t
	f(&c)
	return &c
}
