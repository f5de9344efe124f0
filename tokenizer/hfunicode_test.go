package tokenizer

import (
	"testing"

	"golang.org/x/text/unicode/norm"
)

// TestNewerCharacters: the library's normal forms of texts with characters that are
// newer than its tables.
func TestNewerCharacters(t *testing.T) {
	var cases [][5]string
	unmarshal(t, readTestFile(t, "../testdata/tokenizer/newer.json"), &cases)
	if len(cases) < 200 {
		t.Fatalf("%d cases", len(cases))
	}
	changed := 0
	for _, c := range cases {
		for i, form := range []norm.Form{norm.NFC, norm.NFD, norm.NFKC, norm.NFKD} {
			if got := unicode9(form.String)(c[0]); got != c[i+1] {
				t.Errorf("form %d of %+q: %+q, the library gives %+q", i, c[0], got, c[i+1])
			}
			if form.String(c[0]) != c[i+1] {
				changed++
			}
		}
	}
	if changed < 100 {
		t.Errorf("only %d of these differ from this year's forms", changed)
	}
}
