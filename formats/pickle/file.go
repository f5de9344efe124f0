package pickle

import (
	"archive/zip"
	"context"
	"encoding/json"
	"fmt"
	"path"
	"strings"

	"quern/tensor"
	"quern/tensor/view"
)

// Options change how files are opened. The zero value is right for most.
type Options struct {
	// Source is the recipe's name of the source, put into Tensor.Origin.
	Source string
	// Key identifies the file's content. Tensor keys derive from it; when it
	// is zero the tensors have no keys.
	Key tensor.Key
}

// File is an opened pickle or PyTorch file.
type File struct {
	Name string
	// Root is the value that the pickle holds.
	Root any

	blob tensor.Blob
	opt  Options
}

// IsPickle reports whether a file begins like a pickle of protocol 2 or later, or
// like the zip archive that torch.save writes.
func IsPickle(head []byte) bool {
	return len(head) >= 2 && head[0] == 0x80 && head[1] >= 2 && head[1] <= 5 || len(head) >= 4 && string(head[:4]) == "PK\x03\x04"
}

// Open runs a file's pickle; the data of arrays stay where they are. Errors are of
// type ReadError around the package's sentinels, or come from the blob.
func Open(ctx context.Context, name string, blob tensor.Blob, opt Options) (*File, error) {
	f := &File{Name: name, blob: blob, opt: opt}
	head := make([]byte, min(4, blob.Size()))
	if err := blob.ReadAt(ctx, head, 0); err != nil {
		return nil, err
	}
	if string(head) == "PK\x03\x04" {
		return f, f.torch(ctx)
	}
	if !IsPickle(head) {
		return nil, &ReadError{name, 0, fmt.Errorf("%w: it starts with %q; pickles of protocol 2 to 5 are read", ErrFormat, head)}
	}
	v, end, err := run(ctx, name, blob, nil)
	if err != nil {
		return nil, err
	}
	if end != blob.Size() {
		return nil, &ReadError{name, end, fmt.Errorf("%w: %d bytes after the stop opcode; files of torch.save from before its zip format are not read", ErrFormat, blob.Size()-end)}
	}
	f.Root = v
	return f, nil
}

// maxEntries bounds the files of a PyTorch archive.
const maxEntries = 1 << 16

// torch opens the zip archive of torch.save.
func (f *File) torch(ctx context.Context) error {
	fail := func(format string, args ...any) error { return &ReadError{f.Name, 0, fmt.Errorf(format, args...)} }
	z, err := zip.NewReader(tensor.ContextReaderAt(ctx, f.blob), f.blob.Size())
	if err != nil {
		return fail("%w: zip archive: %w", ErrFormat, err)
	}
	if len(z.File) > maxEntries {
		return fail("%w: %d files in the archive", ErrLimit, len(z.File))
	}
	files := map[string]*zip.File{}
	pkl := ""
	for _, e := range z.File {
		if _, dup := files[e.Name]; dup {
			return fail("%w: two files called %q in the archive", ErrFormat, e.Name)
		}
		files[e.Name] = e
		if path.Base(e.Name) == "data.pkl" && strings.Count(e.Name, "/") <= 1 {
			if pkl != "" {
				return fail("%w: two pickles in the archive", ErrFormat)
			}
			pkl = e.Name
		}
	}
	if pkl == "" {
		return fail("%w: a zip archive without data.pkl, which torch.save writes", ErrNotPickle)
	}
	dir := path.Dir(pkl)
	part := func(name string) (Bytes, error) {
		e := files[path.Join(dir, name)]
		if e == nil {
			return Bytes{}, fmt.Errorf("%w: %s is not in the archive", ErrFormat, name)
		}
		off, err := e.DataOffset()
		size := e.UncompressedSize64
		if err != nil || e.Method != zip.Store || size != e.CompressedSize64 || size > uint64(f.blob.Size()) || off > f.blob.Size()-int64(size) {
			return Bytes{}, fmt.Errorf("%w: %s: it is compressed or lies outside of the file", ErrFormat, name)
		}
		return Bytes{Offset: off, Len: int64(size)}, nil
	}
	if b, err := part("byteorder"); err == nil && b.Len < 16 {
		order := make([]byte, b.Len)
		if err := f.blob.ReadAt(ctx, order, b.Offset); err != nil {
			return err
		}
		if string(order) != "little" {
			return fail("%w: values in byte order %q", ErrRefused, order)
		}
	}
	b, err := part(path.Base(pkl))
	if err != nil {
		return fail("%w", err)
	}
	v, _, err := run(ctx, f.Name+": "+pkl, &section{f.blob, b.Offset, b.Len}, func(id any) (any, error) { return persistent(id, f.blob, part) })
	f.Root = v
	return err
}

// section is a part of a blob.
type section struct {
	blob      tensor.Blob
	off, size int64
}

func (s *section) Size() int64 { return s.size }

func (s *section) ReadAt(ctx context.Context, p []byte, off int64) error {
	if off < 0 || off > s.size || int64(len(p)) > s.size-off {
		return fmt.Errorf("%w: %d bytes at %d of %d", ErrTruncated, len(p), off, s.size)
	}
	return s.blob.ReadAt(ctx, p, s.off+off)
}

// persistent resolves ("storage", class, key, device, count).
func persistent(id any, blob tensor.Blob, part func(string) (Bytes, error)) (any, error) {
	t, ok := id.(Tuple)
	if !ok || len(t) != 5 || t[0] != any("storage") {
		return nil, fmt.Errorf("%w: a persistent id that is no storage", ErrRefused)
	}
	typ, ok := t[1].(tensor.Type)
	key, ok2 := t[2].(string)
	count, ok3 := t[4].(int64)
	if !ok || !ok2 || !ok3 || count < 0 || strings.ContainsAny(key, `/\`) {
		return nil, fmt.Errorf("%w: a storage of other parts than class, key and count", ErrFormat)
	}
	b, err := part("data/" + key)
	if err != nil {
		return nil, err
	}
	if count > b.Len/typ.BlockBytes() {
		return nil, fmt.Errorf("%w: storage %s has %d bytes for %d values of %s", ErrFormat, key, b.Len, count, typ)
	}
	return &storage{typ: typ, blob: blob, data: b, count: count}, nil
}

// Tensor makes the lazy tensor of an array.
func (f *File) Tensor(name string, a *Array) (*tensor.Tensor, error) {
	if !a.done {
		return nil, fmt.Errorf("%s: %w: array %s has no data", f.Name, ErrFormat, name)
	}
	t := &tensor.Tensor{Name: name, Type: a.Type, Shape: append(tensor.Shape(nil), a.Shape...)}
	if a.Fortran {
		if len(t.Shape) != 2 {
			return nil, fmt.Errorf("%s: %w: array %s of %v has its axes in Fortran's order; save it after ascontiguousarray", f.Name, ErrRefused, name, a.Shape)
		}
		t.Shape[0], t.Shape[1] = t.Shape[1], t.Shape[0]
	}
	blob, off := f.blob, a.Data.Offset
	if a.Data.Data != nil {
		blob, off = tensor.BytesBlob(f.Name+": "+name, a.Data.Data), 0
	} else if a.Data.Len > 0 {
		t.Origin = []tensor.Extent{{Source: f.opt.Source, File: f.Name, Offset: off, Bytes: a.Data.Len}}
	}
	t.Src = &tensor.Section{Blob: blob, Offset: off, RowBytes: t.RowBytes()}
	if !f.opt.Key.IsZero() {
		t.Key = tensor.Derive("pickle", fmt.Sprintf("%s %s %v %d", name, t.Type, t.Shape, off), f.opt.Key)
	}
	if a.Fortran {
		return view.Transpose(t)
	}
	return t, nil
}

const (
	// maxDepth bounds the nesting of what is walked, maxWalk its parts: a pickle
	// may hold itself, or one part many times.
	maxDepth = 64
	maxWalk  = 1 << 20
)

// Tensors lists the arrays of nested dicts under their keys, joined by slashes.
// What is neither array nor dict is an error.
func (f *File) Tensors(root any) ([]*tensor.Tensor, error) {
	var out []*tensor.Tensor
	parts := 0
	var walk func(name string, v any, depth int) error
	walk = func(name string, v any, depth int) error {
		if parts++; parts > maxWalk || depth > maxDepth {
			return fmt.Errorf("%s: %w: over %d parts or %d levels", f.Name, ErrLimit, maxWalk, maxDepth)
		}
		switch v := v.(type) {
		case *Array:
			t, err := f.Tensor(name, v)
			if err == nil {
				out = append(out, t)
			}
			return err
		case *Dict:
			for _, k := range v.Keys {
				full := k
				if name != "" {
					full = name + "/" + k
				}
				if err := walk(full, v.Values[k], depth+1); err != nil {
					return err
				}
			}
			return nil
		}
		return fmt.Errorf("%s: %w: %s is %s, an array or a dict of arrays is wanted", f.Name, ErrFormat, name, kind(v))
	}
	return out, walk("", root, 0)
}

// JSON writes numbers, strings, lists, tuples and dicts as JSON.
func JSON(v any) ([]byte, error) {
	parts := 0
	var plain func(v any, depth int) (any, error)
	plain = func(v any, depth int) (any, error) {
		if parts++; parts > maxWalk || depth > maxDepth {
			return nil, fmt.Errorf("%w: over %d parts or %d levels", ErrLimit, maxWalk, maxDepth)
		}
		items := func(list []any) (any, error) {
			out := make([]any, len(list))
			for i, x := range list {
				var err error
				if out[i], err = plain(x, depth+1); err != nil {
					return nil, err
				}
			}
			return out, nil
		}
		switch v := v.(type) {
		case nil, bool, int64, string:
			return v, nil
		case float64:
			b, err := json.Marshal(v)
			if err != nil {
				return nil, fmt.Errorf("%w: %v is no number of JSON", ErrFormat, v)
			}
			if !strings.ContainsAny(string(b), ".e") {
				b = append(b, ".0"...)
			}
			return json.RawMessage(b), nil
		case *List:
			return items(v.Items)
		case Tuple:
			return items(v)
		case *Dict:
			out := map[string]any{}
			for _, k := range v.Keys {
				x, err := plain(v.Values[k], depth+1)
				if err != nil {
					return nil, err
				}
				out[k] = x
			}
			return out, nil
		}
		return nil, fmt.Errorf("%w: %s has no form in JSON", ErrFormat, kind(v))
	}
	p, err := plain(v, 0)
	if err != nil {
		return nil, err
	}
	return json.Marshal(p)
}

// kind names a value in messages.
func kind(v any) string {
	switch v.(type) {
	case nil:
		return "None"
	case bool:
		return "a boolean"
	case int64, float64:
		return "a number"
	case string, longText:
		return "a string"
	case Bytes:
		return "bytes"
	case *List:
		return "a list"
	case Tuple:
		return "a tuple"
	case *Dict:
		return "a dict"
	case *Array:
		return "an array"
	}
	return "no data"
}
