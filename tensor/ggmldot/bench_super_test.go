package ggmldot

import (
	"testing"

	"quern/tensor"
)

// BenchmarkSuper multiplies 1024 rows of 2048 values with 512 columns.
func BenchmarkSuper(b *testing.B) {
	const width, rows, columns = 2048, 1024, 512
	for _, typ := range append(superTypes(), tensor.Q1_0, tensor.Q2_0, tensor.NVFP4) {
		for _, repacked := range []bool{false, true} {
			if repacked && !Repacks(typ, rows) {
				continue
			}
			name := typ.String()
			if repacked {
				name += "/repacked"
			}
			b.Run(name, func(b *testing.B) {
				k, err := New(typ, width, rows, repacked)
				if err != nil {
					b.Fatal(err)
				}
				w := testWeights(typ, 1, width, rows)
				batch := testBatch(b, k, testFloats(2, columns, width, "plain"))
				dst := make([]float32, rows*columns)
				var s Scratch
				for b.Loop() {
					if err := k.Mul(dst, rows, w, batch, &s); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(2*float64(width*rows*columns*b.N)/b.Elapsed().Seconds()/1e9, "G/s")
			})
		}
	}
}
