//go:build !amd64 || noasm

package ggmldot

import "quern/tensor/dot"

func oneOrder(*order) bool { return false }

func (*Kernel) mulOne(*order, []float32, []byte, *superRows, *Scratch) {}

func settleVector(*order, *superFamily, *dot.Tile, int, int, *superScratch) {}

func sumSuper(o *order, f *superFamily, acc []float32, t *dot.Tile, rows int, g superGroup, n int, _ *superScratch) {
	o.sum(o, f, acc, t, rows, g, n)
}

func finishSuper(o *order, f *superFamily, out *[columns * columns]float32, acc []float32) {
	finishSuperScalar(o, f, out, acc)
}
