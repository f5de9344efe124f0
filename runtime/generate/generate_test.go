package generate_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"

	infer "quern/runtime"
	"quern/runtime/generate"
)

func next(t *testing.T, s *generate.Sampler, logits ...float32) int32 {
	t.Helper()
	id, err := s.Next(slices.Clone(logits))
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func sampler(t *testing.T, s generate.Sampling, history ...int32) *generate.Sampler {
	t.Helper()
	out, err := generate.NewSampler(s, history)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestGreedy(t *testing.T) {
	nan, low := float32(math.NaN()), float32(math.Inf(-1))
	for _, c := range []struct {
		logits []float32
		want   int32
	}{{[]float32{1, 3, 2}, 1}, {[]float32{3, 3, 2}, 0}, {[]float32{nan, 1, low}, 1}, {[]float32{low, -5, nan}, 1}} {
		if got := next(t, sampler(t, generate.Sampling{}), c.logits...); got != c.want {
			t.Errorf("%v: %d, want %d", c.logits, got, c.want)
		}
	}
	if _, err := sampler(t, generate.Sampling{}).Next([]float32{nan, low}); !errors.Is(err, generate.ErrNothing) {
		t.Errorf("nothing possible: %v", err)
	}
	banned := generate.Sampling{Banned: func(id int32) bool { return id == 1 }}
	if got := next(t, sampler(t, banned), 1, 3, 2); got != 2 {
		t.Errorf("%d is chosen though 1 is banned", got)
	}
}

func TestRepeatPenalty(t *testing.T) {
	s := generate.Sampling{RepeatPenalty: 2}
	// 3/2 is below 2; -1*2 is below -1.5.
	if got := next(t, sampler(t, s, 0, 0), 3, 2, -9); got != 1 {
		t.Errorf("positive: %d", got)
	}
	if got := next(t, sampler(t, s, 0), -1, -1.5, -9); got != 1 {
		t.Errorf("negative: %d", got)
	}
	old := append([]int32{0}, slices.Repeat([]int32{2}, generate.RepeatLast)...)
	if got := next(t, sampler(t, s, old...), 3, 2, -9); got != 0 {
		t.Errorf("a token %d places back counts: %d", len(old), got)
	}
	// What was chosen counts from then on.
	x := sampler(t, s)
	if a, b := next(t, x, 3, 2, -9), next(t, x, 3, 2, -9); a != 0 || b != 1 {
		t.Errorf("%d, then %d", a, b)
	}
}

// counts draws often and gives each id's share.
func counts(t *testing.T, s generate.Sampling, logits ...float32) []float64 {
	t.Helper()
	const n = 4000
	out := make([]float64, len(logits))
	x := sampler(t, s)
	for range n {
		out[next(t, x, logits...)] += 1.0 / n
	}
	return out
}

func TestSampling(t *testing.T) {
	ln := func(p float64) float32 { return float32(math.Log(p)) }
	logits := []float32{ln(0.1), ln(0.4), ln(0.2), ln(0.3)}
	for _, c := range []struct {
		name string
		s    generate.Sampling
		want []float64
	}{
		{"plain", generate.Sampling{Temperature: 1}, []float64{0.1, 0.4, 0.2, 0.3}},
		{"top-k", generate.Sampling{Temperature: 1, TopK: 2}, []float64{0, 4.0 / 7, 0, 3.0 / 7}},
		{"top-k 1", generate.Sampling{Temperature: 1, TopK: 1}, []float64{0, 1, 0, 0}},
		{"top-p", generate.Sampling{Temperature: 1, TopP: 0.65}, []float64{0, 4.0 / 7, 0, 3.0 / 7}},
		{"top-p one", generate.Sampling{Temperature: 1, TopP: 0.01}, []float64{0, 1, 0, 0}},
		{"min-p", generate.Sampling{Temperature: 1, MinP: 0.6}, []float64{0, 4.0 / 7, 0, 3.0 / 7}},
		{"cold", generate.Sampling{Temperature: 0.5}, []float64{0.01 / 0.3, 0.16 / 0.3, 0.04 / 0.3, 0.09 / 0.3}},
	} {
		for id, p := range counts(t, c.s, logits...) {
			if math.Abs(p-c.want[id]) > 0.03 || c.want[id] == 0 && p != 0 {
				t.Errorf("%s: id %d has %.3f, want %.3f", c.name, id, p, c.want[id])
			}
		}
	}
	draw := func(seed uint64) (out []int32) {
		x := sampler(t, generate.Sampling{Temperature: 1, Seed: seed})
		for range 40 {
			out = append(out, next(t, x, logits...))
		}
		return out
	}
	if a, b, c := draw(1), draw(1), draw(2); !slices.Equal(a, b) || slices.Equal(a, c) {
		t.Errorf("seeds 1, 1, 2 give %v, %v, %v", a, b, c)
	}
	// The same on every machine.
	if got, want := draw(7)[:12], []int32{3, 2, 1, 2, 1, 1, 2, 3, 1, 1, 3, 1}; !slices.Equal(got, want) {
		t.Errorf("seed 7 gives %v, want %v", got, want)
	}
}

func TestSamplingRefuses(t *testing.T) {
	nan := math.NaN()
	for _, s := range []generate.Sampling{{Temperature: -1}, {Temperature: nan}, {TopK: -1}, {TopP: 1.5}, {TopP: nan}, {MinP: -0.1}, {RepeatPenalty: -2}, {RepeatPenalty: math.Inf(1)}} {
		if _, err := generate.NewSampler(s, nil); err == nil {
			t.Errorf("%+v", s)
		}
	}
}

// cycle is a session whose next token is always one more, modulo 10.
type cycle struct {
	n, room int
	seen    []int32 // kept as calls end
}

func (c *cycle) Len() int         { return c.n }
func (c *cycle) Room() int        { return c.room - c.n }
func (c *cycle) Rewind(int) error { return nil }

func (c *cycle) Eval(_ context.Context, tokens []int32, want []int, each func(int, []float32) error) error {
	if err := infer.CheckEval(c, 10, tokens, want); err != nil {
		return err
	}
	c.n += len(tokens)
	for _, i := range want {
		logits := make([]float32, 10)
		logits[(tokens[i]+1)%10] = 1
		if err := each(i, logits); err != nil {
			return err
		}
	}
	c.seen = append(c.seen, tokens...)
	return nil
}

// TestTokensOfACallStay: choosing a token does not change those that are being evaluated.
func TestTokensOfACallStay(t *testing.T) {
	s := &cycle{room: 99}
	if _, err := generate.Run(t.Context(), s, []int32{2, 3, 4}, generate.Options{Max: 4}); err != nil {
		t.Fatal(err)
	}
	if want := []int32{2, 3, 4, 5, 6, 7}; !slices.Equal(s.seen, want) {
		t.Errorf("the session saw %v, want %v", s.seen, want)
	}
}

func TestRun(t *testing.T) {
	for _, c := range []struct {
		name string
		room int
		opt  generate.Options
		want []int32
		stop generate.Stop
	}{
		{"length", 99, generate.Options{Max: 3}, []int32{5, 6, 7}, generate.StopLength},
		{"end", 99, generate.Options{Max: 9, End: func(id int32) bool { return id == 8 }}, []int32{5, 6, 7}, generate.StopEnd},
		{"context", 4, generate.Options{}, []int32{5, 6, 7}, generate.StopContext},
	} {
		var seen []int32
		c.opt.Each = func(id int32) error {
			seen = append(seen, id)
			return nil
		}
		a, err := generate.Run(t.Context(), &cycle{room: c.room}, []int32{3, 4}, c.opt)
		if err != nil || !slices.Equal(a.Tokens, c.want) || a.Stop != c.stop || !slices.Equal(seen, c.want) {
			t.Errorf("%s: %+v, %v; seen %v", c.name, a, err, seen)
		}
	}
	if _, err := generate.Run(t.Context(), &cycle{room: 1}, []int32{3, 4}, generate.Options{}); !errors.Is(err, infer.ErrContext) {
		t.Errorf("a prompt that does not fit: %v", err)
	}
}

// TestWarm: what the caller does once the prompt is under way comes once, before any
// token is made, and changes nothing, however long the prompt is.
func TestWarm(t *testing.T) {
	for _, n := range []int{1, 2, 128, 129, 130, 300} {
		prompt := slices.Repeat([]int32{4}, n)
		want, err := generate.Run(t.Context(), &cycle{room: 999}, prompt, generate.Options{Max: 5})
		if err != nil {
			t.Fatal(err)
		}
		s := &cycle{room: 999}
		calls, at := 0, -1
		opt := generate.Options{Max: 5}
		opt.Warm = func() { calls, at = calls+1, s.Len() }
		got, err := generate.Run(t.Context(), s, prompt, opt)
		if err != nil || !slices.Equal(got.Tokens, want.Tokens) {
			t.Errorf("prompt of %d: %v, %v, want %v", n, got.Tokens, err, want.Tokens)
		}
		if calls != 1 || at != min(n-1, 128) {
			t.Errorf("prompt of %d: called %d times, after %d tokens", n, calls, at)
		}
	}
	for _, c := range []struct {
		prompt []int32
		room   int
	}{{nil, 9}, {slices.Repeat([]int32{1}, 140), 20}} {
		if _, err := generate.Run(t.Context(), &cycle{room: c.room}, c.prompt, generate.Options{Warm: func() {}}); err == nil {
			t.Errorf("a prompt of %d tokens where %d fit", len(c.prompt), c.room)
		}
	}
}
