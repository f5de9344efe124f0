package hub

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"hash/crc32"
	"slices"
	"sort"
)

// The journal of a spool entry is a row of records of 64 bytes, little-endian:
//
//	0        4    5      8          16         24                56     60   64
//	+--------+----+------+----------+----------+-----------------+------+----+
//	| "qsj1" |kind| zero | offset   | length   | SHA-256         | zero |CRC |
//	+--------+----+------+----------+----------+-----------------+------+----+
//
// CRC is CRC-32C over bytes 0 to 59. Records are only appended. SHA-256 is
// over the bytes of the extent, so a record proves its bytes: what a crash or
// a power failure kept from the disk is found by hashing and fetched again,
// and nothing has to be synced on the way.
const (
	recordBytes = 64
	recordMagic = "qsj1"
)

type recordKind byte

const (
	// recordExtent: the bytes [offset, offset+length) are there.
	recordExtent recordKind = 1
	// recordDrop: every extent that touches them is not to be used.
	recordDrop recordKind = 2
	// recordVerified: the whole file has been hashed and is right.
	recordVerified recordKind = 3
)

type record struct {
	kind recordKind
	span span
	sum  [32]byte
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (r record) encode() []byte {
	b := make([]byte, recordBytes)
	copy(b, recordMagic)
	b[4] = byte(r.kind)
	binary.LittleEndian.PutUint64(b[8:], uint64(r.span.lo))
	binary.LittleEndian.PutUint64(b[16:], uint64(r.span.len()))
	copy(b[24:], r.sum[:])
	binary.LittleEndian.PutUint32(b[60:], crc32.Checksum(b[:60], castagnoli))
	return b
}

// decodeRecord reads one record of an entry of size bytes; false when it is
// torn, foreign or does not fit the file.
func decodeRecord(b []byte, size int64) (record, bool) {
	if len(b) < recordBytes || string(b[:4]) != recordMagic ||
		binary.LittleEndian.Uint32(b[60:]) != crc32.Checksum(b[:60], castagnoli) {
		return record{}, false
	}
	off, n := binary.LittleEndian.Uint64(b[8:]), binary.LittleEndian.Uint64(b[16:])
	if off > uint64(size) || n > uint64(size)-off {
		return record{}, false
	}
	r := record{kind: recordKind(b[4]), span: span{int64(off), int64(off + n)}}
	copy(r.sum[:], b[24:56])
	switch {
	case r.kind == recordExtent && n > 0 && n <= maxExtent,
		r.kind == recordDrop, r.kind == recordVerified:
		return r, true
	}
	return record{}, false
}

// maxExtent bounds what one record may claim, and so the bytes that must be
// hashed before a small read.
const maxExtent = 4 << 20

// extentMap is the state that a journal describes.
type extentMap struct {
	recs     []record // extents; sorted by offset when sorted is set
	sorted   bool
	claimed  spans // their union
	verified bool
}

// apply adds the records in b, which starts at a record's boundary. A damaged
// record is left out; what it claimed is fetched again.
func (m *extentMap) apply(b []byte, size int64) {
	for ; len(b) >= recordBytes; b = b[recordBytes:] {
		r, ok := decodeRecord(b, size)
		if !ok {
			continue
		}
		switch r.kind {
		case recordExtent:
			m.insert(r)
		case recordDrop:
			m.drop(r.span)
		case recordVerified:
			m.verified = true
		}
	}
}

func (m *extentMap) insert(r record) {
	m.recs = append(m.recs, r)
	m.sorted = false
	m.claimed = m.claimed.add(r.span)
}

// drop forgets every extent that touches x: a part of one proves nothing.
func (m *extentMap) drop(x span) {
	m.verified = false
	m.recs = slices.DeleteFunc(m.recs, func(r record) bool { return r.span.lo < x.hi && r.span.hi > x.lo })
	m.claimed = nil
	for _, r := range m.recs {
		m.claimed = m.claimed.add(r.span)
	}
}

// touching lists the extents that overlap x.
func (m *extentMap) touching(x span) []record {
	if !m.sorted {
		slices.SortFunc(m.recs, func(a, b record) int { return cmp.Compare(a.span.lo, b.span.lo) })
		m.sorted = true
	}
	// Extents are at most maxExtent long, so none that starts further before
	// x can reach into it.
	i := sort.Search(len(m.recs), func(i int) bool { return m.recs[i].span.lo > x.lo-maxExtent })
	var out []record
	for ; i < len(m.recs) && m.recs[i].span.lo < x.hi; i++ {
		if m.recs[i].span.hi > x.lo {
			out = append(out, m.recs[i])
		}
	}
	return out
}

// sameSum compares digests of records.
func sameSum(a, b [32]byte) bool { return bytes.Equal(a[:], b[:]) }
