package needle_test

import (
	"os"
	"path/filepath"
	"testing"

	"quern/formats/cact"
	"quern/runtime/needle"
)

// TestBudget works one account out by hand: needle3-b has 3 layers that see 6
// positions, one key-value head of 8 and 16 values, and 2 engram sites of width
// 64. No vector but the engrams' has a whole group of 32, so only these have
// scales.
func TestBudget(t *testing.T) {
	m := openArchive(t, "needle3-b.cact")
	st, err := os.Stat(filepath.Join(dir, "needle3-b.cact"))
	if err != nil {
		t.Fatal(err)
	}
	b := m.Budget()
	if b.KV != 3*6*(8+16) || b.Engram != 2*6*(64+2*4) || b.Positions != 512 {
		t.Errorf("KV %d, engram %d, positions %d", b.KV, b.Engram, b.Positions)
	}
	if over := st.Size() - b.Weights; over < 0 || over > 64*110+196+28*4+44*110 {
		t.Errorf("weights %d of a file of %d", b.Weights, st.Size())
	}
	// Three lanes twice, input and state, attention with its scores, logits.
	if want := int64(4 * (6*64 + 2*64 + (4*(8+2*16) + 1*(8+16) + 2*64 + 512) + 400)); b.Activations != want {
		t.Errorf("activations %d, want %d", b.Activations, want)
	}
	if b.Total() != b.Weights+b.KV+b.Engram+b.Activations {
		t.Errorf("total %d", b.Total())
	}
}

// TestBudgetIsWhatTheWindowIsMadeFor: at the window that the exporter gives the
// published shape, the cache is what the format's budget of 11.5 MiB allows, and
// not one group of positions more would fit.
func TestBudgetIsWhatTheWindowIsMadeFor(t *testing.T) {
	h := cact.Header{Generation: 3, KVBits: 8, Vocab: 16384, DModel: 768, Heads: 12, KVHeads: 2, Layers: 20, QKHeadDim: 48, VHeadDim: 64, MaxSeq: 1 << 16,
		HadaN: 1024, Lanes: 4, SlidingWindow: 1024, GlobalMask: 1<<4 | 1<<9 | 1<<14 | 1<<19, QKVTaps: 3, EngramSlots: 18432, EngramSubDim: 128,
		EngramTables: 6, EngramTaps: 4, EngramDilation: 3, Orders: []uint32{2, 3}, Sites: []uint32{3, 7, 11, 15, 19}, RopeTheta: 100000}
	h.KVWindow = h.Window(0)
	const most = 11<<20 + 512<<10
	b := needle.BudgetOf(&h, 0)
	if cache := b.KV + b.Engram; cache > most {
		t.Errorf("a cache of %d bytes in %d", cache, most)
	}
	h.KVWindow += 32
	if b := needle.BudgetOf(&h, 0); b.KV+b.Engram <= most {
		t.Errorf("32 positions more take %d bytes, which fit %d", b.KV+b.Engram, most)
	}
}

// TestBudgetOf28MB: the account that is published for the base model of generation 2,
// 14 MB of weights, a cache of at most 11.5 MiB, and the rest.
func TestBudgetOf28MB(t *testing.T) {
	h := cact.Header{Generation: 2, KVBits: 8, Vocab: 8192, DModel: 512, Heads: 8, KVHeads: 4, Layers: 27, QKHeadDim: 64, VHeadDim: 64, MaxSeq: 2048,
		HadaN: 512, Lanes: 4, EngramSlots: 8192, EngramSubDim: 128, EngramTables: 4, EngramTaps: 4, EngramDilation: 3, Orders: []uint32{2, 3},
		Sites: []uint32{2, 15}, RopeTheta: 100000}
	h.KVWindow = h.Window(0)
	b := needle.BudgetOf(&h, 14_000_000)
	if h.KVWindow != 704 || b.KV != 704*27*2*(256+8*4) || b.Engram != 704*2*(512+16*4) {
		t.Errorf("window %d, KV %d, engram %d", h.KVWindow, b.KV, b.Engram)
	}
	if total := b.Total(); total > 28_000_000 || total < 25_000_000 {
		t.Errorf("together %d bytes", total)
	}
}
