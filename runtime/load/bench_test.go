package load_test

import (
	"fmt"
	"os"
	"testing"

	infer "quern/runtime"
	"quern/runtime/load"
)

// The benchmarks run the model that QUERN_BENCH_MODEL names, or a tiny one.
func benchModel(b *testing.B) infer.Model {
	b.Helper()
	path := os.Getenv("QUERN_BENCH_MODEL")
	if path == "" {
		path = "../../testdata/models/stories-wide"
	}
	m, err := load.Open(b.Context(), path)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { m.Close() })
	return m
}

func benchActs(b *testing.B, f func(b *testing.B, s infer.Session, vocab int)) {
	m := benchModel(b)
	for _, act := range []infer.Act{infer.Exact, infer.Q8} {
		for _, jobs := range []int{1, 2} {
			b.Run(fmt.Sprintf("%v/%d", act, jobs), func(b *testing.B) {
				s, err := m.NewSession(infer.SessionOptions{Context: 512, Act: act, Jobs: jobs})
				if err != nil {
					b.Fatal(err)
				}
				f(b, s, m.Info().Vocab)
			})
		}
	}
}

// BenchmarkGenerate makes tokens one by one behind a text of 64.
func BenchmarkGenerate(b *testing.B) {
	benchActs(b, func(b *testing.B, s infer.Session, vocab int) {
		n := 0
		for b.Loop() {
			if s.Room() == 0 || s.Len() == 0 {
				if err := s.Rewind(0); err != nil {
					b.Fatal(err)
				}
				if err := s.Eval(b.Context(), make([]int32, 64), nil, nil); err != nil {
					b.Fatal(err)
				}
			}
			if _, err := infer.Last(b.Context(), s, []int32{int32(n % vocab)}, nil); err != nil {
				b.Fatal(err)
			}
			n++
		}
		b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "tokens/s")
	})
}

// BenchmarkPrompt reads a text of 256 tokens.
func BenchmarkPrompt(b *testing.B) {
	benchActs(b, func(b *testing.B, s infer.Session, vocab int) {
		tokens := make([]int32, 256)
		for i := range tokens {
			tokens[i] = int32(i * 37 % vocab)
		}
		n := 0
		for b.Loop() {
			if err := s.Rewind(0); err != nil {
				b.Fatal(err)
			}
			if _, err := infer.Last(b.Context(), s, tokens, nil); err != nil {
				b.Fatal(err)
			}
			n += len(tokens)
		}
		b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "tokens/s")
	})
}
