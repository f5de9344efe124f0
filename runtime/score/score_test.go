package score_test

import (
	"errors"
	"math"
	"testing"

	infer "quern/runtime"
	"quern/runtime/score"
)

func TestNLL(t *testing.T) {
	inf := float32(math.Inf(-1))
	for _, logits := range [][]float32{{0, 0, 0, 0}, {1, -2, 3.5, 0.25}, {100, 99, -1000, 98}, {inf, 5, inf, 4}} {
		sum := 0.0
		for _, v := range logits {
			sum += math.Exp(float64(v))
		}
		for id, v := range logits {
			want := math.Log(sum) - float64(v)
			for _, opt := range []score.Options{{}, {Act: infer.Q8, Order: infer.OrderGGML}} {
				got := score.NLL(opt, logits, int32(id))
				if math.Abs(got-want) > 1e-6*math.Max(1, math.Abs(want)) && got != want {
					t.Errorf("order %s: %v: id %d has %v, want %v", opt.Order, logits, id, got, want)
				}
			}
		}
	}
}

func TestComparableNamesWhatDiffers(t *testing.T) {
	a := score.Settings{Context: 512, Stride: 512, First: 256, Chunks: 3, Tokens: 2000, BOS: true, Act: "q8", Bytes: 900}
	if err := a.Comparable(a); err != nil {
		t.Error(err)
	}
	for _, f := range []func(s *score.Settings){
		func(s *score.Settings) { s.Context = 256 }, func(s *score.Settings) { s.Chunks = 4 }, func(s *score.Settings) { s.Tokens++ },
		func(s *score.Settings) { s.BOS = false }, func(s *score.Settings) { s.Act = "exact" }, func(s *score.Settings) { s.Bytes-- },
		func(s *score.Settings) { s.Stride = 256 }, func(s *score.Settings) { s.First = 0 }, func(s *score.Settings) { s.Text[0]++ },
		func(s *score.Settings) { s.Pieces[31]++ }, func(s *score.Settings) { s.Order = "ggml" },
	} {
		b := a
		f(&b)
		if err := a.Comparable(b); !errors.Is(err, score.ErrNotComparable) {
			t.Errorf("%+v and %+v: %v", a, b, err)
		}
	}
	// Another vocabulary that cuts the text alike compares.
	b := a
	b.Tokenizer[0]++
	if err := a.Comparable(b); err != nil {
		t.Error(err)
	}
}
