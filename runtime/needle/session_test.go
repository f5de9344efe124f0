package needle_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"

	infer "quern/runtime"
	"quern/runtime/needle"
)

func equal(t *testing.T, what string, got, want [][]float32) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d rows, want %d", what, len(got), len(want))
	}
	for i := range want {
		for j := range want[i] {
			if math.Float32bits(got[i][j]) != math.Float32bits(want[i][j]) {
				t.Fatalf("%s: logit %d after token %d is %v, want %v", what, j, i, got[i][j], want[i][j])
			}
		}
	}
}

// text makes a list of n token ids.
func text(n, vocab int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(4 + (i*i*7+i*13)%(vocab-4))
	}
	return out
}

// TestLogitsDoNotDependOnHowTheyAreMade: number of jobs, how the text is cut into
// calls, what the session held before. More than one batch of tokens, and more
// than the KV window of a.
func TestLogitsDoNotDependOnHowTheyAreMade(t *testing.T) {
	for _, name := range []string{"needle2-b-w4.cact", "needle3-a.cact", "needle3-b.cact", "needle3-c.cact"} {
		m := openArchive(t, name)
		for _, act := range []infer.Act{infer.Exact, infer.Q8} {
			tokens := text(72, m.Info().Vocab)
			want := logits(t, session(t, m, infer.SessionOptions{Jobs: 1, Act: act, Context: 200}, needle.Options{}), tokens)
			for _, jobs := range []int{2, 7} {
				equal(t, name+" jobs", logits(t, session(t, m, infer.SessionOptions{Jobs: jobs, Act: act, Context: 200}, needle.Options{}), tokens), want)
			}
			s := session(t, m, infer.SessionOptions{Act: act, Context: 200}, needle.Options{})
			var got [][]float32
			for rest, n := tokens, 1; len(rest) > 0; n = n*3%17 + 1 {
				n = min(n, len(rest))
				got = append(got, logits(t, s, rest[:n])...)
				rest = rest[n:]
			}
			equal(t, name+" in pieces", got, want)
			if err := s.Rewind(66); err != nil {
				t.Fatal(err)
			}
			equal(t, name+" after a rewind", logits(t, s, tokens[66:]), want[66:])
			if err := s.Rewind(0); err != nil {
				t.Fatal(err)
			}
			equal(t, name+" from the start", logits(t, s, tokens), want)
			if s.Len() != len(tokens) || s.Room() != 200-len(tokens) {
				t.Errorf("length %d, room %d", s.Len(), s.Room())
			}
		}
	}
}

// TestOneTokenAtATime is how text is generated.
func TestOneTokenAtATime(t *testing.T) {
	m := openArchive(t, "needle3-a.cact")
	tokens := text(20, m.Info().Vocab)
	want := logits(t, session(t, m, infer.SessionOptions{}, needle.Options{}), tokens)
	s := session(t, m, infer.SessionOptions{}, needle.Options{})
	for i, id := range tokens {
		equal(t, "alone", logits(t, s, []int32{id}), want[i:i+1])
	}
}

// TestWindow compares with the JAX model under a mask of ten positions.
func TestWindow(t *testing.T) {
	g, m := openGolden(t, "needle3-a-window.safetensors"), openArchive(t, "needle3-a.cact")
	s := session(t, m, infer.SessionOptions{}, needle.Options{Window: 10})
	near(t, "window", logits(t, s, g.tokens(t, "tokens")), g.rows(t, "logits"), 2e-5)
	// The window matters, and the file's own is what a session has.
	far := session(t, m, infer.SessionOptions{}, needle.Options{Window: -1})
	own := session(t, m, infer.SessionOptions{}, needle.Options{})
	set := session(t, m, infer.SessionOptions{}, needle.Options{Window: 40})
	tokens := text(60, m.Info().Vocab)
	a, b, c := logits(t, far, tokens), logits(t, own, tokens), logits(t, set, tokens)
	equal(t, "the file's window", b, c)
	equal(t, "within the window", a[:40], b[:40])
	if slices.Equal(a[59], b[59]) {
		t.Error("the file's window of 40 changes nothing after 60 tokens")
	}
}

func TestEvalRefuses(t *testing.T) {
	m := openArchive(t, "needle3-b.cact")
	s := session(t, m, infer.SessionOptions{Context: 8}, needle.Options{})
	want := logits(t, s, []int32{2, 9, 10})
	for _, c := range []struct {
		tokens []int32
		err    error
	}{{[]int32{1, 400}, infer.ErrToken}, {[]int32{-1}, infer.ErrToken}, {make([]int32, 9), infer.ErrContext}} {
		if err := s.Eval(t.Context(), c.tokens, nil, nil); !errors.Is(err, c.err) || s.Len() != 3 {
			t.Errorf("%v: %v, %d tokens", c.tokens, err, s.Len())
		}
	}
	if err := s.Rewind(4); err == nil {
		t.Error("rewound to what was never there")
	}
	stop := errors.New("stop")
	if err := s.Eval(t.Context(), []int32{4, 5}, []int{0, 1}, func(int, []float32) error { return stop }); !errors.Is(err, stop) || s.Len() != 3 {
		t.Errorf("%v after %d tokens", err, s.Len())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Eval(ctx, []int32{1}, nil, nil); !errors.Is(err, context.Canceled) || s.Len() != 3 {
		t.Errorf("%v after %d tokens", err, s.Len())
	}
	// What failed left nothing behind.
	fresh := session(t, m, infer.SessionOptions{}, needle.Options{})
	equal(t, "fresh", logits(t, fresh, []int32{2, 9, 10}), want)
	equal(t, "after failures", logits(t, s, []int32{11, 12}), logits(t, fresh, []int32{11, 12}))
}

func TestSessionRefuses(t *testing.T) {
	m := openArchive(t, "needle3-b.cact")
	if _, err := m.NewSession(infer.SessionOptions{Act: 7}); !errors.Is(err, infer.ErrUnsupported) {
		t.Errorf("arithmetic 7: %v", err)
	}
	if _, err := m.Read(t.Context(), []int32{2}, infer.SessionOptions{}, needle.Options{}); !errors.Is(err, infer.ErrUnsupported) {
		t.Errorf("heads of a model without: %v", err)
	}
	if _, err := openArchive(t, "needle3-a.cact").Read(t.Context(), nil, infer.SessionOptions{}, needle.Options{}); err == nil {
		t.Error("no tokens were read")
	}
}

// TestReadDoesNotDependOnJobs: more tokens than a batch has.
func TestReadDoesNotDependOnJobs(t *testing.T) {
	for _, name := range []string{"needle2-b-w4.cact", "needle3-a.cact"} {
		m := openArchive(t, name)
		tokens := text(80, m.Info().Vocab)
		want, err := m.Read(t.Context(), tokens, infer.SessionOptions{Jobs: 1, Context: 100}, needle.Options{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := m.Read(t.Context(), tokens, infer.SessionOptions{Jobs: 3, Context: 100}, needle.Options{})
		if err != nil {
			t.Fatal(err)
		}
		equal(t, name, [][]float32{got.Embedding, got.Confidence, got.Router}, [][]float32{want.Embedding, want.Confidence, want.Router})
		sum := 0.0
		for _, v := range want.Embedding {
			sum += float64(v) * float64(v)
		}
		if math.Abs(sum-1) > 1e-5 || len(want.Confidence) != 1 {
			t.Errorf("%s: an embedding of length %v, %d confidences", name, math.Sqrt(sum), len(want.Confidence))
		}
	}
}
