package needle

import (
	"container/heap"
	"errors"
	"fmt"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"

	"quern/formats/cact"
	infer "quern/runtime"
	"quern/tokenizer"
)

// ErrVocabulary marks an archive's tokenizer that cannot be used.
var ErrVocabulary = errors.New("bad vocabulary of a .cact archive")

const space = "\u2581" // stands for a space in pieces

// Tokenizer is that of an archive: pieces of user-defined type are cut out of the
// text, the longest first, and between them the neighbours whose joint piece has
// the highest score are merged, the leftmost of equals.
type Tokenizer struct {
	t       *cact.Tokenizer
	ids     map[string]int32
	bytes   [256]int32 // -1 for none
	markers []string   // longest first
	control []string
	// controlID finds the control pieces by text.
	controlID map[string]int32
}

var _ infer.Tokenizer = (*Tokenizer)(nil)

// NewTokenizer prepares a tokenizer that was read from an archive.
func NewTokenizer(t *cact.Tokenizer) (*Tokenizer, error) {
	k := &Tokenizer{t: t, ids: make(map[string]int32, len(t.Pieces)), controlID: map[string]int32{}}
	for i := range k.bytes {
		k.bytes[i] = -1
	}
	for i, p := range t.Pieces {
		id := int32(i)
		switch p.Type {
		case cact.Byte:
			if len(p.Text) != 6 || !strings.HasPrefix(p.Text, "<0x") || p.Text[5] != '>' {
				return nil, fmt.Errorf("%w: byte piece %d is %q, want <0x and two digits", ErrVocabulary, i, p.Text)
			}
			b, err := strconv.ParseUint(p.Text[3:5], 16, 8)
			if err != nil {
				return nil, fmt.Errorf("%w: byte piece %d is %q, want <0x and two digits", ErrVocabulary, i, p.Text)
			}
			k.bytes[b] = id
		case cact.UserDefined:
			if p.Text == "" {
				return nil, fmt.Errorf("%w: user-defined piece %d is empty", ErrVocabulary, i)
			}
			k.markers = append(k.markers, p.Text)
		case cact.Control:
			if p.Text != "" {
				k.control = append(k.control, p.Text)
				k.controlID[p.Text] = id
			}
		}
		// The last of equal pieces, as the exporter's own reader has it.
		k.ids[p.Text] = id
	}
	for _, f := range []struct {
		name string
		id   uint32
	}{{"eos", t.EOS}, {"bos", t.BOS}, {"unk", t.Unk}} {
		if int64(f.id) >= int64(len(t.Pieces)) {
			return nil, fmt.Errorf("%w: %s is id %d of %d pieces", ErrVocabulary, f.name, f.id, len(t.Pieces))
		}
	}
	longestFirst(k.markers)
	longestFirst(k.control)
	return k, nil
}

func longestFirst(list []string) {
	sort.SliceStable(list, func(i, j int) bool { return utf8.RuneCountInString(list[i]) > utf8.RuneCountInString(list[j]) })
}

// BOS is the id that a text starts with.
func (k *Tokenizer) BOS() int32 { return int32(k.t.BOS) }

// AddsBOS is true: models are asked with it.
func (k *Tokenizer) AddsBOS() bool { return true }

// IsEnd reports whether an id ends an answer.
func (k *Tokenizer) IsEnd(id int32) bool { return id == int32(k.t.EOS) }

// Encode gives the ids of a text. User-defined pieces are always cut out.
func (k *Tokenizer) Encode(text string, opt tokenizer.EncodeOptions) ([]int32, error) {
	ids := []int32{}
	if opt.Special {
		ids = append(ids, k.BOS())
	}
	if text == "" {
		return ids, nil
	}
	text = strings.ReplaceAll(text, " ", space)
	if k.t.AddDummyPrefix {
		text = space + text
	}
	special := k.markers
	if opt.Parse && len(k.control) > 0 {
		special = append(append([]string{}, k.markers...), k.control...)
		longestFirst(special)
	}
	start := 0
	for i := 0; i < len(text); {
		m := prefix(text[i:], special)
		if m == "" {
			i++
			continue
		}
		ids = k.merge(ids, text[start:i])
		id, ok := k.controlID[m]
		if !ok {
			id = k.ids[m]
		}
		ids = append(ids, id)
		i += len(m)
		start = i
	}
	return k.merge(ids, text[start:]), nil
}

func prefix(text string, list []string) string {
	for _, m := range list {
		if strings.HasPrefix(text, m) {
			return m
		}
	}
	return ""
}

// symbol is a run of text in a doubly linked list.
type symbol struct {
	text       string // "" once it was merged into the one before
	prev, next int    // -1 for none
}

// pair is a possible merge of a symbol with the next one.
type pair struct {
	score       float32
	left, right int
	length      int // of both texts, to tell outdated pairs
}

type pairs []pair

func (q pairs) Len() int { return len(q) }
func (q pairs) Less(i, j int) bool {
	return q[i].score > q[j].score || q[i].score == q[j].score && q[i].left < q[j].left
}
func (q pairs) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *pairs) Push(x any)   { *q = append(*q, x.(pair)) }
func (q *pairs) Pop() any {
	old := *q
	x := old[len(old)-1]
	*q = old[:len(old)-1]
	return x
}

// merge appends the ids of a text without user-defined pieces.
func (k *Tokenizer) merge(ids []int32, text string) []int32 {
	var list []symbol
	for len(text) > 0 {
		_, n := utf8.DecodeRuneInString(text)
		list = append(list, symbol{text[:n], len(list) - 1, len(list) + 1})
		text = text[n:]
	}
	if len(list) == 0 {
		return ids
	}
	list[len(list)-1].next = -1
	var q pairs
	try := func(left int) {
		if left < 0 || list[left].next < 0 {
			return
		}
		right := list[left].next
		joint := list[left].text + list[right].text
		if id, ok := k.ids[joint]; ok {
			heap.Push(&q, pair{k.t.Pieces[id].Score, left, right, len(joint)})
		}
	}
	for i := range list {
		try(i)
	}
	for len(q) > 0 {
		p := heap.Pop(&q).(pair)
		l, r := &list[p.left], &list[p.right]
		if l.text == "" || r.text == "" || l.next != p.right || len(l.text)+len(r.text) != p.length {
			continue
		}
		l.text += r.text
		r.text = ""
		if l.next = r.next; l.next >= 0 {
			list[l.next].prev = p.left
		}
		try(l.prev)
		try(p.left)
	}
	for i := 0; i >= 0; i = list[i].next {
		ids = k.symbolIDs(ids, list[i].text)
	}
	return ids
}

// symbolIDs appends the id of a piece, or those of its bytes.
func (k *Tokenizer) symbolIDs(ids []int32, text string) []int32 {
	if id, ok := k.ids[text]; ok {
		return append(ids, id)
	}
	if k.t.ByteFallback {
		at := len(ids)
		for i := range len(text) {
			id := k.bytes[text[i]]
			if id < 0 {
				return append(ids[:at], int32(k.t.Unk))
			}
			ids = append(ids, id)
		}
		return ids
	}
	return append(ids, int32(k.t.Unk))
}

// Piece gives the bytes that one id stands for. Control and unknown pieces have
// none unless special asks for their texts.
func (k *Tokenizer) Piece(id int32, special bool) string {
	if id < 0 || int(id) >= len(k.t.Pieces) {
		return ""
	}
	p := k.t.Pieces[id]
	switch p.Type {
	case cact.Byte:
		b, _ := strconv.ParseUint(p.Text[3:5], 16, 8) // checked by NewTokenizer
		return string([]byte{byte(b)})
	case cact.Control, cact.Unknown:
		if special {
			return p.Text
		}
		return ""
	}
	return strings.ReplaceAll(p.Text, space, " ")
}

// Decode joins ids to text, without the space that Encode puts first. The result
// need not be UTF-8.
func (k *Tokenizer) Decode(ids []int32, opt tokenizer.DecodeOptions) string {
	if opt.Trim && len(ids) > 0 && ids[0] == k.BOS() {
		ids = ids[1:]
	}
	var b strings.Builder
	for _, id := range ids {
		b.WriteString(k.Piece(id, opt.Special))
	}
	text := b.String()
	if k.t.AddDummyPrefix {
		text = strings.TrimPrefix(text, " ")
	}
	return text
}
