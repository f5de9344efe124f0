package cact

import (
	"context"
	"fmt"
	"math"

	"quern/formats/internal/alien"
	"quern/tensor"
	"quern/tensor/cq"
)

// Options change how files are opened. The zero value is right for most.
type Options struct {
	// Source is the recipe's name of the source, put into Tensor.Origin.
	Source string
	// Key identifies the file's content. Tensor keys derive from it; when it
	// is zero the tensors have no keys.
	Key tensor.Key
}

// Entry is one tensor of a file.
type Entry struct {
	Spec
	// Width and Group are those of a CQ tensor, else 0.
	Width  cq.Width
	Group  int
	Offset int64 // from the start of the file
	Bytes  int64
	// Tensor reads the stored rows: F16 or F32 values in their shape; the bytes
	// of a RAW tensor as one row of U8; of a CQ tensor the packed indices,
	// [out, in rounded up to whole groups].
	Tensor *tensor.Tensor
	// Norms are the norms of a CQ tensor, F16 [out, groups of a row], else nil.
	Norms *tensor.Tensor
}

// File is an opened archive: its header, and tensors that read from the blob.
type File struct {
	Name   string
	Header Header
	// Codebooks holds the header's entries of 2, 3 and 4 bits in a row.
	Codebooks [CodebookLen]float32
	// Entries are in file order.
	Entries []Entry
	Heads   []Head
	// Group is that of all CQ tensors.
	Group int
	// Size is the file's length.
	Size int64

	index map[string]int
	blob  tensor.Blob
}

// IsCact reports whether the first bytes of a file are those of an archive.
func IsCact(head []byte) bool {
	if len(head) < 4 {
		return false
	}
	t := le.Uint32(head)
	return t == tag2 || t == tag3
}

// Open reads and checks header, codebooks and directory; tensor data stays where
// it is. name is the file's name in messages and in Tensor.Origin. Errors are of
// type ReadError around the package's sentinels or around an error of the blob.
func Open(ctx context.Context, name string, blob tensor.Blob, opt Options) (*File, error) {
	f := &File{Name: name, Size: blob.Size(), blob: blob}
	head := make([]byte, min(f.Size, int64(headerBytes(3)+4*CodebookLen)))
	if err := blob.ReadAt(ctx, head, 0); err != nil {
		return nil, f.fail(0, "header", err)
	}
	count, err := f.readHeader(head)
	if err != nil {
		return nil, err
	}
	// count is that of the header's model, a few thousand at most, and the
	// records fit into the file.
	recs := make([]record, count)
	dir := make([]byte, count*recordBytes)
	if err := blob.ReadAt(ctx, dir, f.dirOffset()); err != nil {
		return nil, f.fail(f.dirOffset(), "directory", err)
	}
	end := f.dirOffset() + int64(len(dir))
	for i := range recs {
		off := f.dirOffset() + int64(i)*recordBytes
		r := &recs[i]
		if at, field, err := r.parse(dir[i*recordBytes:][:recordBytes]); err != nil {
			return nil, f.failf(off+at, fmt.Sprintf("tensor %d: %s", i, field), "%w", err)
		}
		if want := padTo(end, Alignment); r.offset != uint64(want) {
			return nil, f.failf(off+20, fmt.Sprintf("tensor %d: offset", i), "%d, the next multiple of %d is %d", r.offset, Alignment, want)
		}
		if r.bytes > uint64(f.Size) || int64(r.offset) > f.Size-int64(r.bytes) {
			return nil, f.fail(off+28, fmt.Sprintf("tensor %d: nbytes", i), fmt.Errorf("%w: %d bytes at %d, the file has %d", ErrTruncated, r.bytes, r.offset, f.Size))
		}
		end = int64(r.offset + r.bytes)
	}
	if end != f.Size {
		return nil, f.failf(end, "end of the data", "%d bytes after the last tensor", f.Size-end)
	}
	if err := f.name(ctx, recs); err != nil {
		return nil, err
	}
	f.attach(recs, opt)
	return f, nil
}

func (f *File) fail(off int64, field string, err error) error {
	return &ReadError{File: f.Name, Offset: off, Field: field, Err: err}
}

func (f *File) failf(off int64, field, format string, args ...any) error {
	return f.fail(off, field, fmt.Errorf("%w: "+format, append([]any{ErrFormat}, args...)...))
}

func (f *File) dirOffset() int64 { return int64(headerBytes(f.Header.Generation)) + 4*CodebookLen }

// readHeader checks header and codebooks and gives the number of tensors.
func (f *File) readHeader(b []byte) (count int64, err error) {
	if !IsCact(b) {
		if err := alien.Sniff(b, f.Size, ErrNotCact); err != nil {
			return 0, f.fail(0, "tag", err)
		}
		return 0, f.fail(0, "tag", fmt.Errorf("%w: it starts with %q", ErrNotCact, b[:min(len(b), 8)]))
	}
	f.Header.Generation = 2
	if le.Uint32(b) == tag3 {
		f.Header.Generation = 3
	}
	if need := f.dirOffset(); int64(len(b)) < need {
		return 0, f.fail(0, "header", fmt.Errorf("%w: %d bytes, header and codebooks have %d", ErrTruncated, len(b), need))
	}
	if n := le.Uint32(b[8:]); n != CodebookLen {
		return 0, f.failf(8, "codebook_len", "%d, 4+8+16 entries are wanted", n)
	}
	if off, name, err := f.Header.decode(b); err != nil {
		return 0, f.failf(off, name, "%w", err)
	}
	if err := f.readCodebooks(b[headerBytes(f.Header.Generation):]); err != nil {
		return 0, err
	}
	count = int64(le.Uint32(b[4:]))
	// Beside the model's own there may be a manifest with its heads, those of a
	// speech model, and the tokenizer.
	low := f.Header.count()
	high := low + 2
	for c := range HeadKeys(f.Header.Generation) {
		high += int64(headTensors(f.Header.Generation, uint32(c+1)))
	}
	if f.Header.Generation == 3 {
		high += (&Audio{EncLayers: maxLayers, Stages: maxStages}).count(f.Header.Layers)
	}
	switch {
	case count < low || count > high:
		return 0, f.fail(4, "num_tensors", fmt.Errorf("%w: %d, the header's model has from %d to %d", ErrModel, count, low, high))
	case count*recordBytes > f.Size-f.dirOffset():
		return 0, f.fail(4, "num_tensors", fmt.Errorf("%w: the directory of %d records ends at %d, the file at %d", ErrTruncated, count, f.dirOffset()+count*recordBytes, f.Size))
	}
	return count, nil
}

func (f *File) readCodebooks(b []byte) error {
	for i := range f.Codebooks {
		v := math.Float32frombits(le.Uint32(b[4*i:]))
		f.Codebooks[i] = v
		off := int64(headerBytes(f.Header.Generation) + 4*i)
		if v != v || math.IsInf(float64(v), 0) {
			return f.failf(off, fmt.Sprintf("codebook entry %d", i), "%v is not finite", v)
		}
		if i != 0 && i != 4 && i != 12 && !(v > f.Codebooks[i-1]) {
			return f.failf(off, fmt.Sprintf("codebook entry %d", i), "%v does not ascend from %v", v, f.Codebooks[i-1])
		}
	}
	return nil
}

// Codebook gives the entries of a width: those of the header, or for 1 and 1.58
// bits, which the header has not, the standard ones.
func (f *File) Codebook(w cq.Width) ([]float32, error) { return Codebook(f.Codebooks, w, f.Group) }

// Codebook cuts a width's entries out of a header's.
func Codebook(all [CodebookLen]float32, w cq.Width, group int) ([]float32, error) {
	switch w {
	case cq.W2:
		return append([]float32(nil), all[:4]...), nil
	case cq.W3:
		return append([]float32(nil), all[4:12]...), nil
	case cq.W4:
		return append([]float32(nil), all[12:]...), nil
	}
	return cq.Codebook(w, group)
}

// Codec gives the codec of a CQ tensor of the file.
func (f *File) Codec(e *Entry) (*cq.Codec, error) {
	if e.Kind != CQ {
		return nil, fmt.Errorf("tensor %s: %w: it is %s, not CQ", e.Name, ErrModel, e.Kind)
	}
	book, err := f.Codebook(e.Width)
	if err != nil {
		return nil, err
	}
	return cq.New(e.Width, e.Group, book)
}

// Entry finds a tensor by name, or nil.
func (f *File) Entry(name string) *Entry {
	if i, ok := f.index[name]; ok {
		return &f.Entries[i]
	}
	return nil
}

// name gives every record its tensor.
func (f *File) name(ctx context.Context, recs []record) error {
	h := &f.Header
	model := int(h.count())
	rank := int64(ConditionRank)
	if h.Generation == 3 {
		// The first layer tells the rank of the conditioning.
		at := 22
		if h.QKVTaps > 0 {
			at += 3
		}
		if s := recs[at+1].shape; len(s) == 2 {
			rank = s[1]
		}
	}
	if rank >= bound {
		return f.fail(f.dirOffset(), "directory", fmt.Errorf("%w: a conditioning of rank %d", ErrModel, rank))
	}
	if len(recs) > model && recs[len(recs)-1].kind == Raw {
		recs = recs[:len(recs)-1]
	}
	if extra := recs[model:]; len(extra) > 0 && extra[0].kind == F16 {
		heads, err := f.readHeads(ctx, model, extra)
		if err != nil {
			return err
		}
		f.Heads = heads
		model++
		for _, x := range heads {
			model += headTensors(h.Generation, x.Code)
		}
	}
	if err := f.readAudio(ctx, model, recs[min(model, len(recs)):]); err != nil {
		return err
	}
	specs := h.Tensors(rank, f.Heads)
	if len(specs) != len(recs) {
		return f.fail(4, "num_tensors", fmt.Errorf("%w: %d tensors before the tokenizer, model and heads have %d", ErrModel, len(recs), len(specs)))
	}
	for i, s := range specs {
		off, r := f.dirOffset()+int64(i)*recordBytes, &recs[i]
		field := fmt.Sprintf("tensor %d: %s", i, s.Name)
		switch {
		case r.kind != s.Kind:
			return f.fail(off, field, fmt.Errorf("%w: it is %s, want %s", ErrModel, r.kind, s.Kind))
		case !r.shape.Equal(s.Shape):
			return f.fail(off+4, field, fmt.Errorf("%w: shape %v, the header asks for %v", ErrModel, r.shape, s.Shape))
		case r.kind == CQ && f.Group != 0 && int(r.group) != f.Group:
			return f.failf(off+36, field, "a group of %d, tensors before it have %d; the codebooks are for one", r.group, f.Group)
		case r.kind == CQ:
			f.Group = int(r.group)
		}
		f.Entries = append(f.Entries, Entry{Spec: s})
	}
	return nil
}

// readHeads reads the manifest and finds out what heads follow it.
func (f *File) readHeads(ctx context.Context, at int, recs []record) ([]Head, error) {
	off, m := f.dirOffset()+int64(at)*recordBytes, &recs[0]
	fail := func(format string, args ...any) ([]Head, error) {
		return nil, f.fail(off, fmt.Sprintf("tensor %d: %s", at, NameManifest), fmt.Errorf("%w: "+format, append([]any{ErrModel}, args...)...))
	}
	most := len(HeadKeys(f.Header.Generation))
	if m.kind != F16 || len(m.shape) != 1 || m.shape[0] > int64(most) {
		return fail("it is %s %v, want FP16 with a number for each of up to %d heads", m.kind, m.shape, most)
	}
	b := make([]byte, m.bytes)
	if err := f.blob.ReadAt(ctx, b, int64(m.offset)); err != nil {
		return nil, f.fail(int64(m.offset), NameManifest, err)
	}
	var out []Head
	rest := recs[1:]
	for i := 0; i < len(b); i += 2 {
		code := halfCode(le.Uint16(b[i:]))
		if _, ok := headKey(f.Header.Generation, code); !ok || len(out) > 0 && code <= out[len(out)-1].Code {
			return fail("entry %d, %#04x, is no head of generation %d or out of order", i/2, le.Uint16(b[i:]), f.Header.Generation)
		}
		n := headTensors(f.Header.Generation, code)
		if n > len(rest) {
			return fail("it lists more heads than there are tensors for")
		}
		x, err := f.Header.headOf(code, rest[:n])
		if err != nil {
			return fail("%w", err)
		}
		out, rest = append(out, x), rest[n:]
	}
	return out, nil
}

// halfCode reads the F16 values 1, 2 and 3; 0 for all others.
func halfCode(h uint16) uint32 {
	switch h {
	case 0x3c00:
		return 1
	case 0x4000:
		return 2
	case 0x4200:
		return 3
	}
	return 0
}

// HeadCode is the F16 value of a manifest.
func HeadCode(code uint32) uint16 { return []uint16{0, 0x3c00, 0x4000, 0x4200}[code] }

// attach builds the lazy tensors.
func (f *File) attach(recs []record, opt Options) {
	if n := len(f.Entries); n < len(recs) {
		f.Entries = append(f.Entries, Entry{Spec: Spec{Name: NameTokenizer, Kind: Raw}})
	}
	f.index = make(map[string]int, len(f.Entries))
	for i := range f.Entries {
		e, r := &f.Entries[i], &recs[i]
		f.index[e.Name] = i
		e.Offset, e.Bytes = int64(r.offset), int64(r.bytes)
		section := func(name string, typ tensor.Type, shape tensor.Shape, off int64) *tensor.Tensor {
			t := &tensor.Tensor{Name: name, Type: typ, Shape: shape}
			size := t.Bytes()
			t.Src = &tensor.Section{Blob: f.blob, Offset: off, RowBytes: t.RowBytes()}
			if size > 0 {
				t.Origin = []tensor.Extent{{Source: opt.Source, File: f.Name, Offset: off, Bytes: size}}
			}
			if !opt.Key.IsZero() {
				t.Key = tensor.Derive("cact", fmt.Sprintf("%s %v %d", typ, shape, off), opt.Key)
			}
			return t
		}
		switch e.Kind {
		case F16:
			e.Tensor = section(e.Name, tensor.F16, e.Shape, e.Offset)
		case F32:
			e.Tensor = section(e.Name, tensor.F32, e.Shape, e.Offset)
		case Raw:
			e.Tensor = section(e.Name, tensor.U8, tensor.Shape{e.Bytes}, e.Offset)
		case CQ:
			e.Width, e.Group = cq.Width(r.bits), int(r.group)
			rows, cols := e.Shape[0], padTo(e.Shape[1], int64(e.Group))
			index, _ := cqRow(cols, e.Width, int64(e.Group))
			e.Tensor = section(e.Name, e.Width.Type(), tensor.Shape{rows, cols}, e.Offset)
			e.Norms = section(NormsName(e.Name), tensor.F16, tensor.Shape{rows, cols / int64(e.Group)}, e.Offset+rows*index)
		}
	}
}

// NormsName is the name that the norms of a CQ tensor go by.
func NormsName(name string) string { return name + ".norms" }
