// Package order moves the tensors of a GGUF model about without changing a byte
// of them: the experts to the end of the file, and back. It renumbers the experts of
// a block too, the most used first (use.go).
//
// A device that cannot map a whole file maps what every token needs and reads
// experts on demand. For that the experts stand last and begin on a page:
//
//	| header, filler included | all but experts | experts |
//	0                                           ^         ^
//	                      quern.experts.offset -+         +- quern.experts.offset + quern.experts.bytes
//
// GGUF readers demand that every tensor begins where the one before it ends,
// rounded up to general.alignment, and llama.cpp refuses tensors that it does not
// know. So there is no gap and no tensor to fill it: the header grows instead, by
// a text of spaces under a key that readers skip, until the first expert falls
// on a multiple of the alignment asked for. That costs less than one such unit,
// where a larger general.alignment would cost up to one a tensor.
//
// The keys, all of them ours:
//
//	quern.experts.offset   u64    where the first expert begins, from the start of the file: the bytes to map for all else
//	quern.experts.bytes    u64    from there to the end of the last expert
//	quern.experts.align    u32    what the offset is a multiple of, where that was asked for
//	quern.experts.padding  text   the filler, spaces
//	quern.reorder.order    [u32]  for each tensor of the file, its place before the move
//
// Offset, bytes and filler depend on the whole header, so they are filled in when
// the file is laid out (Place). A file whose order has changed since loses them.
package order

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"quern/formats/gguf"
	"quern/model"
	"quern/tensor"
)

// The keys that describe the order of a file.
const (
	KeyOffset  = "quern.experts.offset"
	KeyBytes   = "quern.experts.bytes"
	KeyAlign   = "quern.experts.align"
	KeyPadding = "quern.experts.padding"
	KeyOrder   = "quern.reorder.order"
)

var keys = []string{KeyOffset, KeyBytes, KeyAlign, KeyPadding, KeyOrder}

// MaxAlign bounds the alignment of the first expert, and so the filler.
const MaxAlign = 64 << 20

// ErrOrder marks a model whose tensors cannot be put in the order asked for.
var ErrOrder = errors.New("cannot reorder")

// IsExpert reports whether a GGUF name is that of a tensor of routed experts:
// weights, biases and scales.
func IsExpert(name string) bool {
	return strings.HasPrefix(name, "blk.") && strings.Contains(name, "_exps.")
}

// ExpertsLast moves the experts behind all other tensors. Both kinds keep their
// order among themselves. The first expert will begin at a multiple of align
// bytes of the file, a power of two of at most MaxAlign; 0 asks for no more than
// GGUF does.
func ExpertsLast(m *model.Model, align int64) (*model.Model, error) {
	if m.Form != model.GGUF {
		return nil, fmt.Errorf("%w: %w: a %s model has no experts in GGUF order; put convert in front", ErrOrder, model.ErrForm, m.Form)
	}
	if align < 0 || align&(align-1) != 0 || align > MaxAlign {
		return nil, fmt.Errorf("%w: an alignment of %d bytes; it must be a power of two of at most %d", ErrOrder, align, MaxAlign)
	}
	var rest, experts []uint32
	for i, t := range m.Tensors {
		if IsExpert(t.Name) {
			experts = append(experts, uint32(i))
		} else {
			rest = append(rest, uint32(i))
		}
	}
	if len(experts) == 0 {
		return nil, fmt.Errorf("%w: the model has no experts, tensors called blk.N.ffn_..._exps", ErrOrder)
	}
	perm := append(rest, experts...)
	meta := m.Meta.Clone()
	// A second move is told from where the tensors stood at first.
	first := perm
	if old, err := recorded(m); err == nil && old != nil {
		first = make([]uint32, len(perm))
		for i, p := range perm {
			first[i] = old[p]
		}
	}
	for _, k := range keys {
		meta.Delete(k)
	}
	meta.Set(KeyOffset, gguf.Scalar(uint64(0)))
	meta.Set(KeyBytes, gguf.Scalar(uint64(0)))
	if align > 0 {
		meta.Set(KeyAlign, gguf.Scalar(uint32(align)))
		meta.Set(KeyPadding, gguf.Scalar(""))
	}
	meta.Set(KeyOrder, gguf.List(first))
	return permuted(m, perm).WithMeta(meta), nil
}

// Restore undoes ExpertsLast and ByUse, and takes their keys out.
func Restore(m *model.Model) (*model.Model, error) {
	if m.Form != model.GGUF || !m.Meta.Has(KeyOrder) && !m.Meta.Has(KeyFrom) {
		return nil, fmt.Errorf("%w: no key %s or %s says what the order was", ErrOrder, KeyOrder, KeyFrom)
	}
	if m.Meta.Has(KeyFrom) {
		ts, err := Original(m.Meta, m.Tensors)
		if err != nil {
			return nil, err
		}
		plan := make([]model.PlanInfo, len(ts))
		for i := range plan {
			plan[i] = m.Info(i)
		}
		meta := m.Meta.Clone()
		meta.Delete(KeyFrom)
		if m = m.WithPlan(ts, plan).WithMeta(meta); !meta.Has(KeyOrder) {
			return m, nil
		}
	}
	first, err := recorded(m)
	if err != nil {
		return nil, err
	}
	perm := make([]uint32, len(first))
	for i, p := range first {
		perm[p] = uint32(i)
	}
	meta := m.Meta.Clone()
	for _, k := range keys {
		meta.Delete(k)
	}
	return permuted(m, perm).WithMeta(meta), nil
}

// recorded gives the places before a move, or nil when there was none. Every
// place must come once.
func recorded(m *model.Model) ([]uint32, error) {
	if !m.Meta.Has(KeyOrder) {
		return nil, nil
	}
	order, err := m.Meta.Uint32s(KeyOrder)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOrder, err)
	}
	if len(order) != len(m.Tensors) {
		return nil, fmt.Errorf("%w: key %s is of %d tensors, the model has %d: some came or went since", ErrOrder, KeyOrder, len(order), len(m.Tensors))
	}
	seen := make([]bool, len(order))
	for i, p := range order {
		if int64(p) >= int64(len(order)) || seen[p] {
			return nil, fmt.Errorf("%w: key %s is no order: entry %d is %d", ErrOrder, KeyOrder, i, p)
		}
		seen[p] = true
	}
	return order, nil
}

// permuted gives the model with tensor perm[i] in place i.
func permuted(m *model.Model, perm []uint32) *model.Model {
	ts := make([]*tensor.Tensor, len(perm))
	plan := make([]model.PlanInfo, len(perm))
	for i, p := range perm {
		ts[i], plan[i] = m.Tensors[p], m.Info(int(p))
	}
	return m.WithPlan(ts, plan)
}

// Place fills in what the keys say of a file with these entries and tensors. It
// gives meta itself when it has none of the keys, else a sentence for the user too.
// Where the experts are not last, as after a step with an order of its own, the
// keys go; so they do in the shards of a split file, whose offsets are their own.
func Place(meta *gguf.Metadata, specs []gguf.TensorSpec, split bool) (*gguf.Metadata, []string, error) {
	if meta == nil || !slices.ContainsFunc(keys, meta.Has) {
		return meta, nil, nil
	}
	out := meta.Clone()
	first := slices.IndexFunc(specs, func(t gguf.TensorSpec) bool { return IsExpert(t.Name) })
	last := first >= 0 && !slices.ContainsFunc(specs[first:], func(t gguf.TensorSpec) bool { return !IsExpert(t.Name) })
	if split || !last || !meta.Has(KeyOffset) || !meta.Has(KeyBytes) {
		for _, k := range keys {
			out.Delete(k)
		}
		why := "the experts are not last in it"
		if split {
			why = "it is split, and each shard has offsets of its own"
		}
		return out, []string{fmt.Sprintf("the keys quern.experts.* are left out of the file: %s", why)}, nil
	}
	out.Set(KeyOffset, gguf.Scalar(uint64(0)))
	out.Set(KeyBytes, gguf.Scalar(uint64(0)))
	align := int64(0)
	if v, ok := out.Get(KeyAlign); ok {
		n, err := gguf.AsInt[int64](v)
		if err != nil || n <= 0 || n&(n-1) != 0 || n > MaxAlign {
			return nil, nil, fmt.Errorf("%w: key %s is %v, not a power of two of at most %d", ErrOrder, KeyAlign, v, MaxAlign)
		}
		align = n
		out.Set(KeyAlign, gguf.Scalar(uint32(align)))
		out.Set(KeyPadding, gguf.Scalar(""))
	} else {
		out.Delete(KeyPadding)
	}
	l, err := gguf.NewLayout(out, specs, gguf.LayoutOptions{})
	if err != nil {
		return nil, nil, err
	}
	at := l.Tensors[first].Offset
	if align > 0 && at%align != 0 {
		// The header ends on the file's own alignment before and after, so it
		// grows by exactly the filler.
		fill := align - at%align
		out.Set(KeyPadding, gguf.Scalar(strings.Repeat(" ", int(fill))))
		at += fill
	}
	end := l.Tensors[len(specs)-1]
	out.Set(KeyOffset, gguf.Scalar(uint64(at)))
	out.Set(KeyBytes, gguf.Scalar(uint64(end.Offset+end.Bytes-l.Tensors[first].Offset)))
	note := fmt.Sprintf("%d tensors of experts begin at byte %d, so that many are mapped for all else; %d bytes of experts follow",
		len(specs)-first, at, end.Offset+end.Bytes-l.Tensors[first].Offset)
	if meta.Has(KeyFrom) {
		note += ", the most used ones first in each"
	}
	return out, []string{note}, nil
}

// Inserted keeps what meta says of the places before a move true where count
// tensors have come in behind tensor after of m: before the move they would have
// stood behind it too.
func Inserted(m *model.Model, meta *gguf.Metadata, after, count int) error {
	old, err := recorded(m)
	if err != nil || old == nil {
		return err
	}
	at := old[after]
	now := make([]uint32, 0, len(old)+count)
	for i, p := range old {
		if p > at {
			p += uint32(count)
		}
		now = append(now, p)
		if i == after {
			for k := range count {
				now = append(now, at+1+uint32(k))
			}
		}
	}
	meta.Set(KeyOrder, gguf.List(now))
	return nil
}
