package view

import (
	"context"
	"errors"
	"fmt"

	"quern/tensor"
	"quern/tensor/quant"
)

// ErrValue marks a weight that the target type cannot hold, or that is not
// finite.
var ErrValue = errors.New("weight cannot be stored")

// ValueError says which weight cannot be stored.
type ValueError struct {
	Tensor string      // name of the result
	From   string      // name of the tensor below
	Type   tensor.Type // of the result
	Row    int64
	Column int64
	Value  float64
	// Count is how many such weights the whole tensor has, or, when it could
	// not be read to the end, the rows that were asked for.
	Count int64
	Why   string
}

// Error names tensor, row, column and value.
func (e *ValueError) Error() string {
	name := e.Tensor
	if e.From != "" && e.From != name {
		name += " (from " + e.From + ")"
	}
	more := ""
	if e.Count > 1 {
		more = fmt.Sprintf("; it has %d more of the kind", e.Count-1)
	}
	return fmt.Sprintf("tensor %s: row %d, column %d: %g %s%s", name, e.Row, e.Column, e.Value, e.Why, more)
}

// Unwrap gives ErrValue.
func (e *ValueError) Unwrap() error { return ErrValue }

// refuse builds the error for values that do not fit. The place is the first
// among the rows that were asked for; the count is that of the whole tensor, so
// that the message says how much is wrong.
func (c *cast) refuse(ctx context.Context, found quant.Loss) error {
	all, err := Count(ctx, c.t, c.to)
	if err != nil {
		all = found
	}
	rowLen := c.t.Shape.RowLen()
	e := &ValueError{Tensor: c.name, From: c.t.Name, Type: c.to}
	at := int64(-1)
	set := func(n, total quant.Count, why string) {
		if n.N == 0 || at >= 0 && n.First > at {
			return
		}
		at = n.First
		e.Row, e.Column = n.First/rowLen, n.First%rowLen
		e.Value, e.Count, e.Why = n.Value, total.N, why
	}
	set(found.NaN, all.NaN, "is not a number")
	set(found.Inf, all.Inf, "is not finite")
	set(found.Overflow, all.Overflow, fmt.Sprintf("is beyond the range of %s; a type with more range is bf16 or f32", c.to))
	if at >= 0 {
		return e // a value that is not finite spoils its block, which starts before it
	}
	set(found.BadBlock, all.BadBlock, fmt.Sprintf("is beyond what the scale of a %s block can hold; a type with more range is bf16 or f32", c.to))
	return e
}
