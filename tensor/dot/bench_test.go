package dot

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"quern/tensor"
	"quern/tensor/repack"
)

// BenchmarkMul multiplies a matrix that is larger than the caches, as a token
// of a model's answer does (1 row of activations), and a smaller one with many
// rows, as a prompt does. GFLOP/s counts two operations a weight and row.
func BenchmarkMul(b *testing.B) {
	for _, typ := range []tensor.Type{
		tensor.Q4_0, tensor.Q4_1, tensor.Q5_0, tensor.Q5_1, tensor.Q8_0, tensor.IQ4_NL, tensor.MXFP4,
		tensor.Q2_K, tensor.Q3_K, tensor.Q4_K, tensor.Q5_K, tensor.Q6_K, tensor.IQ4_XS, tensor.IQ2_XXS, tensor.F16,
	} {
		for _, c := range []struct{ tokens, rows, jobs int }{{1, 32768, 1}, {1, 32768, 2}, {128, 1024, 1}, {128, 1024, 2}} {
			b.Run(fmt.Sprintf("%s/tokens=%d/jobs=%d", typ, c.tokens, c.jobs), func(b *testing.B) {
				benchmarkMul(b, typ, FormatOf(typ), 2048, c.rows, c.tokens, c.jobs)
			})
		}
	}
}

// BenchmarkPacked is BenchmarkMul for rows in layouts, and plain ones beside them.
func BenchmarkPacked(b *testing.B) {
	for _, tokens := range []int{1, 128} {
		seen := map[tensor.Type]bool{}
		for _, l := range repack.Layouts() {
			f := FormatOf(l.Type())
			if !seen[l.Type()] {
				seen[l.Type()] = true
				b.Run(fmt.Sprintf("tokens=%d/%s", tokens, l.Type()), func(b *testing.B) {
					benchmarkKernel(b, kernel(b, l.Type(), 2048, f), f, 2048, 8192, tokens, 1)
				})
			}
			b.Run(fmt.Sprintf("tokens=%d/%s", tokens, l), func(b *testing.B) {
				benchmarkKernel(b, packedKernel(b, l, 2048, f), f, 2048, 8192, tokens, 1)
			})
		}
	}
}

func benchmarkMul(b *testing.B, typ tensor.Type, f Format, width, rows, tokens, jobs int) {
	benchmarkKernel(b, kernel(b, typ, width, f), f, width, rows, tokens, jobs)
}

func benchmarkKernel(b *testing.B, k *Kernel, f Format, width, rows, tokens, jobs int) {
	rng := rand.New(rand.NewPCG(1, 2))
	w := make([]byte, rows*k.RowBytes())
	for i := range w {
		w[i] = byte(rng.Uint32()) & 0x3b
	}
	x := make([][]float32, tokens)
	for i := range x {
		x[i] = gauss(rng, width, 1)
	}
	batch := batchOf(b, f, width, x...)
	dst := make([]float32, tokens*rows)
	scratch := make([]Scratch, jobs)
	b.SetBytes(int64(len(w)))
	b.ResetTimer()
	for range b.N {
		var wg sync.WaitGroup
		for j := range jobs {
			first, last := j*rows/jobs, (j+1)*rows/jobs
			wg.Go(func() {
				if err := k.Mul(dst[first:], rows, w[first*k.RowBytes():last*k.RowBytes()], batch, &scratch[j]); err != nil {
					b.Error(err)
				}
			})
		}
		wg.Wait()
	}
	b.ReportMetric(2*float64(width)*float64(rows)*float64(tokens)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
}

// BenchmarkSetRow measures the packing of activations.
func BenchmarkSetRow(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	x := gauss(rng, 2048, 1)
	for _, f := range []Format{Q8_0, Q8_K} {
		for _, rows := range []int{1, 8} {
			b.Run(fmt.Sprintf("%s/rows=%d", f, rows), func(b *testing.B) {
				batch, err := NewBatch(f, len(x), rows)
				if err != nil {
					b.Fatal(err)
				}
				if err := batch.Reset(rows); err != nil {
					b.Fatal(err)
				}
				b.SetBytes(int64(4 * len(x)))
				for b.Loop() {
					if err := batch.SetRow(rows-1, x); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
