package cact

import (
	"fmt"

	"quern/tensor"
	"quern/tensor/cq"
)

// record is a directory record.
type record struct {
	kind   Kind
	shape  tensor.Shape
	offset uint64
	bytes  uint64
	group  uint32
	bits   uint32
}

// parse reads 44 bytes. Of an error it gives the place in the record and the
// field.
func (r *record) parse(b []byte) (at int64, field string, err error) {
	r.kind = Kind(b[0])
	dims := int(b[1])
	switch {
	case r.kind < F16 || r.kind > Raw:
		return 0, "dtype", fmt.Errorf("%d is unknown; 1 FP16, 2 FP32, 3 CQ and 4 RAW are read", b[0])
	case dims > 4:
		return 1, "ndim", fmt.Errorf("%d, at most 4 are allowed", dims)
	case r.kind == CQ && dims != 2:
		return 1, "ndim", fmt.Errorf("%d, a CQ tensor is a matrix", dims)
	case r.kind == Raw && dims != 0:
		return 1, "ndim", fmt.Errorf("%d, a RAW tensor has no shape", dims)
	case le.Uint16(b[2:]) != 0:
		return 2, "padding", fmt.Errorf("%#04x where zeros are wanted", le.Uint16(b[2:]))
	}
	for i := range 4 {
		v := le.Uint32(b[4+4*i:])
		switch {
		case i >= dims && v != 0:
			return int64(4 + 4*i), "shape", fmt.Errorf("%d in place %d, there are %d dimensions", v, i, dims)
		case i < dims && v == 0:
			return int64(4 + 4*i), "shape", fmt.Errorf("dimension %d is 0", i)
		case i < dims:
			r.shape = append(r.shape, int64(v))
		}
	}
	r.offset, r.bytes = le.Uint64(b[20:]), le.Uint64(b[28:])
	r.group, r.bits = le.Uint32(b[36:]), le.Uint32(b[40:])
	if r.kind != CQ && r.group != 0 {
		return 36, "group_size", fmt.Errorf("%d for a %s tensor, which has no groups", r.group, r.kind)
	}
	if r.kind != CQ && r.bits != 0 {
		return 40, "bits", fmt.Errorf("%d for a %s tensor", r.bits, r.kind)
	}
	if r.kind == CQ {
		if err := cq.CheckGroup(int(min(r.group, 1<<16))); err != nil {
			return 36, "group_size", err
		}
		if r.bits > 255 || !cq.Width(r.bits).Valid() {
			return 40, "bits", fmt.Errorf("%d; 1, 2, 3, 4 and 5 (for 1.58) are read", r.bits)
		}
	}
	want, err := r.size()
	if err != nil {
		return 4, "shape", err
	}
	if r.kind != Raw && r.bytes != uint64(want) {
		return 28, "nbytes", fmt.Errorf("%d, a %s tensor of %v has %d", r.bytes, r.kind, r.shape, want)
	}
	return 0, "", nil
}

// size is the size of the data that shape and kind ask for.
func (r *record) size() (int64, error) {
	switch r.kind {
	case F16:
		return tensor.Bytes(tensor.F16, r.shape)
	case F32:
		return tensor.Bytes(tensor.F32, r.shape)
	case CQ:
		rows, cols := r.shape[0], r.shape[1]
		index, norms := cqRow(cols, cq.Width(r.bits), int64(r.group))
		if rows > (1<<62)/(index+norms) {
			return 0, fmt.Errorf("%w: %v is too large", tensor.ErrShape, r.shape)
		}
		return rows * (index + norms), nil
	}
	return int64(r.bytes), nil
}

// cqRow gives the bytes of the indices and of the norms of a row.
func cqRow(cols int64, w cq.Width, group int64) (index, norms int64) {
	padded := padTo(cols, group)
	return padded / 8 * int64(w.IndexBits()), padded / group * 2
}

func (r *record) encode(b []byte) []byte {
	b = append(b, byte(r.kind), byte(len(r.shape)), 0, 0)
	for i := range 4 {
		v := int64(0)
		if i < len(r.shape) {
			v = r.shape[i]
		}
		b = le.AppendUint32(b, uint32(v))
	}
	b = le.AppendUint64(b, r.offset)
	b = le.AppendUint64(b, r.bytes)
	b = le.AppendUint32(b, r.group)
	return le.AppendUint32(b, r.bits)
}

// padTo rounds n up to a multiple of a.
func padTo(n, a int64) int64 { return (n + a - 1) / a * a }
