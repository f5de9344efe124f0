package needle

import (
	"fmt"
	"slices"
	"strings"

	"quern/formats/cact"
	"quern/model"
	"quern/tensor"
	"quern/tensor/view"
)

// Width cuts a checkpoint of generation 3 to half its width: the first half of
// every stream, of the heads, and of the engram tables of each order.
func Width(m *model.Model, width int64) (*model.Model, error) {
	k, err := ConfigOf(m)
	if err != nil {
		return nil, err
	}
	if width == k.DModel {
		return m, nil
	}
	h := k.Header()
	small := h
	small.HadaN = cact.PowerOfTwo(uint32(width))
	_, wide := h.Blocks()
	_, narrow := small.Blocks()
	switch {
	case k.Speech != nil:
		return nil, fmt.Errorf("%w: to a width of %d; speech models have one width", ErrSlice, width)
	case k.Generation != 3:
		return nil, fmt.Errorf("%w: to a width of %d; generation %d has one width", ErrSlice, width, k.Generation)
	case 2*width != k.DModel || k.DModel&(k.DModel-1) != 0:
		return nil, fmt.Errorf("%w: to a width of %d; d_model is %d, which can be cut in half when it is a power of two", ErrSlice, width, k.DModel)
	case k.Heads%2 != 0 || len(k.Sites) > 0 && k.EngramHeadCount()%2 != 0:
		return nil, fmt.Errorf("%w: to a width of %d: %d heads and %d engram heads do not halve", ErrSlice, width, k.Heads, k.EngramHeadCount())
	case wide != narrow:
		return nil, fmt.Errorf("%w: to a width of %d: the second factor of its Hadamard layers is %d wide, of the half %d", ErrSlice, width, wide, narrow)
	}
	w := newHalving(k, width)
	ts := make([]*tensor.Tensor, len(m.Tensors))
	for i, t := range m.Tensors {
		if ts[i], err = w.cut(t); err != nil {
			return nil, err
		}
	}
	seed := k.SeedHeads
	if seed == 0 {
		seed = k.EngramHeadCount()
	}
	out, err := m.WithConfig(model.Setting{Key: "d_model", Value: width}, model.Setting{Key: "num_heads", Value: k.Heads / 2},
		model.Setting{Key: "qk_head_dim", Value: k.QKHeadDim}, model.Setting{Key: "v_head_dim", Value: k.VHeadDim},
		model.Setting{Key: "engram_seed_heads", Value: seed}, model.Setting{Key: "ladder_depths", Value: []any{}}, model.Setting{Key: "ladder_widths", Value: []any{}})
	if err != nil {
		return nil, err
	}
	if k.EngramHeads > 0 && len(k.Sites) > 0 {
		out = out.WithNotes(model.Note{Subject: "engram_heads", Text: fmt.Sprintf(
			"the config states %d, which the exporter keeps while it halves the tables: the engrams of the half read other rows than those of the whole", k.EngramHeads)})
	}
	return out.WithTensors(ts), nil
}

// halving lists the places that stay on each kind of axis.
type halving struct {
	k       *Config
	model   []int64 // of d_model
	q, o    []int64 // columns of queries, rows of outputs
	tables  []int64 // engram tables
	values  []int64 // their values in a row
	lanes   []int64 // all streams in a row
	factor  []int64 // the first factor of a Hadamard layer
	queries []int64 // the projections of a head's queries in a row, set for each
}

func newHalving(k *Config, width int64) *halving {
	w := &halving{k: k, model: view.Range(0, width), q: view.Range(0, k.Heads/2*k.QKHeadDim), o: view.Range(0, k.Heads/2*k.VHeadDim)}
	heads, sub := k.EngramHeadCount(), k.SubDim()
	for o := range int64(len(k.Orders)) {
		w.tables = append(w.tables, view.Range(o*heads, o*heads+heads/2)...)
		w.values = append(w.values, view.Range(o*heads*sub, (o*heads+heads/2)*sub)...)
	}
	for l := range k.Lanes {
		w.lanes = append(w.lanes, view.Range(l*k.DModel, l*k.DModel+width)...)
	}
	small := cact.Header{HadaN: cact.PowerOfTwo(uint32(width))}
	a, _ := small.Blocks()
	w.factor = view.Range(0, int64(a))
	return w
}

// cut takes the places that stay of one tensor.
func (w *halving) cut(t *tensor.Tensor) (*tensor.Tensor, error) {
	var err error
	// take keeps places of an axis that is counted from the last.
	take := func(back int, places []int64) {
		if err == nil {
			t, err = view.Gather(t, len(t.Shape)-back, places)
		}
	}
	key, part, _ := strings.Cut(t.Name, "/")
	last := t.Name[strings.LastIndexByte(t.Name, '/')+1:]
	switch {
	case strings.HasPrefix(key, "engrams_"):
		switch {
		case last == "embedding":
			take(3, w.tables)
		case strings.HasSuffix(part, "_proj/kernel"):
			take(2, w.values)
			take(1, w.model)
		case last == "taps":
			take(1, w.model)
		}
	case slices.Contains(cact.HeadKeys(3), key):
		switch {
		case last == "probes" || last == "query":
			take(1, w.model)
		case part == "proj/kernel":
			var rows []int64
			for r := int64(0); r+w.k.DModel <= t.Shape[0]; r += w.k.DModel {
				rows = append(rows, view.Range(r, r+int64(len(w.model)))...)
			}
			take(2, rows)
		}
	case strings.Contains(part, "mhc_phi"):
		take(2, w.lanes)
	case strings.Contains(part, "hadamard_mlp"):
		switch last {
		case "w1a", "w2a", "w3a":
			take(2, w.factor)
			take(1, w.factor)
		case "cond_v":
			take(2, w.model)
		case "d1", "d2", "b2", "d3", "d4", "cond_u":
			take(1, w.model)
		}
	case strings.HasSuffix(part, "q_proj/kernel"):
		take(2, w.model)
		take(1, w.q)
	case strings.HasSuffix(part, "gate_proj/kernel"):
		take(2, w.model)
		take(1, w.o)
	case strings.HasSuffix(part, "k_proj/kernel") || strings.HasSuffix(part, "v_proj/kernel"):
		take(2, w.model)
	case strings.HasSuffix(part, "out_proj/kernel"):
		take(2, w.o)
		take(1, w.model)
	case last == "q_taps":
		take(1, w.q)
	case strings.HasSuffix(part, "q_norm/scale") || strings.HasSuffix(part, "k_norm/scale"):
	case last == "scale" || t.Name == nameEmbedding:
		take(1, w.model)
	}
	return t, err
}
