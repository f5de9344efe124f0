package verify

import (
	"context"
	"slices"

	"quern/formats/gguf"
	"quern/tensor"
)

// Difference is what two files hold differently.
type Difference struct {
	A string `json:"a"`
	B string `json:"b"`
	// Metadata has the keys that differ, in the order of A, those that only B has
	// behind them.
	Metadata []KeyChange `json:"metadata"`
	// OnlyA and OnlyB are tensors that the other file has not.
	OnlyA []string `json:"only_a"`
	OnlyB []string `json:"only_b"`
	// Changed are tensors that both have and that differ in any way, in the order
	// of B; Same counts the others.
	Changed []TensorChange `json:"changed"`
	Same    int            `json:"same"`
	// Order tells whether the tensors that both have stand in another order.
	Order bool `json:"order_differs"`
}

// KeyChange is a metadata key; a side that does not have it is empty.
type KeyChange struct {
	Key string `json:"key"`
	A   string `json:"a,omitempty"`
	B   string `json:"b,omitempty"`
}

// TensorChange is a tensor of both files.
type TensorChange struct {
	Name   string       `json:"name"`
	TypeA  string       `json:"type_a"`
	TypeB  string       `json:"type_b"`
	ShapeA tensor.Shape `json:"shape_a"`
	ShapeB tensor.Shape `json:"shape_b"`
	// Values compares B with A; nil for tensors of different shapes, or when only
	// headers are compared.
	Values *Row `json:"values,omitempty"`
}

// Equal reports whether nothing differs.
func (d *Difference) Equal() bool {
	return len(d.Metadata)+len(d.OnlyA)+len(d.OnlyB)+len(d.Changed) == 0 && !d.Order
}

// Tensors compares two lists of tensors. Without values, tensors of the same type
// and shape count as the same.
func (d *Difference) Tensors(ctx context.Context, a, b []*tensor.Tensor, values bool, opt Options) error {
	inA, inB := byName(a), byName(b)
	var orderA, orderB []string
	for _, t := range a {
		if inB[t.Name] == nil {
			d.OnlyA = append(d.OnlyA, t.Name)
			continue
		}
		orderA = append(orderA, t.Name)
	}
	var gots, wants []*tensor.Tensor
	var changes []TensorChange
	for _, t := range b {
		was := inA[t.Name]
		if was == nil {
			d.OnlyB = append(d.OnlyB, t.Name)
			continue
		}
		orderB = append(orderB, t.Name)
		c := TensorChange{Name: t.Name, ShapeA: was.Shape, ShapeB: t.Shape}
		c.TypeA, _ = storedAs(was)
		c.TypeB, _ = storedAs(t)
		changes = append(changes, c)
		if values && squeeze(t.Shape).Equal(squeeze(was.Shape)) {
			gots, wants = append(gots, t), append(wants, was)
		}
	}
	d.Order = !slices.Equal(orderA, orderB)
	rep, err := Compare(ctx, gots, wants, opt)
	if err != nil {
		return err
	}
	rows := map[string]*Row{}
	for i := range rep.Rows {
		rows[rep.Rows[i].Name] = &rep.Rows[i]
	}
	for _, c := range changes {
		c.Values = rows[c.Name]
		sameForm := c.TypeA == c.TypeB && c.ShapeA.Equal(c.ShapeB)
		if sameForm && (c.Values == nil || c.Values.Identical) {
			d.Same++
			continue
		}
		d.Changed = append(d.Changed, c)
	}
	return nil
}

func byName(list []*tensor.Tensor) map[string]*tensor.Tensor {
	m := make(map[string]*tensor.Tensor, len(list))
	for _, t := range list {
		m[t.Name] = t
	}
	return m
}

// Keys compares two lists of metadata.
func (d *Difference) Keys(a, b *gguf.Metadata) {
	for k, v := range a.All() {
		w, ok := b.Get(k)
		switch {
		case !ok:
			d.Metadata = append(d.Metadata, KeyChange{Key: k, A: v.String()})
		case !v.Equal(w):
			d.Metadata = append(d.Metadata, KeyChange{Key: k, A: describe(v, w), B: describe(w, v)})
		}
	}
	for k, w := range b.All() {
		if !a.Has(k) {
			d.Metadata = append(d.Metadata, KeyChange{Key: k, B: w.String()})
		}
	}
}
