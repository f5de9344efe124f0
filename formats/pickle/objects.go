package pickle

import (
	"encoding/binary"
	"fmt"
	"strings"

	"quern/tensor"
)

var be = binary.BigEndian

// Functions and classes that a pickle may name.
const (
	reconstruct  = global("numpy _reconstruct")
	fromBuffer   = global("numpy _frombuffer")
	npScalar     = global("numpy scalar")
	npArray      = global("numpy ndarray")
	npDtype      = global("numpy dtype")
	encode       = global("codecs encode")
	emptyBytes   = global("bytes")
	orderedDict  = global("collections OrderedDict")
	rebuild      = global("torch _rebuild_tensor_v2")
	rebuildParam = global("torch _rebuild_parameter")
)

// allowed maps the names, as module and name, to what stands for them here.
var allowed = map[string]global{
	"numpy.core.multiarray _reconstruct": reconstruct, "numpy._core.multiarray _reconstruct": reconstruct,
	"numpy.core.numeric _frombuffer": fromBuffer, "numpy._core.numeric _frombuffer": fromBuffer,
	"numpy.core.multiarray scalar": npScalar, "numpy._core.multiarray scalar": npScalar,
	"numpy ndarray": npArray, "numpy dtype": npDtype,
	"_codecs encode": encode,
	// Without arguments: b"" in protocol 2.
	"__builtin__ bytes": emptyBytes, "builtins bytes": emptyBytes,
	"collections OrderedDict":         orderedDict,
	"torch._utils _rebuild_tensor_v2": rebuild, "torch._utils _rebuild_parameter": rebuildParam,
}

// typeOfClass maps classes that stand for a type of values.
var typeOfClass = map[string]tensor.Type{
	"ml_dtypes bfloat16": tensor.BF16, "ml_dtypes float8_e4m3fn": tensor.F8E4M3, "ml_dtypes float8_e5m2": tensor.F8E5M2,
	"torch DoubleStorage": tensor.F64, "torch FloatStorage": tensor.F32, "torch HalfStorage": tensor.F16, "torch BFloat16Storage": tensor.BF16,
	"torch LongStorage": tensor.I64, "torch IntStorage": tensor.I32, "torch ShortStorage": tensor.I16, "torch CharStorage": tensor.I8,
	"torch ByteStorage": tensor.U8, "torch BoolStorage": tensor.Bool,
}

// dtypes maps NumPy's codes.
var dtypes = map[string]tensor.Type{
	"f8": tensor.F64, "f4": tensor.F32, "f2": tensor.F16, "i8": tensor.I64, "i4": tensor.I32, "i2": tensor.I16, "i1": tensor.I8,
	"u8": tensor.U64, "u4": tensor.U32, "u2": tensor.U16, "u1": tensor.U8, "b1": tensor.Bool,
}

// dtype is a NumPy type that a pickle has made.
type dtype struct {
	typ tensor.Type
	big bool
}

// storage is where the values of a PyTorch tensor lie.
type storage struct {
	typ   tensor.Type
	blob  tensor.Blob
	data  Bytes
	count int64
}

// call runs opcodes that name or call something.
func (m *machine) call(op byte) error {
	switch op {
	case 'c':
		module, err := m.r.line()
		if err != nil {
			return err
		}
		name, err := m.r.line()
		if err != nil {
			return err
		}
		return m.find(module, name)
	case 0x93:
		name, err := m.pop()
		if err != nil {
			return err
		}
		module, err := m.pop()
		if err != nil {
			return err
		}
		mod, ok := module.(string)
		n, ok2 := name.(string)
		if !ok || !ok2 {
			return fmt.Errorf("%w: a global whose name is no string", ErrFormat)
		}
		return m.find(mod, n)
	case 'R', 0x81:
		args, err := m.pop()
		if err != nil {
			return err
		}
		f, err := m.pop()
		if err != nil {
			return err
		}
		t, ok := args.(Tuple)
		if !ok {
			return fmt.Errorf("%w: a call with what is no tuple", ErrFormat)
		}
		v, err := m.apply(f, t)
		if err == nil {
			m.push(v)
		}
		return err
	case 'b':
		state, err := m.pop()
		if err != nil {
			return err
		}
		v, err := m.top()
		if err != nil {
			return err
		}
		return build(v, state)
	case 'Q':
		id, err := m.pop()
		if err != nil {
			return err
		}
		if m.storage == nil {
			return fmt.Errorf("%w: BINPERSID names an outside object", ErrRefused)
		}
		v, err := m.storage(id)
		if err == nil {
			m.push(v)
		}
		return err
	}
	return fmt.Errorf("%w: opcode %#02x", ErrFormat, op)
}

// find resolves a name, or refuses it.
func (m *machine) find(module, name string) error {
	full := module + " " + name
	if g, ok := allowed[full]; ok {
		m.push(g)
		return nil
	}
	if t, ok := typeOfClass[full]; ok {
		m.push(t)
		return nil
	}
	clip := func(s string) string {
		if len(s) > 80 {
			s = s[:80] + "..."
		}
		return strings.ToValidUTF8(s, "?")
	}
	return fmt.Errorf("%w: it asks for %q of module %q; only arrays, dicts, lists, numbers and strings are read", ErrRefused, clip(name), clip(module))
}

// apply does what a call of one of the allowed names does.
func (m *machine) apply(f any, args Tuple) (any, error) {
	g, ok := f.(global)
	if !ok {
		return nil, fmt.Errorf("%w: a call of what is no function", ErrRefused)
	}
	bad := func() (any, error) {
		return nil, fmt.Errorf("%w: %s with %d arguments of other kinds than it has", ErrFormat, g, len(args))
	}
	switch g {
	case reconstruct:
		if len(args) == 3 && args[0] == any(npArray) {
			return &Array{}, nil
		}
	case npDtype:
		if len(args) > 0 {
			if t, ok := args[0].(tensor.Type); ok {
				return &dtype{typ: t}, nil
			}
			if s, ok := args[0].(string); ok {
				t, known := dtypes[strings.TrimLeft(s, "<|=")]
				if !known {
					return nil, fmt.Errorf("%w: arrays of type %q; floats, whole numbers and booleans are read", ErrRefused, s)
				}
				return &dtype{typ: t}, nil
			}
		}
	case encode:
		if len(args) == 2 && args[1] == any("latin1") {
			return m.encoded(args[0])
		}
	case emptyBytes:
		if len(args) == 0 {
			return Bytes{Data: []byte{}}, nil
		}
	case orderedDict:
		if len(args) == 0 {
			return &Dict{}, nil
		}
	case fromBuffer:
		if len(args) == 4 {
			a := &Array{}
			order, _ := args[3].(string)
			return a, a.set(args[2], args[1], order == "F", args[0])
		}
	case npScalar:
		if len(args) == 2 {
			a := &Array{}
			return a, a.set(Tuple{}, args[0], false, args[1])
		}
	case rebuild:
		if len(args) >= 4 {
			return rebuilt(args)
		}
	case rebuildParam:
		if len(args) >= 1 {
			if a, ok := args[0].(*Array); ok {
				return a, nil
			}
		}
	}
	return bad()
}

// maxEncoded bounds bytes that a pickle of protocol 2 holds as text, all of which
// is decoded at once.
const (
	maxEncoded = 64 << 20
	maxSpent   = 2 * maxEncoded
)

// encoded turns text back into the bytes that protocol 2 had to write as it.
func (m *machine) encoded(v any) (any, error) {
	var s string
	switch v := v.(type) {
	case string:
		s = v
	case longText:
		if v.Len > maxEncoded {
			return nil, fmt.Errorf("%w: %d bytes written as text; save with protocol 4 or later", ErrLimit, v.Len)
		}
		b := make([]byte, v.Len)
		if err := m.r.blob.ReadAt(m.r.ctx, b, v.Offset); err != nil {
			return nil, err
		}
		s = string(b)
	default:
		return nil, fmt.Errorf("%w: encode of what is no string", ErrFormat)
	}
	// One text may be decoded again and again.
	if m.spent += int64(len(s)); m.spent > maxSpent {
		return nil, fmt.Errorf("%w: over %d bytes written as text; save with protocol 4 or later", ErrLimit, int64(maxSpent))
	}
	out := make([]byte, 0, len(s))
	for _, r := range s {
		if r > 0xff {
			return nil, fmt.Errorf("%w: %q is no byte", ErrFormat, r)
		}
		out = append(out, byte(r))
	}
	return Bytes{Data: out, Len: int64(len(out))}, nil
}

// build gives an object its state.
func build(v, state any) error {
	s, ok := state.(Tuple)
	switch v := v.(type) {
	case *dtype:
		if !ok || len(s) < 2 {
			break
		}
		order, _ := s[1].(string)
		switch order {
		case "<", "|", "=":
		case ">":
			v.big = true
		default:
			return fmt.Errorf("%w: a type with byte order %q", ErrFormat, order)
		}
		if len(s) > 3 && (s[2] != nil || s[3] != nil) {
			return fmt.Errorf("%w: arrays of records", ErrRefused)
		}
		return nil
	case *Array:
		if !ok || len(s) != 5 || v.done {
			break
		}
		fortran, isBool := s[3].(bool)
		if n, isInt := s[3].(int64); isInt {
			fortran, isBool = n != 0, true
		}
		if !isBool {
			break
		}
		return v.set(s[1], s[2], fortran, s[4])
	case *Dict:
		if d, isDict := state.(*Dict); isDict && len(d.Keys) == 0 || state == nil {
			return nil
		}
		// Attributes of an ordered dict, such as PyTorch's _metadata.
		if _, isDict := state.(*Dict); isDict {
			return nil
		}
	}
	return fmt.Errorf("%w: BUILD of %T", ErrFormat, v)
}

// maxDims is NumPy's own limit.
const maxDims = 64

// set fills an array in.
func (a *Array) set(shape, typ any, fortran bool, data any) error {
	d, ok := typ.(*dtype)
	if !ok {
		return fmt.Errorf("%w: an array without a type", ErrFormat)
	}
	if d.big && d.typ.BlockBytes() > 1 {
		return fmt.Errorf("%w: big-endian arrays", ErrRefused)
	}
	b, ok := data.(Bytes)
	if !ok {
		return fmt.Errorf("%w: an array of objects, or of Python 2", ErrRefused)
	}
	dims, ok := shape.(Tuple)
	if !ok || len(dims) > maxDims {
		return fmt.Errorf("%w: an array whose shape is no tuple of up to %d numbers", ErrFormat, maxDims)
	}
	a.Type, a.Fortran, a.Data = d.typ, fortran && len(dims) > 1, b
	a.Shape = make(tensor.Shape, len(dims))
	for i, v := range dims {
		n, ok := v.(int64)
		if !ok || n < 0 {
			return fmt.Errorf("%w: an array with a dimension of %v", ErrFormat, v)
		}
		a.Shape[i] = n
	}
	want, err := tensor.Bytes(a.Type, a.Shape)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrFormat, err)
	}
	if want != b.Len {
		return fmt.Errorf("%w: an array of %s %v has %d bytes, not %d", ErrFormat, a.Type, a.Shape, want, b.Len)
	}
	a.done = true
	return nil
}

// rebuilt makes a PyTorch tensor: storage, offset, size, stride.
func rebuilt(args Tuple) (any, error) {
	s, ok := args[0].(*storage)
	off, ok2 := args[1].(int64)
	size, ok3 := args[2].(Tuple)
	stride, ok4 := args[3].(Tuple)
	if !ok || !ok2 || !ok3 || !ok4 || len(size) != len(stride) || len(size) > maxDims {
		return nil, fmt.Errorf("%w: a tensor of other parts than storage, offset, size and stride", ErrFormat)
	}
	a := &Array{Type: s.typ, Shape: make(tensor.Shape, len(size)), blob: s.blob, done: true}
	for i := range size {
		n, ok := size[i].(int64)
		if !ok || n < 0 {
			return nil, fmt.Errorf("%w: a tensor with a dimension of %v", ErrFormat, size[i])
		}
		a.Shape[i] = n
	}
	values, err := a.Shape.Values()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	step := int64(1)
	for i := len(size) - 1; i >= 0; i-- {
		if n, ok := stride[i].(int64); !ok || n != step && a.Shape[i] > 1 {
			return nil, fmt.Errorf("%w: a tensor of %v with strides %v; save it after contiguous()", ErrRefused, a.Shape, stride)
		}
		step *= max(a.Shape[i], 1)
	}
	if off < 0 || values > s.count || off > s.count-values {
		return nil, fmt.Errorf("%w: a tensor of %d values from %d on of a storage of %d", ErrFormat, values, off, s.count)
	}
	per := s.typ.BlockBytes()
	a.Data = Bytes{Offset: s.data.Offset + off*per, Len: values * per}
	return a, nil
}

// finished refuses what was begun only, at the top.
func finished(v any) error {
	switch v.(type) {
	case nil, bool, int64, float64, string, Bytes, *List, Tuple, *Dict, *Array:
		return nil
	}
	return fmt.Errorf("%w: it is no data but %T", ErrRefused, v)
}
