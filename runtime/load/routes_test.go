package load_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"quern/formats/trace"
	infer "quern/runtime"
	"quern/runtime/importance"
	"quern/runtime/routes"
	"quern/tokenizer"
)

// TestRoutesAreWhatExpertsSee compares a trace with the counts of an importance
// matrix over the same tokens, which counts what really entered each expert, and
// its choices with the scores beside them.
func TestRoutesAreWhatExpertsSee(t *testing.T) {
	m := open(t, "../../testdata/models/stories-moe")
	text := evalText(t)
	const context = 128
	x, err := importance.Compute(t.Context(), m, text, importance.Options{Context: context})
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	r := routes.New(&b, routes.Options{Scores: true, Ahead: 1})
	tok, err := m.Tokenizer()
	if err != nil {
		t.Fatal(err)
	}
	s, err := m.NewSession(infer.SessionOptions{Context: context, Routes: r})
	if err != nil {
		t.Fatal(err)
	}
	ids, err := tok.Encode(strings.TrimSuffix(string(text), "\n"), tokenizer.EncodeOptions{Special: true})
	if err != nil {
		t.Fatal(err)
	}
	for chunk := range slices.Chunk(ids[:x.Chunks*context], context) {
		chunk = slices.Clone(chunk)
		if tok.AddsBOS() {
			chunk[0] = tok.BOS()
		}
		if err := s.Rewind(0); err != nil {
			t.Fatal(err)
		}
		if err := s.Eval(t.Context(), chunk, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Flush(); err != nil {
		t.Fatal(err)
	}
	u, cut, err := trace.ReadUse("t", strings.NewReader(b.String()))
	if err != nil || cut || u.Tokens != int64(x.Chunks*context) {
		t.Fatalf("%d tokens, cut %t, %v; want %d", u.Tokens, cut, err, x.Chunks*context)
	}
	layers := 0
	for _, e := range x.Entries {
		if strings.HasSuffix(e.Name, ".ffn_up_exps.weight") {
			if !slices.Equal(e.Counts, u.Counts[layers]) {
				t.Errorf("%s saw %v, the trace says %v", e.Name, e.Counts, u.Counts[layers])
			}
			layers++
		}
	}
	if layers != len(u.Header.Layers) || layers == 0 {
		t.Errorf("%d layers, the trace has %v", layers, u.Header.Layers)
	}
	checkRows(t, b.String())
}

// checkRows finds choices that are not the best by their scores, and counts how
// often guesses are right: more often than by chance.
func checkRows(t *testing.T, text string) {
	r, err := trace.NewReader("t", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	var guess []int
	right, all := 0, 0
	for {
		row, err := r.Next()
		if err != nil {
			break
		}
		for i, e := range row.Chosen {
			for other, v := range row.Scores {
				if v > row.Scores[e] && !slices.Contains(row.Chosen[:i], other) {
					t.Fatalf("token %d layer %d: expert %d with %v chosen before expert %d with %v", row.Token, row.Layer, e, row.Scores[e], other, v)
				}
			}
			if row.Layer > 0 {
				all++
				if slices.Contains(guess, e) {
					right++
				}
			}
		}
		if last := row.Layer == len(r.Header.Layers)-1; last != (len(row.Ahead) == 0) {
			t.Fatalf("layer %d has the guess %v", row.Layer, row.Ahead)
		}
		guess = slices.Clone(row.Ahead)
	}
	if chance := float64(r.Header.Used) / float64(r.Header.Experts); float64(right) <= chance*float64(all) {
		t.Errorf("%d of %d guesses are right, chance gives %.0f", right, all, chance*float64(all))
	}
}

func TestRoutesNeedExperts(t *testing.T) {
	m := open(t, "../../testdata/models/stories260k")
	if _, err := m.NewSession(infer.SessionOptions{Routes: routes.New(nil, routes.Options{})}); !errors.Is(err, infer.ErrUnsupported) {
		t.Errorf("%v", err)
	}
}
