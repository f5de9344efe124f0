package storetest

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"quern/artifacts"
)

func key(n uint64) artifacts.Key {
	return artifacts.Key(artifacts.DigestOf(binary.LittleEndian.AppendUint64([]byte("key"), n)))
}

func ref(d artifacts.Descriptor, data []byte, off, n int64) artifacts.Ref {
	return artifacts.Ref{Blob: d.Digest, Offset: off, Bytes: n, Sum: artifacts.DigestOf(data[off : off+n])}
}

func testKeys(t *testing.T, u Suite) {
	ctx, s := t.Context(), u.Open(t)
	data := Bytes(3, 1000)
	d := put(t, s, data)
	other := put(t, s, data[:500])
	find := func(k artifacts.Key) (artifacts.Ref, bool) {
		t.Helper()
		m, err := s.Lookup(ctx, []artifacts.Key{k})
		if err != nil {
			t.Fatal(err)
		}
		r, ok := m[k]
		return r, ok
	}
	beyond := ref(d, data, 900, 100)
	beyond.Offset = 901
	gone := ref(d, data, 0, 1)
	gone.Blob = artifacts.DigestOf([]byte("absent"))
	err := s.PutKeys(ctx, []artifacts.KeyRef{
		{Key: key(1), Ref: ref(d, data, 0, 10)},
		{Key: key(2), Ref: ref(d, data, 990, 10)},
		{Key: key(3), Ref: ref(d, data, 1000, 0)},
		{Key: key(4), Ref: beyond},
		{Key: key(5), Ref: gone},
		{Ref: ref(d, data, 0, 10)},
		{Key: key(1), Ref: ref(d, data, 0, 10)},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range []uint64{1, 2, 3} {
		if _, ok := find(key(k)); !ok {
			t.Errorf("key %d is missing", k)
		}
	}
	if r, _ := find(key(2)); r != ref(d, data, 990, 10) {
		t.Errorf("key 2 is %v", r)
	}
	for _, k := range []uint64{4, 5, 6} {
		if r, ok := find(key(k)); ok {
			t.Errorf("key %d is %v", k, r)
		}
	}
	if r, ok := find(artifacts.Key{}); ok {
		t.Errorf("the zero key is %v", r)
	}
	if l, err := s.Keys(ctx); err != nil || len(l) != 5 || !slices.IsSortedFunc(l, func(a, b artifacts.KeyRef) int { return bytes.Compare(a.Key[:], b.Key[:]) }) {
		t.Errorf("%d keys, %v", len(l), err)
	}
	// A second place for the same bytes takes over when the first is gone.
	if err := s.PutKeys(ctx, []artifacts.KeyRef{{Key: key(1), Ref: ref(other, data, 0, 10)}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(ctx, d.Digest); err != nil {
		t.Fatal(err)
	}
	if r, ok := find(key(1)); !ok || r.Blob != other.Digest {
		t.Errorf("key 1 is %v, %v", r, ok)
	}
	if r, ok := find(key(2)); ok {
		t.Errorf("stale key 2 is %v", r)
	}
	put(t, s, data)
	if _, ok := find(key(2)); !ok {
		t.Error("key 2 did not come back with its blob")
	}
	for name, bad := range map[string]artifacts.Ref{
		"negative offset": {Blob: d.Digest, Offset: -1, Bytes: 1, Sum: d.Digest},
		"negative length": {Blob: d.Digest, Bytes: -1, Sum: d.Digest},
		"overflow":        {Blob: d.Digest, Offset: math.MaxInt64, Bytes: 1, Sum: d.Digest},
		"no blob":         {Bytes: 1, Sum: d.Digest},
		"no digest":       {Blob: d.Digest, Bytes: 1},
	} {
		if err := s.PutKeys(ctx, []artifacts.KeyRef{{Key: key(9), Ref: bad}}); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

// testManyKeys puts more batches than a store keeps apart.
func testManyKeys(t *testing.T, u Suite) {
	ctx, s := t.Context(), u.Open(t)
	data := Bytes(4, 4096)
	d := put(t, s, data)
	const batches, each = 70, 50
	var all []artifacts.Key
	for b := range batches {
		var refs []artifacts.KeyRef
		for i := range each {
			n := int64(b*each + i)
			refs = append(refs, artifacts.KeyRef{Key: key(uint64(n)), Ref: ref(d, data, n, 7)})
			all = append(all, key(uint64(n)))
		}
		if err := s.PutKeys(ctx, refs); err != nil {
			t.Fatal(err)
		}
	}
	all = append(all, key(1<<40))
	m, err := s.Lookup(ctx, all)
	if err != nil || len(m) != batches*each {
		t.Fatalf("%d of %d keys, %v", len(m), batches*each, err)
	}
	for n := range int64(batches * each) {
		if m[key(uint64(n))] != ref(d, data, n, 7) {
			t.Errorf("key %d is %v", n, m[key(uint64(n))])
		}
	}
	u.clean(t, s)
}
