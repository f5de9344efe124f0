package ggmldot

import (
	"fmt"
	"testing"

	"quern/tensor"
)

// BenchmarkMul multiplies a matrix of SmolLM2-135M with a prompt and with a token, one
// thread, the activations' format included. interop/make_ggmldot.py --bench is the yardstick.
func BenchmarkMul(b *testing.B) {
	const width, rows = 576, 1536
	for _, typ := range []tensor.Type{
		tensor.F32, tensor.F16, tensor.BF16, tensor.Q4_0, tensor.Q4_1, tensor.Q5_0, tensor.Q5_1, tensor.Q8_0, tensor.IQ4_NL, tensor.MXFP4,
	} {
		for _, repacked := range []bool{false, true} {
			k, err := New(typ, width, rows, repacked)
			if err != nil {
				continue
			}
			name := typ.String()
			if repacked {
				name += "_repacked"
			}
			w := testWeights(typ, 1, width, rows)
			for _, columns := range []int{1, 512} {
				b.Run(fmt.Sprintf("%s/%d", name, columns), func(b *testing.B) {
					x := testFloats(2, columns, width, "plain")
					batch := testBatch(b, k, x)
					dst := make([]float32, rows*columns)
					var s Scratch
					for b.Loop() {
						for t := range columns {
							if err := batch.SetRow(t, x[t*width:][:width]); err != nil {
								b.Fatal(err)
							}
						}
						if err := k.Mul(dst, rows, w, batch, &s); err != nil {
							b.Fatal(err)
						}
					}
					b.ReportMetric(2*width*rows*float64(columns)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
				})
			}
		}
	}
}
