package gguf

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"quern/internal/shardname"
	"quern/tensor"
)

// Set is one model read from a file or from all the shards of a split.
type Set struct {
	// Files are the shards in order, one for a model that is not split.
	Files []*File
	// Meta holds the entries of the first shard without the split.* keys.
	Meta *Metadata

	blobs []tensor.Blob
	index map[string]*Info
}

// Opener opens a file that lies beside the first shard. A file that is not
// there is fs.ErrNotExist.
type Opener func(ctx context.Context, name string) (tensor.Blob, error)

const splitExt = ".gguf"

// SplitName gives the name of shard i (from 0) of n: STEM-00001-of-00003.gguf.
func SplitName(stem string, i, n int) string {
	return shardname.Join(stem, i+1, n, splitExt)
}

// ParseSplitName takes a shard's name apart; i counts from 0. The stem keeps
// the folder.
func ParseSplitName(name string) (stem string, i, n int, ok bool) {
	stem, i, n, ok = shardname.Split(name, splitExt)
	if !ok || i < 1 || i > n {
		return "", 0, 0, false
	}
	return stem, i - 1, n, true
}

// OpenSet opens a model by its only file or its first shard; the other shards
// are found by name. Blobs that are io.Closer are closed by Close, or before
// OpenSet returns an error.
func OpenSet(ctx context.Context, first string, open Opener, opt Options) (*Set, error) {
	s := &Set{}
	if err := s.openAll(ctx, first, open, opt); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Set) openAll(ctx context.Context, first string, open Opener, opt Options) error {
	f, err := s.open(ctx, first, open, opt)
	if err != nil {
		return err
	}
	n, err := splitCount(f)
	if err != nil {
		return err
	}
	if n > 1 {
		stem, i, named, ok := ParseSplitName(first)
		if !ok {
			return fmt.Errorf("%s: %w: it is one of %d shards, but its name does not have the form %s, so the others cannot be found", first, ErrSplit, n, SplitName("NAME", 0, n))
		}
		if i != 0 {
			return fmt.Errorf("%s: %w: it is shard %d of %d; give the first one, %s", first, ErrSplit, i+1, n, SplitName(stem, 0, named))
		}
		if named != n {
			return fmt.Errorf("%s: %w: its name says %d shards, its key %s says %d", first, ErrSplit, named, KeySplitCount, n)
		}
		for i := 1; i < n; i++ {
			name := SplitName(stem, i, n)
			if _, err := s.open(ctx, name, open, opt); err != nil {
				return fmt.Errorf("%w: shard %d of %d: %w", ErrSplit, i+1, n, err)
			}
		}
	}
	if err := s.check(n); err != nil {
		return err
	}
	s.Meta = f.Meta.Clone()
	for _, key := range []string{KeySplitNo, KeySplitCount, KeySplitTensors} {
		s.Meta.Delete(key)
	}
	return nil
}

func (s *Set) open(ctx context.Context, name string, open Opener, opt Options) (*File, error) {
	blob, err := open(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	s.blobs = append(s.blobs, blob)
	if len(s.blobs) > 1 && !opt.Key.IsZero() {
		// The key identifies the model; its shards need different ones.
		opt.Key = tensor.Derive("gguf/shard", strconv.Itoa(len(s.blobs)-1), opt.Key)
	}
	f, err := Open(ctx, name, blob, opt)
	if err != nil {
		return nil, err
	}
	s.Files = append(s.Files, f)
	return f, nil
}

// splitCount is the number of shards, 1 for a file that is not split.
func splitCount(f *File) (int, error) {
	n, err := lookup(f.Meta, KeySplitCount, AsInt[uint16])
	switch {
	case errors.Is(err, ErrNoKey):
		return 1, nil
	case err != nil:
		return 0, fmt.Errorf("%s: %w: %w", f.Name, ErrSplit, err)
	case n == 0:
		return 0, fmt.Errorf("%s: %w: %s is 0", f.Name, ErrSplit, KeySplitCount)
	}
	return int(n), nil
}

// check holds the shards against each other.
func (s *Set) check(n int) error {
	total := 0
	s.index = make(map[string]*Info)
	for i, f := range s.Files {
		if err := checkShard(f, i, n); err != nil {
			return err
		}
		for j := range f.Tensors {
			t := &f.Tensors[j]
			if _, dup := s.index[t.Name]; dup {
				return fmt.Errorf("%s: %w: tensor %s: %w: an earlier shard has it too", f.Name, ErrSplit, clip(t.Name), ErrDuplicate)
			}
			s.index[t.Name] = t
		}
		total += len(f.Tensors)
	}
	want, err := s.Files[0].Meta.Int64(KeySplitTensors)
	switch {
	case errors.Is(err, ErrNoKey) && n == 1:
		return nil
	case err != nil:
		return fmt.Errorf("%s: %w: %w", s.Files[0].Name, ErrSplit, err)
	case want != int64(total):
		return fmt.Errorf("%s: %w: %s says %d tensors, the shards hold %d", s.Files[0].Name, ErrSplit, KeySplitTensors, want, total)
	}
	return nil
}

func checkShard(f *File, i, n int) error {
	no, err := lookup(f.Meta, KeySplitNo, AsInt[uint16])
	if errors.Is(err, ErrNoKey) && n == 1 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w: %w", f.Name, ErrSplit, err)
	}
	if int(no) != i {
		return fmt.Errorf("%s: %w: %s is %d, %d is expected here", f.Name, ErrSplit, KeySplitNo, no, i)
	}
	count, err := splitCount(f)
	if err != nil {
		return err
	}
	if count != n {
		return fmt.Errorf("%s: %w: %s is %d, the first shard says %d", f.Name, ErrSplit, KeySplitCount, count, n)
	}
	return nil
}

// Find gives the description of a tensor, or nil.
func (s *Set) Find(name string) *Info { return s.index[name] }

// All gives the tensors of all shards in order, or the reason why one of them
// cannot be used.
func (s *Set) All() ([]*tensor.Tensor, error) {
	var out []*tensor.Tensor
	for _, f := range s.Files {
		part, err := f.All()
		if err != nil {
			return nil, err
		}
		out = append(out, part...)
	}
	return out, nil
}

// Problems joins File.Problems of all shards.
func (s *Set) Problems() []error {
	var out []error
	for _, f := range s.Files {
		out = append(out, f.Problems...)
	}
	return out
}

// Close closes the blobs that OpenSet opened.
func (s *Set) Close() error {
	err := s.Closer()()
	s.blobs = nil
	return err
}

// Closer gives what Close does to whoever needs no more than the tensors: it holds on
// to the files, not to their headers, of which a vocabulary takes megabytes. It
// is to be called once, and Close then not.
func (s *Set) Closer() func() error {
	blobs := s.blobs
	return func() error {
		var errs []error
		for _, b := range blobs {
			if c, ok := b.(io.Closer); ok {
				errs = append(errs, c.Close())
			}
		}
		return errors.Join(errs...)
	}
}
