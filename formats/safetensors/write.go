package safetensors

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"quern/formats/internal/placed"
	"quern/tensor"
)

// TensorSpec is what the layout of a file needs to know of a tensor.
type TensorSpec struct {
	Name  string
	Type  tensor.Type
	Shape tensor.Shape
}

// Placed is a tensor with its place in the file.
type Placed struct {
	TensorSpec
	Offset int64 // from the start of the file
	Bytes  int64
}

// Layout is a file planned to the last byte, without its data.
type Layout struct {
	// Header is everything before the data: length, JSON, spaces. It must not
	// be changed.
	Header []byte
	// Tensors are in file order: wide types first, so that every tensor is
	// aligned to its values, and by name within a type. The reference library
	// does the same.
	Tensors []Placed
	// Size is the size of the file.
	Size int64
}

// NewLayout plans a file. The header is padded with spaces to a multiple of 8.
// metadata is written in the order given. What the format cannot hold is
// ErrWrite. Equal arguments give equal bytes; the order of tensors does not
// matter.
func NewLayout(metadata []KV, tensors []TensorSpec) (*Layout, error) {
	l := &Layout{Tensors: make([]Placed, len(tensors))}
	for i, t := range tensors {
		if err := checkSpec(t); err != nil {
			return nil, err
		}
		n, err := tensor.Bytes(t.Type, t.Shape)
		if err != nil {
			return nil, fmt.Errorf("tensor %s: %w: %w", clip(t.Name), ErrWrite, err)
		}
		l.Tensors[i] = Placed{TensorSpec: t, Bytes: n}
	}
	slices.SortFunc(l.Tensors, func(a, b Placed) int {
		return cmp.Or(cmp.Compare(rank(b.Type), rank(a.Type)), strings.Compare(a.Name, b.Name))
	})
	names := make([]string, len(tensors))
	for i, t := range l.Tensors {
		names[i] = t.Name
	}
	slices.Sort(names)
	for i := 1; i < len(names); i++ {
		if names[i] == names[i-1] {
			return nil, fmt.Errorf("%w: two tensors are called %s", ErrWrite, clip(names[i]))
		}
	}
	if err := l.encode(metadata); err != nil {
		return nil, err
	}
	return l, nil
}

func checkSpec(t TensorSpec) error {
	switch {
	case t.Name == "":
		return fmt.Errorf("%w: a tensor without a name", ErrWrite)
	case t.Name == metadataKey:
		return fmt.Errorf("%w: a tensor is called %s, which is the key of the metadata", ErrWrite, metadataKey)
	case !utf8.ValidString(t.Name):
		return fmt.Errorf("%w: the tensor name %q is not UTF-8", ErrWrite, t.Name)
	}
	if _, ok := t.Type.Safetensors(); !ok {
		return fmt.Errorf("%w: tensor %s is %s; the format has %s", ErrWrite, clip(t.Name), t.Type, knownTypes())
	}
	return nil
}

// rank orders types as the reference library does, narrow ones first.
func rank(t tensor.Type) int {
	return slices.Index([]tensor.Type{
		tensor.Bool, tensor.U8, tensor.I8, tensor.F8E5M2, tensor.F8E4M3, tensor.I16, tensor.U16, tensor.F16, tensor.BF16,
		tensor.I32, tensor.U32, tensor.F32, tensor.F64, tensor.I64, tensor.U64,
	}, t)
}

// encode writes the header and turns data offsets into file offsets.
func (l *Layout) encode(metadata []KV) error {
	b := make([]byte, 8, 64+128*len(l.Tensors))
	b = append(b, '{')
	if len(metadata) > 0 {
		b = append(b, `"`+metadataKey+`":{`...)
		seen := map[string]bool{}
		for i, kv := range metadata {
			if !utf8.ValidString(kv.Key) || !utf8.ValidString(kv.Value) {
				return fmt.Errorf("%w: metadata %q is not UTF-8", ErrWrite, kv.Key)
			}
			if seen[kv.Key] {
				return fmt.Errorf("%w: metadata key %s twice", ErrWrite, clip(kv.Key))
			}
			seen[kv.Key] = true
			if i > 0 {
				b = append(b, ',')
			}
			b = appendString(append(appendString(b, kv.Key), ':'), kv.Value)
		}
		b = append(b, '}')
	}
	at := int64(0)
	for i := range l.Tensors {
		t := &l.Tensors[i]
		if len(b) > 9 {
			b = append(b, ',')
		}
		st, _ := t.Type.Safetensors()
		b = append(appendString(b, t.Name), `:{"dtype":"`+st+`","shape":[`...)
		for j, d := range t.Shape {
			if j > 0 {
				b = append(b, ',')
			}
			b = strconv.AppendInt(b, d, 10)
		}
		t.Offset = at
		if at += t.Bytes; at < 0 {
			return fmt.Errorf("%w: the tensors have more than 2^63-1 bytes together", ErrWrite)
		}
		b = append(b, `],"data_offsets":[`...)
		b = strconv.AppendInt(b, t.Offset, 10)
		b = append(b, ',')
		b = strconv.AppendInt(b, at, 10)
		b = append(b, "]}"...)
	}
	b = append(b, '}')
	for len(b)%8 != 0 {
		b = append(b, ' ')
	}
	if n := len(b) - 8; n > DefaultMaxHeader {
		return fmt.Errorf("%w: a header of %d bytes; readers accept %d", ErrWrite, n, DefaultMaxHeader)
	}
	binary.LittleEndian.PutUint64(b, uint64(len(b)-8))
	l.Header = b
	for i := range l.Tensors {
		l.Tensors[i].Offset += int64(len(b))
	}
	if l.Size = int64(len(b)) + at; l.Size < 0 {
		return fmt.Errorf("%w: the file has more than 2^63-1 bytes", ErrWrite)
	}
	return nil
}

// appendString writes a JSON string with the escapes that JSON demands and no
// others.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\b':
			b = append(b, `\b`...)
		case '\f':
			b = append(b, `\f`...)
		case '\n':
			b = append(b, `\n`...)
		case '\r':
			b = append(b, `\r`...)
		case '\t':
			b = append(b, `\t`...)
		default:
			if c < 0x20 {
				b = fmt.Appendf(b, `\u%04x`, c)
			} else {
				b = append(b, c)
			}
		}
	}
	return append(b, '"')
}

// NewWriter writes the header to w and returns a writer for the tensors' bytes
// in file order.
func (l *Layout) NewWriter(w io.Writer) (*placed.Writer, error) {
	ext := make([]placed.Extent, len(l.Tensors))
	for i, t := range l.Tensors {
		ext[i] = placed.Extent{Name: t.Name, Offset: t.Offset, Bytes: t.Bytes}
	}
	return placed.New(w, l.Header, ext, l.Size)
}

// WriteTo writes the whole file. tensors are found by name and must be those
// of the layout.
func (l *Layout) WriteTo(ctx context.Context, w io.Writer, tensors []*tensor.Tensor) error {
	byName := make(map[string]*tensor.Tensor, len(tensors))
	for _, t := range tensors {
		byName[t.Name] = t
	}
	ordered := make([]*tensor.Tensor, len(l.Tensors))
	for i, p := range l.Tensors {
		t := byName[p.Name]
		if t == nil || t.Type != p.Type || !t.Shape.Equal(p.Shape) {
			return fmt.Errorf("%w: tensor %s is not the one of the layout, %s %v", ErrWrite, clip(p.Name), p.Type, p.Shape)
		}
		ordered[i] = t
	}
	if len(tensors) != len(ordered) {
		return fmt.Errorf("%w: %d tensors for a layout of %d", ErrWrite, len(tensors), len(ordered))
	}
	p, err := l.NewWriter(w)
	if err != nil {
		return err
	}
	return p.Copy(ctx, ordered)
}

// Write plans and writes a file in one go.
func Write(ctx context.Context, w io.Writer, metadata []KV, tensors []*tensor.Tensor) error {
	specs := make([]TensorSpec, len(tensors))
	for i, t := range tensors {
		specs[i] = TensorSpec{t.Name, t.Type, t.Shape}
	}
	l, err := NewLayout(metadata, specs)
	if err != nil {
		return err
	}
	return l.WriteTo(ctx, w, tensors)
}
