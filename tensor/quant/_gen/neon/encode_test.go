package neon

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// testdata/words.txt has what GNU as 2.40 makes of each line's instruction, as
// GNU objdump shows it.

// TestWords holds every word that can be emitted, with different registers and
// immediates, against the assembler's.
func TestWords(t *testing.T) {
	text, err := os.ReadFile("testdata/words.txt")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]string{}
	for line := range strings.Lines(string(text)) {
		word, what, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if !ok {
			t.Fatalf("no instruction in %q", line)
		}
		known[what] = word
	}
	used := map[string]bool{}
	for _, o := range words {
		for _, sample := range samples(o) {
			word, what := o.encode(sample.d, sample.src, sample.i)
			if got := fmt.Sprintf("%08x", word); known[what] != got {
				t.Errorf("%s is %s, the assembler has %q", what, got, known[what])
			}
			used[what] = true
		}
	}
	if len(used) != len(known) {
		t.Errorf("%d of %d lines were compared", len(used), len(known))
	}
}

type sample struct {
	d   int
	src []int
	i   int64
}

func samples(o *op) []sample {
	s := []sample{{1, []int{2, 3}, 1}, {30, []int{14, 29}, 5}, {17, []int{28, 7}, 7}}
	for k := range s {
		n := 0
		for _, letter := range "NM" {
			for _, file := range "vbswxd" {
				if strings.Contains(o.form, string(file)+string(letter)) {
					n++
					break
				}
			}
		}
		s[k].src = s[k].src[:n]
	}
	if strings.HasPrefix(o.form, "movi") || strings.HasPrefix(o.form, "mvni") {
		s[1].i, s[2].i = 0xff, 0x5a
	}
	if o == toWord {
		s[0].i, s[1].i, s[2].i = 1, 2, 3
	}
	return s
}
