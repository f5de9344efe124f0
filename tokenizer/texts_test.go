package tokenizer

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"runtime"
	"strings"
	"testing"
)

// syntheticBPE makes a byte-level vocabulary of n tokens, each but the first 256 made
// by a merge of two before it.
func syntheticBPE(n int) *Vocabulary {
	rng := rand.New(rand.NewPCG(1, 2))
	v := &Vocabulary{Model: ModelBPE, Pre: "gpt-2", keys: newKeyList()}
	known := map[string]bool{}
	for b := range 256 {
		s := string(byteChar(byte(b)))
		v.Tokens = append(v.Tokens, s)
		known[s] = true
	}
	for len(v.Tokens) < n {
		left, right := v.Tokens[rng.IntN(len(v.Tokens))], v.Tokens[rng.IntN(256)]
		if both := left + right; !known[both] {
			known[both] = true
			v.Tokens = append(v.Tokens, both)
			v.Merges = append(v.Merges, left+" "+right)
		}
	}
	v.Types = make([]TokenType, len(v.Tokens))
	for i := range v.Types {
		v.Types[i] = Normal
	}
	return v
}

// TestVocabularyIsWhatItWas: also what merges say that no token says.
func TestVocabularyIsWhatItWas(t *testing.T) {
	v := syntheticBPE(700)
	v.Tokens = append(v.Tokens, "", "a b", "a\u00a0b")
	v.Types = append(v.Types, Unused, UserDefined, Control)
	v.Merges = append(v.Merges, "no token", "a  b", " a b", "a b c", v.Merges[3], "xy ", "no token")
	tok, err := New(v)
	if err != nil {
		t.Fatal(err)
	}
	if got := tok.Vocabulary(); !reflect.DeepEqual(got, v) {
		t.Errorf("%+v, want %+v", got, v)
	}
	if tok.Digest() != v.Digest() || tok.Size() != len(v.Tokens) {
		t.Errorf("digest %v, want %v; %d ids, want %d", tok.Digest(), v.Digest(), tok.Size(), len(v.Tokens))
	}
	for id, s := range v.Tokens {
		if s == "" {
			s = fmt.Sprintf("[EMPTY_%d]", id)
		}
		if got, ok := tok.id(s); !ok || int(got) != id {
			t.Errorf("%q is %d, %v, want %d", s, got, ok, id)
		}
		if got, ok := tok.idOf([]byte(s)); !ok || int(got) != id {
			t.Errorf("bytes of %q are %d, %v, want %d", s, got, ok, id)
		}
	}
	if id, ok := tok.id("no such token"); ok {
		t.Errorf("a text that is no token is %d", id)
	}
}

// TestUnknownTypesStay: also types that take more than a byte, in a copy each time.
func TestUnknownTypesStay(t *testing.T) {
	v := syntheticBPE(300)
	v.Types[7], v.Types[9] = 300, -1
	tok, err := New(v)
	if err != nil {
		t.Fatal(err)
	}
	got := tok.Vocabulary()
	if !reflect.DeepEqual(got.Types, v.Types) || tok.Digest() != v.Digest() {
		t.Errorf("types %d, want %d", got.Types, v.Types)
	}
	if got.Types[7] = Normal; tok.Digest() != v.Digest() {
		t.Error("what was given is the tokenizer's own")
	}
}

// TestMergesAreFoundByTheirLine compares with a map of lines, which is what ranks are
// defined by: whatever two parts make the line.
func TestMergesAreFoundByTheirLine(t *testing.T) {
	v := syntheticBPE(600)
	v.Tokens = append(v.Tokens, "abc", "bcd")
	v.Types = append(v.Types, Normal, Normal)
	// One token by two merges, lines twice, spaces in parts, no token.
	v.Merges = append(v.Merges, "a bc", "ab c", "b cd", "ab c", "z  z", " z z", "y y y", "q zzz", "q zzz", v.Merges[0])
	tok, err := New(v)
	if err != nil {
		t.Fatal(err)
	}
	want, parts := map[string]int32{}, []string{"", "a", "ab", "abc", "bc", "c", "b", "cd", "z", " z", "z ", "y", "y y", "q", "zzz", "none"}
	for i, line := range v.Merges {
		if _, ok := want[line]; !ok {
			want[line] = int32(i)
		}
		left, right, _ := strings.Cut(line, " ")
		parts = append(parts, left, right)
	}
	found := map[string]bool{}
	var buf []byte
	for _, left := range parts {
		for _, right := range parts {
			line := left + " " + right
			rank, ok := want[line]
			got, gotOK := int32(0), false
			if got, gotOK, buf = tok.merges.find(left+right, len(left), buf); gotOK != ok || got != rank {
				t.Fatalf("%q and %q: rank %d, %v, want %d, %v", left, right, got, gotOK, rank, ok)
			}
			if ok {
				found[line] = true
			}
		}
	}
	for line := range want {
		if !found[line] {
			t.Errorf("%q was never asked for", line)
		}
	}
}

// TestChosenMergesAreSpread: of all pairs of tokens and cuts a file may choose those that a
// multiplication puts next to each other. Searches must not become as long as the list.
func TestChosenMergesAreSpread(t *testing.T) {
	m := &mergeTable{ranks: make([]uint32, 4096), cuts: make([]uint8, 4096)}
	for id := range uint32(4096) {
		for cut := range uint16(256) {
			if (uint64(id)<<16|uint64(cut))*0x9E3779B97F4A7C15 < math.MaxUint64/50 {
				m.more.made, m.more.cuts = append(m.more.made, id), append(m.more.cuts, cut)
				m.more.ranks = append(m.more.ranks, uint32(len(m.more.ranks)))
			}
		}
	}
	m.more.build(m)
	for i, id := range m.more.made {
		if rank, ok := m.of(id, int(m.more.cuts[i])); !ok || int(rank) != i {
			t.Fatalf("token %d cut at %d: rank %d, %v, want %d", id, m.more.cuts[i], rank, ok, i)
		}
	}
	run, longest := 0, 0
	for _, tag := range m.more.index.tags {
		if run++; tag == 0 {
			run = 0
		}
		longest = max(longest, run)
	}
	if n := len(m.more.made); n < 10_000 || longest > n/10 {
		t.Errorf("of %d merges %d lie without a gap", n, longest)
	}
}

// inUse is how many bytes are in use after f, which gives what is to be kept, more than
// before.
func inUse(f func() any) int64 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	kept := f()
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(kept)
	return int64(after.HeapAlloc) - int64(before.HeapAlloc)
}

// TestTokenizerIsSmall: of a token the bytes of its text, 4 for where it ends, 7.5 of
// the index, its attributes and its type, and of the merge that makes it 4 for the rank
// and 1 for the cut. An eighth more is what the allocator may round up.
func TestTokenizerIsSmall(t *testing.T) {
	const tokens = 30_000
	text := 0
	used := inUse(func() any {
		v := syntheticBPE(tokens)
		for _, s := range v.Tokens {
			text += len(s)
		}
		tok, err := New(v)
		if err != nil {
			t.Fatal(err)
		}
		return tok
	})
	bound := float64(text) + tokens*(4+7.5+1+1+4+1)
	// The pre-tokenizer's expression and other tables that do not grow with the vocabulary.
	const fixed = 128 << 10
	if bound = bound*9/8 + fixed; float64(used) > bound {
		t.Errorf("a tokenizer of %d tokens takes %d bytes, more than %.0f", tokens, used, bound)
	}
	t.Logf("%d bytes, bound %.0f", used, bound)
}
