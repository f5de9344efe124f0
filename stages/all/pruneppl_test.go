package all_test

import (
	"errors"
	"math"
	"path/filepath"
	"slices"
	"testing"

	infer "quern/runtime"
	"quern/runtime/load"
	"quern/runtime/score"
	"quern/tokenizer"
)

// TestPrunedPerplexity: on a text of kept tokens the perplexity is the whole model's
// but for what that gives to the others, exactly; tokens that the head lacks are left
// out and counted.
func TestPrunedPerplexity(t *testing.T) {
	content := readAll(t, filepath.Join(testdata, "text", "eval-stories.txt"))
	b := newPruneBench(t, "stories260k")
	whole := b.build(b.dir, nil, "", "")
	m, err := load.Open(t.Context(), whole)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	tok, err := m.Tokenizer()
	if err != nil {
		t.Fatal(err)
	}
	used, err := tok.Encode(string(content), tokenizer.EncodeOptions{Special: true})
	if err != nil {
		t.Fatal(err)
	}
	ids := append(slices.Clone(used), 0, 1, 2)
	slices.Sort(ids)
	ids = slices.Compact(ids)
	if len(ids) > 480 {
		t.Fatalf("the text has %d of 512 tokens: the test shows little", len(ids))
	}
	opt := score.Options{Context: 128, Chunks: 6}
	measure := func(file string) *score.Perplexity {
		m, err := load.Open(t.Context(), file)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		p, err := score.Measure(t.Context(), m, content, opt)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	full := measure(whole)
	pruned := measure(b.build(b.dir, ids, "  - prune-head: {tokens: keep}\n", ""))
	if pruned.Outside != 0 || full.Outside != 0 || pruned.Scored != full.Scored || pruned.Bytes != full.Bytes {
		t.Fatalf("%+v, whole %+v", pruned, full)
	}
	if d := pruned.Perplexity / full.Perplexity; d > 1 || d < 0.97 {
		t.Errorf("perplexity %v, of the whole model %v", pruned.Perplexity, full.Perplexity)
	}
	// The same sum out of the whole model's logits.
	s, err := m.NewSession(infer.SessionOptions{Context: 128})
	if err != nil {
		t.Fatal(err)
	}
	var sum float64
	for c := range 6 {
		chunk := slices.Clone(used[c*128 : (c+1)*128])
		chunk[0] = 1
		var want []int
		for i := 64; i < 127; i++ {
			want = append(want, i)
		}
		if err := s.Rewind(0); err != nil {
			t.Fatal(err)
		}
		if err := s.Eval(t.Context(), chunk, want, func(i int, row []float32) error {
			for id := range row {
				if _, kept := slices.BinarySearch(ids, int32(id)); !kept {
					row[id] = float32(math.Inf(-1))
				}
			}
			sum += score.NLL(opt, row, chunk[i+1])
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	if sum != pruned.SumNLL {
		t.Errorf("sum %v, of the whole model's logits over the kept tokens %v", pruned.SumNLL, sum)
	}
	// Of the tokens that both have, they think alike.
	pm, err := load.Open(t.Context(), b.build(b.dir, ids, "  - prune-head: {tokens: keep}\n", ""))
	if err != nil {
		t.Fatal(err)
	}
	defer pm.Close()
	d, err := score.Diverge(t.Context(), m, pm, content, opt)
	if err != nil {
		t.Fatal(err)
	}
	// e^(difference of the mean NLL) is the geometric mean of 1 - outside.
	if d.Mean > 1e-12 || d.Outside != 0 || d.OutsideMass < 0.001 || math.Abs(d.OutsideMass+math.Log(pruned.Perplexity/full.Perplexity)) > 0.01 {
		t.Errorf("%+v", d)
	}
	if back, err := score.Diverge(t.Context(), pm, m, content, opt); err != nil || back.OutsideMass != 0 || !(back.Mean > 0.001) {
		t.Errorf("the other way round: %+v, %v", back, err)
	}
	// Without one frequent token.
	fewer := slices.DeleteFunc(slices.Clone(ids), func(id int32) bool { return id == used[200] })
	part := measure(b.build(b.dir, fewer, "  - prune-head: {tokens: keep}\n", ""))
	n, size := 0, int64(0)
	for c := range 6 {
		for _, id := range used[c*128+65 : (c+1)*128] {
			if id == used[200] {
				n, size = n+1, size+int64(len(tok.Piece(id, true)))
			}
		}
	}
	if n == 0 || part.Outside != n || part.Scored != full.Scored-n || part.Bytes != full.Bytes-size || math.IsInf(part.Perplexity, 0) {
		t.Errorf("%d outside, %d scored, %d bytes, perplexity %v; the token is there %d times", part.Outside, part.Scored, part.Bytes, part.Perplexity, n)
	}
	only := measure2(t, b.build(b.dir, []int32{511}, "  - prune-head: {tokens: keep}\n", ""), content, opt)
	if !errors.Is(only, score.ErrOutside) {
		t.Errorf("a head without any token of the text: %v", only)
	}
}

func measure2(t *testing.T, file string, content []byte, opt score.Options) error {
	t.Helper()
	m, err := load.Open(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	_, err = score.Measure(t.Context(), m, content, opt)
	return err
}
