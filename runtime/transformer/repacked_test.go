package transformer_test

import (
	"math"
	"testing"

	infer "quern/runtime"
	"quern/tensor"
	"quern/tensor/repack"
)

// TestRepackedRowsGiveTheLogitsOfPlainOnes: matrices in every layout, experts and
// the head among them, give the bits of the plain matrices, in both kinds of
// arithmetic and for any number of workers.
func TestRepackedRowsGiveTheLogitsOfPlainOnes(t *testing.T) {
	for _, name := range []string{"stories-wide", "stories-moe"} {
		base := converted(t, name)
		for _, l := range repack.Layouts() {
			n := 0
			packed := changed(base, func(x *tensor.Tensor) *tensor.Tensor {
				if l.Check(l.Type(), x.Shape) != nil {
					return x
				}
				n++
				p, err := repack.Interleave(encoded(t, x, l.Type()), l)
				if err != nil {
					t.Fatal(err)
				}
				// What a cache gives: the groups in place.
				stored := made(x.Name, tensor.U8, p.Shape, bytesOf(t, p))
				y, err := repack.Deinterleave(stored, l, x.Shape)
				if err != nil {
					t.Fatal(err)
				}
				return y
			})
			if n == 0 {
				if name == "stories-wide" {
					t.Errorf("%s: no matrix of %s", l, name)
				}
				continue
			}
			plain := changed(packed, func(x *tensor.Tensor) *tensor.Tensor {
				if x.Type != l.Type() {
					return x
				}
				return made(x.Name, x.Type, x.Shape, bytesOf(t, x))
			})
			for _, act := range []infer.Act{infer.Exact, infer.Q8} {
				want := logits(t, opened(t, plain), infer.SessionOptions{Act: act}, text[:10])
				for _, jobs := range []int{1, 3} {
					got := logits(t, opened(t, packed), infer.SessionOptions{Act: act, Jobs: jobs}, text[:10])
					for i := range want {
						for j := range want[i] {
							if math.Float32bits(got[i][j]) != math.Float32bits(want[i][j]) {
								t.Fatalf("%s, %s, %v, %d workers: logit %d after token %d is %v, plain %v", name, l, act, jobs, j, i, got[i][j], want[i][j])
							}
						}
					}
				}
			}
		}
	}
}
