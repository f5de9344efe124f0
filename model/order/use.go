package order

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"quern/formats/gguf"
	"quern/model"
	"quern/tensor"
	"quern/tensor/view"
)

// KeyFrom says which expert stands in which place: a u32 for each expert of each
// block, blocks without experts included. Expert e of block b was number
// from[b*expert_count+e] before. Router rows and biases moved with the experts, so
// the file computes the same function.
const KeyFrom = "quern.experts.from"

// Uses are counts of how often each expert was chosen, by block. A block that is
// not in it, or has no counts, keeps its order.
type Uses map[int][]int64

// ByUse renumbers the experts of every block, the most used first and the lower
// number where two are equal: the slices of their tensors, and the rows and values
// of the router that stand for them. Where the router chooses among groups of
// experts each stays in its group.
func ByUse(m *model.Model, uses Uses) (*model.Model, error) {
	experts, blocks, groups, err := expertCounts(m)
	if err != nil {
		return nil, err
	}
	if m.Meta.Has(KeyFrom) {
		return nil, fmt.Errorf("%w: key %s says that experts were ordered by use before; put reorder: {experts: restore} in front", ErrOrder, KeyFrom)
	}
	from := make([]uint32, blocks*experts)
	size := experts / groups
	counted := 0
	for b := range blocks {
		list := from[b*experts:][:experts]
		for e := range list {
			list[e] = uint32(e)
		}
		counts, ok := uses[b]
		if !ok || counts == nil {
			continue
		}
		if len(counts) != experts {
			return nil, fmt.Errorf("%w: block %d has %d counts of use, the model has %d experts", ErrOrder, b, len(counts), experts)
		}
		counted++
		for g := range groups {
			slices.SortStableFunc(list[g*size:(g+1)*size], func(a, b uint32) int { return cmp.Compare(counts[b], counts[a]) })
		}
	}
	for _, b := range slices.Sorted(maps.Keys(uses)) {
		if b < 0 || b >= blocks {
			return nil, fmt.Errorf("%w: there are counts of use for block %d, the model has %d blocks", ErrOrder, b, blocks)
		}
	}
	if counted == 0 {
		return nil, fmt.Errorf("%w: there are no counts of use for any block of the model", ErrOrder)
	}
	for _, t := range m.Tensors {
		if _, rest, ok := model.Block(t.Name); ok && strings.HasPrefix(rest, "ffn_gate_tid2eid") {
			return nil, fmt.Errorf("%w: tensor %s names experts by their numbers, which cannot be changed in it", ErrOrder, t.Name)
		}
	}
	ts, err := renumber(m.Tensors, from, experts)
	if err != nil {
		return nil, err
	}
	meta := m.Meta.Clone()
	meta.Set(KeyFrom, gguf.List(from))
	plan := make([]model.PlanInfo, len(ts))
	for i := range plan {
		plan[i] = m.Info(i)
	}
	return m.WithPlan(ts, plan).WithMeta(meta), nil
}

// Original gives tensors of a model with metadata meta their experts in the order
// from before ByUse, in place of those of the list that it moved. Without the key the
// list itself comes back.
func Original(meta *gguf.Metadata, list []*tensor.Tensor) ([]*tensor.Tensor, error) {
	from, experts, err := From(meta)
	if err != nil || from == nil {
		return list, err
	}
	back := make([]uint32, len(from))
	for i, f := range from {
		at := i / experts * experts
		back[at+int(f)] = uint32(i - at)
	}
	return renumber(list, back, experts)
}

// From reads KeyFrom: for each block, one after another, which expert stands in each
// of its places, and how many there are in a block. It is nil without the key.
func From(meta *gguf.Metadata) (from []uint32, experts int, err error) {
	if meta == nil || !meta.Has(KeyFrom) {
		return nil, 0, nil
	}
	experts, blocks, _, err := expertCounts(&model.Model{Form: model.GGUF, Meta: meta})
	if err != nil {
		return nil, 0, err
	}
	if from, err = meta.Uint32s(KeyFrom); err != nil {
		return nil, 0, fmt.Errorf("%w: %w", ErrOrder, err)
	}
	if len(from) != blocks*experts {
		return nil, 0, fmt.Errorf("%w: key %s has %d entries, %d blocks of %d experts have %d", ErrOrder, KeyFrom, len(from), blocks, experts, blocks*experts)
	}
	seen := make([]int, experts)
	for i, f := range from {
		b := i/experts + 1
		if int64(f) >= int64(experts) || seen[f] == b {
			return nil, 0, fmt.Errorf("%w: key %s is no order: entry %d, of block %d, is %d", ErrOrder, KeyFrom, i, b-1, f)
		}
		seen[f] = b
	}
	return from, experts, nil
}

// maxExperts and maxBlocks are far above the largest models; they bound what a file
// can make us allocate.
const (
	maxExperts = 1 << 14
	maxBlocks  = 1 << 12
)

// expertCounts reads what a model has of experts, blocks, and groups that the router
// chooses among.
func expertCounts(m *model.Model) (experts, blocks, groups int, err error) {
	if m.Form != model.GGUF {
		return 0, 0, 0, fmt.Errorf("%w: %w: a %s model has no experts in GGUF order; put convert in front", ErrOrder, model.ErrForm, m.Form)
	}
	arch, err := m.Meta.Text("general.architecture")
	if err != nil {
		return 0, 0, 0, fmt.Errorf("%w: %w", ErrOrder, err)
	}
	read := func(key string, most, def int64) int {
		if err != nil || def > 0 && !m.Meta.Has(arch+key) {
			return int(def)
		}
		var n int64
		if n, err = m.Meta.Int64(arch + key); err == nil && (n < 1 || n > most) {
			err = fmt.Errorf("key %s%s is %d, 1 to %d can be", arch, key, n, most)
		}
		return int(n)
	}
	experts = read(".expert_count", maxExperts, 0)
	blocks = read(".block_count", maxBlocks, 0)
	groups = read(".expert_group_count", maxExperts, 1)
	if err == nil && experts%groups != 0 {
		err = fmt.Errorf("%d experts do not divide into %d groups", experts, groups)
	}
	if err != nil {
		return 0, 0, 0, fmt.Errorf("%w: %w", ErrOrder, err)
	}
	return experts, blocks, groups, nil
}

// renumber permutes what stands for experts in every tensor.
func renumber(list []*tensor.Tensor, from []uint32, experts int) ([]*tensor.Tensor, error) {
	out := slices.Clone(list)
	for i, t := range list {
		b, rest, ok := model.Block(t.Name)
		if !ok || !numbered(rest) || b >= len(from)/experts {
			continue
		}
		p, err := view.Permute(t, from[b*experts:][:experts])
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrOrder, err)
		}
		out[i] = p
	}
	return out, nil
}

// numbered reports whether the first axis of a tensor of a block counts experts: their
// weights, biases and scales, the router's rows and what is added to its outputs.
func numbered(name string) bool {
	stem, _, _ := strings.Cut(name, ".")
	switch name {
	case "ffn_gate_inp.weight", "ffn_gate_inp.bias", "exp_probs_b.bias", "exp_probs_b", "exp_probs_b.weight":
		return true
	}
	// A norm in front of all experts is of the hidden size.
	return strings.HasSuffix(stem, "_exps") && stem != "ffn_norm_exps"
}
