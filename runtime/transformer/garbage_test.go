package transformer_test

import (
	"context"
	"testing"

	infer "quern/runtime"
	"quern/tensor"
)

// TestTokensLeaveNoGarbage: once the buffers are there, a call allocates the same few
// things for its workers whatever the model has of layers, so that the collector, which
// reads tables of the whole program, has nothing to do in a long answer.
func TestTokensLeaveNoGarbage(t *testing.T) {
	for _, typ := range []tensor.Type{tensor.Q8_0, tensor.Q4_0} {
		m := opened(t, changed(converted(t, "stories260k"), func(x *tensor.Tensor) *tensor.Tensor {
			if len(x.Shape) < 2 || x.Shape.RowLen()%typ.BlockValues() != 0 {
				return x
			}
			return encoded(t, x, typ)
		}))
		for _, jobs := range []int{1, 2} {
			s, err := m.NewSession(infer.SessionOptions{Act: infer.Q8, Jobs: jobs, Context: 512})
			if err != nil {
				t.Fatal(err)
			}
			next, want := text[:1], []int{0}
			each := func(int, []float32) error { return nil }
			step := func() {
				if err := s.Eval(context.Background(), next, want, each); err != nil {
					t.Fatal(err)
				}
			}
			for range 400 { // over which buffers grow with the text
				step()
			}
			if err := s.Rewind(200); err != nil {
				t.Fatal(err)
			}
			// The function that is the call's work, and what starts a worker.
			bound := float64(2 + 4*(jobs-1))
			if n := testing.AllocsPerRun(100, step); n > bound {
				t.Errorf("%v, %d jobs: %v allocations a token, want %v at most", typ, jobs, n, bound)
			}
		}
	}
}
