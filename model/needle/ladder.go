package needle

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"quern/formats/cact"
	"quern/internal/pyjson"
	"quern/model"
	"quern/tensor"
	"quern/tensor/view"
)

// ladderOrder is the order in which layers join a model: first and last, then the
// middle of the largest gap, the leftmost of equal ones. Any beginning of it is a
// depth that models of a ladder are trained for.
func ladderOrder(layers int64) []int64 {
	if layers == 1 {
		return []int64{0}
	}
	chosen := []int64{0, layers - 1}
	order := slices.Clone(chosen)
	for int64(len(order)) < layers {
		best := 0
		for i := range len(chosen) - 1 {
			if chosen[i+1]-chosen[i] > chosen[best+1]-chosen[best] {
				best = i
			}
		}
		mid := (chosen[best] + chosen[best+1]) / 2
		chosen = slices.Insert(chosen, best+1, mid)
		order = append(order, mid)
	}
	return order
}

// Layers cuts a checkpoint or an archive to the layers of a rung of its depth
// ladder. Of an archive the quantized rows are taken as they are.
func Layers(m *model.Model, depth int64) (*model.Model, error) {
	if m.Form == model.Cact {
		return archiveLayers(m, depth)
	}
	k, err := ConfigOf(m)
	if err != nil {
		return nil, err
	}
	order := k.LadderOrder
	if len(order) == 0 {
		order = ladderOrder(k.Layers)
	}
	c, err := newCut(order, depth)
	if err != nil || c == nil {
		return m, err
	}
	var ts []*tensor.Tensor
	for _, t := range m.Tensors {
		if t, err = c.checkpoint(t, k); err != nil {
			return nil, err
		}
		if t != nil {
			ts = append(ts, t)
		}
	}
	slices.SortFunc(ts, func(a, b *tensor.Tensor) int { return strings.Compare(a.Name, b.Name) })
	var kept []int64
	for _, l := range order[:depth] {
		kept = append(kept, c.place(l))
	}
	if k.Speech != nil { // only the decoder has a ladder
		out, err := m.WithConfig(model.Setting{Key: "dec_layers", Value: depth}, model.Setting{Key: "sites", Value: numbers(c.places(k.Sites))})
		if err != nil {
			return nil, err
		}
		return out.WithTensors(ts).WithNotes(c.note()), nil
	}
	out, err := m.WithConfig(model.Setting{Key: "num_layers", Value: depth}, model.Setting{Key: "ladder_order", Value: numbers(kept)},
		model.Setting{Key: "global_layers", Value: numbers(c.places(k.Globals))}, model.Setting{Key: "engram_layers", Value: numbers(c.places(k.Sites))},
		model.Setting{Key: "ladder_depths", Value: []any{}})
	if err != nil {
		return nil, err
	}
	return out.WithTensors(ts).WithNotes(c.note()), nil
}

// cut says which layers stay.
type cut struct {
	layers []int64 // ascending
	of     int
}

// newCut gives nil when all layers stay.
func newCut(order []int64, depth int64) (*cut, error) {
	if depth == int64(len(order)) {
		return nil, nil
	}
	if depth < 2 || depth > int64(len(order)) {
		return nil, fmt.Errorf("%w: to %d layers; it has %d, and 2 is the least", ErrSlice, depth, len(order))
	}
	c := &cut{layers: slices.Clone(order[:depth]), of: len(order)}
	slices.Sort(c.layers)
	return c, nil
}

func (c *cut) note() model.Note {
	return model.Note{Text: fmt.Sprintf("layers %s of %d are kept", strings.Trim(fmt.Sprint(c.layers), "[]"), c.of)}
}

// place is the new number of a layer, -1 for one that goes.
func (c *cut) place(layer int64) int64 { return int64(slices.Index(c.layers, layer)) }

func (c *cut) places(list []int64) []int64 {
	out := []int64{}
	for _, l := range list {
		if p := c.place(l); p >= 0 {
			out = append(out, p)
		}
	}
	return out
}

// rows lists the places of the layers that stay where each has per of them, after
// first places that always stay.
func (c *cut) rows(first, per int64) []int64 {
	out := view.Range(0, first)
	for _, l := range c.layers {
		out = append(out, view.Range(first+l*per, first+(l+1)*per)...)
	}
	return out
}

// site gives the new number of an engram site by the layers of all, -1 for one that
// goes.
func (c *cut) site(layers []int64, n int64) int64 {
	if n < 0 || n >= int64(len(layers)) || c.place(layers[n]) < 0 {
		return -1
	}
	return int64(len(c.places(layers[:n])))
}

// checkpoint cuts one tensor of a checkpoint; nil when it goes.
func (c *cut) checkpoint(t *tensor.Tensor, k *Config) (*tensor.Tensor, error) {
	key, part, _ := strings.Cut(t.Name, "/")
	switch {
	case key == "stack" && part != "final_norm/scale":
		if len(t.Shape) == 0 || t.Shape[0] != int64(c.of) {
			return nil, fmt.Errorf("%w: %s is %v, its first axis is the layers, of which the config has %d", model.ErrTensors, t.Name, t.Shape, c.of)
		}
		return view.Gather(t, 0, c.layers)
	case strings.HasPrefix(key, "engrams_"):
		n, err := strconv.ParseInt(key[len("engrams_"):], 10, 32)
		if err != nil {
			return nil, fmt.Errorf("%w: %s: no number of an engram", model.ErrTensors, t.Name)
		}
		to := c.site(k.Sites, n)
		if to < 0 {
			return nil, nil
		}
		return t.With(func(x *tensor.Tensor) { x.Name = fmt.Sprintf("engrams_%d/%s", to, part) }), nil
	case k.Generation == 3 && slices.Contains(cact.HeadKeys(3), key):
		return c.head(t, part)
	}
	return t, nil
}

// head cuts a head's tensor of generation 3: it has a place for the embedding
// and one for each layer.
func (c *cut) head(t *tensor.Tensor, part string) (*tensor.Tensor, error) {
	axis := 0
	switch part {
	case "probes", "gain":
	case "row_bias":
		axis = 1
	default:
		return t, nil
	}
	per := int64(1)
	if len(t.Shape) <= axis || t.Shape[axis]%int64(c.of+1) != 0 {
		return nil, fmt.Errorf("%w: %s is %v, axis %d has %d layers and the embedding", model.ErrTensors, t.Name, t.Shape, axis, c.of)
	}
	per = t.Shape[axis] / int64(c.of+1)
	return view.Gather(t, axis, c.rows(per, per))
}

// archiveLayers cuts an archive.
func archiveLayers(m *model.Model, depth int64) (*model.Model, error) {
	a := *m.Archive
	c, err := newCut(ladderOrder(int64(a.Header.Layers)), depth)
	if err != nil || c == nil {
		return m, err
	}
	var sites []int64
	for _, s := range a.Header.Sites {
		sites = append(sites, int64(s))
	}
	h := &a.Header
	var ts []*tensor.Tensor
	var plan []model.PlanInfo
	for i, t := range m.Tensors {
		if t, err = c.archive(t, h, sites); err != nil {
			return nil, err
		}
		if t != nil {
			ts, plan = append(ts, t), append(plan, m.Info(i))
		}
	}
	old := h.GlobalMask
	h.GlobalMask = 0
	for i, l := range c.layers {
		h.GlobalMask |= old >> l & 1 << i
	}
	h.Layers, h.Sites = uint32(depth), u32s(c.places(sites))
	if h.Audio == nil {
		h.KVWindow = h.Window(a.Trained)
	}
	out, err := m.WithArchive(&a, ts, plan)
	if err != nil {
		return nil, err
	}
	return out.WithNotes(c.note()), nil
}

// archive cuts one tensor of an archive, indices and norms alike; nil when it goes.
// h is the header of the whole.
func (c *cut) archive(t *tensor.Tensor, h *cact.Header, sites []int64) (*tensor.Tensor, error) {
	key, part, dotted := strings.Cut(t.Name, ".")
	rename := func(format string, n int64) *tensor.Tensor {
		return t.With(func(x *tensor.Tensor) { x.Name = fmt.Sprintf(format, n) + part })
	}
	number := func(prefix string) int64 {
		n, err := strconv.ParseInt(strings.TrimPrefix(key, prefix), 10, 32)
		if err != nil {
			return -1
		}
		return n
	}
	switch {
	case dotted && strings.HasPrefix(key, "layer"):
		to := c.place(number("layer"))
		if to < 0 {
			return nil, nil
		}
		return rename("layer%02d.", to), nil
	case dotted && strings.HasPrefix(key, "engram"):
		to := c.site(sites, number("engram"))
		if to < 0 {
			return nil, nil
		}
		return rename("engram%d.", to), nil
	case strings.HasPrefix(key, "mhc_a_"):
		return view.Gather(t, 0, c.layers)
	case strings.HasPrefix(key, "mhc_"):
		return view.Gather(t, 0, c.rows(0, t.Shape[0]/int64(c.of)))
	case h.Generation == 3 && isHead(t.Name):
		return c.head(t, strings.TrimSuffix(part, ".norms"))
	}
	return t, nil
}

func numbers(list []int64) []any {
	out := make([]any, len(list))
	for i, v := range list {
		out[i] = pyjson.Number(strconv.FormatInt(v, 10))
	}
	return out
}
