package quant

import (
	"math/rand/v2"
	"testing"

	"quern/tensor"
)

// squaredError encodes, decodes and compares.
func squaredError(c Codec, x, w []float32) float64 {
	n, _ := tensor.RowBytes(c.Type(), int64(len(x)))
	dst, out := make([]byte, n), make([]float32, len(x))
	c.EncodeRow(dst, x, w)
	c.Decode(out, dst)
	var sum float64
	for i, v := range out {
		sum += float64(v-x[i]) * float64(v-x[i])
	}
	return sum
}

// TestDeadWeights: weights of zero, for one group and for all, either are
// reported or leave the error near that without weights.
func TestDeadWeights(t *testing.T) {
	rng := rand.New(rand.NewPCG(19, 20))
	x := make([]float32, 512)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	for _, typ := range writable() {
		c, _ := For(typ)
		base := squaredError(c, x, nil)
		hole := spread(512, 1, nil)
		clear(hole[256+64 : 256+96])
		for name, w := range map[string][]float32{"all": make([]float32, 512), "32 values": hole, "none": spread(512, 1, nil)} {
			dead := DeadWeights(typ, w)
			if e := squaredError(c, x, w); dead.N == 0 && e > 1.3*base {
				t.Errorf("%s, zero weights for %s: error %g, without weights %g, and nothing is reported", typ, name, e, base)
			}
			if name == "none" && dead.N != 0 {
				t.Errorf("%s: %+v of weights that are not zero", typ, dead)
			}
		}
		if n := int64(weightGroup(typ)); n > 0 {
			if got := DeadWeights(typ, make([]float32, 512)); got != (Count{N: 512 / n}) {
				t.Errorf("%s: all zero is %+v", typ, got)
			}
			if n <= 32 {
				if got := DeadWeights(typ, hole); got != (Count{N: 32 / n, First: 320}) {
					t.Errorf("%s: a hole is %+v", typ, got)
				}
			}
		}
		// Weights next to nothing are weights.
		if got := DeadWeights(typ, spread(512, 1e-38, nil)); got.N != 0 {
			t.Errorf("%s: 1e-38 is %+v", typ, got)
		}
	}
}

func weightGroup(t tensor.Type) int {
	if int(t) < len(weightGroups) {
		return weightGroups[t]
	}
	return 0
}
