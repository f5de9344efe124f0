package cact

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
)

var le = binary.LittleEndian

// Header is what the first words of a file say about the model. Counts of
// tensors and codebook entries follow from the rest.
type Header struct {
	// Generation is 2 or 3. Fields that generation 2 does not have are zero in
	// it, but for VHeadDim, which is QKHeadDim there.
	Generation int

	KVWindow uint32 // positions that the KV cache holds
	KVBits   uint32 // of a KV cache value
	Vocab    uint32
	OutVocab uint32 // rows of the embedding that serve as head, 0 for all
	DModel   uint32
	Heads    uint32
	KVHeads  uint32
	Layers   uint32

	QKHeadDim uint32
	VHeadDim  uint32
	MaxSeq    uint32
	// HadaN is DModel rounded up to a power of two, the width of the Hadamard
	// layers.
	HadaN uint32
	// Lanes is the number of residual streams.
	Lanes uint32
	// SlidingWindow is how many positions a local layer sees, 0 for all.
	SlidingWindow uint32
	// GlobalMask has bit i set when layer i sees all positions.
	GlobalMask uint64
	// QKVTaps is the width of the causal convolutions on Q, K and V, 0 for
	// none.
	QKVTaps uint32

	EngramSlots     uint32 // rows of an engram table
	EngramSubDim    uint32 // values of a row
	EngramTables    uint32 // orders times heads
	EngramTaps      uint32 // of the convolution on engram values
	EngramDilation  uint32 // of it
	EngramSeedHeads uint32 // heads that hash seeds count with, 0 for the heads there are
	Orders          []uint32
	// Sites lists the layers that have an engram, in ascending order.
	Sites     []uint32
	RopeTheta float32

	// Audio is the manifest of a speech model, nil of all others. It is no part of
	// the header in the file, but lies among the tensors.
	Audio *Audio
}

const (
	maxLayers = 64
	maxOrders = 4
	// bound keeps products of a few fields far inside 63 bits.
	bound = 1 << 24
)

// maxSites is how many engram sites a header has room for.
func maxSites(generation int) int {
	if generation == 3 {
		return 16
	}
	return 4
}

// word is a field of the header: a u32, or the bits of the f32 at the end.
type word struct {
	name string
	at   *uint32
}

// words lists the words from the fourth on, which follow tag, num_tensors and
// codebook_len; the slices that it points into have the length of the field.
func (h *Header) words(mask, orders, sites []uint32, counts *[2]uint32, theta *uint32) []word {
	w := []word{{"kv_window", &h.KVWindow}, {"kv_bits", &h.KVBits}, {"vocab", &h.Vocab}}
	if h.Generation == 3 {
		w = append(w, word{"out_vocab", &h.OutVocab})
	}
	w = append(w, word{"d_model", &h.DModel}, word{"num_heads", &h.Heads}, word{"num_kv_heads", &h.KVHeads}, word{"num_layers", &h.Layers})
	if h.Generation == 3 {
		w = append(w, word{"qk_head_dim", &h.QKHeadDim}, word{"v_head_dim", &h.VHeadDim})
	} else {
		w = append(w, word{"head_dim", &h.QKHeadDim})
	}
	w = append(w, word{"max_seq_len", &h.MaxSeq}, word{"hada_n", &h.HadaN}, word{"mhc_lanes", &h.Lanes})
	if h.Generation == 3 {
		w = append(w, word{"sliding_window", &h.SlidingWindow}, word{"global_mask_lo", &mask[0]}, word{"global_mask_hi", &mask[1]}, word{"qkv_conv_taps", &h.QKVTaps})
	}
	w = append(w, word{"engram_slots", &h.EngramSlots}, word{"engram_sub_dim", &h.EngramSubDim}, word{"num_engram_tables", &h.EngramTables},
		word{"engram_conv_taps", &h.EngramTaps}, word{"engram_conv_dilation", &h.EngramDilation})
	if h.Generation == 3 {
		w = append(w, word{"engram_seed_heads", &h.EngramSeedHeads})
	}
	w = append(w, word{"num_engram_orders", &counts[0]})
	for i := range orders {
		w = append(w, word{fmt.Sprintf("engram_orders[%d]", i), &orders[i]})
	}
	w = append(w, word{"num_engram_sites", &counts[1]})
	for i := range sites {
		w = append(w, word{fmt.Sprintf("engram_sites[%d]", i), &sites[i]})
	}
	return append(w, word{"rope_theta", theta})
}

// headerBytes is the size of the header without codebooks.
func headerBytes(generation int) int {
	if generation == 3 {
		return 49 * 4
	}
	return 30 * 4
}

// parts makes what words points into.
func (h *Header) parts() (mask, orders, sites []uint32, counts *[2]uint32, theta *uint32) {
	mask = []uint32{uint32(h.GlobalMask), uint32(h.GlobalMask >> 32)}
	orders, sites = make([]uint32, maxOrders), make([]uint32, maxSites(h.Generation))
	copy(orders, h.Orders)
	copy(sites, h.Sites)
	t := math.Float32bits(h.RopeTheta)
	return mask, orders, sites, &[2]uint32{uint32(len(h.Orders)), uint32(len(h.Sites))}, &t
}

// Fields lists the header's words after tag, num_tensors and codebook_len by the
// names of the format, in file order, for display.
func (h *Header) Fields() (names []string, values []any) {
	mask, orders, sites, counts, theta := h.parts()
	for _, w := range h.words(mask, orders, sites, counts, theta) {
		names = append(names, w.name)
		if w.at == theta {
			values = append(values, h.RopeTheta)
		} else {
			values = append(values, *w.at)
		}
	}
	return names, values
}

// encode writes the words.
func (h *Header) encode(tensors int) []byte {
	tag := uint32(tag2)
	if h.Generation == 3 {
		tag = tag3
	}
	b := make([]byte, 0, headerBytes(h.Generation))
	for _, v := range []uint32{tag, uint32(tensors), CodebookLen} {
		b = le.AppendUint32(b, v)
	}
	for _, w := range h.words(h.parts()) {
		b = le.AppendUint32(b, *w.at)
	}
	return b
}

// decode reads the words after the first three and gives the offset and name of
// the first that makes no sense.
func (h *Header) decode(b []byte) (off int64, name string, err error) {
	mask, orders, sites, counts, theta := h.parts()
	words := h.words(mask, orders, sites, counts, theta)
	place := map[string]int64{}
	for i, w := range words {
		*w.at = le.Uint32(b[4*(3+i):])
		place[w.name] = int64(4 * (3 + i))
	}
	at := func(name, format string, args ...any) (int64, string, error) {
		return place[name], name, fmt.Errorf(format, args...)
	}
	h.GlobalMask = uint64(mask[0]) | uint64(mask[1])<<32
	h.RopeTheta = math.Float32frombits(*theta)
	if h.Generation == 2 {
		h.VHeadDim = h.QKHeadDim
	}
	for i, list := range [][]uint32{orders, sites} {
		what := []string{"orders", "sites"}[i]
		if n := counts[i]; n > uint32(len(list)) {
			return at("num_engram_"+what, "%d, there is room for %d", n, len(list))
		}
		for j, v := range list[counts[i]:] {
			if v != 0 {
				k := int(counts[i]) + j
				return at(fmt.Sprintf("engram_%s[%d]", what, k), "%d in an unused place", v)
			}
		}
	}
	h.Orders, h.Sites = orders[:counts[0]], sites[:counts[1]]
	if name, err := h.check(); err != nil {
		return at(name, "%w", err)
	}
	return 0, "", nil
}

// positive fields are never 0; bitFields are no counts.
var (
	positive  = []string{"kv_bits", "vocab", "d_model", "num_heads", "num_kv_heads", "num_layers", "head_dim", "qk_head_dim", "v_head_dim", "max_seq_len", "hada_n", "mhc_lanes"}
	bitFields = []string{"global_mask_lo", "global_mask_hi", "rope_theta"}
)

// check gives the name of the first field that makes no sense.
func (h *Header) check() (name string, err error) {
	for _, w := range h.words(h.parts()) {
		if slices.Contains(positive, w.name) && *w.at == 0 {
			return w.name, errors.New("it is 0")
		}
		if *w.at >= bound && !slices.Contains(bitFields, w.name) {
			return w.name, fmt.Errorf("%d is beyond every model", *w.at)
		}
	}
	switch {
	case len(h.Orders) > maxOrders:
		return "num_engram_orders", fmt.Errorf("%d, there is room for %d", len(h.Orders), maxOrders)
	case len(h.Sites) > maxSites(h.Generation):
		return "num_engram_sites", fmt.Errorf("%d, generation %d has room for %d", len(h.Sites), h.Generation, maxSites(h.Generation))
	case h.Layers > maxLayers:
		return "num_layers", fmt.Errorf("%d, at most %d are allowed", h.Layers, maxLayers)
	case h.Layers < 64 && h.GlobalMask>>h.Layers != 0:
		return "global_mask_lo", fmt.Errorf("%#x has bits for more than %d layers", h.GlobalMask, h.Layers)
	case h.Heads%h.KVHeads != 0:
		return "num_kv_heads", fmt.Errorf("%d heads do not divide among %d", h.Heads, h.KVHeads)
	case h.QKHeadDim%2 != 0:
		name = "head_dim"
		if h.Generation == 3 {
			name = "qk_head_dim"
		}
		return name, fmt.Errorf("%d is odd, rotary embeddings turn pairs", h.QKHeadDim)
	case h.HadaN != PowerOfTwo(h.DModel):
		return "hada_n", fmt.Errorf("%d, d_model %d rounds up to %d", h.HadaN, h.DModel, PowerOfTwo(h.DModel))
	case h.OutVocab > h.Vocab:
		return "out_vocab", fmt.Errorf("%d of a vocabulary of %d", h.OutVocab, h.Vocab)
	case h.KVBits > 16:
		return "kv_bits", fmt.Errorf("%d", h.KVBits)
	case h.Lanes > 64:
		return "mhc_lanes", fmt.Errorf("%d, at most 64 are allowed", h.Lanes)
	case h.QKVTaps > 1024:
		return "qkv_conv_taps", fmt.Errorf("%d, at most 1024 are allowed", h.QKVTaps)
	case !(h.RopeTheta > 0) || h.RopeTheta > math.MaxFloat32:
		return "rope_theta", fmt.Errorf("%v is not a positive number", h.RopeTheta)
	}
	return h.checkEngrams()
}

func (h *Header) checkEngrams() (string, error) {
	last := -1
	for i, s := range h.Sites {
		name := fmt.Sprintf("engram_sites[%d]", i)
		if s >= h.Layers {
			return name, fmt.Errorf("layer %d of %d", s, h.Layers)
		}
		if int(s) <= last {
			return name, fmt.Errorf("%d does not follow %d", s, last)
		}
		last = int(s)
	}
	top := uint32(0)
	for i, o := range h.Orders {
		if o == 0 || o > 64 {
			return fmt.Sprintf("engram_orders[%d]", i), fmt.Errorf("%d, 1 to 64 are allowed", o)
		}
		top = max(top, o)
	}
	if len(h.Sites) == 0 {
		return "", nil
	}
	switch {
	case len(h.Orders) == 0:
		return "num_engram_orders", fmt.Errorf("there are sites, and no orders")
	case h.EngramTables == 0 || int(h.EngramTables)%len(h.Orders) != 0:
		return "num_engram_tables", fmt.Errorf("%d tables do not divide among %d orders", h.EngramTables, len(h.Orders))
	case h.EngramSlots == 0:
		return "engram_slots", fmt.Errorf("it is 0")
	case h.EngramSubDim == 0 || uint64(h.EngramSubDim)*uint64(h.EngramTables) > uint64(h.DModel):
		return "engram_sub_dim", fmt.Errorf("%d tables of %d values, d_model is %d", h.EngramTables, h.EngramSubDim, h.DModel)
	case h.EngramTaps == 0 || h.EngramTaps > 1024:
		return "engram_conv_taps", fmt.Errorf("%d, 1 to 1024 are allowed", h.EngramTaps)
	case h.EngramDilation != top:
		return "engram_conv_dilation", fmt.Errorf("%d, the highest order is %d", h.EngramDilation, top)
	}
	return "", nil
}

// PowerOfTwo rounds up to a power of two; 1 for 0.
func PowerOfTwo(n uint32) uint32 {
	if n <= 1 {
		return 1
	}
	return 1 << bits.Len32(n-1)
}

// Blocks gives the sizes of the two factors that the Kronecker layers of
// generation 3 have.
func (h *Header) Blocks() (a, b uint32) {
	a = 1 << (bits.Len32(h.HadaN-1) / 2)
	return a, h.HadaN / a
}
