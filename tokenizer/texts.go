package tokenizer

import (
	"fmt"
	"hash/maphash"
	"math"
	"math/bits"
	"slices"
)

// texts are strings in one piece of memory: where each ends takes 4 bytes, a string
// of its own would take 16 beside its bytes.
type texts struct {
	all  string
	ends []uint32
}

func newTexts(list []string) (texts, error) {
	total := 0
	for _, s := range list {
		total += len(s)
	}
	if uint64(total) > math.MaxUint32 {
		return texts{}, fmt.Errorf("tokens of %d bytes: %w", total, ErrFormat)
	}
	all, ends := make([]byte, 0, total), make([]uint32, len(list))
	for i, s := range list {
		all = append(all, s...)
		ends[i] = uint32(len(all))
	}
	return texts{string(all), ends}, nil
}

func (x *texts) len() int { return len(x.ends) }

func (x *texts) at(i int) string {
	from := uint32(0)
	if i > 0 {
		from = x.ends[i-1]
	}
	return x.all[from:x.ends[i]]
}

// list makes a string of each text; their bytes stay where they are.
func (x *texts) list() []string {
	out := make([]string, x.len())
	for i := range out {
		out[i] = x.at(i)
	}
	return out
}

// tokenTypes are types in a byte each where all fit, as those of real vocabularies do.
type tokenTypes struct {
	bytes []uint8
	all   []TokenType
}

func newTokenTypes(list []TokenType) tokenTypes {
	out := make([]uint8, len(list))
	for i, t := range list {
		if out[i] = uint8(t); TokenType(out[i]) != t {
			return tokenTypes{all: list}
		}
	}
	return tokenTypes{bytes: out}
}

func (x *tokenTypes) list() []TokenType {
	if x.bytes == nil {
		return slices.Clone(x.all)
	}
	out := make([]TokenType, len(x.bytes))
	for i, t := range x.bytes {
		out[i] = TokenType(t)
	}
	return out
}

// index finds numbers by the hash of what they stand for, which is kept elsewhere: 7.5
// bytes for each number.
//
//	slots  number, where the tag is not 0
//	tags   a byte of the hash, from 1 on; 0 where the slot is empty
//
// A number lies in the slot that its hash points to, or behind it with no empty slot
// between. Hashes have a seed that differs from run to run, so that no file
// can be made to have all its texts in one place; what is found does not depend on it.
type index struct {
	slots []uint32
	tags  []byte
}

// newIndex makes room for n numbers.
func newIndex(n int) index {
	slots := n + n/2 + 1 // one at least stays empty, so that every search ends
	return index{make([]uint32, slots), make([]byte, slots)}
}

func (x *index) start(hash uint64) (at int, tag byte) {
	hi, _ := bits.Mul64(hash, uint64(len(x.slots)))
	return int(hi), byte(hash%255) + 1
}

// find gives the first number that was put in with this hash and is the same.
func (x *index) find(hash uint64, same func(n uint32) bool) (uint32, bool) {
	for at, tag := x.start(hash); x.tags[at] != 0; {
		if x.tags[at] == tag && same(x.slots[at]) {
			return x.slots[at], true
		}
		if at++; at == len(x.slots) {
			at = 0
		}
	}
	return 0, false
}

// put adds a number. No more may be put in than there is room for.
func (x *index) put(hash uint64, n uint32) {
	at, tag := x.start(hash)
	for x.tags[at] != 0 {
		if at++; at == len(x.slots) {
			at = 0
		}
	}
	x.slots[at], x.tags[at] = n, tag
}

var seed = maphash.MakeSeed()

// id finds a token by its text.
func (t *Tokenizer) id(text string) (int32, bool) {
	n, ok := t.byText.find(maphash.String(seed, text), func(n uint32) bool { return t.text(int32(n)) == text })
	return int32(n), ok
}

// idOf is id of a text that is bytes, of which it makes no string.
func (t *Tokenizer) idOf(text []byte) (int32, bool) {
	n, ok := t.byText.find(maphash.Bytes(seed, text), func(n uint32) bool { return t.text(int32(n)) == string(text) })
	return int32(n), ok
}
