package kmcu

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"quern/formats/internal/alien"
	"quern/tensor"
)

// Options change how files are opened. The zero value is right for most.
type Options struct {
	// Source is the recipe's name of the source, put into Tensor.Origin.
	Source string
	// Key identifies the file's content. Tensor keys derive from it; when it
	// is zero the tensors have no keys.
	Key tensor.Key
	// Trailing accepts bytes after the last tensor, as in a dump of a whole
	// flash partition.
	Trailing bool
	// AnyTensors accepts tensors other than those of the header's model.
	AnyTensors bool
}

// Entry is one tensor of a file.
type Entry struct {
	TensorSpec
	Offset int64 // from the start of the file
	Bytes  int64
	// Tensor reads the stored rows; for its shape see TensorSpec.Shape.
	Tensor *tensor.Tensor
}

// File is an opened KMCU file: its header, and tensors that read from the blob.
type File struct {
	Name   string
	Header Header
	// Tensors are in directory order.
	Tensors []Entry
	// Align is how q4 matrices are cut; AlignRow when none of them shows it.
	Align       Align
	TotalParams int64
	DirOffset   int64
	DataOffset  int64
	// Size is the file's length.
	Size int64
}

// Open reads and checks header and directory; tensor data stays where it is.
// name is the file's name in messages and in Tensor.Origin. Errors are of type
// ReadError around the package's sentinels or around an error of the blob.
func Open(ctx context.Context, name string, blob tensor.Blob, opt Options) (*File, error) {
	f := &File{Name: name, Size: blob.Size()}
	head := make([]byte, min(f.Size, headerBytes))
	if err := blob.ReadAt(ctx, head, 0); err != nil {
		return nil, f.fail(0, "header", err)
	}
	count, err := f.readHeader(head)
	if err != nil {
		return nil, err
	}
	// count records fit into the file, or readHeader would have failed.
	dir := make([]byte, count*recordBytes)
	if err := blob.ReadAt(ctx, dir, f.DirOffset); err != nil {
		return nil, f.fail(f.DirOffset, "directory", err)
	}
	if err := f.readDirectory(dir); err != nil {
		return nil, err
	}
	if err := f.checkPlaces(opt.Trailing); err != nil {
		return nil, err
	}
	if err := f.checkParams(le.Uint32(head[offParams:])); err != nil {
		return nil, err
	}
	if !opt.AnyTensors {
		if err := f.Header.checkModel(f.specs()); err != nil {
			return nil, f.fail(f.DirOffset, "directory", err)
		}
	}
	f.attach(blob, opt)
	return f, nil
}

func (f *File) fail(off int64, field string, err error) error {
	return &ReadError{File: f.Name, Offset: off, Field: field, Err: err}
}

func (f *File) failf(off int64, field, format string, args ...any) error {
	return f.fail(off, field, fmt.Errorf("%w: "+format, append([]any{ErrFormat}, args...)...))
}

// readHeader checks the first 128 bytes and gives the number of tensors.
func (f *File) readHeader(b []byte) (count int64, err error) {
	if !bytes.HasPrefix(b, []byte(magic)) {
		if err := alien.Sniff(b, f.Size, ErrNotKMCU); err != nil {
			return 0, f.fail(0, "magic", err)
		}
		return 0, f.fail(0, "magic", fmt.Errorf("%w: it starts with %q", ErrNotKMCU, b[:min(len(b), 8)]))
	}
	if len(b) < headerBytes {
		return 0, f.fail(0, "header", fmt.Errorf("%w: %d bytes, the header has %d", ErrTruncated, len(b), headerBytes))
	}
	if v := le.Uint32(b[4:]); v != version {
		return 0, f.fail(4, "version", fmt.Errorf("%w %d: version %d is read", ErrVersion, v, version))
	}
	h := &f.Header
	for _, x := range h.fields() {
		*x.at = le.Uint32(b[x.off:])
	}
	h.RopeTheta = math.Float32frombits(le.Uint32(b[offTheta:]))
	h.NormEps = math.Float32frombits(le.Uint32(b[offEps:]))
	tied := le.Uint32(b[offTied:])
	h.Tied = tied == 1
	if tied > 1 {
		return 0, f.failf(offTied, "tied_embed", "%d is neither 0 nor 1", tied)
	}
	if off, name, err := h.check(); err != nil {
		return 0, f.failf(off, name, "%w", err)
	}
	for i, c := range b[offZeros:headerBytes] {
		if c != 0 {
			return 0, f.failf(int64(offZeros+i), "end of the header", "byte %#02x where zeros are wanted", c)
		}
	}
	return f.checkOffsets(b)
}

func (f *File) checkOffsets(b []byte) (count int64, err error) {
	count = int64(le.Uint32(b[offCount:]))
	f.DirOffset, f.DataOffset = int64(le.Uint32(b[offDir:])), int64(le.Uint32(b[offData:]))
	switch {
	case count == 0:
		return 0, f.failf(offCount, "n_tensors", "it is 0")
	case count > maxTensors:
		return 0, f.failf(offCount, "n_tensors", "%d, at most %d are allowed", count, maxTensors)
	case f.DirOffset < headerBytes:
		return 0, f.failf(offDir, "dir_offset", "%d lies inside the header of %d bytes", f.DirOffset, headerBytes)
	case f.DataOffset%Alignment != 0:
		return 0, f.failf(offData, "data_offset", "%d is not a multiple of %d", f.DataOffset, Alignment)
	case count > (f.DataOffset-f.DirOffset)/recordBytes:
		return 0, f.failf(offData, "data_offset", "%d lies inside the directory of %d records of %d bytes at %d", f.DataOffset, count, recordBytes, f.DirOffset)
	case f.DirOffset+count*recordBytes > f.Size:
		return 0, f.fail(offDir, "dir_offset", fmt.Errorf("%w: the directory of %d records at %d ends at %d, the file at %d", ErrTruncated, count, f.DirOffset, f.DirOffset+count*recordBytes, f.Size))
	}
	return count, nil
}

// readDirectory takes the records apart and holds sizes against shapes.
func (f *File) readDirectory(b []byte) error {
	f.Tensors = make([]Entry, len(b)/recordBytes)
	seen := make(map[string]struct{}, len(f.Tensors))
	padded, flat := -1, -1 // tensors that can be of one form only
	for i := range f.Tensors {
		e, off := &f.Tensors[i], f.DirOffset+int64(i)*recordBytes
		form, at, field, err := e.parse(b[i*recordBytes:][:recordBytes])
		if err != nil {
			return f.failf(off+at, fmt.Sprintf("tensor %d %q: %s", i, e.Name, field), "%w", err)
		}
		if _, dup := seen[e.Name]; dup {
			return f.failf(off, fmt.Sprintf("tensor %d %q: name", i, e.Name), "it occurs twice")
		}
		seen[e.Name] = struct{}{}
		switch form {
		case onlyPadded:
			padded = i
		case onlyFlat:
			flat = i
		}
	}
	if padded >= 0 && flat >= 0 {
		return f.failf(f.DirOffset, "directory", "tensor %q has its rows padded, tensor %q has not", f.Tensors[padded].Name, f.Tensors[flat].Name)
	}
	if flat >= 0 {
		f.Align = AlignNone
	}
	return nil
}

// Forms that the size of a matrix can show.
const (
	eitherForm = iota
	onlyPadded
	onlyFlat
)

// parse reads one record. Of an error it gives the place in the record and the
// field.
func (e *Entry) parse(r []byte) (form int, at int64, field string, err error) {
	if e.Name, err = parseName(r[:nameBytes]); err != nil {
		return 0, 0, "name", err
	}
	e.Rows, e.Cols = int64(le.Uint32(r[28:])), int64(le.Uint32(r[32:]))
	e.Offset, e.Bytes = int64(le.Uint32(r[36:])), int64(le.Uint32(r[40:]))
	switch d := le.Uint32(r[24:]); d {
	case dtypeF32:
		e.Type = tensor.F32
	case dtypeQ4:
		e.Type = tensor.KMCUQ4
	default:
		return 0, 24, "dtype", fmt.Errorf("%d is neither 1 (f32) nor 2 (q4)", d)
	}
	if z := le.Uint32(r[44:]); z != 0 {
		return 0, 44, "end of the record", fmt.Errorf("%#x where zeros are wanted", z)
	}
	inRows, err := e.sizeOf(AlignRow)
	if err != nil {
		return 0, 28, "shape", err
	}
	inRun, err := e.sizeOf(AlignNone)
	switch {
	case err != nil:
		return 0, 28, "shape", err
	case e.Bytes != inRows && e.Bytes != inRun:
		return 0, 40, "nbytes", fmt.Errorf("%d, %s of %d x %d takes %d", e.Bytes, e.Type, e.Rows, e.Cols, inRows)
	case e.Bytes != inRows:
		return onlyFlat, 0, "", nil
	case e.Bytes != inRun:
		return onlyPadded, 0, "", nil
	}
	return eitherForm, 0, "", nil
}

// parseName reads a NUL-filled field.
func parseName(b []byte) (string, error) {
	n := bytes.IndexByte(b, 0)
	if n < 0 {
		return string(b), fmt.Errorf("no NUL at its end")
	}
	name := string(b[:n])
	if n == 0 {
		return name, fmt.Errorf("it is empty")
	}
	for _, c := range b[n:] {
		if c != 0 {
			return name, fmt.Errorf("bytes after its NUL")
		}
	}
	return name, checkName(name)
}

func checkName(name string) error {
	for _, c := range []byte(name) {
		if c <= ' ' || c > '~' {
			return fmt.Errorf("byte %#02x is not printable ASCII", c)
		}
	}
	return nil
}

// checkPlaces demands aligned tensors inside the data that do not overlap, and
// a file that ends with the last of them.
func (f *File) checkPlaces(trailing bool) error {
	order := make([]int, len(f.Tensors))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(f.Tensors[a].Offset, f.Tensors[b].Offset), cmp.Compare(a, b))
	})
	at, last := f.DataOffset, "data_offset"
	for _, i := range order {
		e := &f.Tensors[i]
		off := f.DirOffset + int64(i)*recordBytes + 36
		where := fmt.Sprintf("tensor %d %q: offset", i, e.Name)
		switch end := e.Offset + e.Bytes; {
		case e.Offset%Alignment != 0:
			return f.failf(off, where, "%d is not a multiple of %d", e.Offset, Alignment)
		case e.Offset < at:
			return f.failf(off, where, "%d lies before %d, the end of %s", e.Offset, at, last)
		case end > f.Size:
			return f.fail(off, where, fmt.Errorf("%w: its data ends at %d, the file at %d", ErrTruncated, end, f.Size))
		default:
			at, last = end, fmt.Sprintf("tensor %q", e.Name)
		}
	}
	if at < f.Size && !trailing {
		return f.failf(at, "end of the file", "%d bytes after the last tensor", f.Size-at)
	}
	return nil
}

func (f *File) checkParams(want uint32) error {
	// Every tensor has under 2^32 values and there are under 2^27 of them.
	for _, e := range f.Tensors {
		f.TotalParams += e.Rows * e.Cols
	}
	if f.TotalParams != int64(want) {
		return f.failf(offParams, "total_params", "%d, the tensors have %d values", want, f.TotalParams)
	}
	return nil
}

func (f *File) specs() []TensorSpec {
	out := make([]TensorSpec, len(f.Tensors))
	for i := range f.Tensors {
		out[i] = f.Tensors[i].TensorSpec
	}
	return out
}

func (f *File) attach(blob tensor.Blob, opt Options) {
	for i := range f.Tensors {
		e := &f.Tensors[i]
		t := &tensor.Tensor{Name: e.Name, Type: e.Type, Shape: e.Shape(f.Align)}
		t.Src = &tensor.Section{Blob: blob, Offset: e.Offset, RowBytes: t.RowBytes()}
		t.Origin = []tensor.Extent{{Source: opt.Source, File: f.Name, Offset: e.Offset, Bytes: e.Bytes}}
		if !opt.Key.IsZero() {
			t.Key = tensor.Derive("kmcu", fmt.Sprintf("%s %v %d %d", t.Type, t.Shape, e.Offset, e.Bytes), opt.Key)
		}
		e.Tensor = t
	}
}

// All gives the tensors in directory order.
func (f *File) All() []*tensor.Tensor {
	out := make([]*tensor.Tensor, len(f.Tensors))
	for i := range f.Tensors {
		out[i] = f.Tensors[i].Tensor
	}
	return out
}

// Find gives a tensor by name, or nil.
func (f *File) Find(name string) *Entry {
	for i := range f.Tensors {
		if f.Tensors[i].Name == name {
			return &f.Tensors[i]
		}
	}
	return nil
}
