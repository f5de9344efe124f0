package device

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"quern/formats/gguf"
	"quern/model"
	"quern/tensor"
)

// file makes a model of two layers, hidden 64: every matrix of a megabyte, and
// experts of 100,000 bytes each.
func file(experts, used int64, last bool) *File {
	meta := gguf.NewMetadata()
	meta.Set("general.architecture", gguf.Scalar("toy"))
	meta.Set("toy.context_length", gguf.Scalar(uint32(1000)))
	meta.Set("toy.embedding_length", gguf.Scalar(uint32(64)))
	f := &File{Name: "toy.gguf", Meta: meta, Size: 1000}
	add := func(name string, bytes int64, shape ...int64) {
		f.Parts = append(f.Parts, Part{name, shape, f.Size, bytes})
		f.Size += bytes
	}
	add("token_embd.weight", 500_000, 2000, 64)
	add("output.weight", 500_000, 2000, 64)
	expert := func(i int) {
		if experts > 0 {
			meta.Set("toy.expert_used_count", gguf.Scalar(uint32(used)))
			for _, m := range []string{"gate", "up", "down", "gate"}[:3] {
				add(fmt.Sprintf("blk.%d.ffn_%s_exps.weight", i, m), experts*100_000, experts, 32, 64)
			}
		}
	}
	for i := range 2 {
		add(fmt.Sprintf("blk.%d.attn_q.weight", i), 1e6, 64, 64)
		add(fmt.Sprintf("blk.%d.attn_k.weight", i), 1e6, 32, 64)
		add(fmt.Sprintf("blk.%d.attn_v.weight", i), 1e6, 16, 64)
		if !last {
			expert(i)
		}
	}
	if last {
		expert(0)
		expert(1)
	}
	return f
}

const (
	weights = 6*1_000_000 + 500_000
	kv      = 2 * (32 + 16) * 2 * 1000 // two layers, two bytes, a thousand tokens
	work    = 4*2000 + 4*64 + 4*16*64
)

func TestFit(t *testing.T) {
	base := int64(weights + kv + work)
	tests := []struct {
		name  string
		f     *File
		spec  Spec
		check func(t *testing.T, a *Account)
	}{
		{"dense fits", file(0, 0, true), Spec{RAM: base}, func(t *testing.T, a *Account) {
			if a.Streamed != 0 || a.Resident != base || a.Needed != base || a.Experts != nil || a.Embedding != 500_000 {
				t.Errorf("%+v", a)
			}
		}},
		{"dense streams what does not fit", file(0, 0, true), Spec{RAM: base - 2_000_000, Flash: 20_000_000}, func(t *testing.T, a *Account) {
			if a.Streamed != 2_000_000 || a.Ceiling != 10 || a.Resident != base-2_000_000 {
				t.Errorf("%+v", a)
			}
		}},
		{"half of the experts fit", file(8, 2, true), Spec{RAM: base + 4*600_000, Flash: 3_000_000}, func(t *testing.T, a *Account) {
			e := a.Experts
			// Each of two layers misses one of two experts of 300,000 bytes.
			if e == nil || e.Pool != 4 || e.Layers != 2 || e.Count != 8 || e.Bytes != 2*8*300_000 || a.Streamed != 600_000 || a.Ceiling != 5 {
				t.Errorf("%+v, %+v", a, e)
			}
		}},
		{"all experts fit", file(8, 2, true), Spec{RAM: 1 << 40, Flash: 1}, func(t *testing.T, a *Account) {
			if a.Experts.Pool != 8 || a.Streamed != 0 || a.Ceiling != 0 || a.Resident != a.Needed {
				t.Errorf("%+v", a)
			}
		}},
		{"fewer than one token needs", file(8, 2, true), Spec{RAM: base + 600_000}, func(t *testing.T, a *Account) {
			if a.Experts.Pool != 0 || a.Streamed != 2*2*300_000 || len(a.Notes) != 1 {
				t.Errorf("%+v", a)
			}
		}},
		{"experts last are not mapped", file(8, 2, true), Spec{RAM: base, MapLimit: 7_000_000 + 1000}, func(t *testing.T, a *Account) {
			if !a.MapFits || a.Map != 7_000_000+1000 || !a.Experts.Last {
				t.Errorf("%+v", a)
			}
		}},
		{"experts between others are", file(8, 2, false), Spec{RAM: base, MapLimit: 7_000_000 + 1000}, func(t *testing.T, a *Account) {
			if a.MapFits || a.Map != a.Size || a.Experts.Last || !strings.Contains(strings.Join(a.Notes, " "), "reorder") {
				t.Errorf("%+v", a)
			}
		}},
		{"a smaller cache", file(0, 0, true), Spec{RAM: base, KV: tensor.Q8_0, Context: 10}, func(t *testing.T, a *Account) {
			if a.KV != 10*3*34 {
				t.Errorf("%d bytes of keys and values", a.KV)
			}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.spec.KV == 0 {
				tt.spec.KV = tensor.F16
			}
			a, err := Fit(tt.f, tt.spec)
			if err != nil {
				t.Fatal(err)
			}
			tt.check(t, a)
		})
	}
}

// Tied heads are read whole for every token.
func TestTied(t *testing.T) {
	f := file(0, 0, true)
	f.Parts = append(f.Parts[:1], f.Parts[2:]...)
	a, err := Fit(f, Spec{RAM: 1, KV: tensor.F16})
	if err != nil || a.Embedding != 0 || a.Weights != weights {
		t.Errorf("%+v, %v", a, err)
	}
}

// A hybrid: layer 0 is recurrent and has a state, layer 1 one tensor for queries,
// keys and values.
func TestHybrid(t *testing.T) {
	f := file(0, 0, true)
	f.Meta.Set("toy.attention.head_count", gguf.Scalar(uint32(4)))
	f.Meta.Set("toy.attention.head_count_kv", gguf.Scalar(uint32(2)))
	f.Meta.Set("toy.ssm.inner_size", gguf.Scalar(uint32(128)))
	f.Meta.Set("toy.ssm.state_size", gguf.Scalar(uint32(16)))
	f.Parts = []Part{
		{"output.weight", tensor.Shape{2000, 64}, 0, 1},
		{"blk.0.attn_qkv.weight", tensor.Shape{300, 64}, 1, 1},
		{"blk.0.ssm_conv1d.weight", tensor.Shape{300, 4}, 2, 1},
		{"blk.1.attn_qkv.weight", tensor.Shape{128, 64}, 3, 1},
	}
	a, err := Fit(f, Spec{RAM: 1, KV: tensor.F16, Context: 100})
	if err != nil {
		t.Fatal(err)
	}
	// Two heads of 16 keys and 16 values; a state of 128 by 16 and three columns.
	if want := int64(100*2*64 + 4*(128*16+300*3)); a.KV != want {
		t.Errorf("%d bytes, want %d", a.KV, want)
	}
}

func TestRefused(t *testing.T) {
	broken := file(8, 2, true)
	broken.Parts[len(broken.Parts)-1].Shape = tensor.Shape{7, 32, 64}
	unnamed := file(8, 2, true)
	unnamed.Parts[len(unnamed.Parts)-1].Name = "blk.x.ffn_up_exps.weight"
	none := file(8, 2, true)
	none.Meta.Set("toy.expert_used_count", gguf.Scalar(uint32(9)))
	huge := file(8, 2, true)
	huge.Parts[len(huge.Parts)-1].Shape = tensor.Shape{1 << 40, 1, 1}
	ok := Spec{RAM: 1, KV: tensor.F16}
	for _, tt := range []struct {
		f    *File
		s    Spec
		kind error
		want string
	}{
		{broken, ok, model.ErrForm, "blk.1.ffn_down_exps.weight"},
		{unnamed, ok, model.ErrForm, "blk.x.ffn_up_exps.weight"},
		{none, ok, model.ErrForm, "9 of 8 experts"},
		{huge, ok, model.ErrForm, "1099511627776"},
		{&File{Name: "x", Meta: gguf.NewMetadata()}, ok, model.ErrForm, "general.architecture"},
		{file(0, 0, true), Spec{KV: tensor.F16}, ErrSpec, "memory of 0"},
		{file(0, 0, true), Spec{RAM: 1, KV: tensor.Q4_K}, ErrSpec, "Q4_K"},
		{file(0, 0, true), Spec{RAM: 1, KV: tensor.F16, Context: -1}, ErrSpec, "device: a context of -1 tokens"},
		{file(0, 0, true), Spec{RAM: 1, KV: tensor.F16, Flash: -1}, ErrSpec, "device: flash of -1 bytes"},
	} {
		if _, err := Fit(tt.f, tt.s); !errors.Is(err, tt.kind) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("got %v, want %s", err, tt.want)
		}
	}
}
