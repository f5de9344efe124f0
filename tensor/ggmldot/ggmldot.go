// Package ggmldot multiplies rows of weights with activations exactly as
// llama.cpp's CPU backend does on x86 with AVX2, FMA and F16C: the same bits, from
// the same order of operations, on every machine. Package dot is the faster order
// that quern has of its own.
//
// # Order of operations
//
// Activations are first brought to the format that ggml multiplies a type with:
// Format lists them. What is integer is exact in any order, so an order is how
// integer sums are cut, and how they come together as float32 numbers; fma is
// a multiplication and addition rounded once (package internal/fma). The file of
// each family of types writes its order down. It depends on
//
//   - the type of the weights,
//   - whether the loader put the matrix into the repacked buffer (Repacks),
//   - for floats, whether 4 divides the rows of the whole matrix and 8 its width,
//   - the number of columns, which are the rows of a Batch: floats, IQ4_NL and grid types
//     have one order for a single column and another for more,
//   - in repacked matrices a column's place, as groups of 4 columns are multiplied
//     together and up to 3 that are left one by one.
//
// It does not depend on threads, on how a matrix is cut into calls of Mul, nor on
// values of other rows. A result that is not a number is always the same NaN.
package ggmldot

//go:generate go -C _gen run . -set blocks -out ../blocks_amd64.s -stubs ../blocks_stubs_amd64.go -pkg ggmldot

import (
	"errors"
	"fmt"

	"quern/tensor"
)

var (
	// ErrSize marks weights, activations and results whose sizes do not fit.
	ErrSize = errors.New("sizes do not fit")
	// ErrNoKernel marks types, or ways to hold them, that have no products here.
	ErrNoKernel = errors.New("no products in ggml's order")
)

// Kernel multiplies the rows of a matrix with activations. It has no state: any
// number of goroutines may use one at once.
type Kernel struct {
	typ      tensor.Type
	width    int
	rows     int // of the whole matrix
	rowBytes int
	path     *path
}

// path is one of the ways in which rows of a type are multiplied.
type path struct {
	format Format
	// mul does what Kernel.Mul promises, whose arguments have been checked and
	// have at least one row and one column.
	mul func(k *Kernel, dst []float32, stride int, w []byte, b *Batch, s *Scratch)
}

// family gives the path for a matrix of so many rows. Those of types that Repacks knows are asked for the
// repacked one too.
type family func(rows int, repacked bool) *path

// New gives the kernel for a matrix of type t with rows rows of width values.
// repacked says that llama.cpp holds it in its repacked buffer; Mul takes the
// rows as files have them all the same. ErrNoKernel marks what ggml does not
// multiply in that way, or quern does not know.
func New(t tensor.Type, width, rows int, repacked bool) (*Kernel, error) {
	rowBytes, err := tensor.RowBytes(t, int64(width))
	if err != nil {
		return nil, err
	}
	if width <= 0 || rows <= 0 || rowBytes > 1<<30 {
		return nil, fmt.Errorf("%w: %d rows of %d values", ErrSize, rows, width)
	}
	k := &Kernel{typ: t, width: width, rows: rows, rowBytes: int(rowBytes)}
	if int(t) < len(families) && families[t] != nil && (!repacked || Repacks(t, rows)) {
		k.path = families[t](rows, repacked)
	}
	if k.path == nil {
		how := "plain"
		if repacked {
			how = "repacked"
		}
		return nil, fmt.Errorf("%w: %s %s weights, %d rows of %d values", ErrNoKernel, how, t, rows, width)
	}
	return k, nil
}

// Type is the type of the weights.
func (k *Kernel) Type() tensor.Type { return k.typ }

// RowBytes is the size of a row of weights.
func (k *Kernel) RowBytes() int { return k.rowBytes }

// Width is the number of values in a row of weights and of activations.
func (k *Kernel) Width() int { return k.width }

// Activations is the format of the activations that Mul takes.
func (k *Kernel) Activations() Format { return k.path.format }

// ExpertColumns is how many of n activation rows that go to one expert MUL_MAT_ID multiplies in one operation:
// all with types that have panels, else one. See Repacks.
func (k *Kernel) ExpertColumns(n int) int {
	if k.path == panelPath {
		return n
	}
	return 1
}

// Mul multiplies rows of the matrix, each RowBytes long in w, with the rows of b:
//
//	dst[t*stride+r] = row r of w . row t of b
//
// so that the results of an activation row lie together. The rows of b are all
// columns that ggml multiplies in one operation. To share a matrix among
// goroutines give each some of its rows, best a multiple of 8, dst from the
// first of them on, and a Scratch of its own. Nothing is allocated once the
// Scratch has grown to the widest matrix and largest batch.
func (k *Kernel) Mul(dst []float32, stride int, w []byte, b *Batch, s *Scratch) error {
	if b.format != k.path.format || b.width != k.width {
		return fmt.Errorf("%w: %s activations of %d values, the kernel takes %s of %d", ErrSize, b.format, b.width, k.path.format, k.width)
	}
	rows := len(w) / k.rowBytes
	switch {
	case rows*k.rowBytes != len(w):
		return fmt.Errorf("%w: %d bytes of weights in rows of %d bytes", ErrSize, len(w), k.rowBytes)
	case rows > k.rows:
		return fmt.Errorf("%w: %d rows of weights of a matrix of %d", ErrSize, rows, k.rows)
	case rows == 0 || b.rows == 0:
		return nil
	case stride < rows && b.rows > 1:
		return fmt.Errorf("%w: results of %d rows every %d places", ErrSize, rows, stride)
	case len(dst) < rows || b.rows > 1 && b.rows-1 > (len(dst)-rows)/stride:
		return fmt.Errorf("%w: %d places for %d times %d results, %d apart", ErrSize, len(dst), b.rows, rows, stride)
	}
	k.path.mul(k, dst, stride, w, b, s)
	return nil
}

// Repacks reports whether ggml's AVX2 build has a repacked form for a matrix of
// type t with rows rows, of each expert if there are several.
//
// llama.cpp's loader, on a machine without other devices and with its defaults, brings every
// tensor of such a type and shape into that form that its table of tensors gives to MUL_MAT or
// MUL_MAT_ID: the projections of attention, of feed-forward blocks and of experts, and
// output.weight. token_embd.weight belongs to GET_ROWS and stays plain; where it is tied,
// the product takes a second copy, which is repacked like any other. A tensor of another
// type, of rows that 8 does not divide, or of three dimensions without experts stays plain.
//
// MUL_MAT_ID multiplies each column by itself: its results are those of a Batch of one
// row, but for grid types, whose panels take all columns of an expert.
func Repacks(t tensor.Type, rows int) bool {
	switch t {
	case tensor.Q4_0, tensor.Q4_K, tensor.IQ4_NL, tensor.MXFP4:
		return rows > 0 && rows%8 == 0
	}
	return false
}
