package count_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"quern/tokenizer/count"
)

func TestKinds(t *testing.T) {
	kinds := count.Kinds(toy(t))
	for id, want := range map[int]count.Kind{0: count.Byte, 255: count.Byte, 256: count.Text, idDog: count.Text, idEnd: count.Special,
		idTool: count.Added, idReserve: count.Unused, idPad: count.Unused} {
		if kinds[id] != want {
			t.Errorf("token %d is %s, want %s", id, kinds[id], want)
		}
	}
}

// made are the counts of two corpora over 12 tokens: 0 special, 1 a byte, 2 added,
// 3 unused, the rest text.
func made() (*count.Counts, []count.Kind) {
	kinds := []count.Kind{count.Special, count.Byte, count.Added, count.Unused}
	for len(kinds) < 12 {
		kinds = append(kinds, count.Text)
	}
	return &count.Counts{Vocab: 12, Corpora: []count.Tokens{
		{Name: "en", Weight: 1, Total: 100, IDs: []uint64{0, 2, 0, 0, 50, 20, 20, 8, 0, 0, 0, 0}},
		{Name: "code", Weight: 3, Total: 10, IDs: []uint64{0, 1, 0, 0, 0, 1, 0, 0, 6, 2, 0, 0}},
	}}, kinds
}

// TestScores: a corpus counts by its weight, not by its size.
func TestScores(t *testing.T) {
	c, _ := made()
	s := count.Scores(c)
	for id, want := range map[int]float64{4: 0.25 * 0.5, 5: 0.25*0.2 + 0.75*0.1, 8: 0.75 * 0.6, 9: 0.75 * 0.2, 10: 0} {
		if math.Abs(s[id]-want) > 1e-15 {
			t.Errorf("token %d: %g, want %g", id, s[id], want)
		}
	}
}

func TestSelect(t *testing.T) {
	for _, c := range []struct {
		name  string
		rules count.Rules
		cover map[string]float64
		want  []int32
		extra int // for the multiple
	}{
		// Shares: 8 .45, 9 .15, 4 .125, 5 .125, 6 .05, 7 .02, 10 and 11 none.
		{"count", count.Rules{Count: 5}, nil, []int32{0, 1, 2, 8, 9}, 0},
		{"ties go to the lower id", count.Rules{Count: 6}, nil, []int32{0, 1, 2, 4, 8, 9}, 0},
		{"what is never seen comes last", count.Rules{Count: 10}, nil, []int32{0, 1, 2, 4, 5, 6, 7, 8, 9, 10}, 0},
		{"all that there is", count.Rules{Count: 11}, nil, []int32{0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11}, 0},
		{"protected tokens alone", count.Rules{Count: 3}, nil, []int32{0, 1, 2}, 0},
		{"multiple", count.Rules{Count: 5, MultipleOf: 4}, nil, []int32{0, 1, 2, 4, 5, 6, 8, 9}, 3},
		{"multiple that holds", count.Rules{Count: 8, MultipleOf: 4}, nil, []int32{0, 1, 2, 4, 5, 6, 8, 9}, 0},
		{"least count", count.Rules{MinCount: 6}, nil, []int32{0, 1, 2, 4, 5, 6, 7, 8}, 0},
		{"least count with a count", count.Rules{Count: 5, MinCount: 20}, nil, []int32{0, 1, 2, 4, 5}, 0},
		{"least count, then a multiple of what is below it", count.Rules{MinCount: 50, MultipleOf: 8}, nil, []int32{0, 1, 2, 4, 5, 6, 8, 9}, 4},
		{"coverage", count.Rules{Coverage: 0.7}, nil, []int32{0, 1, 2, 4, 8, 9}, 0},
		{"coverage of all", count.Rules{Coverage: 1}, nil, []int32{0, 1, 2, 4, 5, 6, 7, 8, 9}, 0},
		{"coverage, at most", count.Rules{Coverage: 0.99, Count: 4}, nil, []int32{0, 1, 2, 8}, 0},
		{"kept by name", count.Rules{Count: 5, Keep: []int32{11, 3}}, nil, []int32{0, 1, 2, 3, 11}, 0},
		{"coverage of one corpus", count.Rules{Count: 6}, map[string]float64{"en": 0.9}, []int32{0, 1, 2, 4, 5, 6}, 0},
		{"coverage of both", count.Rules{MinCount: 1000}, map[string]float64{"en": 0.7, "code": 0.9}, []int32{0, 1, 2, 4, 5, 8, 9}, 0},
	} {
		n, kinds := made()
		for i := range n.Corpora {
			n.Corpora[i].Cover = c.cover[n.Corpora[i].Name]
		}
		s, err := count.Select(n, kinds, c.rules)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if !slices.Equal(s.IDs, c.want) || len(s.IDs)-s.Wanted != c.extra {
			t.Errorf("%s: %d (%d wanted), want %d and %d more", c.name, s.IDs, s.Wanted, c.want, c.extra)
		}
	}
}

func TestSelectRefuses(t *testing.T) {
	for _, c := range []struct {
		name  string
		rules count.Rules
		says  string
	}{
		{"fewer than are protected", count.Rules{Count: 2}, "3 are kept in any case: 1 special, 1 bytes, 1 added"},
		{"fewer than are named", count.Rules{Count: 4, Keep: []int32{4, 5}}, "2 by name"},
		{"more than there are", count.Rules{Count: 12}, "has 11 that can be kept"},
		{"no multiple", count.Rules{Count: 9, MultipleOf: 8}, "has 11 that can be kept"},
		{"no such token", count.Rules{Count: 5, Keep: []int32{12}}, "ends with token 11"},
		{"a negative token", count.Rules{Count: 5, Keep: []int32{-1}}, "token -1"},
	} {
		n, kinds := made()
		if _, err := count.Select(n, kinds, c.rules); !errors.Is(err, count.ErrSelect) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	n, kinds := made()
	if _, err := count.Select(n, kinds[:11], count.Rules{Count: 5}); !errors.Is(err, count.ErrSelect) {
		t.Error(err)
	}
}

func TestReport(t *testing.T) {
	n, kinds := made()
	sizes := []int{0, 1, 5, 0, 1, 4, 2, 10, 1, 1, 1, 1}
	s, err := count.Select(n, kinds, count.Rules{Count: 5, MultipleOf: 3})
	if err != nil {
		t.Fatal(err)
	}
	r := s.Report(n, sizes) // keeps 0 1 2 4 8 9
	if r.Vocabulary != 12 || r.Kept != 6 || r.Special != 1 || r.Bytes != 1 || r.Added != 1 || r.Text != 3 || r.Rounded != 1 || r.MultipleOf != 3 {
		t.Errorf("%+v", r)
	}
	en := r.Corpora[0]
	// Outside: 5 (20 times 4 bytes), 6 (20 times 2), 7 (8 times 10) of 2+50+80+40+80 bytes.
	if en.Outside != 48 || en.OutsideShare != 0.48 || en.BytesOutside != 200 || math.Abs(en.BytesShare-200.0/252) > 1e-15 || en.Distinct != 5 || en.DistinctOut != 3 {
		t.Errorf("%+v", en)
	}
	if !slices.Equal(en.MostFrequent, []int32{5, 6, 7}) {
		t.Errorf("most frequent outside: %d", en.MostFrequent)
	}
	want := []string{
		"6 of 12 tokens: 1 special, 1 bytes, 1 added, 3 more, the last 1 of them for a multiple of 3",
		"en: 48.0 % of 100 tokens and 79.4 % of the bytes fall outside",
		"code: 10.0 % of 10 tokens and 30.8 % of the bytes fall outside",
	}
	if got := r.Lines(); !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
}

func TestPercent(t *testing.T) {
	for share, want := range map[float64]string{0: "0 %", 0.013: "1.3 %", 0.000123: "0.012 %", 0.5: "50.0 %", 1: "100.0 %", 1e-9: "under 0.001 %", 0.0999: "10 %"} {
		if got := count.Percent(share); got != want {
			t.Errorf("%g: %s, want %s", share, got, want)
		}
	}
}

func TestTextIDs(t *testing.T) {
	ids, err := count.TextIDs(toy(t), []string{"cat", "<|endoftext|>", "<tool>"})
	if err != nil {
		t.Fatal(err)
	}
	// cat with and without its space, the space before the special tokens.
	if want := []int32{' ', 260, idCat, idEnd, idTool}; !slices.Equal(ids, want) {
		t.Errorf("%d, want %d", ids, want)
	}
}
