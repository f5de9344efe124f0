package tokenizer

import (
	"math/bits"
)

// noSym stands for a character that no token and no merge knows.
const noSym = ^uint32(0)

// noRank is the rank of a pair that does not merge.
const noRank = ^uint32(0)

// pairTable finds the merge of two symbols: open addressing, at most half full.
type pairTable struct {
	slots []pairSlot
	shift uint
	n     int
}

type pairSlot struct {
	left, right uint32 // left is noSym in an empty slot
	rank, to    uint32
}

func newPairTable(room int) *pairTable {
	t := &pairTable{}
	t.alloc(room)
	return t
}

func (t *pairTable) alloc(room int) {
	log := bits.Len(uint(2*room) | 15)
	t.slots = make([]pairSlot, 1<<log)
	t.shift = uint(64 - log)
	for i := range t.slots {
		t.slots[i].left = noSym
	}
}

func (t *pairTable) at(left, right uint32) uint {
	return uint((uint64(left)<<32 | uint64(right)) * 0x9E3779B97F4A7C15 >> t.shift)
}

// put adds a pair unless it is there already.
func (t *pairTable) put(left, right, rank, to uint32) {
	if 2*t.n >= len(t.slots) {
		old := t.slots
		t.alloc(2 * t.n)
		t.n = 0
		for _, s := range old {
			if s.left != noSym {
				t.put(s.left, s.right, s.rank, s.to)
			}
		}
	}
	i := t.at(left, right)
	for t.slots[i].left != noSym {
		if t.slots[i].left == left && t.slots[i].right == right {
			return
		}
		i = (i + 1) & uint(len(t.slots)-1)
	}
	t.slots[i] = pairSlot{left, right, rank, to}
	t.n++
}

// get gives rank and symbol of a merge, or noRank.
func (t *pairTable) get(left, right uint32) (rank, to uint32) {
	if left == noSym {
		return noRank, 0
	}
	i := t.at(left, right)
	for {
		s := &t.slots[i]
		if s.left == left && s.right == right {
			return s.rank, s.to
		}
		if s.left == noSym {
			return noRank, 0
		}
		i = (i + 1) & uint(len(t.slots)-1)
	}
}

// charKey packs the bytes of a character, at most four, so that what is not
// UTF-8 has a key too.
type charKey uint32

// spaceKey is the key of U+2581, which stands for a space.
const spaceKey charKey = 0xE2 | 0x96<<8 | 0x81<<16

// plain gives the key of a space for that of its mark.
func (k charKey) plain() charKey {
	if k == spaceKey {
		return ' '
	}
	return k
}

// keyAt gives the key and length of the character at i, cut by the lead byte
// alone.
func keyAt(s string, i int) (charKey, int) {
	b := s[i]
	if b < 0xC0 {
		return charKey(b), 1
	}
	n := leadLen(b)
	if n > len(s)-i {
		n = len(s) - i
	}
	k := charKey(b)
	for j := 1; j < n; j++ {
		k |= charKey(s[i+j]) << (8 * j)
	}
	return k, n
}

// charTable maps characters to symbols: ASCII directly, others by hashing.
type charTable struct {
	ascii [128]uint32
	keys  []charKey // 0 in an empty slot: the key of NUL, which is ASCII
	syms  []uint32
	shift uint
	n     int
}

func newCharTable() *charTable {
	t := &charTable{}
	for i := range t.ascii {
		t.ascii[i] = noSym
	}
	t.alloc(64)
	return t
}

func (t *charTable) alloc(room int) {
	log := bits.Len(uint(2*room) | 15)
	t.keys = make([]charKey, 1<<log)
	t.syms = make([]uint32, 1<<log)
	t.shift = uint(32 - log)
}

func (t *charTable) put(k charKey, sym uint32) {
	if k < 128 {
		t.ascii[k] = sym
		return
	}
	if 2*t.n >= len(t.keys) {
		keys, syms := t.keys, t.syms
		t.alloc(2 * t.n)
		t.n = 0
		for i, old := range keys {
			if old != 0 {
				t.put(old, syms[i])
			}
		}
	}
	i := uint32(k) * 0x9E3779B1 >> t.shift
	for t.keys[i] != 0 && t.keys[i] != k {
		i = (i + 1) & uint32(len(t.keys)-1)
	}
	if t.keys[i] == 0 {
		t.n++
	}
	t.keys[i], t.syms[i] = k, sym
}

func (t *charTable) get(k charKey) uint32 {
	if k < 128 {
		return t.ascii[k]
	}
	i := uint32(k) * 0x9E3779B1 >> t.shift
	for t.keys[i] != 0 {
		if t.keys[i] == k {
			return t.syms[i]
		}
		i = (i + 1) & uint32(len(t.keys)-1)
	}
	return noSym
}

// joinSet holds the pairs of characters that stand side by side inside tokens,
// with a space in place of U+2581. It may claim a pair that does not, and never
// misses one that does: where it says no, no token goes across.
type joinSet struct {
	ascii [128][2]uint64
	bits  []uint64
	shift uint
}

// newJoinSet makes a set for about n pairs.
func newJoinSet(n int) *joinSet {
	log := max(bits.Len(uint(n))+3, 10)
	return &joinSet{bits: make([]uint64, 1<<(log-6)), shift: uint(64 - log)}
}

func (j *joinSet) at(a, b charKey) uint64 {
	return (uint64(a)<<32 | uint64(b)) * 0x9E3779B97F4A7C15 >> j.shift
}

func (j *joinSet) add(a, b charKey) {
	if a < 128 && b < 128 {
		j.ascii[a][b>>6] |= 1 << (b & 63)
		return
	}
	h := j.at(a, b)
	j.bits[h>>6] |= 1 << (h & 63)
}

func (j *joinSet) has(a, b charKey) bool {
	if a|b < 128 {
		return j.ascii[a&127][b>>6&1]>>(b&63)&1 != 0
	}
	return j.hashed(a, b)
}

func (j *joinSet) hashed(a, b charKey) bool {
	h := j.at(a, b)
	return j.bits[h>>6]>>(h&63)&1 != 0
}

// addText adds the pairs of a token.
func (j *joinSet) addText(s string) {
	for i := 0; i < len(s); {
		a, n := keyAt(s, i)
		i += n
		if i < len(s) {
			b, _ := keyAt(s, i)
			j.add(a.plain(), b.plain())
		}
	}
}
