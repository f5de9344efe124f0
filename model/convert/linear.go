package convert

import (
	"context"
	"fmt"

	"quern/model"
	"quern/tensor"
)

// Linear attention may have more value heads than key heads. Checkpoints group the
// value heads by key head, llama.cpp deals them out, so that repeating the key
// heads gives each value head its own:
//
//	head j*K + g of the result is head g*R + j of the source,
//	with K key heads, R value heads to each, 0 <= g < K, 0 <= j < R

// dealing is that order for heads of dim rows or columns, behind skip others that
// stay.
type dealing struct {
	skip, keys, each, dim int64
}

func dealingOf(l *model.LinearDims, skip, dim int64) dealing {
	return dealing{skip, l.KeyHeads, l.ValueHeads / l.KeyHeads, dim}
}

// below gives the place in the source of place i of the result, and how many
// places from there on follow each other in both.
func (d dealing) below(i int64) (at, run int64) {
	if i < d.skip {
		return i, d.skip - i
	}
	head, in := (i-d.skip)/d.dim, (i-d.skip)%d.dim
	from := head%d.keys*d.each + head/d.keys
	return d.skip + from*d.dim + in, d.dim - in
}

func (d dealing) String() string {
	return fmt.Sprintf("skip %d, %d heads of %d times %d", d.skip, d.keys, d.dim, d.each)
}

// dealtRows gives rows in the order of a dealing.
type dealtRows struct {
	src      *tensor.Tensor
	deal     dealing
	rowBytes int64
}

// ReadRows reads each run of rows once.
func (s *dealtRows) ReadRows(ctx context.Context, dst []byte, first, n int64) error {
	for n > 0 {
		at, run := s.deal.below(first)
		take := min(run, n)
		if err := s.src.ReadRows(ctx, dst[:take*s.rowBytes], at, take); err != nil {
			return err
		}
		dst = dst[take*s.rowBytes:]
		first, n = first+take, n-take
	}
	return nil
}

// dealtColumns gives the values of each row in the order of a dealing.
type dealtColumns struct {
	src       *tensor.Tensor
	deal      dealing
	valueSize int64
	scratch   *buffers
}

// ReadRows reads whole rows.
func (s *dealtColumns) ReadRows(ctx context.Context, dst []byte, first, n int64) error {
	buf := s.scratch.get(int64(len(dst)))
	defer s.scratch.put(buf)
	if err := s.src.ReadRows(ctx, *buf, first, n); err != nil {
		return err
	}
	rowBytes := int64(len(dst)) / n
	for r := range n {
		from, to := (*buf)[r*rowBytes:(r+1)*rowBytes], dst[r*rowBytes:(r+1)*rowBytes]
		for i := int64(0); i < rowBytes/s.valueSize; {
			at, run := s.deal.below(i)
			copy(to[i*s.valueSize:(i+run)*s.valueSize], from[at*s.valueSize:])
			i += run
		}
	}
	return nil
}

func dealRows(t *tensor.Tensor, d dealing) *tensor.Tensor {
	return t.With(func(c *tensor.Tensor) {
		c.Src = &dealtRows{t, d, t.RowBytes()}
		c.Key = tensor.Derive("convert/deal-rows.v1", d.String(), t.Key)
	})
}

func dealColumns(t *tensor.Tensor, d dealing, scratch *buffers) *tensor.Tensor {
	return t.With(func(c *tensor.Tensor) {
		c.Src = &dealtColumns{t, d, t.Type.BlockBytes(), scratch}
		c.Key = tensor.Derive("convert/deal-columns.v1", d.String(), t.Key)
	})
}

// squeezed drops the axes of length 1.
func squeezed(t *tensor.Tensor) *tensor.Tensor {
	var shape tensor.Shape
	for _, n := range t.Shape {
		if n != 1 {
			shape = append(shape, n)
		}
	}
	if len(shape) == 0 {
		shape = tensor.Shape{1}
	}
	if shape.RowLen() != t.Shape.RowLen() {
		return t // rows of one value: they stay rows
	}
	return t.With(func(c *tensor.Tensor) { c.Shape = shape })
}

// minusExp gives -e^x of every value.
func (w *walker) minusExp(t *tensor.Tensor) *tensor.Tensor {
	return w.mapValues(t, "convert/minus-exp.v2", func(v float32) float32 { return -expTorch(v) })
}

// linear takes a tensor of linear attention, or a norm that Qwen3.5 keeps less 1.
func (w *walker) linear(id model.ID, t *tensor.Tensor) item {
	it := item{id, t, t.Type, "", t.Name}
	l := w.d.Linear
	deal := l.ValueHeads != l.KeyHeads
	rows := func(skip, dim int64) {
		if deal {
			it.t, it.note = dealRows(it.t, dealingOf(l, skip, dim)), "value heads reordered"
		}
	}
	columns := func(dim int64) {
		if deal {
			it.t, it.note = dealColumns(it.t, dealingOf(l, 0, dim), w.scratch), "value heads reordered"
		}
	}
	switch id.Role {
	case model.AttnQKV:
		rows(2*l.KeyRows(), l.ValueDim)
	case model.AttnGate:
		rows(0, l.ValueDim)
	case model.SSMAlpha, model.SSMBeta:
		rows(0, 1)
	case model.SSMOut:
		columns(l.ValueDim)
	case model.SSMDt:
		columns(1)
	case model.SSMA:
		columns(1)
		it.t = w.minusExp(it.t)
		it.note = "minus its exponential"
	case model.SSMConv1D:
		it.t = squeezed(t)
		rows(2*l.KeyRows(), l.ValueDim)
	default:
		if id.Role.IsNorm() && id.Role != model.SSMNorm && id.Suffix == ".weight" {
			it.t, it.note = w.addOne(t), "plus 1"
		}
	}
	return it
}
