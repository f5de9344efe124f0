// Package dot multiplies rows of weights, as the bytes of a file hold them, with
// activations: the matrix products of the runtime.
//
// A Kernel knows one type of weights and one width. A Batch holds activation
// rows in one of three formats: float32, or quantized to int8 as ggml's device
// kernels do it, in blocks of 32 (Q8_0) or 256 (Q8_K). FormatOf says which of
// the int8 formats goes with a type.
//
// # Order of operations
//
// Every result has one written order of operations, whatever the machine, the
// number of rows and tokens in a call, and how a matrix is cut into calls. A
// result that is not a number is always the same NaN.
//
// With int8 activations a row is a sequence of units: blocks of 32 values with
// a scale d of their own, or superblocks of 256 whose blocks of 16 have integer
// scales s. All that is integer is exact:
//
//	n = sum of code*a                              (units of 32)
//	n = sum over blocks j of s[j] * sum of code*a  (units of 256)
//
// Units are taken in row order into one float32 accumulator that starts at 0,
// with da the scale of the activations:
//
//	acc = acc + float32(n) * (d*da)
//
// Types whose values have a minimum add a second term for each unit, with the
// sums of the unit's (Q4_1, Q5_1) or block's (k-quants) activations:
//
//	acc = acc + float32(sum of a) * (m*da)                        (units of 32)
//	acc = acc - float32(sum over j of min[j]*(sum of a)) * (dmin*da)  (units of 256)
//
// NVFP4 has a scale for each 16 values and so two such terms in a unit of 32.
//
// With float32 activations the weights are decoded to float32 by package quant.
// Eight lanes take their products in turn, lane l those of values l, l+8, l+16
// and so on, and are added as ((0+4)+(2+6))+((1+5)+(3+7)). It is the order of
// package runtime/num.
//
// Vector code runs over several rows or tokens at once and does the same in
// each lane. Build tag noasm leaves it out, QUERN_NOASM=1 switches it off.
package dot

//go:generate go -C _gen run . -out ../kernels_amd64.s -stubs ../stubs_amd64.go -pkg dot

import (
	"errors"
	"fmt"

	"quern/tensor"
	"quern/tensor/quant"
	"quern/tensor/repack"
)

// ErrSize marks weights, activations and results whose sizes do not fit.
var ErrSize = errors.New("sizes do not fit")

// Step is the number of weight rows that are multiplied at once. Fewer cost as
// much.
const Step = lanes

// Format is how activations are held.
type Format uint8

const (
	// F32 keeps activations as they are: the exact mode.
	F32 Format = iota
	// Q8_0 has a scale, rounded to F16, for each block of 32 values.
	Q8_0
	// Q8_K has a float32 scale for each block of 256 values.
	Q8_K
)

func (f Format) String() string {
	switch f {
	case F32:
		return "F32"
	case Q8_0:
		return "Q8_0"
	case Q8_K:
		return "Q8_K"
	}
	return fmt.Sprintf("Format(%d)", uint8(f))
}

// block is the number of values that share a scale.
func (f Format) block() int {
	switch f {
	case Q8_0:
		return 32
	case Q8_K:
		return 256
	}
	return 1
}

// FormatOf gives the activations that a device's kernels for weights of type t
// take: int8 for block types, float32 for the others.
func FormatOf(t tensor.Type) Format {
	if int(t) < len(families) && families[t] != nil {
		return families[t].format
	}
	return F32
}

// Kernel multiplies rows of one type and width with activations of one format.
// It has no state: any number of goroutines may use one at once.
type Kernel struct {
	typ      tensor.Type
	format   Format
	width    int
	rowBytes int
	family   *family       // for int8 activations
	decoder  quant.Decoder // for float32 activations

	// Of repacked weights: their layout, how a row of a bundle is unpacked, how products
	// of one activation row are looked up, if they are, and the size of a plain row.
	// rowBytes is the share of a row in its group.
	layout     *repack.Layout
	unbundle   unbundler
	lookup     lookup
	plainBytes int
}

// New gives the kernel for weights of type t in rows of width values, and
// activations of a format that is F32 or FormatOf(t).
func New(t tensor.Type, width int, f Format) (*Kernel, error) {
	rowBytes, err := tensor.RowBytes(t, int64(width))
	if err != nil {
		return nil, err
	}
	if width <= 0 || rowBytes > 1<<30 {
		return nil, fmt.Errorf("%w: rows of %d values", ErrSize, width)
	}
	k := &Kernel{typ: t, format: f, width: width, rowBytes: int(rowBytes)}
	switch {
	case f == F32:
		k.decoder, err = quant.DecoderFor(t)
		return k, err
	case f != FormatOf(t):
		return nil, fmt.Errorf("%w: %s weights have no kernel for %s activations", ErrSize, t, f)
	}
	k.family = families[t]
	return k, nil
}

// Type is the type of the weights.
func (k *Kernel) Type() tensor.Type { return k.typ }

// Format is the format of the activations.
func (k *Kernel) Format() Format { return k.format }

// Width is the number of values in a row of weights and of activations.
func (k *Kernel) Width() int { return k.width }

// RowBytes is the size of a row of weights, of repacked ones its share of the
// group.
func (k *Kernel) RowBytes() int { return k.rowBytes }

// Mul multiplies the rows of w, each RowBytes long, with the rows of b:
//
//	dst[t*stride+r] = row r of w . row t of b
//
// so that the results of an activation row lie together. To share a matrix
// among goroutines give each some of its rows, best a multiple of Step, dst from
// the first of them on, and a Scratch of its own. Nothing is allocated once the Scratch has grown to
// the widest matrix and largest batch. Repacked rows come in whole groups, as
// Rows says.
func (k *Kernel) Mul(dst []float32, stride int, w []byte, b *Batch, s *Scratch) error {
	if b.format != k.format || b.width != k.width {
		return fmt.Errorf("%w: %s activations of %d values, the kernel takes %s of %d", ErrSize, b.format, b.width, k.format, k.width)
	}
	rows := len(w) / k.rowBytes
	switch {
	case rows%k.Rows() != 0:
		return fmt.Errorf("%w: %d rows of weights in groups of %d", ErrSize, rows, k.Rows())
	case rows*k.rowBytes != len(w):
		return fmt.Errorf("%w: %d bytes of weights in rows of %d bytes", ErrSize, len(w), k.rowBytes)
	case rows == 0 || b.rows == 0:
		return nil
	case stride < rows && b.rows > 1:
		return fmt.Errorf("%w: results of %d rows every %d places", ErrSize, rows, stride)
	case len(dst) < rows || (b.rows-1) > (len(dst)-rows)/max(stride, 1):
		return fmt.Errorf("%w: %d places for %d times %d results, %d apart", ErrSize, len(dst), b.rows, rows, stride)
	}
	if k.format == F32 {
		k.mulFloat(dst, stride, w, b, s)
	} else {
		k.mulInt8(dst, stride, w, b, s)
	}
	return nil
}
