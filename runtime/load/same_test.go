package load_test

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	infer "quern/runtime"
	"quern/runtime/load"
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

// TestLogitsDoNotDependOnHowTheyAreMade: number of jobs, how the text is cut
// into calls, what the session held before.
func TestLogitsDoNotDependOnHowTheyAreMade(t *testing.T) {
	for _, name := range []string{"stories260k", "stories-moe"} {
		m := open(t, filepath.Join("../../testdata/models", name))
		tokens, _ := goldenLogits(t, name)
		tokens = append(tokens, tokens[1:60]...) // more than one batch
		want := all(t, session(t, m, infer.SessionOptions{Jobs: 1}), tokens)
		for _, jobs := range []int{2, 7} {
			equal(t, "jobs", all(t, session(t, m, infer.SessionOptions{Jobs: jobs}), tokens), want)
		}
		s := session(t, m, infer.SessionOptions{Context: 400})
		var got [][]float32
		for rest, n := tokens, 1; len(rest) > 0; n = n*3%17 + 1 {
			n = min(n, len(rest))
			got = append(got, all(t, s, rest[:n])...)
			rest = rest[n:]
		}
		equal(t, "in pieces", got, want)
		if err := s.Rewind(50); err != nil {
			t.Fatal(err)
		}
		equal(t, "after a rewind", all(t, s, tokens[50:]), want[50:])
		if err := s.Rewind(0); err != nil {
			t.Fatal(err)
		}
		equal(t, "from the start", all(t, s, tokens), want)
		if s.Len() != len(tokens) || s.Room() != 400-len(tokens) {
			t.Errorf("length %d, room %d", s.Len(), s.Room())
		}
	}
}

func TestEvalRefuses(t *testing.T) {
	m := open(t, "../../testdata/models/stories260k")
	s := session(t, m, infer.SessionOptions{Context: 8})
	if err := s.Eval(t.Context(), []int32{1, 512}, nil, nil); !errors.Is(err, infer.ErrToken) {
		t.Errorf("id 512: %v", err)
	}
	if err := s.Eval(t.Context(), make([]int32, 9), nil, nil); !errors.Is(err, infer.ErrContext) {
		t.Errorf("9 tokens: %v", err)
	}
	if err := s.Rewind(1); err == nil {
		t.Error("rewound to what was never there")
	}
	stop := errors.New("stop")
	if err := s.Eval(t.Context(), []int32{1, 2}, []int{0, 1}, func(int, []float32) error { return stop }); !errors.Is(err, stop) || s.Len() != 0 {
		t.Errorf("%v after %d tokens", err, s.Len())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Eval(ctx, []int32{1}, nil, nil); !errors.Is(err, context.Canceled) || s.Len() != 0 {
		t.Errorf("%v after %d tokens", err, s.Len())
	}
	if err := s.Eval(t.Context(), slices.Repeat([]int32{1}, 8), nil, nil); err != nil || s.Room() != 0 {
		t.Errorf("%v, room %d", err, s.Room())
	}
}

func TestKMCUGivesTheLogitsOfItsWeights(t *testing.T) {
	m := open(t, "../../testdata/golden/kmcu/stories260k.kmcu")
	if _, err := m.Tokenizer(); !errors.Is(err, infer.ErrNoTokenizer) {
		t.Errorf("tokenizer: %v", err)
	}
	tokens, want := goldenLogits(t, "stories260k")
	// Four bits a weight: near the float model, not at it.
	agree, sum := 0, 0.0
	for i, row := range all(t, session(t, m, infer.SessionOptions{}), tokens) {
		if argmax(row) == argmax(want[i]) {
			agree++
		}
		for j := range row {
			sum += math.Abs(float64(row[j] - want[i][j]))
		}
	}
	mean := sum / float64(len(want)*len(want[0]))
	t.Logf("%d of %d best tokens agree, mean difference %.3f", agree, len(want), mean)
	if agree < len(want)*3/4 || mean > 1 || mean == 0 {
		t.Errorf("%d of %d best tokens agree, mean difference %g", agree, len(want), mean)
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return p
	}
	for _, p := range []string{write("empty.gguf", ""), write("short.kmcu", "KMCU"), write("text.gguf", "hello, world"), dir, filepath.Join(dir, "none")} {
		if m, err := load.Open(t.Context(), p); err == nil {
			t.Errorf("%s opens as %+v", p, m.Info())
		}
	}
}
