// Package needle knows the checkpoints of Needle models: one file of tensors that
// are stacked over layers, with a config, of generation 2 or 3. It cuts them to
// fewer layers or half the width, merges adapters into them, and turns them into
// the tensors of a .cact archive.
package needle

import (
	"errors"
	"fmt"
	"slices"

	"quern/formats/cact"
	"quern/internal/pyjson"
	"quern/model"
)

// ErrSlice marks a depth or width that a model cannot be cut to.
var ErrSlice = errors.New("the model cannot be cut so")

// Config is the geometry of a checkpoint, with the defaults of the config class
// filled in.
type Config struct {
	Generation int

	Vocab, OutVocab, DModel, Heads, KVHeads, Layers int64
	QKHeadDim, VHeadDim                             int64
	MaxSeq, Lanes, SlidingWindow, QKVTaps           int64
	Slots, EngramHeads, SeedHeads                   int64
	KVWindow, KVBits                                int64
	Orders, Sites, Globals                          []int64
	// LadderWidths is not empty when the model can be cut to half its width.
	LadderWidths []int64
	// LadderOrder is the order in which layers are kept, of a model that was cut
	// before.
	LadderOrder []int64
	RopeTheta   float64
	// Speech is that of a speech model, nil of all others.
	Speech *Speech
}

const (
	defaultSub = 128 // values of an engram row that the heads are counted by
	engramTaps = 4
	// most bounds every number of a config, so that products stay in 63 bits.
	most = 1 << 24
)

// ParseConfig reads the config of a checkpoint.
func ParseConfig(c *model.Config, generation int) (*Config, error) {
	k := &Config{Generation: generation}
	for _, f := range []struct {
		key string
		to  *int64
		def int64 // -1: it must be there
		min int64
	}{
		{"vocab_size", &k.Vocab, -1, 1}, {"d_model", &k.DModel, -1, 1}, {"num_heads", &k.Heads, -1, 1}, {"num_kv_heads", &k.KVHeads, -1, 1},
		{"num_layers", &k.Layers, -1, 1}, {"max_seq_len", &k.MaxSeq, -1, 1}, {"out_vocab", &k.OutVocab, 0, 0}, {"qk_head_dim", &k.QKHeadDim, 0, 0},
		{"v_head_dim", &k.VHeadDim, 0, 0}, {"mhc_lanes", &k.Lanes, 4, 1}, {"sliding_window", &k.SlidingWindow, 0, 0}, {"qkv_conv_taps", &k.QKVTaps, 0, 0},
		{"engram_slots", &k.Slots, 18432, 1}, {"engram_heads", &k.EngramHeads, 0, 0}, {"engram_seed_heads", &k.SeedHeads, 0, 0},
		{"kv_window", &k.KVWindow, 0, 0}, {"kv_bits", &k.KVBits, 0, 0},
	} {
		n, ok, err := c.OptInt(f.key)
		switch {
		case err != nil:
			return nil, err
		case !ok && f.def < 0:
			return nil, fmt.Errorf("%s: %w: %s is missing", c.File(), model.ErrConfig, f.key)
		case !ok:
			n = f.def
		case n < f.min || n >= most:
			return nil, fmt.Errorf("%s: %w: %s is %d", c.File(), model.ErrConfig, f.key, n)
		}
		*f.to = n
	}
	sites := []int64{2, 15}
	if generation == 3 {
		sites = []int64{3, 7, 11, 15, 19}
	}
	for _, f := range []struct {
		key string
		to  *[]int64
		def []int64
	}{
		{"engram_orders", &k.Orders, []int64{2, 3}}, {"engram_layers", &k.Sites, sites}, {"global_layers", &k.Globals, nil},
		{"ladder_widths", &k.LadderWidths, nil}, {"ladder_order", &k.LadderOrder, nil},
	} {
		var err error
		if *f.to, err = ints(c, f.key, f.def); err != nil {
			return nil, err
		}
	}
	theta, ok, err := c.OptFloat("rope_theta")
	if err != nil {
		return nil, err
	}
	if k.RopeTheta = theta; !ok {
		k.RopeTheta = 100000
	}
	if k.KVBits == 0 {
		k.KVBits = 8
	}
	return k, k.finish(c)
}

// finish fills in head sizes and checks what the rest relies on.
func (k *Config) finish(c *model.Config) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%s: %w: "+format, append([]any{c.File(), model.ErrConfig}, args...)...)
	}
	wide := k.DModel
	if k.Generation == 2 {
		if n, ok, err := c.OptInt("attn_dim"); err != nil {
			return err
		} else if ok && n > 0 && n < most {
			wide = n
		}
	}
	if k.QKHeadDim == 0 {
		k.QKHeadDim = wide / k.Heads
	}
	if k.VHeadDim == 0 {
		k.VHeadDim = wide / k.Heads
	}
	switch {
	case k.Layers > 64:
		return bad("num_layers is %d, an archive holds 64", k.Layers)
	case k.QKHeadDim == 0 || k.VHeadDim == 0:
		return bad("%d heads of %d values", k.Heads, wide)
	case k.Generation == 2 && k.QKHeadDim != k.VHeadDim:
		return bad("qk_head_dim %d and v_head_dim %d; in generation 2 they are one", k.QKHeadDim, k.VHeadDim)
	case len(k.Orders) == 0 || len(k.Orders) > 4:
		return bad("engram_orders has %d entries, 1 to 4 are held", len(k.Orders))
	case k.SubDim() == 0:
		return bad("d_model %d is less than %d engram orders times %d heads", k.DModel, len(k.Orders), k.EngramHeadCount())
	}
	for _, f := range []struct {
		key  string
		list []int64
	}{{"engram_layers", k.Sites}, {"global_layers", k.Globals}} {
		for i, v := range f.list {
			if v < 0 || v >= k.Layers {
				return bad("%s names layer %d of %d", f.key, v, k.Layers)
			}
			if f.key == "engram_layers" && i > 0 && v <= f.list[i-1] {
				return bad("engram_layers is %v, it must ascend", f.list)
			}
		}
	}
	for _, o := range k.Orders {
		if o < 1 || o > 64 {
			return bad("an engram order of %d", o)
		}
	}
	if len(k.LadderOrder) > 0 {
		sorted := slices.Clone(k.LadderOrder)
		slices.Sort(sorted)
		if int64(len(sorted)) != k.Layers || sorted[0] != 0 || sorted[len(sorted)-1] != k.Layers-1 || len(slices.Compact(sorted)) != int(k.Layers) {
			return bad("ladder_order %v is no order of %d layers", k.LadderOrder, k.Layers)
		}
	}
	return nil
}

func ints(c *model.Config, key string, def []int64) ([]int64, error) {
	v, _, _ := c.Find(key)
	if v == nil {
		return def, nil
	}
	list, ok := v.([]any)
	if !ok || len(list) > 256 {
		return nil, fmt.Errorf("%s: %w: %s is %s, want a list of up to 256 numbers", c.File(), model.ErrConfig, key, pyjson.Kind(v))
	}
	out := make([]int64, len(list))
	for i, x := range list {
		n, isNum := x.(pyjson.Number)
		if out[i], ok = n.Int64(); !isNum || !ok || out[i] <= -most || out[i] >= most {
			return nil, fmt.Errorf("%s: %w: %s holds %s, want whole numbers", c.File(), model.ErrConfig, key, pyjson.Show(x))
		}
	}
	return out, nil
}

// EngramHeadCount is the number of tables an order has.
func (k *Config) EngramHeadCount() int64 {
	if k.EngramHeads > 0 {
		return k.EngramHeads
	}
	return max(1, k.DModel/(int64(len(k.Orders))*defaultSub))
}

// SubDim is the number of values of an engram row.
func (k *Config) SubDim() int64 { return k.DModel / (int64(len(k.Orders)) * k.EngramHeadCount()) }

// Header gives the header of the archive.
func (k *Config) Header() cact.Header {
	h := cact.Header{
		Generation: k.Generation, KVBits: uint32(k.KVBits), Vocab: uint32(k.Vocab), DModel: uint32(k.DModel), Heads: uint32(k.Heads),
		KVHeads: uint32(k.KVHeads), Layers: uint32(k.Layers), QKHeadDim: uint32(k.QKHeadDim), VHeadDim: uint32(k.VHeadDim), MaxSeq: uint32(k.MaxSeq),
		HadaN: cact.PowerOfTwo(uint32(k.DModel)), Lanes: uint32(k.Lanes), EngramSlots: uint32(k.Slots), EngramSubDim: uint32(k.SubDim()),
		EngramTables: uint32(int64(len(k.Orders)) * k.EngramHeadCount()), EngramTaps: engramTaps, EngramDilation: uint32(slices.Max(k.Orders)),
		Orders: u32s(k.Orders), Sites: u32s(k.Sites), RopeTheta: float32(k.RopeTheta),
	}
	if k.Generation == 3 {
		h.OutVocab, h.SlidingWindow, h.QKVTaps, h.EngramSeedHeads = uint32(k.OutVocab), uint32(k.SlidingWindow), uint32(k.QKVTaps), uint32(k.SeedHeads)
		for _, g := range k.Globals {
			h.GlobalMask |= 1 << g
		}
	}
	if k.Speech != nil {
		// A text that is heard is short: the decoder looks back on all of it.
		a := k.Speech.Audio
		h.Audio = &a
		return h
	}
	h.KVWindow = h.Window(uint32(k.KVWindow))
	return h
}

func u32s(list []int64) []uint32 {
	out := make([]uint32, len(list))
	for i, v := range list {
		out[i] = uint32(v)
	}
	return out
}
