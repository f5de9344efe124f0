package tokenizer

import (
	"math/rand"
	"testing"
)

// TestWordTable holds the table against a map, over words of all lengths that share
// beginnings and ends.
func TestWordTable(t *testing.T) {
	rng := rand.New(rand.NewSource(4))
	var w wordTable
	for range 2 {
		want := map[string]uint64{}
		for range 50000 {
			b := make([]byte, 1+rng.Intn(12))
			for i := range b {
				b[i] = "ab\x00\xff"[rng.Intn(4)]
			}
			n := uint64(1 + rng.Intn(3))
			want[string(b)] += n
			w.add(string(b), n)
		}
		if w.len() != len(want) {
			t.Errorf("%d words, want %d", w.len(), len(want))
		}
		w.each(func(word string, n uint64) {
			if want[word] != n {
				t.Fatalf("%q: %d times, want %d", word, n, want[word])
			}
			delete(want, word)
		})
		if len(want) != 0 {
			t.Errorf("%d words are missing", len(want))
		}
		w.reset()
		if w.len() != 0 {
			t.Error("not empty")
		}
	}
}
