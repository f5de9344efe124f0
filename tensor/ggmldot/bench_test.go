package ggmldot

import (
	"fmt"
	"testing"

	"quern/tensor"
)

// BenchmarkMul multiplies a matrix with a prompt and with a token, one thread, the
// activations' format included. Its width is SmolLM2-135M's, or the next that has whole blocks.
// interop/make_ggmldot.py --bench is the yardstick.
func BenchmarkMul(b *testing.B) {
	const rows = 1536
	for typ := range families {
		if families[typ] == nil {
			continue
		}
		typ := tensor.Type(typ)
		width := 576
		for width%int(typ.BlockValues()) != 0 {
			width += 64
		}
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
					b.ReportMetric(2*float64(width*rows*columns)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
				})
			}
		}
	}
}
