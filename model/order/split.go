package order

import (
	"fmt"
	"slices"

	"quern/formats/gguf"
)

// Split is where a file with its experts last is cut: what a device maps, and what
// it reads on demand.
type Split struct {
	// Offset is the place of the first expert: so many bytes are mapped for all else.
	Offset int64
	// Bytes are those of the experts, what lies between them included.
	Bytes int64
}

// SplitOf finds the cut of a file by its tensors. ok is false where experts are not
// last, or there are none. The file's keys must say the same, if it has them.
func SplitOf(f *gguf.File) (s Split, ok bool, err error) {
	first := slices.IndexFunc(f.Tensors, func(t gguf.Info) bool { return IsExpert(t.Name) })
	ok = first >= 0 && !slices.ContainsFunc(f.Tensors[first:], func(t gguf.Info) bool { return !IsExpert(t.Name) })
	if ok {
		last := f.Tensors[len(f.Tensors)-1]
		s = Split{f.Tensors[first].Offset, last.Offset + last.Bytes - f.Tensors[first].Offset}
		ok = !slices.ContainsFunc(f.Tensors[first:], func(t gguf.Info) bool { return t.Bytes < 0 }) // a type that is not known
	}
	for _, k := range []struct {
		key  string
		want int64
	}{{KeyOffset, s.Offset}, {KeyBytes, s.Bytes}} {
		if !f.Meta.Has(k.key) {
			continue
		}
		switch n, err := f.Meta.Int64(k.key); {
		case err != nil:
			return s, ok, fmt.Errorf("%w: %w", ErrOrder, err)
		case !ok:
			return s, ok, fmt.Errorf("%w: key %s says that experts are last, and they are not", ErrOrder, k.key)
		case n != k.want:
			return s, ok, fmt.Errorf("%w: key %s is %d, by its tensors the file has %d", ErrOrder, k.key, n, k.want)
		}
	}
	if ok && f.Meta.Has(KeyAlign) {
		if a, err := f.Meta.Int64(KeyAlign); err != nil || a < 1 || s.Offset%a != 0 {
			return s, ok, fmt.Errorf("%w: the first expert is at %d, no multiple of what key %s says", ErrOrder, s.Offset, KeyAlign)
		}
	}
	return s, ok, nil
}
