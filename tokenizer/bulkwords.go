package tokenizer

import "math/bits"

// wordTable counts distinct words. Those under eight bytes, which most are, stand in
// the slots of a table of their own.
type wordTable struct {
	short shortTable
	slots []wordSlot // at most half full
	words []wordEntry
	text  []byte
}

// len is the number of words.
func (t *wordTable) len() int { return t.short.n + len(t.words) }

// each calls fn for every word. The order is that of neither text nor words, but
// the same for the same texts.
func (t *wordTable) each(fn func(word string, count uint64)) {
	for _, s := range t.short.slots {
		if s.key != 0 {
			fn(s.word(), s.count)
		}
	}
	for _, e := range t.words {
		fn(string(t.text[e.at:e.at+e.n]), e.count)
	}
}

// shortTable counts words of one to seven bytes.
type shortTable struct {
	slots []shortSlot // at most half full
	shift uint
	n     int
}

// shortSlot has a word as its key: the bytes from the lowest on, the length in the
// highest byte. 0 is an empty slot.
type shortSlot struct{ key, count uint64 }

// shortKey packs a word of one to seven bytes.
func shortKey(s string) uint64 {
	n := len(s)
	k := uint64(n) << 56
	if n >= 4 {
		return k | uint64(load32(s)) | uint64(load32(s[n-4:]))<<(8*(n-4))
	}
	return k | uint64(s[0]) | uint64(s[n/2])<<(8*(n/2)) | uint64(s[n-1])<<(8*(n-1))
}

func (s shortSlot) word() string {
	var b [8]byte
	for i := range b {
		b[i] = byte(s.key >> (8 * i))
	}
	return string(b[:b[7]])
}

func (t *shortTable) add(key, n uint64) {
	if 2*t.n >= len(t.slots) {
		t.grow()
	}
	mask := uint64(len(t.slots) - 1)
	for i := key * 0x9E3779B97F4A7C15 >> t.shift; ; i = (i + 1) & mask {
		s := &t.slots[i]
		if s.key == key {
			s.count += n
			return
		}
		if s.key == 0 {
			*s = shortSlot{key, n}
			t.n++
			return
		}
	}
}

func (t *shortTable) grow() {
	old := t.slots
	log := max(bits.Len(uint(2*len(old))), 10)
	t.slots, t.shift, t.n = make([]shortSlot, 1<<log), uint(64-log), 0
	for _, s := range old {
		if s.key != 0 {
			t.add(s.key, s.count)
		}
	}
}

type wordSlot struct {
	hash uint32
	word uint32 // 1 + index in words, 0 in an empty slot
}

type wordEntry struct {
	at, n int32
	count uint64
}

func hashWord(s string) uint64 {
	const k0, k1 = 0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93
	h := uint64(len(s)) * k1
	for len(s) > 8 {
		hi, lo := bits.Mul64(load64(s)^h, k0)
		h = hi ^ lo
		s = s[8:]
	}
	var x uint64
	switch {
	case len(s) == 8:
		x = load64(s)
	case len(s) >= 4:
		x = uint64(load32(s)) | uint64(load32(s[len(s)-4:]))<<32
	case len(s) > 0:
		x = uint64(s[0]) | uint64(s[len(s)/2])<<8 | uint64(s[len(s)-1])<<16
	}
	hi, lo := bits.Mul64(x^h, k0)
	return hi ^ lo ^ k1
}

func load32(s string) uint32 {
	_ = s[3]
	return uint32(s[0]) | uint32(s[1])<<8 | uint32(s[2])<<16 | uint32(s[3])<<24
}

func load64(s string) uint64 {
	_ = s[7]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

// add counts a word, which is not empty, n times more.
func (t *wordTable) add(s string, n uint64) {
	if len(s) < 8 {
		t.short.add(shortKey(s), n)
		return
	}
	if 2*len(t.words) >= len(t.slots) {
		t.grow()
	}
	h := uint32(hashWord(s))
	mask := uint32(len(t.slots) - 1)
	for i := h & mask; ; i = (i + 1) & mask {
		slot := &t.slots[i]
		if slot.word == 0 {
			*slot = wordSlot{h, uint32(len(t.words) + 1)}
			t.words = append(t.words, wordEntry{int32(len(t.text)), int32(len(s)), n})
			t.text = append(t.text, s...)
			return
		}
		if slot.hash == h {
			if e := &t.words[slot.word-1]; string(t.text[e.at:e.at+e.n]) == s {
				e.count += n
				return
			}
		}
	}
}

func (t *wordTable) grow() {
	t.slots = make([]wordSlot, max(4*len(t.slots), 1<<9))
	mask := uint32(len(t.slots) - 1)
	for w, e := range t.words {
		h := uint32(hashWord(string(t.text[e.at : e.at+e.n])))
		i := h & mask
		for t.slots[i].word != 0 {
			i = (i + 1) & mask
		}
		t.slots[i] = wordSlot{h, uint32(w + 1)}
	}
}

// reset empties the table and keeps its room.
func (t *wordTable) reset() {
	clear(t.short.slots)
	t.short.n = 0
	clear(t.slots)
	t.words, t.text = t.words[:0], t.text[:0]
}
