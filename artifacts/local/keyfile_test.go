package local

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"quern/artifacts"
)

func keyRef(key, blob byte, off, n int64) artifacts.KeyRef {
	var k artifacts.KeyRef
	k.Key[0], k.Blob[0], k.Sum[31] = key, blob, 0xee
	k.Offset, k.Bytes = off, n
	return k
}

func records(ks ...artifacts.KeyRef) [][]byte {
	var out [][]byte
	for _, k := range ks {
		out = append(out, encodeKeyRef(k))
	}
	return out
}

// TestKeyFileBytes compares with bytes written out by hand from the layout in
// keyfile.go.
func TestKeyFileBytes(t *testing.T) {
	zeros := func(n int) string { return strings.Repeat("00", n) }
	want := hex.EncodeToString([]byte("QUERNKY1")) + "0200000000000000" +
		"01" + zeros(31) + "a1" + zeros(31) + "0500000000000000" + "0001000000000000" + zeros(31) + "ee" +
		"02" + zeros(31) + "a2" + zeros(31) + "0000000001000000" + "0700000000000000" + zeros(31) + "ee"
	// Out of order and one of them twice.
	got := encodeKeyTable(records(keyRef(2, 0xa2, 1<<32, 7), keyRef(1, 0xa1, 5, 256), keyRef(2, 0xa2, 1<<32, 7)))
	if hex.EncodeToString(got) != want {
		t.Errorf("got  %x\nwant %s", got, want)
	}
	table, err := parseKeyTable(got)
	if err != nil || table.len() != 2 || table.at(0) != keyRef(1, 0xa1, 5, 256) || table.at(1) != keyRef(2, 0xa2, 1<<32, 7) {
		t.Errorf("%v, %v", table, err)
	}
}

// TestEncodeLeavesItsInput encodes twice what has duplicates: the first time
// must not change what the second sees.
func TestEncodeLeavesItsInput(t *testing.T) {
	in := records(keyRef(2, 1, 0, 1), keyRef(2, 1, 0, 1), keyRef(1, 1, 0, 1))
	one, two := encodeKeyTable(in), encodeKeyTable(in)
	if !bytes.Equal(one, two) {
		t.Errorf("%x and %x", one, two)
	}
	if _, err := parseKeyTable(two); err != nil {
		t.Error(err)
	}
}

func TestKeyTableFind(t *testing.T) {
	raw := encodeKeyTable(records(keyRef(1, 1, 0, 1), keyRef(2, 1, 0, 1), keyRef(2, 2, 0, 1), keyRef(2, 3, 0, 1), keyRef(9, 1, 0, 1)))
	table, err := parseKeyTable(raw)
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[byte]string{0: "", 1: "1", 2: "123", 3: "", 9: "1", 255: ""} {
		got := ""
		table.find(artifacts.Key{key}, func(r artifacts.Ref) bool { got += string('0' + r.Blob[0]); return true })
		if got != want {
			t.Errorf("key %d is in blobs %q, want %q", key, got, want)
		}
	}
	n := 0
	table.find(artifacts.Key{2}, func(artifacts.Ref) bool { n++; return false })
	if n != 1 {
		t.Errorf("went on %d times", n)
	}
	if !table.contains(encodeKeyRef(keyRef(2, 3, 0, 1))) || table.contains(encodeKeyRef(keyRef(2, 3, 0, 2))) {
		t.Error("contains is wrong")
	}
}

func TestParseKeyTableRefuses(t *testing.T) {
	good := encodeKeyTable(records(keyRef(1, 1, 0, 1), keyRef(2, 1, 0, 1)))
	change := func(f func([]byte)) []byte {
		b := bytes.Clone(good)
		f(b)
		return b
	}
	for name, b := range map[string][]byte{
		"empty":           nil,
		"header cut":      good[:15],
		"magic":           change(func(b []byte) { b[7]++ }),
		"too many":        change(func(b []byte) { b[8] = 3 }),
		"too few":         change(func(b []byte) { b[8] = 1 }),
		"2^64-1 records":  change(func(b []byte) { binary.LittleEndian.PutUint64(b[8:], 1<<64-1) }),
		"record cut":      good[:len(good)-1],
		"one byte more":   append(bytes.Clone(good), 0),
		"order":           change(func(b []byte) { b[16] = 3 }),
		"twice":           change(func(b []byte) { copy(b[16+keyRecord:], b[16:16+keyRecord]) }),
		"negative offset": change(func(b []byte) { b[16+71] = 0x80 }),
		"negative length": change(func(b []byte) { b[16+79] = 0x80 }),
		"no blob":         change(func(b []byte) { b[16+32] = 0 }),
	} {
		if _, err := parseKeyTable(b); !errors.Is(err, artifacts.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzParseKeyTable(f *testing.F) {
	f.Add(encodeKeyTable(nil))
	f.Add(encodeKeyTable(records(keyRef(1, 1, 0, 1), keyRef(2, 1, 5, 1))))
	f.Fuzz(func(t *testing.T, b []byte) {
		table, err := parseKeyTable(b)
		if err != nil {
			return
		}
		var again [][]byte
		for i := range table.len() {
			again = append(again, encodeKeyRef(table.at(i)))
		}
		if got := encodeKeyTable(again); !bytes.Equal(got, b) {
			t.Errorf("%x is written as %x", b, got)
		}
	})
}

func BenchmarkLookup(b *testing.B) {
	ctx := b.Context()
	s, err := Open(ctx, b.TempDir(), Options{})
	if err != nil {
		b.Fatal(err)
	}
	d, err := artifacts.PutBytes(ctx, s, "", make([]byte, 1000))
	if err != nil {
		b.Fatal(err)
	}
	var keys []artifacts.Key
	for batch := range 30 {
		var refs []artifacts.KeyRef
		for i := range 1000 {
			k := artifacts.Key(artifacts.DigestOf([]byte{byte(batch), byte(i), byte(i >> 8)}))
			keys = append(keys, k)
			refs = append(refs, artifacts.KeyRef{Key: k, Ref: artifacts.Ref{Blob: d.Digest, Bytes: 1, Sum: d.Digest}})
		}
		if err := s.PutKeys(ctx, refs); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("1000 of 30000, first", func(b *testing.B) {
		for b.Loop() {
			s.keys.forget()
			if m, err := s.Lookup(ctx, keys[:1000]); err != nil || len(m) != 1000 {
				b.Fatal(len(m), err)
			}
		}
	})
	b.Run("1000 of 30000, again", func(b *testing.B) {
		for b.Loop() {
			if m, err := s.Lookup(ctx, keys[29000:]); err != nil || len(m) != 1000 {
				b.Fatal(len(m), err)
			}
		}
	})
}
