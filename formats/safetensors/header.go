package safetensors

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"quern/tensor"
)

// header is the parsed JSON of one file, its entries sorted by name.
type header struct {
	metadata []KV
	entries  []entry
}

type entry struct {
	name       string
	off        int64 // of the name in the file, for messages
	typ        tensor.Type
	shape      tensor.Shape
	begin, end int64
}

// parseHeader reads the N header bytes. Offsets in messages count from the
// start of the file.
func parseHeader(text []byte) (*header, error) {
	s := &scanner{buf: text, base: 8}
	if len(text) == 0 {
		return nil, s.errorf("the header is empty; at least {} is needed")
	}
	if text[0] != '{' {
		return nil, s.errorf(`header starts with %s, not with "{"`, show(text[0]))
	}
	h := &header{}
	seenMeta := false
	err := s.object("the header object", "", func(name string, off int64) error {
		if name == metadataKey {
			if seenMeta {
				return errorAt(off, "duplicate key %s", metadataKey)
			}
			seenMeta = true
			return h.parseMetadata(s)
		}
		if name == "" {
			return errorAt(off, "tensor without a name")
		}
		e := entry{name: name, off: off}
		if err := e.parse(s); err != nil {
			return err
		}
		h.entries = append(h.entries, e)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if err := s.end(); err != nil {
		return nil, err
	}
	slices.SortFunc(h.entries, func(a, b entry) int {
		if c := strings.Compare(a.name, b.name); c != 0 {
			return c
		}
		return cmp.Compare(a.off, b.off)
	})
	for i := 1; i < len(h.entries); i++ {
		if a, b := h.entries[i-1], h.entries[i]; a.name == b.name {
			return nil, errorAt(b.off, "duplicate tensor name %s, first at byte %d", clip(a.name), a.off)
		}
	}
	return h, nil
}

func (h *header) parseMetadata(s *scanner) error {
	c, err := s.peek()
	if err != nil {
		return err
	}
	if c != '{' {
		return s.errorf("%s must be an object of strings, not %s", metadataKey, kind(c))
	}
	err = s.object(metadataKey, "", func(key string, off int64) error {
		c, err := s.peek()
		if err != nil {
			return err
		}
		if c != '"' {
			return s.errorf("%s value of %s must be a string, not %s", metadataKey, clip(key), kind(c))
		}
		val, err := s.str("a value", "")
		if err != nil {
			return err
		}
		h.metadata = append(h.metadata, KV{key, val})
		return nil
	})
	if err != nil {
		return err
	}
	keys := make([]string, len(h.metadata))
	for i, kv := range h.metadata {
		keys[i] = kv.Key
	}
	slices.Sort(keys)
	for i := 1; i < len(keys); i++ {
		if keys[i] == keys[i-1] {
			return s.errorf("duplicate key %s in %s", clip(keys[i]), metadataKey)
		}
	}
	return nil
}

func (e *entry) parse(s *scanner) error {
	var seen struct{ dtype, shape, offsets bool }
	once := func(flag *bool, key string, off int64) error {
		if *flag {
			return errorAt(off, "tensor %s has two values of %q", clip(e.name), key)
		}
		*flag = true
		return nil
	}
	err := s.object("the object", e.name, func(key string, off int64) error {
		switch key {
		case "dtype":
			if err := once(&seen.dtype, key, off); err != nil {
				return err
			}
			return e.parseType(s)
		case "shape":
			if err := once(&seen.shape, key, off); err != nil {
				return err
			}
			e.shape = tensor.Shape{}
			return s.array("the shape", e.name, func() error {
				d, err := s.count("a dimension", e.name)
				e.shape = append(e.shape, d)
				return err
			})
		case "data_offsets":
			if err := once(&seen.offsets, key, off); err != nil {
				return err
			}
			return e.parseOffsets(s)
		}
		return errorAt(off, "tensor %s has the unknown key %s", clip(e.name), clip(key))
	})
	if err != nil {
		return err
	}
	for _, f := range []struct {
		have bool
		key  string
	}{{seen.dtype, "dtype"}, {seen.shape, "shape"}, {seen.offsets, "data_offsets"}} {
		if !f.have {
			return s.errorf("tensor %s has no %q", clip(e.name), f.key)
		}
	}
	return nil
}

func (e *entry) parseType(s *scanner) error {
	if _, err := s.peek(); err != nil {
		return err
	}
	off := s.offset()
	name, err := s.str("the dtype", e.name)
	if err != nil {
		return err
	}
	t, ok := tensor.FromSafetensors(name)
	if !ok {
		return errorAt(off, "tensor %s has the unknown dtype %s; known are %s", clip(e.name), clip(name), knownTypes())
	}
	e.typ = t
	return nil
}

func (e *entry) parseOffsets(s *scanner) error {
	n := 0
	err := s.array("data_offsets", e.name, func() error {
		v, err := s.count("a data offset", e.name)
		if err != nil {
			return err
		}
		switch n {
		case 0:
			e.begin = v
		case 1:
			e.end = v
		default:
			return s.errorf("tensor %s has more than two data_offsets", clip(e.name))
		}
		n++
		return nil
	})
	if err == nil && n != 2 {
		err = s.errorf("tensor %s has %d data_offsets, not two", clip(e.name), n)
	}
	return err
}

func knownTypes() string {
	var names []string
	for _, t := range tensor.Types() {
		if s, ok := t.Safetensors(); ok {
			names = append(names, s)
		}
	}
	return strings.Join(names, ", ")
}

// kind names the JSON type that starts with c.
func kind(c byte) string {
	switch c {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}
	return "a number"
}

// headerError marks syntax errors with ErrHeader and leaves read errors alone.
func headerError(err error) error {
	var se *syntaxError
	if errors.As(err, &se) && se.fault == nil {
		return fmt.Errorf("%w: %w", ErrHeader, err)
	}
	return err
}
