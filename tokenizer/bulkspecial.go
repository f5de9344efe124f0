package tokenizer

import (
	"cmp"
	"slices"
	"sort"
)

// specialFinder cuts texts at the special tokens that stand for themselves in
// plain text, all in one pass. It cuts where Tokenizer.fragments does: of
// occurrences that overlap, the longest text counts, of equals the token that is
// first in the vocabulary's order, of one token the leftmost.
type specialFinder struct {
	pairs [1 << 10]uint64 // which two bytes begin a text
	inner [1 << 10]uint64 // which two bytes stand side by side in a text
	last  [256]bool       // which bytes end a text
	any   bool
	nodes []finderNode // the texts by their bytes; 0 is the root
	root  [256]int32   // the nodes under the root
}

// finderNode is a byte of some texts.
type finderNode struct {
	b           byte
	id, order   int32 // of the text that ends here, -1 for none
	child, next int32 // the first node below, and the next one beside; 0 for none
}

// found is one occurrence. A lower order counts before a higher one.
type found struct {
	start, end int
	id, order  int32
}

func newSpecialFinder(t *Tokenizer) *specialFinder {
	f := &specialFinder{nodes: []finderNode{{id: -1}}}
	for order, id := range t.special {
		if t.attrs[id]&(attrControl|attrUnknown) != 0 {
			continue
		}
		s := t.text(id)
		f.any = true
		f.insert(s, id, int32(order))
		f.last[s[len(s)-1]] = true
		if len(s) == 1 {
			for b := range 256 {
				set(&f.pairs, s[0], byte(b))
			}
			continue
		}
		set(&f.pairs, s[0], s[1])
		for i := 1; i < len(s); i++ {
			set(&f.inner, s[i-1], s[i])
		}
	}
	return f
}

func (f *specialFinder) insert(s string, id, order int32) {
	at := int32(0)
	for i := range len(s) {
		next := f.below(at, s[i])
		if next == 0 {
			next = int32(len(f.nodes))
			f.nodes = append(f.nodes, finderNode{b: s[i], id: -1, next: f.nodes[at].child})
			f.nodes[at].child = next
			if at == 0 {
				f.root[s[i]] = next
			}
		}
		at = next
	}
	f.nodes[at].id, f.nodes[at].order = id, order
}

// below finds the node of a byte under another one, 0 if there is none.
func (f *specialFinder) below(at int32, b byte) int32 {
	if at == 0 {
		return f.root[b]
	}
	n := f.nodes[at].child
	for n != 0 && f.nodes[n].b != b {
		n = f.nodes[n].next
	}
	return n
}

// longest finds the longest text at i, which of those at one place counts first.
func (f *specialFinder) longest(s string, i int) (found, bool) {
	out, ok := found{}, false
	if i+1 < len(s) && !has(&f.pairs, s[i], s[i+1]) {
		return out, false
	}
	at := f.root[s[i]]
	for k := i + 1; at != 0; k++ {
		if n := &f.nodes[at]; n.id >= 0 {
			out, ok = found{i, k, n.id, n.order}, true
		}
		if k == len(s) {
			break
		}
		at = f.below(at, s[k])
	}
	return out, ok
}

// all adds every text at i.
func (f *specialFinder) all(list []found, s string, i int) []found {
	at := f.root[s[i]]
	for k := i + 1; at != 0; k++ {
		if n := &f.nodes[at]; n.id >= 0 {
			list = append(list, found{i, k, n.id, n.order})
		}
		if k == len(s) {
			break
		}
		at = f.below(at, s[k])
	}
	return list
}

func set(bits *[1 << 10]uint64, a, b byte) {
	k := uint(a)<<8 | uint(b)
	bits[k>>6] |= 1 << (k & 63)
}

func has(bits *[1 << 10]uint64, a, b byte) bool {
	k := uint(a)<<8 | uint(b)
	return bits[k>>6]>>(k&63)&1 != 0
}

// cut calls text for what lies between tokens and token for each token, in order.
// after reports whether a token stands right before a text, or it is the start.
func (f *specialFinder) cut(s string, start bool, text func(s string, after bool) error, token func(id int32)) error {
	if !f.any {
		if s == "" {
			return nil
		}
		return text(s, start)
	}
	done, after := 0, start
	put := func(o found) error {
		if o.start > done {
			if err := text(s[done:o.start], after); err != nil {
				return err
			}
		}
		token(o.id)
		done, after = o.end, true
		return nil
	}
	var cluster []found
	for i := 0; i < len(s); {
		first, ok := f.longest(s, i)
		if !ok {
			i++
			continue
		}
		// Nothing reaches i from before. If nothing that begins inside of it
		// counts more, it is a token.
		best := true
		for k := i + 1; k < first.end && best; k++ {
			o, ok := f.longest(s, k)
			best = !ok || o.order >= first.order
		}
		if best {
			if err := put(first); err != nil {
				return err
			}
			i = first.end
			continue
		}
		cluster = cluster[:0]
		end := i + 1
		for ; i < end; i++ {
			cluster = f.all(cluster, s, i)
			if o, ok := f.longest(s, i); ok {
				end = max(end, o.end)
			}
		}
		for _, o := range settle(cluster) {
			if err := put(o); err != nil {
				return err
			}
		}
	}
	if done < len(s) {
		return text(s[done:], after)
	}
	return nil
}

// settle picks the occurrences that count, in order of their place.
func settle(cluster []found) []found {
	if len(cluster) < 2 {
		return cluster
	}
	slices.SortFunc(cluster, func(a, b found) int {
		return cmp.Or(cmp.Compare(a.order, b.order), cmp.Compare(a.start, b.start))
	})
	out := cluster[:0:0]
	for _, o := range cluster {
		i := sort.Search(len(out), func(i int) bool { return out[i].start >= o.start })
		if i > 0 && out[i-1].end > o.start || i < len(out) && out[i].start < o.end {
			continue
		}
		out = append(out, found{})
		copy(out[i+1:], out[i:])
		out[i] = o
	}
	return out
}
