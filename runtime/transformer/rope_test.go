package transformer

import (
	"errors"
	"math"
	"testing"

	"quern/model"
	infer "quern/runtime"
)

func near(a, b, tolerance float64) bool { return math.Abs(a-b) <= tolerance*math.Abs(b) }

// plain gives base^(-2j/dims) by another road than the code under test.
func plain(base float64, j, dims int) float64 { return math.Pow(base, -2*float64(j)/float64(dims)) }

func angles(t *testing.T, p ropeParams) *rope {
	t.Helper()
	if p.attn == 0 {
		p.attn = 1
	}
	r, err := newRope(p)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRopeAngles(t *testing.T) {
	r := angles(t, ropeParams{dims: 64, base: 10000, scale: 1})
	lin := angles(t, ropeParams{dims: 64, base: 10000, scale: 0.25})
	factors := make([]float32, 32)
	for j := range factors {
		factors[j] = float32(j + 1)
	}
	div := angles(t, ropeParams{dims: 64, base: 10000, scale: 1, factors: factors})
	for j := range r.freq {
		want := plain(10000, j, 64)
		if !near(r.freq[j], want, 1e-14) || !near(lin.freq[j], want/4, 1e-14) || !near(div.freq[j], want/float64(j+1), 1e-14) {
			t.Errorf("pair %d: %g, linear %g, with factors %g; the plain angle is %g", j, r.freq[j], lin.freq[j], div.freq[j], want)
		}
	}
}

// TestYaRN holds the table against the definition: pairs that turn more than
// betaFast times over the original context keep their angle, those that turn less
// than betaSlow times are interpolated, between them the mix is linear in j.
func TestYaRN(t *testing.T) {
	const dims, base, original, factor = 128, 1e6, 32768, 4.0
	p := ropeParams{dims: dims, base: base, scale: 1 / factor, ext: 1, betaFast: 32, betaSlow: 1, original: original, attn: 1}
	r := angles(t, p)
	turns := func(j float64) float64 { return original * math.Pow(base, -2*j/dims) / (2 * math.Pi) }
	var low, high float64
	for j := range dims / 2 {
		if turns(float64(j)) > 32 && turns(float64(j+1)) <= 32 {
			low = float64(j)
		}
		if turns(float64(j)) > 1 && turns(float64(j+1)) <= 1 {
			high = float64(j + 1)
		}
	}
	for j, f := range r.freq {
		mix := 1 - math.Min(1, math.Max(0, (float64(j)-low)/(high-low)))
		want := plain(base, j, dims) * (mix + (1-mix)/factor)
		if !near(f, want, 1e-12) {
			t.Errorf("pair %d of low %g, high %g: %g, want %g", j, low, high, f, want)
		}
	}
	if want := 1 + 0.1*math.Log(factor); !near(r.mag, want, 1e-14) {
		t.Errorf("magnitude %g, want %g", r.mag, want)
	}
}

// TestYaRNMagnitude is case 54 of docs/pitfalls.md: one rule for files, that of
// llama.cpp, whatever keys a file has that are for other architectures, and one for
// checkpoints, that of transformers. What is left at the end is what sines and cosines
// are multiplied by.
func TestYaRNMagnitude(t *testing.T) {
	m := func(x float64) float64 { return 1 + 0.1*x*math.Log(40) }
	for _, c := range []struct {
		name string
		kv   map[string]any
		want float64
	}{
		{"by the factor", map[string]any{"factor": 40.0}, m(1)},
		{"keys of other architectures", map[string]any{"factor": 40.0, "yarn_attn_factor": 0.5, "yarn_log_multiplier": 0.707, "yarn_ext_factor": 0.0, "yarn_beta_fast": 4.0}, m(1)},
		{"one more factor", map[string]any{"factor": 40.0, "attn_factor": 1.25}, 1.25 * m(1)},
		{"no scaling", map[string]any{"factor": 1.0}, 1},
	} {
		k := keysOf(c.kv)
		p := &params{arch: "llama", headDim: 64, context: 4096}
		p.rope(k, dimsOf(10000))
		if k.err != nil {
			t.Fatal(k.err)
		}
		if r := angles(t, *p.global); !near(r.mag, c.want, 1e-6) {
			t.Errorf("%s: %g, want %g", c.name, r.mag, c.want)
		}
		if p.global.betaFast != 32 || p.global.betaSlow != 1 || p.global.ext != 1 {
			t.Errorf("%s: %+v", c.name, *p.global)
		}
	}
	for config, want := range map[string]float64{
		`"factor": 40`:                                           m(1),
		`"factor": 40, "mscale": 0.707`:                          m(1),
		`"factor": 40, "mscale_all_dim": 0.707`:                  m(1),
		`"factor": 40, "mscale": 0.707, "mscale_all_dim": 0.707`: 1,
		`"factor": 40, "mscale": 1.0, "mscale_all_dim": 0.707`:   m(1) / m(0.707),
		`"factor": 40, "mscale": 1.5, "mscale_all_dim": 0.5`:     m(1.5) / m(0.5),
		`"factor": 40, "mscale": 0, "mscale_all_dim": 0.707`:     m(1),
		`"factor": 40, "attention_factor": 0.5, "mscale": 1.0`:   0.5,
		`"factor": 1.0, "mscale": 1.0, "mscale_all_dim": 0.5`:    1,
		`"factor": 40, "attention_factor": null, "beta_fast": 4`: m(1),
	} {
		c, err := model.ParseConfig("config.json", []byte(`{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
			"rope_scaling": {"rope_type": "yarn", "original_max_position_embeddings": 64, `+config+`}}`))
		if err != nil {
			t.Fatal(err)
		}
		r, err := c.Rope()
		if err != nil {
			t.Fatal(err)
		}
		factor, _, err := r.Float("factor")
		if err != nil {
			t.Fatal(err)
		}
		p := &params{arch: "llama", headDim: 64, context: 4096}
		p.rope(keysOf(map[string]any{"factor": factor}), dimsOf(10000))
		if err := p.fromConfig(c); err != nil {
			t.Fatal(err)
		}
		if r := angles(t, *p.global); !near(r.mag, want, 1e-6) {
			t.Errorf("%s: %g, want %g", config, r.mag, want)
		}
	}
}

func TestTurn(t *testing.T) {
	cos, sin := []float32{0, 0.6}, []float32{1, 0.8}
	x := []float32{1, 2, 3, 4, 9}
	(&rope{dims: 4}).turn(x, cos, sin)
	for i, want := range []float32{-2, 1, 3*0.6 - 4*0.8, 3*0.8 + 4*0.6, 9} {
		if !near(float64(x[i]), float64(want), 1e-6) {
			t.Errorf("neighbours: value %d is %g, want %g", i, x[i], want)
		}
	}
	x = []float32{1, 2, 3, 4, 9}
	(&rope{dims: 4, neox: true}).turn(x, cos, sin)
	for i, want := range []float32{-3, 2*0.6 - 4*0.8, 1, 2*0.8 + 4*0.6, 9} {
		if !near(float64(x[i]), float64(want), 1e-6) {
			t.Errorf("halves: value %d is %g, want %g", i, x[i], want)
		}
	}
}

func TestRopeRefuses(t *testing.T) {
	good := ropeParams{dims: 8, base: 10000, scale: 1, attn: 1, ext: 1, betaFast: 32, betaSlow: 1, original: 64}
	for name, f := range map[string]func(p *ropeParams){
		"odd":              func(p *ropeParams) { p.dims = 7 },
		"none":             func(p *ropeParams) { p.dims = 0 },
		"base 0":           func(p *ropeParams) { p.base = 0 },
		"base NaN":         func(p *ropeParams) { p.base = math.NaN() },
		"scale 0":          func(p *ropeParams) { p.scale = 0 },
		"base 1":           func(p *ropeParams) { p.base = 1 },
		"no context":       func(p *ropeParams) { p.original = 0 },
		"beta 0":           func(p *ropeParams) { p.betaSlow = 0 },
		"too many factors": func(p *ropeParams) { p.factors = make([]float32, 5) },
	} {
		p := good
		f(&p)
		if _, err := newRope(p); !errors.Is(err, infer.ErrModel) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := newRope(good); err != nil {
		t.Error(err)
	}
}
