package safetensors

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	"quern/tensor"
	"quern/tensor/quant"
)

// FP8 checkpoints store a matrix as 8-bit floats beside a scale a block:
//
//	x.weight            F8_E4M3 (or E5M2)  [..., r, c]
//	x.weight_scale_inv  F32, BF16, F16     [..., ceil(r/128), ceil(c/128)]
//
//	value[i][j] = float32(weight[i][j]) * float32(scale[i/128][j/128])
//
// Blocks at the right and lower edge are cut off. Despite its name the scale
// is multiplied. Other writers call it weight_scale, or store one scale for
// the whole tensor (shape [] or [1]) or one a row ([r] or [r, 1]).
// (Source: the model cards and published code of such checkpoints.)

const scaleVersion = "fp8-scale.v1"

// scaleSuffixes name the scale of a weight.
var scaleSuffixes = [...]string{"_scale_inv", "_scale"}

// activationScales are the last parts of names of scalars that inference
// engines use for activations. No weight depends on them.
var activationScales = [...]string{"input_scale", "activation_scale", "input_activation_scale", "act_scale", "k_scale", "v_scale", "kv_scale", "output_scale"}

// ScaleOptions change how FP8 weights meet their scales.
type ScaleOptions struct {
	// BlockRows and BlockCols are the block that shares a scale:
	// quantization_config.weight_block_size of config.json. 0 means that it
	// is not known. A grid of scales is refused then: more than one size of
	// block may fit it.
	BlockRows, BlockCols int64
}

// Scaled is the result of Rescale.
type Scaled struct {
	// Tensors are the given ones in order, FP8 weights as F32 views and
	// without the scales.
	Tensors []*tensor.Tensor
	// Ignored names the activation scales that were left out.
	Ignored []string
}

// Rescale turns FP8 weights into F32 tensors that multiply with their scales
// when read. A weight without a scale, a scale without an FP8 weight and a
// shape that does not match are ErrScale. Tensors without FP8 come back as
// they are.
func Rescale(tensors []*tensor.Tensor, opt ScaleOptions) (*Scaled, error) {
	if !slices.ContainsFunc(tensors, func(t *tensor.Tensor) bool { return isFP8(t.Type) }) {
		return &Scaled{Tensors: tensors}, nil
	}
	byName := make(map[string]*tensor.Tensor, len(tensors))
	for _, t := range tensors {
		byName[t.Name] = t
	}
	scales := map[string]bool{}
	views := map[string]*tensor.Tensor{}
	for _, t := range tensors {
		if !isFP8(t.Type) {
			continue
		}
		s, err := scaleOf(t, byName)
		if err != nil {
			return nil, err
		}
		if views[t.Name], err = newScaled(t, s, opt); err != nil {
			return nil, err
		}
		scales[s.Name] = true
	}
	out := &Scaled{}
	for _, t := range tensors {
		switch {
		case views[t.Name] != nil:
			out.Tensors = append(out.Tensors, views[t.Name])
		case scales[t.Name]:
		case isActivationScale(t):
			out.Ignored = append(out.Ignored, t.Name)
		default:
			if w := weightOf(t.Name); w != "" {
				why := "is not there"
				if x := byName[w]; x != nil {
					why = "is " + x.Type.String()
				}
				return nil, fmt.Errorf("%w: %s belongs to %s, which %s and not an FP8 tensor", ErrScale, t.Name, w, why)
			}
			out.Tensors = append(out.Tensors, t)
		}
	}
	return out, nil
}

func (o ScaleOptions) known() bool { return o.BlockRows > 0 && o.BlockCols > 0 }

func isFP8(t tensor.Type) bool { return t == tensor.F8E4M3 || t == tensor.F8E5M2 }

func isActivationScale(t *tensor.Tensor) bool {
	last := t.Name[strings.LastIndexByte(t.Name, '.')+1:]
	n, err := t.Shape.Values()
	return err == nil && n == 1 && slices.Contains(activationScales[:], last)
}

// weightOf gives the name that a weight scale belongs to, or "".
func weightOf(name string) string {
	for _, s := range scaleSuffixes {
		if w, ok := strings.CutSuffix(name, s); ok && strings.HasSuffix(w, ".weight") {
			return w
		}
	}
	return ""
}

func scaleOf(t *tensor.Tensor, byName map[string]*tensor.Tensor) (*tensor.Tensor, error) {
	var found *tensor.Tensor
	for _, suffix := range scaleSuffixes {
		s := byName[t.Name+suffix]
		if s == nil {
			continue
		}
		if found != nil {
			return nil, fmt.Errorf("%w: tensor %s has two scales, %s and %s", ErrScale, t.Name, found.Name, s.Name)
		}
		found = s
	}
	if found == nil {
		return nil, fmt.Errorf("%w: tensor %s is %s and its scale %s%s is missing; without it the values are wrong",
			ErrScale, t.Name, t.Type, t.Name, scaleSuffixes[0])
	}
	if !found.Type.IsFloat() {
		return nil, fmt.Errorf("%w: %s is %s, a float type is needed", ErrScale, found.Name, found.Type)
	}
	return found, nil
}

// scaled is the Source of an FP8 weight times its scales. A weight is read in
// many parts, and over a network each byte should come once, so that the scales
// are kept from the first part to the last, if they are few.
type scaled struct {
	w, s       *tensor.Tensor
	dw, ds     quant.Decoder
	rows, cols int64 // of one matrix of w
	br, bc     int64 // block
	sr, sc     int64 // rows and columns of one matrix of scales

	mu   sync.Mutex
	kept []float32 // all scales, or nil
	read int64     // rows of w since kept was filled
}

// keepScales is the number of scales that are kept, of one tensor at a time as
// a rule: those of a matrix of 2^34 weights in the usual blocks.
const keepScales = 1 << 20

func newScaled(w, s *tensor.Tensor, opt ScaleOptions) (*tensor.Tensor, error) {
	dw, err := quant.DecoderFor(w.Type)
	if err != nil {
		return nil, fmt.Errorf("tensor %s: %w", w.Name, err)
	}
	ds, err := quant.DecoderFor(s.Type)
	if err != nil {
		return nil, fmt.Errorf("tensor %s: %w", s.Name, err)
	}
	if _, err := tensor.Bytes(tensor.F32, w.Shape); err != nil {
		return nil, fmt.Errorf("tensor %s as F32: %w", w.Name, err)
	}
	x := &scaled{w: w, s: s, dw: dw, ds: ds, cols: w.Shape.RowLen(), rows: 1}
	if n := len(w.Shape); n >= 2 {
		x.rows = w.Shape[n-2]
	}
	if !x.fit(opt) {
		blocks := "the size of blocks is not known (weight_block_size)"
		if opt.known() {
			blocks = fmt.Sprintf("blocks of %dx%d need %v", opt.BlockRows, opt.BlockCols, blockShape(w.Shape, opt))
		}
		return nil, fmt.Errorf("%w: %s has shape %v, which does not fit %s of shape %v: %s, a scale a row needs [%d, 1], one scale [1]",
			ErrScale, s.Name, s.Shape, w.Name, w.Shape, blocks, x.rows)
	}
	return w.With(func(t *tensor.Tensor) {
		t.Type = tensor.F32
		t.Src = x
		t.Key = tensor.Derive(scaleVersion, fmt.Sprintf("%s %v, %s %v, blocks %dx%d", w.Type, w.Shape, s.Type, s.Shape, x.br, x.bc), w.Key, s.Key)
		t.Origin = append(slices.Clone(w.Origin), s.Origin...)
		slices.SortStableFunc(t.Origin, func(a, b tensor.Extent) int {
			return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Offset, b.Offset))
		})
	}), nil
}

// fit finds out which layout the scales have.
func (x *scaled) fit(opt ScaleOptions) bool {
	w, s := x.w.Shape, x.s.Shape
	switch {
	case opt.known() && len(w) >= 2 && s.Equal(blockShape(w, opt)):
		x.br, x.bc = opt.BlockRows, opt.BlockCols
		x.sr, x.sc = s[len(s)-2], s[len(s)-1]
		return true
	case len(s) == 0 || len(s) == 1 && s[0] == 1:
		// One scale: a block as large as everything.
		x.rows = w.Rows()
		x.br, x.bc, x.sr, x.sc = max(x.rows, 1), max(x.cols, 1), 1, 1
		return true
	case len(w) == 2 && (s.Equal(tensor.Shape{w[0]}) || s.Equal(tensor.Shape{w[0], 1})):
		x.br, x.bc, x.sr, x.sc = 1, max(x.cols, 1), w[0], 1
		return true
	}
	return false
}

// blockShape is the shape of the scales of w. w has two axes or more.
func blockShape(w tensor.Shape, opt ScaleOptions) tensor.Shape {
	if len(w) < 2 {
		return nil
	}
	s := slices.Clone(w)
	n := len(s)
	s[n-2] = ceilDiv(w[n-2], opt.BlockRows)
	s[n-1] = ceilDiv(w[n-1], opt.BlockCols)
	return s
}

func ceilDiv(a, b int64) int64 {
	n := a / b
	if a%b != 0 {
		n++
	}
	return n
}

// scaleRow is the row of scales for a row of w.
func (x *scaled) scaleRow(r int64) int64 { return r/x.rows*x.sr + r%x.rows/x.br }

// ReadRows reads weights and scales and multiplies, one rounding a value.
func (x *scaled) ReadRows(ctx context.Context, dst []byte, first, n int64) error {
	raw := make([]byte, n*x.cols) // one byte a weight
	if err := x.w.ReadRows(ctx, raw, first, n); err != nil {
		return err
	}
	s0 := x.scaleRow(first)
	scales, err := x.scales(ctx, s0, x.scaleRow(first+n-1)-s0+1, n)
	if err != nil {
		return err
	}
	row := make([]float32, x.cols)
	for i := range n {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		x.dw.Decode(row, raw[i*x.cols:(i+1)*x.cols])
		s := scales[(x.scaleRow(first+i)-s0)*x.sc:][:x.sc]
		out := dst[4*i*x.cols:][:4*x.cols]
		for b, f := range s {
			lo := int64(b) * x.bc
			hi := min(lo+x.bc, x.cols)
			for j := lo; j < hi; j++ {
				binary.LittleEndian.PutUint32(out[4*j:], math.Float32bits(float32(row[j]*f)))
			}
		}
	}
	return nil
}

// scales gives rows of scales for n rows of weights.
func (x *scaled) scales(ctx context.Context, first, rows, n int64) ([]float32, error) {
	all, err := x.s.Shape.Values()
	if err != nil || all > keepScales {
		return x.readScales(ctx, first, rows)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.kept == nil {
		if x.kept, err = x.readScales(ctx, 0, all/x.sc); err != nil {
			return nil, err
		}
		x.read = 0
	}
	part := x.kept[first*x.sc : (first+rows)*x.sc]
	if x.read += n; x.read >= x.w.Rows() {
		x.kept = nil // the last part, unless someone reads out of turn
	}
	return part, nil
}

// readScales reads rows of the scale tensor as the matrix [.., sc], which for
// shapes [] and [r] is not how the tensor itself counts rows.
func (x *scaled) readScales(ctx context.Context, first, n int64) ([]float32, error) {
	size := x.s.Type.BlockBytes()
	var raw []byte
	if x.s.Shape.RowLen() == x.sc {
		raw = make([]byte, n*x.sc*size)
		if err := x.s.ReadRows(ctx, raw, first, n); err != nil {
			return nil, err
		}
	} else {
		whole := make([]byte, x.s.Bytes())
		if err := x.s.ReadRows(ctx, whole, 0, x.s.Rows()); err != nil {
			return nil, err
		}
		raw = whole[first*size : (first+n)*size]
	}
	out := make([]float32, n*x.sc)
	x.ds.Decode(out, raw)
	return out, nil
}
