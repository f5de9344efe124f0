package local

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"sort"

	"quern/artifacts"
)

// A key file is a sorted table that is written once. Its name is the SHA-256 of
// its bytes, so a damaged one is known and left out. Numbers are little-endian.
//
//	0   8  "QUERNKY1"
//	8   8  number of records
//	16     records of 112 bytes, ordered by all their bytes, none twice:
//	       0   32  derivation key
//	       32  32  SHA-256 of the blob
//	       64   8  offset of the range in the blob
//	       72   8  length of the range
//	       80  32  SHA-256 of the range
const (
	keyMagic   = "QUERNKY1"
	keyHeader  = 16
	keyRecord  = 112
	maxKeyFile = 1 << 30
)

// keyTable is the content of a key file.
type keyTable struct {
	records []byte
}

func (t keyTable) len() int { return len(t.records) / keyRecord }

func (t keyTable) record(i int) []byte { return t.records[i*keyRecord : (i+1)*keyRecord] }

func (t keyTable) at(i int) artifacts.KeyRef {
	r := t.record(i)
	var k artifacts.KeyRef
	copy(k.Key[:], r)
	copy(k.Blob[:], r[32:])
	k.Offset = int64(binary.LittleEndian.Uint64(r[64:]))
	k.Bytes = int64(binary.LittleEndian.Uint64(r[72:]))
	copy(k.Sum[:], r[80:])
	return k
}

// find calls f for each ref of a key until f returns false.
func (t keyTable) find(k artifacts.Key, f func(artifacts.Ref) bool) {
	i := sort.Search(t.len(), func(i int) bool { return bytes.Compare(t.record(i)[:32], k[:]) >= 0 })
	for ; i < t.len() && bytes.Equal(t.record(i)[:32], k[:]); i++ {
		if !f(t.at(i).Ref) {
			return
		}
	}
}

// contains reports whether the table has exactly this record.
func (t keyTable) contains(r []byte) bool {
	i := sort.Search(t.len(), func(i int) bool { return bytes.Compare(t.record(i), r) >= 0 })
	return i < t.len() && bytes.Equal(t.record(i), r)
}

func encodeKeyRef(k artifacts.KeyRef) []byte {
	r := make([]byte, 0, keyRecord)
	r = append(r, k.Key[:]...)
	r = append(r, k.Blob[:]...)
	r = binary.LittleEndian.AppendUint64(r, uint64(k.Offset))
	r = binary.LittleEndian.AppendUint64(r, uint64(k.Bytes))
	return append(r, k.Sum[:]...)
}

// encodeKeyTable gives the bytes of a key file with these records, in order and
// each once.
func encodeKeyTable(records [][]byte) []byte {
	records = slices.SortedFunc(slices.Values(records), bytes.Compare)
	records = slices.CompactFunc(records, bytes.Equal)
	out := make([]byte, 0, keyHeader+len(records)*keyRecord)
	out = append(out, keyMagic...)
	out = binary.LittleEndian.AppendUint64(out, uint64(len(records)))
	for _, r := range records {
		out = append(out, r...)
	}
	return out
}

// parseKeyTable reads a key file's bytes, whose digest has been checked.
func parseKeyTable(b []byte) (keyTable, error) {
	if len(b) < keyHeader || string(b[:8]) != keyMagic {
		return keyTable{}, fmt.Errorf("%w: not a key file", artifacts.ErrCorrupt)
	}
	n := binary.LittleEndian.Uint64(b[8:])
	body := b[keyHeader:]
	if len(body)%keyRecord != 0 || n != uint64(len(body)/keyRecord) {
		return keyTable{}, fmt.Errorf("%w: key file: %d records announced, %d bytes after the header", artifacts.ErrCorrupt, n, len(body))
	}
	t := keyTable{body}
	for i := range t.len() {
		if i > 0 && bytes.Compare(t.record(i-1), t.record(i)) >= 0 {
			return keyTable{}, fmt.Errorf("%w: key file: record %d is out of order", artifacts.ErrCorrupt, i)
		}
		if err := artifacts.CheckKeyRef(t.at(i)); err != nil {
			return keyTable{}, fmt.Errorf("%w: key file: record %d: %w", artifacts.ErrCorrupt, i, err)
		}
	}
	return t, nil
}
