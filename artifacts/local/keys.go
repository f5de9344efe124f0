package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sync"

	"quern/artifacts"
	"quern/internal/atomicfile"
	"quern/internal/digest"
)

// maxKeyFiles is how many key files may lie about before they are merged.
const maxKeyFiles = 32

// keyCache holds the key files that have been read. They never change, so only
// the list of their names is looked at again.
type keyCache struct {
	mu     sync.Mutex
	tables map[string]keyTable
	bad    map[string]error // damaged files
}

// forget makes the files be read again.
func (c *keyCache) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tables, c.bad = nil, nil
}

// keyTables gives all key files in the order of their names, read and checked,
// and those that are damaged.
func (s *Store) keyTables(ctx context.Context) (tables map[string]keyTable, bad map[string]error, err error) {
	if err := context.Cause(ctx); err != nil {
		return nil, nil, err
	}
	s.keys.mu.Lock()
	defer s.keys.mu.Unlock()
	for {
		again, err := s.loadKeys()
		if err != nil {
			return nil, nil, fmt.Errorf("store %s: %w", s.dir, err)
		}
		if !again {
			return maps.Clone(s.keys.tables), maps.Clone(s.keys.bad), nil
		}
		if err := context.Cause(ctx); err != nil {
			return nil, nil, err
		}
	}
}

// loadKeys reads what is new. A file that vanishes has been merged into one
// that the listing may have missed: then it must be done again.
func (s *Store) loadKeys() (again bool, err error) {
	entries, err := os.ReadDir(s.path(keysDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	tables, bad := map[string]keyTable{}, map[string]error{}
	for _, e := range entries {
		name := e.Name()
		want, err := digest.ParseHex(name)
		if err != nil {
			continue
		}
		if t, ok := s.keys.tables[name]; ok {
			tables[name] = t
			continue
		}
		t, err := s.readKeyFile(name, want)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return true, nil
		case err != nil:
			bad[name] = err
		default:
			tables[name] = t
		}
	}
	s.keys.tables, s.keys.bad = tables, bad
	return false, nil
}

func (s *Store) readKeyFile(name string, want artifacts.Digest) (keyTable, error) {
	raw, err := readSmall(s.path(keysDir, name), maxKeyFile)
	if err != nil {
		return keyTable{}, err
	}
	if got := digest.Of(raw); got != want {
		return keyTable{}, fmt.Errorf("%w: key file has digest %s, want %s", artifacts.ErrCorrupt, got, want)
	}
	return parseKeyTable(raw)
}

func inOrder(tables map[string]keyTable) []keyTable {
	out := make([]keyTable, 0, len(tables))
	for _, n := range slices.Sorted(maps.Keys(tables)) {
		out = append(out, tables[n])
	}
	return out
}

// Lookup finds keys whose bytes are here.
func (s *Store) Lookup(ctx context.Context, keys []artifacts.Key) (map[artifacts.Key]artifacts.Ref, error) {
	byName, _, err := s.keyTables(ctx)
	if err != nil {
		return nil, err
	}
	tables := inOrder(byName)
	sizes := map[artifacts.Digest]int64{} // -1 for a blob that is gone
	size := func(d artifacts.Digest) (int64, error) {
		if n, ok := sizes[d]; ok {
			return n, nil
		}
		in, err := s.Stat(ctx, d)
		if errors.Is(err, artifacts.ErrNotFound) {
			in.Size, err = -1, nil
		}
		sizes[d] = in.Size
		return in.Size, err
	}
	out := map[artifacts.Key]artifacts.Ref{}
	for _, k := range keys {
		for _, t := range tables {
			t.find(k, func(r artifacts.Ref) bool {
				var n int64
				if n, err = size(r.Blob); err == nil && r.Fits(n) {
					out[k] = r
					return false
				}
				return err == nil
			})
			if err != nil {
				return nil, err
			}
			if _, ok := out[k]; ok {
				break
			}
		}
	}
	return out, nil
}

// Keys lists all keys in order.
func (s *Store) Keys(ctx context.Context) ([]artifacts.KeyRef, error) {
	byName, _, err := s.keyTables(ctx)
	if err != nil {
		return nil, err
	}
	t, err := parseKeyTable(encodeKeyTable(allRecords(byName)))
	if err != nil {
		return nil, err
	}
	out := make([]artifacts.KeyRef, 0, t.len())
	for i := range t.len() {
		out = append(out, t.at(i))
	}
	return out, nil
}

func allRecords(byName map[string]keyTable) [][]byte {
	var out [][]byte
	for _, t := range byName {
		for i := range t.len() {
			out = append(out, t.record(i))
		}
	}
	return out
}

// PutKeys remembers where bytes are: all of refs in one new key file.
func (s *Store) PutKeys(ctx context.Context, refs []artifacts.KeyRef) error {
	if err := s.writable(); err != nil {
		return err
	}
	byName, _, err := s.keyTables(ctx)
	if err != nil {
		return err
	}
	var records [][]byte
	for _, r := range refs {
		if r.Key.IsZero() {
			continue
		}
		if err := artifacts.CheckKeyRef(r); err != nil {
			return err
		}
		rec := encodeKeyRef(r)
		known := false
		for _, t := range byName {
			known = known || t.contains(rec)
		}
		if !known {
			records = append(records, rec)
		}
	}
	if len(records) == 0 {
		return nil
	}
	if err := s.writeKeyFile(encodeKeyTable(records)); err != nil {
		return s.changeError(err)
	}
	if len(byName) >= maxKeyFiles {
		return s.mergeKeys(ctx, nil)
	}
	return nil
}

func (s *Store) writeKeyFile(raw []byte) error {
	return atomicfile.WriteFile(s.path(keysDir, digest.Of(raw).Hex()), raw, s.fileOptions())
}

// mergeKeys puts all key files into one, without the records that keep refuses.
// If another process is at it already there is nothing to do. The new file is
// there before the old ones go, so at no moment is a key missing.
func (s *Store) mergeKeys(ctx context.Context, keep func(artifacts.KeyRef) bool) error {
	release, err := s.tryLock(lockKeys)
	if err != nil {
		return s.changeError(err)
	}
	if release == nil {
		return nil
	}
	defer release()
	byName, bad, err := s.keyTables(ctx)
	if err != nil {
		return err
	}
	records := allRecords(byName)
	if keep != nil {
		records = slices.DeleteFunc(records, func(r []byte) bool { return !keep(keyTable{r}.at(0)) })
	}
	raw := encodeKeyTable(records)
	merged := digest.Of(raw).Hex()
	if _, ok := byName[merged]; !ok && len(records) > 0 {
		if err := s.writeKeyFile(raw); err != nil {
			return s.changeError(err)
		}
	}
	old := slices.Concat(slices.Sorted(maps.Keys(byName)), slices.Sorted(maps.Keys(bad)))
	for _, name := range old {
		if name == merged && len(records) > 0 {
			continue
		}
		if err := atomicfile.Remove(s.path(keysDir, name), s.fileOptions()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return s.changeError(err)
		}
	}
	return nil
}
