package quant

import (
	"fmt"

	"quern/tensor"
)

// Converter turns rows of one type into rows of another by way of float32 and
// counts what does not fit. Rows of one type into the same type are copied bit
// by bit. A Converter holds scratch and counts: use one for each goroutine.
type Converter struct {
	fromType, toType tensor.Type
	from             Decoder
	to               Codec // nil for a copy
	scratch          []float32
	next             int64
	loss             Loss
}

// NewConverter fails for a source that stores no numbers and for a target that
// cannot be written.
func NewConverter(to, from tensor.Type) (*Converter, error) {
	c := &Converter{fromType: from, toType: to}
	var err error
	if c.from, err = DecoderFor(from); err != nil {
		return nil, err
	}
	if to != from {
		if c.to, err = For(to); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// Reset empties the counts and says which index the next value has.
func (c *Converter) Reset(next int64) {
	c.next = next
	c.loss = Loss{}
}

// Loss gives the counts since the last Reset.
func (c *Converter) Loss() Loss { return c.loss }

// chunk is the number of values converted at a time, a multiple of every
// block. Source, scratch and result of a chunk fit a first-level cache.
const chunk = 1 << 12

// Rows converts whole rows of rowLen values. weights holds rowLen weights or is
// nil. Sizes that do not fit are ErrSize; what values do is in Loss.
func (c *Converter) Rows(dst, src []byte, rowLen int64, weights []float32) error {
	fb, err := tensor.RowBytes(c.fromType, rowLen)
	if err != nil {
		return err
	}
	tb, err := tensor.RowBytes(c.toType, rowLen)
	if err != nil {
		return err
	}
	var rows int64
	if rowLen > 0 {
		rows = int64(len(src)) / fb
	}
	if int64(len(src)) != rows*fb || int64(len(dst)) != rows*tb || weights != nil && int64(len(weights)) != rowLen {
		return fmt.Errorf("%w: %d bytes of %s to %d bytes of %s with %d weights, in rows of %d values",
			ErrSize, len(src), c.fromType, len(dst), c.toType, len(weights), rowLen)
	}
	// Without weights an encoder sees nothing of the row but its blocks, so
	// rows may run together and be cut at any block.
	total, step := rows*rowLen, rowLen
	if weights == nil {
		step = chunk
	}
	if n := min(step, total); int64(len(c.scratch)) < n {
		c.scratch = make([]float32, n)
	}
	for done := int64(0); done < total; {
		n := min(step, total-done)
		sb := n / c.fromType.BlockValues() * c.fromType.BlockBytes()
		db := n / c.toType.BlockValues() * c.toType.BlockBytes()
		if c.to == nil {
			copy(dst[:db], src[:sb])
			c.checkCopy(src[:sb], c.scratch[:n])
		} else {
			c.convert(dst[:db], src[:sb], c.scratch[:n], weights)
		}
		dst, src = dst[db:], src[sb:]
		c.next += n
		done += n
	}
	return nil
}

// checkCopy counts NaN and Inf of values that are copied.
func (c *Converter) checkCopy(src []byte, x []float32) {
	switch {
	case c.fromType.IsBlock():
		c.countBad(src, nil)
	case c.fromType == tensor.F64:
		var l Loss
		ScanF64(&l, c.next, src)
		c.loss.Merge(Loss{NaN: l.NaN, Inf: l.Inf})
	default:
		c.from.Decode(x, src)
		Scan(&c.loss, tensor.F32, c.next, x)
	}
}

func (c *Converter) convert(dst, src []byte, x, weights []float32) {
	c.from.Decode(x, src)
	if c.fromType == tensor.F64 {
		ScanF64(&c.loss, c.next, src)
		// What a second rounding, from float32 to 16 bits, loses; the rest
		// of it is counted already.
		var l Loss
		Scan(&l, c.toType, c.next, x)
		c.loss.Merge(Loss{Overflow: l.Overflow, Flush: l.Flush})
	} else {
		Scan(&c.loss, c.toType, c.next, x)
	}
	c.to.EncodeRow(dst, x, weights)
	if c.toType.IsBlock() {
		c.countBad(dst, x)
	}
}

// countBad counts blocks with a bad scale. x holds the values they were made
// of, nil for a copy.
func (c *Converter) countBad(data []byte, x []float32) {
	size, block := c.toType.BlockBytes(), c.toType.BlockValues()
	for b := int64(0); ; b++ {
		i := FirstBadBlock(c.toType, data[b*size:])
		if i < 0 {
			return
		}
		b += i
		var v float32
		if x != nil {
			v, _ = argAbs(x[b*block : (b+1)*block])
		}
		c.loss.BadBlock.add(1, c.next+b*block, float64(v))
	}
}
