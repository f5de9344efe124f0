package quant

import (
	"bytes"
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"quern/tensor"
)

// edgeBlocks are blocks of 256 values at which scales vanish, overflow or are
// undefined.
func edgeBlocks() [][]float32 {
	rng := rand.New(rand.NewPCG(13, 14))
	fill := func(f func(i int) float32) []float32 {
		x := make([]float32, 256)
		for i := range x {
			x[i] = f(i)
		}
		return x
	}
	normal := func(scale float32) []float32 {
		return fill(func(int) float32 { return float32(rng.NormFloat64()) * scale })
	}
	return [][]float32{
		fill(func(int) float32 { return 0 }),
		fill(func(int) float32 { return float32(math.Copysign(0, -1)) }),
		fill(func(i int) float32 { return []float32{math.MaxFloat32, -math.MaxFloat32}[i%2] }),
		fill(func(int) float32 { return -math.MaxFloat32 }),
		fill(func(i int) float32 { return float32(i%5) * math.SmallestNonzeroFloat32 }),
		fill(func(i int) float32 { return float32(i%3-1) * 1e-39 }),
		fill(func(i int) float32 { return float32(i/64) * 1e30 }), // one sub-block of zeros
		fill(func(int) float32 { return 0.7 }),
		normal(1), normal(1e-4), normal(1e-12), normal(1e-20), normal(1e-38), normal(1e20), normal(1e36),
		fill(func(i int) float32 { return float32(math.Ldexp(rng.NormFloat64(), i-128)) }),
	}
}

// edgeWeights are nil and rows of 256 weights, zeros among them.
func edgeWeights() [][]float32 {
	rng := rand.New(rand.NewPCG(15, 16))
	mixed, holes := make([]float32, 256), make([]float32, 256)
	for i := range mixed {
		mixed[i] = rng.Float32()
		if i/32 != 3 {
			holes[i] = mixed[i]
		}
	}
	return [][]float32{nil, spread(256, 1, nil), spread(256, 0, nil), spread(256, 1e-38, nil), spread(256, 1e-11, nil), holes, mixed}
}

// TestEdgeBlocks: no edge makes an encoder panic or decode to what is not
// finite without the block being reported, and a block that can be held at all
// keeps a sane error.
func TestEdgeBlocks(t *testing.T) {
	for _, typ := range writable() {
		t.Run(typ.String(), func(t *testing.T) {
			c, _ := For(typ)
			n, _ := tensor.RowBytes(typ, 256)
			for bi, x := range edgeBlocks() {
				for wi, w := range edgeWeights() {
					dst := make([]byte, n)
					c.EncodeRow(dst, x, w)
					out := make([]float32, 256)
					c.Decode(out, dst)
					if FirstBadBlock(typ, dst) >= 0 {
						// MXFP4's exponent of magnitudes near 2^-126 wraps to
						// 255, as ggml's does.
						if _, amax := argAbs(x); amax < 1e4 && amax > 1e-30 {
							t.Errorf("block %d, weights %d: scale of ordinary values is not finite", bi, wi)
						}
						continue
					}
					for i, v := range out {
						if v-v != 0 && x[i] < 1e30 && x[i] > -1e30 {
							t.Fatalf("block %d, weights %d: value %d is %v, was %v", bi, wi, i, v, x[i])
						}
					}
				}
			}
		})
	}
}

// TestNoMemory: a block's bytes are the same alone, after blocks of huge
// values, over old bytes, and from 16 goroutines at once.
func TestNoMemory(t *testing.T) {
	blocks := edgeBlocks()
	huge := blocks[2]
	for _, typ := range writable() {
		t.Run(typ.String(), func(t *testing.T) {
			c, _ := For(typ)
			n, _ := tensor.RowBytes(typ, 256)
			for wi, w := range edgeWeights()[:2] {
				var alone, together []byte
				var row, weights []float32
				for _, x := range blocks {
					dst := make([]byte, n)
					c.EncodeRow(dst, x, w)
					alone = append(alone, dst...)

					c.EncodeRow(dst, huge, w)
					c.EncodeRow(dst, x, w)
					if !bytes.Equal(dst, alone[len(alone)-int(n):]) {
						t.Fatalf("weights %d: bytes depend on the block before", wi)
					}
					row = append(row, x...)
					weights = append(weights, w...)
				}
				if w == nil {
					weights = nil
					together = make([]byte, len(alone))
					c.EncodeRow(together, row, nil)
					if !bytes.Equal(together, alone) {
						t.Errorf("one row of all blocks differs at %d", firstDiff(together, alone))
					}
				}
				// With weights some types look at the whole row, so the row is
				// compared with itself.
				want := make([]byte, len(alone))
				c.EncodeRow(want, row, weights)
				var wg sync.WaitGroup
				for range 16 {
					wg.Go(func() {
						got := bytes.Repeat([]byte{0x5a}, len(want))
						c.EncodeRow(got, row, weights)
						if !bytes.Equal(got, want) {
							t.Errorf("weights %d: concurrent call differs at %d", wi, firstDiff(got, want))
						}
					})
				}
				wg.Wait()
			}
		})
	}
}

// TestTableTiesToCodecs: a block of each type is as long as the type table
// says, and neither direction touches what lies beyond.
func TestTableTiesToCodecs(t *testing.T) {
	for _, typ := range tensor.Types() {
		d, err := DecoderFor(typ)
		if err != nil {
			continue
		}
		if d.Type() != typ {
			t.Errorf("the decoder of %s says %s", typ, d.Type())
		}
		n, size := int(typ.BlockValues()), int(typ.BlockBytes())
		src := bytes.Repeat([]byte{0x3c}, 2*size)
		out := spread(int64(n+1), -77, nil)
		d.Decode(out[:n], src[:size])
		if out[n] != -77 {
			t.Errorf("%s decodes past its block", typ)
		}
		c, ok := d.(Codec)
		if !ok {
			continue
		}
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(i%7) - 3.5
		}
		a, b := bytes.Repeat([]byte{0x00}, size+2), bytes.Repeat([]byte{0xff}, size+2)
		c.EncodeRow(a[:size], x, nil)
		c.EncodeRow(b[:size], x, nil)
		if !bytes.Equal(a[:size], b[:size]) {
			t.Errorf("%s leaves bytes of its block unwritten", typ)
		}
		if a[size] != 0 || b[size] != 0xff {
			t.Errorf("%s writes past its block", typ)
		}
	}
}
