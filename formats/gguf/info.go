package gguf

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"quern/tensor"
)

// Info is one tensor of a file as its header describes it.
type Info struct {
	Name string
	// Dims is ne as stored, row length first; len(Dims) is n_dims.
	Dims []int64
	// TypeID is the ggml_type as stored, which may be one without a meaning
	// here when the file was opened with Options.Partial.
	TypeID int32
	// Offset is the start of the data from the start of the file.
	Offset int64
	// Bytes is the size of the data without padding, -1 when the type is
	// unknown.
	Bytes int64
	// Tensor reads the data; nil when the type cannot be used here.
	Tensor *tensor.Tensor
}

// TypeName names the tensor's type, also when it cannot be used.
func (t *Info) TypeName() string {
	if typ, ok := tensor.FromGGML(t.TypeID); ok {
		return typ.String()
	}
	if o, ok := otherTypes(t.TypeID); ok {
		return o.name
	}
	return fmt.Sprintf("type %d", t.TypeID)
}

// Shape is Dims outermost first.
func (t *Info) Shape() tensor.Shape { return shapeOf(t.Dims) }

// Usable says why the tensor's data cannot be read, or returns nil.
func (t *Info) Usable() error {
	if t.Tensor != nil {
		return nil
	}
	o, ok := otherTypes(t.TypeID)
	if !ok {
		return fmt.Errorf("tensor %s: %w: ggml_type %d is not known; the file may be newer than this program", clip(t.Name), ErrTensorType, t.TypeID)
	}
	return fmt.Errorf("tensor %s: %w: %s %s", clip(t.Name), ErrTensorType, o.name, o.why)
}

// otherType is a ggml_type that tensor.Type does not have. bytes is 0 for those
// that ggml itself refuses.
type otherType struct {
	name         string
	block, bytes int64
	why          string
}

func otherTypes(id int32) (otherType, bool) {
	const activations = "holds activations while a model runs and has no use in a file"
	const removed = "was removed from ggml; convert the model again"
	const interleaved = "has its rows interleaved for one processor, and was removed from ggml; convert the model again"
	switch id {
	case 9:
		return otherType{"Q8_1", 32, 36, activations}, true
	case 15:
		return otherType{"Q8_K", 256, 292, activations}, true
	case 4:
		return otherType{"Q4_2", 0, 0, removed}, true
	case 5:
		return otherType{"Q4_3", 0, 0, removed}, true
	case 31:
		return otherType{"Q4_0_4_4", 0, 0, interleaved}, true
	case 32:
		return otherType{"Q4_0_4_8", 0, 0, interleaved}, true
	case 33:
		return otherType{"Q4_0_8_8", 0, 0, interleaved}, true
	case 36:
		return otherType{"IQ4_NL_4_4", 0, 0, interleaved}, true
	case 37:
		return otherType{"IQ4_NL_4_8", 0, 0, interleaved}, true
	case 38:
		return otherType{"IQ4_NL_8_8", 0, 0, interleaved}, true
	}
	return otherType{}, false
}

// blockOf gives values and bytes of a type's block, or false when the type has
// no size.
func blockOf(id int32) (values, bytes int64, ok bool) {
	if t, ok := tensor.FromGGML(id); ok {
		return t.BlockValues(), t.BlockBytes(), true
	}
	o, _ := otherTypes(id)
	return o.block, o.bytes, o.block > 0
}

func shapeOf(dims []int64) tensor.Shape {
	s := tensor.Shape(slices.Clone(dims))
	slices.Reverse(s)
	return s
}

// infos reads the descriptions of n tensors. Offsets are those of the file,
// from the data start, which is not known before the last one is read.
func (p *parser) infos(n int64, partial bool) (list []Info, offs []int64, problems []error, err error) {
	p.part = "tensor"
	seen := make(map[string]struct{})
	for p.index = 0; p.index < n; p.index++ {
		p.id = ""
		start := p.pos
		t, err := p.info()
		if err != nil {
			return nil, nil, nil, err
		}
		if _, dup := seen[t.Name]; dup {
			return nil, nil, nil, p.fail(start, "name", fmt.Errorf("%w: %w", ErrFormat, ErrDuplicate))
		}
		seen[t.Name] = struct{}{}
		if _, _, ok := blockOf(t.TypeID); !ok {
			err := p.fail(p.pos-12, "type", fmt.Errorf("%w: %w", ErrFormat, t.Usable()))
			if !partial {
				return nil, nil, nil, err
			}
			problems = append(problems, err)
		}
		offs = append(offs, p.pos-8)
		list = append(list, t)
	}
	p.part, p.id = "", ""
	return list, offs, problems, nil
}

func (p *parser) info() (Info, error) {
	t := Info{Bytes: -1}
	off := p.pos
	k, err := p.length("name length")
	if err != nil {
		return t, err
	}
	if k > MaxNameBytes {
		return t, p.failf(off, "name length", "%d bytes, at most %d are allowed", k, MaxNameBytes)
	}
	b, err := p.take(k, "name")
	if err != nil {
		return t, err
	}
	// ggml keeps names as C strings: what follows a NUL is not seen.
	t.Name, _, _ = strings.Cut(string(b), "\x00")
	p.id = t.Name
	if t.Dims, err = p.dims(); err != nil {
		return t, err
	}
	off = p.pos
	id, err := p.u32("type")
	if err != nil {
		return t, err
	}
	t.TypeID = int32(id)
	if block, bytes, ok := blockOf(t.TypeID); ok {
		if t.Bytes, err = sizeOf(t.Dims, block, bytes); err != nil {
			return t, p.failf(off, "type", "%s: %w", t.TypeName(), err)
		}
	}
	off = p.pos
	u, err := p.u64("offset")
	if err != nil {
		return t, err
	}
	if u > math.MaxInt64 {
		return t, p.failf(off, "offset", "%d is over 2^63-1", u)
	}
	t.Offset = int64(u)
	return t, nil
}

func (p *parser) dims() ([]int64, error) {
	off := p.pos
	n, err := p.u32("number of dimensions")
	if err != nil {
		return nil, err
	}
	if n > MaxDims {
		return nil, p.failf(off, "number of dimensions", "%d, at most %d are allowed", n, MaxDims)
	}
	dims := make([]int64, n)
	values := int64(1)
	for i := range dims {
		off = p.pos
		u, err := p.u64("dimension")
		if err != nil {
			return nil, err
		}
		d := int64(u)
		field := "dimension " + string(rune('0'+i))
		if d < 0 {
			return nil, p.failf(off, field, "%d is negative", d)
		}
		if d == 0 {
			return nil, p.failf(off, field, "it is 0: tensors without values cannot be used")
		}
		// ggml wants the product under 2^63-1.
		if (math.MaxInt64-1)/d < values {
			return nil, p.failf(off, field, "%d times the dimensions before it overflows the number of values", d)
		}
		values *= d
		dims[i] = d
	}
	return dims, nil
}

var errOverflow = errors.New("its size in bytes overflows")

// sizeOf is the size of a tensor whose number of values is known to fit.
func sizeOf(dims []int64, block, bytes int64) (int64, error) {
	row, rows := int64(1), int64(1)
	for i, d := range dims {
		if i == 0 {
			row = d
		} else {
			rows *= d
		}
	}
	if row%block != 0 {
		return 0, fmt.Errorf("rows of %d values do not divide into blocks of %d", row, block)
	}
	blocks := row / block * rows
	if blocks > math.MaxInt64/bytes {
		return 0, errOverflow
	}
	return blocks * bytes, nil
}
