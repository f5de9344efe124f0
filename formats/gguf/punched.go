package gguf

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"quern/internal/digest"
	"quern/tensor"
)

// ErrPunched marks a tensor whose bytes are gone from the file: a repack cache
// beside it has them in another order.
var ErrPunched = errors.New("the tensor was punched out of the file")

// Where a repack cache replaces a tensor on a device, the tensor's bytes are given
// back to the file system. They read as zeros then, which would be taken for
// weights. So the place begins with a mark, which readers of this package refuse:
//
//	 0  16  "quern punched v1"
//	16  32  SHA-256 of the whole file as it was
//	48  24  name of the layout that the cache is in, zeros behind it
//
// The record is in the file itself, so that no copy of the file can lose it. No
// header changes, and the mark goes when the bytes come back.
const (
	punchMagic = "quern punched v1"
	// MarkBytes is the size of a mark.
	MarkBytes       = 72
	markLayoutBytes = 24
)

// Mark says where the bytes of a punched tensor are.
type Mark struct {
	// Source is the SHA-256 of the file before anything was punched out of it.
	Source digest.Digest
	// Layout is the name of the cache's layout.
	Layout string
}

// Bytes is the mark as it stands in the file. A layout's name has at most 24
// bytes.
func (m Mark) Bytes() []byte {
	b := make([]byte, MarkBytes)
	copy(b, punchMagic)
	copy(b[16:], m.Source[:])
	copy(b[48:], m.Layout)
	return b
}

// ParseMark reads the mark that the bytes of a tensor begin with. ok is false for
// those that begin with weights.
func ParseMark(b []byte) (m Mark, ok bool) {
	if len(b) < MarkBytes || !bytes.HasPrefix(b, []byte(punchMagic)) {
		return Mark{}, false
	}
	copy(m.Source[:], b[16:])
	layout, _, _ := bytes.Cut(b[48:48+markLayoutBytes], []byte{0})
	m.Layout = string(layout)
	return m, true
}

// guard refuses the first rows of a tensor that was punched out.
func guard(file, name string) func([]byte) error {
	return func(rows []byte) error {
		if len(rows) < len(punchMagic) || string(rows[:len(punchMagic)]) != punchMagic {
			return nil
		}
		m, _ := ParseMark(append(bytes.Clone(rows[:min(len(rows), MarkBytes)]), make([]byte, MarkBytes)...))
		return fmt.Errorf("%s: tensor %s: %w; a repack cache in layout %s has it: name the cache, or bring the bytes back with quern punch --restore", file, name, ErrPunched, clip(m.Layout))
	}
}

// Marks looks for tensors that were punched out of the file: gone says of each
// whether it was, marks has its mark.
func (f *File) Marks(ctx context.Context, blob tensor.Blob) (marks []Mark, gone []bool, err error) {
	marks, gone = make([]Mark, len(f.Tensors)), make([]bool, len(f.Tensors))
	b := make([]byte, MarkBytes)
	for i := range f.Tensors {
		t := &f.Tensors[i]
		if t.Bytes < MarkBytes || t.Offset > f.Size-MarkBytes {
			continue
		}
		if err := blob.ReadAt(ctx, b, t.Offset); err != nil {
			return nil, nil, fmt.Errorf("%s: tensor %s: %w", f.Name, t.Name, err)
		}
		marks[i], gone[i] = ParseMark(b)
	}
	return marks, gone, nil
}
