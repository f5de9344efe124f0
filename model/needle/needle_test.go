package needle

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"quern/formats/cact"
	"quern/formats/safetensors"
	"quern/model"
	"quern/tensor"
	"quern/tensor/cq"
	"quern/tensor/quant"
)

// checkpoint opens a golden checkpoint of generation 2.
func checkpoint(t testing.TB, name string) *model.Model {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "testdata", "cact", name+".safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	m, err := LoadSafetensors(context.Background(), name, tensor.BytesBlob(name, b), safetensors.Options{Source: "base", Key: tensor.Derive("test", name)})
	if err != nil || m == nil {
		t.Fatal(m, err)
	}
	return m
}

// numbersOf makes values that differ from each other, from a name and a count.
func numbersOf(name string, shape tensor.Shape) *tensor.Tensor {
	n, _ := shape.Values()
	b := make([]byte, 0, 2*n)
	x := uint32(2166136261)
	for _, c := range []byte(name) {
		x = (x ^ uint32(c)) * 16777619
	}
	for range n {
		x = x*1664525 + 1013904223
		b = binary.LittleEndian.AppendUint16(b, quant.ToF16(float32(int32(x)>>8)/(1<<25)))
	}
	return Bytes(name, tensor.F16, shape, b)
}

// third makes a checkpoint of generation 3: 5 layers of width 64 in 2 streams, 2
// sites, taps, all heads.
func third(t testing.TB, change func(map[string]any)) *model.Model {
	t.Helper()
	cfg := map[string]any{
		"vocab_size": 40, "out_vocab": 30, "d_model": 64, "num_heads": 4, "num_kv_heads": 2, "num_layers": 5, "qk_head_dim": 16, "v_head_dim": 8,
		"max_seq_len": 512, "engram_slots": 6, "engram_heads": 2, "engram_layers": []int{1, 4}, "engram_orders": []int{2, 3}, "global_layers": []int{1, 4},
		"sliding_window": 64, "qkv_conv_taps": 3, "mhc_lanes": 2, "ladder_widths": []int{32}, "rope_theta": 5000.0, "kv_bits": 4,
	}
	if change != nil {
		change(cfg)
	}
	text, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	shapes := map[string]tensor.Shape{
		"embedding/embedding": {40, 64}, "stack/final_norm/scale": {64}, "mtp_head/kernel": {3, 3},
		"stack/mhc_a_pre": {5}, "stack/mhc_a_post": {5}, "stack/mhc_a_res": {5}, "stack/mhc_b_pre": {5, 2}, "stack/mhc_b_post": {5, 2}, "stack/mhc_b_res": {5, 2, 2},
		"stack/mhc_phi_pre": {5, 128, 2}, "stack/mhc_phi_post": {5, 128, 2}, "stack/mhc_phi_res": {5, 128, 4},
	}
	for name, s := range map[string]tensor.Shape{
		"ZCRMSNorm_0/scale": {64}, "post_attn_norm/scale": {64}, "pre_hada_norm/scale": {64}, "attn_gate": {},
		"self_attn/q_proj/kernel": {64, 64}, "self_attn/k_proj/kernel": {64, 32}, "self_attn/v_proj/kernel": {64, 16},
		"self_attn/gate_proj/kernel": {64, 32}, "self_attn/out_proj/kernel": {32, 64}, "self_attn/q_norm/scale": {16}, "self_attn/k_norm/scale": {16},
		"self_attn/q_taps": {3, 64}, "self_attn/k_taps": {3, 32}, "self_attn/v_taps": {3, 16},
		"hadamard_mlp/d1": {64}, "hadamard_mlp/d2": {64}, "hadamard_mlp/b2": {64}, "hadamard_mlp/d3": {64}, "hadamard_mlp/d4": {64},
		"hadamard_mlp/w1a": {8, 8}, "hadamard_mlp/w2a": {8, 8}, "hadamard_mlp/w3a": {8, 8}, "hadamard_mlp/w1b": {8, 8}, "hadamard_mlp/w2b": {8, 8}, "hadamard_mlp/w3b": {8, 8},
		"hadamard_mlp/cond_v": {64, 8}, "hadamard_mlp/cond_u": {8, 64},
	} {
		shapes[blockPrefix+name] = append(tensor.Shape{5}, s...)
	}
	for i := range 2 {
		p := fmt.Sprintf("engrams_%d/", i)
		shapes[p+"embedding"], shapes[p+"key_proj/kernel"], shapes[p+"value_proj/kernel"], shapes[p+"taps"] = tensor.Shape{4, 6, 16}, tensor.Shape{64, 64}, tensor.Shape{64, 64}, tensor.Shape{4, 64}
	}
	for _, h := range []struct {
		key       string
		k, q, out int64
		bias      bool
	}{{"embedding_head", 2, 3, 10, false}, {"confidence_head", 1, 2, 1, true}, {"router_head", 2, 1, 3, true}} {
		p := h.key + "/"
		shapes[p+"probes"], shapes[p+"gain"], shapes[p+"query"] = tensor.Shape{6, h.k, 64}, tensor.Shape{6, h.k}, tensor.Shape{h.q, 64}
		shapes[p+"row_bias"], shapes[p+"proj/kernel"] = tensor.Shape{h.q, 6, h.k}, tensor.Shape{h.q * 64, h.out}
		if h.bias {
			shapes[p+"proj/bias"] = tensor.Shape{h.out}
		}
	}
	shapes["embedding_head/log_temp"], shapes["embedding_head/bias"] = tensor.Shape{}, tensor.Shape{}
	var ts []*tensor.Tensor
	for name, s := range shapes {
		ts = append(ts, numbersOf(name, s))
	}
	m, err := FromParts("third", text, "2", ts)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func bytesOf(t testing.TB, x *tensor.Tensor) []byte {
	t.Helper()
	b := make([]byte, x.Bytes())
	for first := int64(0); first < x.Rows(); first += 3 {
		n := min(3, x.Rows()-first)
		if err := x.ReadRows(context.Background(), b[first*x.RowBytes():(first+n)*x.RowBytes()], first, n); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func mustArchive(t testing.TB, m *model.Model) *model.Model {
	t.Helper()
	a, err := ToArchive(m, Options{Bits: OneWidth(cq.W4), Group: 32})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// write lays an archive out and reads it back, so that the reader's rules hold.
func write(t testing.TB, m *model.Model) *cact.File {
	t.Helper()
	var list []cact.LayoutTensor
	a := m.Archive
	at := 0
	for _, s := range a.Header.Tensors(RankOf(m), a.Heads) {
		x := cact.LayoutTensor{Spec: s}
		if s.Kind == cact.CQ {
			x.Width, _ = cq.WidthOf(m.Tensors[at].Type)
			x.Group = a.Group
			at++
		}
		at++
		list = append(list, x)
	}
	l, err := cact.NewLayout(a.Header, a.Codebooks, a.Heads, list)
	if err != nil {
		t.Fatal(err)
	}
	b := slices.Clone(l.Header)
	at = 0
	for _, p := range l.Tensors {
		b = append(b, make([]byte, p.Offset-int64(len(b)))...)
		b = append(b, bytesOf(t, m.Tensors[at])...)
		at++
		if p.Kind == cact.CQ {
			if int64(len(b)) != p.NormsOffset {
				t.Fatalf("%s: norms at %d, want %d", p.Name, len(b), p.NormsOffset)
			}
			b = append(b, bytesOf(t, m.Tensors[at])...)
			at++
		}
	}
	f, err := cact.Open(context.Background(), "x.cact", tensor.BytesBlob("x", b), cact.Options{Key: tensor.Derive("test", "archive")})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// sameModel holds two models in Cact form against each other.
func sameModel(t *testing.T, got, want *model.Model) {
	t.Helper()
	gh, wh := got.Archive.Header, want.Archive.Header
	if fmt.Sprintf("%+v", gh) != fmt.Sprintf("%+v", wh) {
		t.Errorf("header %+v\nwant   %+v", gh, wh)
	}
	if len(got.Tensors) != len(want.Tensors) {
		t.Fatalf("%d tensors, want %d", len(got.Tensors), len(want.Tensors))
	}
	for i, w := range want.Tensors {
		g := got.Tensors[i]
		if g.Name != w.Name || g.Type != w.Type || !g.Shape.Equal(w.Shape) {
			t.Errorf("%s %s %v, want %s %s %v", g.Name, g.Type, g.Shape, w.Name, w.Type, w.Shape)
			continue
		}
		if !bytes.Equal(bytesOf(t, g), bytesOf(t, w)) {
			t.Errorf("%s differs", g.Name)
		}
	}
}

func TestThirdGeneration(t *testing.T) {
	m := third(t, nil)
	a := mustArchive(t, m)
	f := write(t, a)
	h := f.Header
	if h.Generation != 3 || h.GlobalMask != 1<<1|1<<4 || h.OutVocab != 30 || h.EngramTables != 4 || h.EngramSubDim != 16 || h.KVBits != 4 || h.EngramDilation != 3 {
		t.Errorf("%+v", h)
	}
	if len(f.Heads) != 3 || f.Heads[2] != (cact.Head{Code: 3, Key: "router_head", Probes: 2, Queries: 1, Out: 3}) {
		t.Errorf("heads %+v", f.Heads)
	}
	// The router was never calibrated.
	if got := bytesOf(t, f.Entry("router_head.calibration").Tensor); !bytes.Equal(got, []byte{0x33, 0x3b, 0, 0, 0xcd, 0x38}) {
		t.Errorf("calibration % x", got)
	}
	if got := bytesOf(t, f.Entry("embedding_head.bias").Tensor); !bytes.Equal(got, make([]byte, 20)) {
		t.Errorf("a head without bias has % x", got)
	}
	// A kernel is turned around: row 2 of the query matrix of layer 3 is column 2
	// of the checkpoint's.
	ref, err := Reference(m)
	if err != nil {
		t.Fatal(err)
	}
	q := bytesOf(t, m.Tensor(blockPrefix+"self_attn/q_proj/kernel"))
	for _, r := range ref {
		if r.Name != "layer03.q_proj" {
			continue
		}
		b := bytesOf(t, r)
		for i := range 64 {
			if got, want := b[(2*64+i)*2:][:2], q[((3*64+i)*64+2)*2:][:2]; !bytes.Equal(got, want) {
				t.Fatalf("row 2, column %d: % x, want % x", i, got, want)
			}
		}
	}
	// With ladder widths each half of the permutation is its own.
	p := bytesOf(t, f.Entry("hada_p1").Tensor)
	lower, upper := cq.Permutation(11, 32), cq.Permutation(988, 32)
	for i := range 64 {
		want := float32(0)
		if i < 32 {
			want = float32(lower[i])
		} else {
			want = float32(upper[i-32] + 32)
		}
		if got := math.Float32frombits(binary.LittleEndian.Uint32(p[4*i:])); got != want {
			t.Errorf("hada_p1[%d] = %v, want %v", i, got, want)
		}
	}
	notes := fmt.Sprint(a.Notes)
	for _, want := range []string{"mtp_", "embedding_head/log_temp", "embedding_head/bias"} {
		if !strings.Contains(notes, want) {
			t.Errorf("no note about %s in %s", want, notes)
		}
	}
}

func TestLadderOrder(t *testing.T) {
	for n, want := range map[int64][]int64{
		1: {0}, 2: {0, 1}, 5: {0, 4, 2, 1, 3}, 8: {0, 7, 3, 5, 1, 2, 4, 6}, 20: {0, 19, 9, 14, 4, 6, 11, 16, 2, 7, 12, 17, 1, 3, 5, 8, 10, 13, 15, 18},
	} {
		got := ladderOrder(n)
		sorted := slices.Clone(got)
		slices.Sort(sorted)
		if !slices.Equal(got, want) || int64(len(slices.Compact(sorted))) != n {
			t.Errorf("%d layers: %v, want %v", n, got, want)
		}
	}
}

// TestLayersOfArchive: cutting an archive gives what cutting its checkpoint and
// quantizing that gives.
func TestLayersOfArchive(t *testing.T) {
	for name, m := range map[string]*model.Model{"generation 3": third(t, nil), "generation 2": checkpoint(t, "needle2-a")} {
		whole := model.FromCact(write(t, mustArchive(t, m)))
		for _, depth := range []int64{2, 3} {
			cutFirst, err := Layers(m, depth)
			if err != nil {
				t.Fatal(name, err)
			}
			want := mustArchive(t, cutFirst)
			got, err := Layers(whole, depth)
			if err != nil {
				t.Fatal(name, err)
			}
			t.Run(fmt.Sprintf("%s, %d layers", name, depth), func(t *testing.T) { sameModel(t, got, want) })
			write(t, got)
		}
	}
}

// TestLayersTwice: a rung of a rung is the rung of the whole.
func TestLayersTwice(t *testing.T) {
	m := third(t, nil)
	four, err := Layers(m, 4)
	if err != nil {
		t.Fatal(err)
	}
	twice, err := Layers(four, 3)
	if err != nil {
		t.Fatal(err)
	}
	once, err := Layers(m, 3)
	if err != nil {
		t.Fatal(err)
	}
	sameModel(t, mustArchive(t, twice), mustArchive(t, once))
	for _, depth := range []int64{0, 1, 6, -1} {
		if _, err := Layers(m, depth); !errors.Is(err, ErrSlice) {
			t.Errorf("to %d layers: %v", depth, err)
		}
	}
	if same, err := Layers(m, 5); err != nil || same != m {
		t.Errorf("to all layers: %v", err)
	}
}

// TestWidth: the half of a model is one, and holds the first half of everything.
func TestWidth(t *testing.T) {
	m := third(t, nil)
	half, err := Width(m, 32)
	if err != nil {
		t.Fatal(err)
	}
	f := write(t, mustArchive(t, half))
	h := f.Header
	if h.DModel != 32 || h.Heads != 2 || h.HadaN != 32 || h.EngramTables != 4 || h.EngramSubDim != 8 || h.EngramSeedHeads != 2 {
		t.Errorf("%+v", h)
	}
	ref, err := Reference(half)
	if err != nil {
		t.Fatal(err)
	}
	whole, err := Reference(m)
	if err != nil {
		t.Fatal(err)
	}
	find := func(list []*tensor.Tensor, name string) *tensor.Tensor {
		i := slices.IndexFunc(list, func(x *tensor.Tensor) bool { return x.Name == name })
		return list[i]
	}
	// The first streams' first halves: columns 0-31 and 64-95 of 128.
	small, large := bytesOf(t, find(ref, "mhc_phi_pre")), bytesOf(t, find(whole, "mhc_phi_pre"))
	if want := slices.Concat(large[:64], large[128:192]); !bytes.Equal(small[:128], want) {
		t.Error("mhc_phi_pre: not the first half of each stream")
	}
	small, large = bytesOf(t, find(ref, "layer02.q_proj")), bytesOf(t, find(whole, "layer02.q_proj"))
	if len(small) != 32*32*2 || !bytes.Equal(small[64:128], large[128:192]) {
		t.Error("layer02.q_proj: not the first rows and columns")
	}
	for _, c := range []struct {
		m     *model.Model
		width int64
	}{{checkpoint(t, "needle2-a"), 128}, {m, 48}, {m, 128}, {half, 16}} {
		if _, err := Width(c.m, c.width); !errors.Is(err, ErrSlice) {
			t.Errorf("%s to %d: %v", c.m.Name, c.width, err)
		}
	}
}

// TestRefusals: a checkpoint that does not hold together is an error that names the
// tensor.
func TestRefusals(t *testing.T) {
	with := func(m *model.Model, f func(*tensor.Tensor) *tensor.Tensor) *model.Model {
		var ts []*tensor.Tensor
		for _, x := range m.Tensors {
			if x = f(x); x != nil {
				ts = append(ts, x)
			}
		}
		return m.WithTensors(ts)
	}
	for _, c := range []struct {
		name, text string
		m          *model.Model
	}{
		{"a tensor is missing", blockPrefix + "self_attn/q_taps", with(third(t, nil), func(x *tensor.Tensor) *tensor.Tensor {
			if strings.HasSuffix(x.Name, "q_taps") {
				return nil
			}
			return x
		})},
		{"a tensor too many", "stack/extra", with(third(t, nil), func(x *tensor.Tensor) *tensor.Tensor {
			if x.Name == "mtp" {
				return nil
			}
			if strings.HasSuffix(x.Name, "log_temp") {
				return numbersOf("stack/extra", tensor.Shape{2})
			}
			return x
		})},
		{"other shape", "final_norm", with(third(t, nil), func(x *tensor.Tensor) *tensor.Tensor {
			if x.Name == "stack/final_norm/scale" {
				return numbersOf(x.Name, tensor.Shape{65})
			}
			return x
		})},
		{"layers of another count", "attn_gate", with(third(t, nil), func(x *tensor.Tensor) *tensor.Tensor {
			if strings.HasSuffix(x.Name, "attn_gate") {
				return numbersOf(x.Name, tensor.Shape{4})
			}
			return x
		})},
		{"half a head", "router_head", with(third(t, nil), func(x *tensor.Tensor) *tensor.Tensor {
			if x.Name == "router_head/probes" {
				return nil
			}
			return x
		})},
		{"other vocabulary", "embedding", third(t, func(c map[string]any) { c["vocab_size"] = 41 })},
	} {
		if _, err := ToArchive(c.m, Options{Bits: OneWidth(cq.W4), Group: 32}); !errors.Is(err, model.ErrTensors) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	for _, c := range []struct{ name, config, version string }{
		{"version 1", `{}`, "1"}, {"no version", `{}`, ""}, {"no config", `{}`, "2"}, {"no object", `[]`, "2"},
		{"negative", `{"vocab_size": -1}`, "2"}, {"huge", `{"vocab_size": 99999999999}`, "2"}, {"text", `{"vocab_size": "x"}`, "2"},
	} {
		if _, err := FromParts("x", []byte(c.config), c.version, nil); !errors.Is(err, model.ErrConfig) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	for key, v := range map[string]any{"num_layers": 65, "engram_layers": []int{4, 1}, "global_layers": []int{5}, "engram_orders": []int{}, "ladder_order": []int{0, 1, 2, 3, 3},
		"num_heads": 0, "engram_heads": 999, "kv_bits": "x", "rope_theta": []int{1}} {
		cfg := map[string]any{"vocab_size": 40, "d_model": 64, "num_heads": 4, "num_kv_heads": 2, "num_layers": 5, "max_seq_len": 512, "engram_layers": []int{1, 4}, key: v}
		text, err := json.Marshal(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := FromParts("x", text, "2", nil); !errors.Is(err, model.ErrConfig) {
			t.Errorf("%s %v: %v", key, v, err)
		}
	}
}

func TestBits(t *testing.T) {
	b, err := ParseBits("default=2, attn.=3,attn.q_proj=1.58,engram0=4,engram=1")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]cq.Width{
		"embedding": cq.W2, "layer00.q_proj": cq.W158, "layer63.k_proj": cq.W3, "engram0.tables": cq.W4, "engram1.tables": cq.W1, "mhc_phi_pre": cq.W2,
	} {
		if got, _ := b.Of(name); got != want {
			t.Errorf("%s: %s bits, want %s", name, got, want)
		}
	}
	for _, s := range []string{"", "4", "embedding=4", "default=5", "default=", "=4", "default=2,default=3", "default=2,a=3,a=3", "default=CQ4", "default=2,,a=3"} {
		if _, err := ParseBits(s); !errors.Is(err, ErrBits) {
			t.Errorf("%q: %v", s, err)
		}
	}
	if b, err = ParseBits("default=2,emebdding=4"); err != nil {
		t.Fatal(err)
	}
	if _, err := ToArchive(checkpoint(t, "needle2-a"), Options{Bits: b}); !errors.Is(err, ErrBits) || !strings.Contains(err.Error(), "emebdding") {
		t.Errorf("a misspelt name: %v", err)
	}
	if _, err := ToArchive(checkpoint(t, "needle2-a"), Options{Bits: OneWidth(cq.W1)}); !errors.Is(err, cq.ErrWidth) {
		t.Errorf("1 bit in generation 2: %v", err)
	}
}
