package load_test

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"

	infer "quern/runtime"
	"quern/runtime/score"
)

func evalText(t *testing.T) []byte {
	t.Helper()
	b, err := os.ReadFile("../../testdata/golden/runtime/eval-stories.txt")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestPerplexityIsTheGoldens(t *testing.T) {
	for _, name := range []string{"stories260k", "stories-wide", "stories-moe"} {
		m := open(t, filepath.Join("../../testdata/models", name))
		g := readGolden(t, name)
		calls := 0
		p, err := score.Measure(t.Context(), m, evalText(t), score.Options{Context: g.Context, Progress: func(int, int, float64) { calls++ }})
		if err != nil {
			t.Fatal(err)
		}
		// The golden's text has the newline at its end, which does not count.
		if p.Scored != g.Scored || p.Tokens != g.Tokens-1 || p.Chunks != g.Tokens/g.Context || calls != p.Chunks || !p.BOS {
			t.Errorf("%s: %+v after %d calls, want %+v", name, p, calls, g)
		}
		if d := math.Abs(p.Perplexity - g.Perplexity); !(d <= 1e-4) {
			t.Errorf("%s: perplexity %.7f, want %.7f", name, p.Perplexity, g.Perplexity)
		}
		t.Logf("%s: %.7f +/- %.5f, %.5f bits per byte", name, p.Perplexity, p.Error, p.BitsPerByte)
	}
}

func TestPerplexityRefuses(t *testing.T) {
	m := open(t, "../../testdata/models/stories260k")
	if _, err := score.Measure(t.Context(), m, []byte("Once upon a time"), score.Options{}); !errors.Is(err, score.ErrShort) {
		t.Errorf("a short text: %v", err)
	}
	if _, err := score.Measure(t.Context(), m, evalText(t), score.Options{Context: 2}); err == nil {
		t.Error("a context of 2")
	}
	k := open(t, "../../testdata/golden/kmcu/stories260k.kmcu")
	if _, err := score.Measure(t.Context(), k, evalText(t), score.Options{}); !errors.Is(err, infer.ErrNoTokenizer) {
		t.Errorf("no tokenizer: %v", err)
	}
}

func TestDivergence(t *testing.T) {
	a, b := open(t, "../../testdata/models/stories260k"), open(t, "../../testdata/models/stories-moe")
	opt := score.Options{Context: 128, Chunks: 3}
	d, err := score.Diverge(t.Context(), a, a, evalText(t), opt)
	if err != nil || d.Mean != 0 || d.Max != 0 || d.SameTop != 1 || d.Base != d.Other || d.Scored != 3*63 {
		t.Errorf("a model from itself: %+v, %v", d, err)
	}
	d, err = score.Diverge(t.Context(), a, b, evalText(t), opt)
	if err != nil || !(d.Mean > 0 && d.Mean < 0.05) || d.Max < d.Mean || !(d.SameTop > 0.9) {
		t.Errorf("a model from its like: %+v, %v", d, err)
	}
	p, err := score.Measure(t.Context(), b, evalText(t), opt)
	if err != nil || p.MeanNLL != d.Other {
		t.Errorf("mean NLL %v, alone %v, %v", d.Other, p.MeanNLL, err)
	}
}

// TestSettingsAreCompared is case 125 of docs/pitfalls.md.
func TestSettingsAreCompared(t *testing.T) {
	m := open(t, "../../testdata/models/stories260k")
	measure := func(opt score.Options) score.Settings {
		opt.Chunks = 1
		p, err := score.Measure(t.Context(), m, evalText(t), opt)
		if err != nil {
			t.Fatal(err)
		}
		return p.Settings
	}
	a := measure(score.Options{Context: 64})
	if err := a.Comparable(measure(score.Options{Context: 64, Jobs: 2})); err != nil {
		t.Error(err)
	}
	if err := a.Comparable(measure(score.Options{Context: 65})); !errors.Is(err, score.ErrNotComparable) {
		t.Errorf("another context: %v", err)
	}
	b := a
	b.BOS, b.Tokens = false, b.Tokens-1
	if err := a.Comparable(b); !errors.Is(err, score.ErrNotComparable) {
		t.Errorf("another tokenizer: %v", err)
	}
}
