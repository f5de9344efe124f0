package convert

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"quern/internal/testmodel"
	"quern/model"
)

// TestRopeFreqs holds whole tensors against those that PyTorch made.
func TestRopeFreqs(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(testmodel.Root(), "convert", "rope_freqs.json"))
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Name    string
		HeadDim int64   `json:"head_dim"`
		Theta   float64 `json:"rope_theta"`
		Factor  float64
		Low     float64 `json:"low_freq_factor"`
		High    float64 `json:"high_freq_factor"`
		Context int64   `json:"original_max_position_embeddings"`
		Factors []string
	}
	if err := json.Unmarshal(text, &cases); err != nil || len(cases) == 0 {
		t.Fatal(err)
	}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			cfg := config(t, fmt.Sprintf(`"rope_theta":%g,"head_dim":%d,"rope_scaling":{"rope_type":"llama3","factor":%g,"low_freq_factor":%g,"high_freq_factor":%g,"original_max_position_embeddings":%d}`,
				c.Theta, c.HeadDim, c.Factor, c.Low, c.High, c.Context))
			for i, f := range freqs(t, cfg, c.HeadDim) {
				var b [4]byte
				binary.BigEndian.PutUint32(b[:], math.Float32bits(f))
				if got := hex.EncodeToString(b[:]); got != c.Factors[i] {
					t.Errorf("factor %d: %s (%g), want %s", i, got, f, c.Factors[i])
				}
			}
		})
	}
}

func config(t *testing.T, more string) *model.Config {
	t.Helper()
	c, err := model.ParseConfig("config.json", []byte(`{"architectures":["LlamaForCausalLM"],"model_type":"llama",`+more+`}`))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func freqs(t *testing.T, c *model.Config, headDim int64) []float32 {
	t.Helper()
	it, err := ropeFreqs(c, &model.Dims{HeadDim: headDim})
	if err != nil {
		t.Fatal(err)
	}
	if it == nil {
		t.Fatal("no rope factors")
	}
	b := make([]byte, it.t.Bytes())
	if err := it.t.ReadRows(t.Context(), b, 0, 1); err != nil {
		t.Fatal(err)
	}
	out := make([]float32, headDim/2)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return out
}

// The key is "type" in old configs and "rope_type" in new ones; both must be
// heard. Values by hand from the published formula.
func TestRopeFreqsKeys(t *testing.T) {
	for _, key := range []string{"type", "rope_type"} {
		c := config(t, `"rope_theta":500000,"head_dim":64,"rope_scaling":{"`+key+`":"llama3","factor":32,"low_freq_factor":1,"high_freq_factor":4,"original_max_position_embeddings":8192}`)
		f := freqs(t, c, 64)
		for i, v := range f {
			want := float32(32)
			switch {
			case i < 15:
				want = 1
			case i < 18:
				want = []float32{1.6513, 3.2923, 9.6667}[i-15]
			}
			if math.Abs(float64(v-want)) > 1e-4 {
				t.Errorf("%s: factor %d is %g, want %g", key, i, v, want)
			}
		}
	}
}

// Factors that a file asks for but that cannot be had must not be passed over.
func TestRopeFreqsErrors(t *testing.T) {
	for _, bad := range []string{`"factor":0`, `"factor":-1`, `"factor":"8"`, `"factor":8,"low_freq_factor":0`} {
		c := config(t, `"head_dim":64,"rope_scaling":{"rope_type":"llama3","high_freq_factor":4,"original_max_position_embeddings":8192,`+bad+`}`)
		if _, err := ropeFreqs(c, &model.Dims{HeadDim: 64}); err == nil || !strings.Contains(err.Error(), "factor") {
			t.Errorf("%s: error %v", bad, err)
		}
	}
	if it, err := ropeFreqs(config(t, `"rope_scaling":{"type":"linear","factor":2.0}`), &model.Dims{HeadDim: 64}); it != nil || err != nil {
		t.Errorf("linear scaling needs no factors: %v %v", it, err)
	}
}

// Powers from PyTorch 2.11, among them some that are not correctly rounded, with
// the correctly rounded ones beside them (computed with 200 bits).
func TestPowers(t *testing.T) {
	cases := []struct{ x, y, torch, exact float32 }{
		{10000, 0.4166666567325592, 46.4158821105957, 46.41588592529297},
		{10000, 0.8671875, 2942.72705078125, 2942.727294921875},
		{500000, 0.3958333432674408, 180.236328125, 180.23634338378906},
		{1000000, 0.578125, 2942.72705078125, 2942.727294921875},
		{5000000, 0.6041666865348816, 11150.5048828125, 11150.50390625},
		{5000000, 0.296875, 97.4443588256836, 97.44436645507812},
		{300000, 0.1328125, 5.338634490966797, 5.338634014129639},
		{300000, 0.2890625, 38.30278396606445, 38.30278778076172},
		{500000, 0, 1, 1},
		{500000, 0.5, 707.1068115234375, 707.1068115234375},
	}
	for _, c := range cases {
		if got := powSleef(c.x, c.y); got != c.torch {
			t.Errorf("%g^%g = %v, PyTorch has %v", c.x, c.y, got, c.torch)
		}
		if got := powExact(c.x, c.y); got != c.exact {
			t.Errorf("%g^%g = %v, want %v", c.x, c.y, got, c.exact)
		}
	}
}

func TestFMA(t *testing.T) {
	// (1+2^-12)^2 - 1 - 2^-11 = 2^-24: lost when the product is rounded first.
	x := float32(1 + 0x1p-12)
	if got := fma(x, x, -1-0x1p-11); got != 0x1p-24 {
		t.Errorf("got %g, want 2^-24", got)
	}
	// A sum just above a float32 tie, by less than float64 shows.
	if got := fma(1, 1+0x1p-23, 0x1p-24); got != 1+0x1p-22 {
		t.Errorf("tie to even: got %x", got)
	}
	if got := fma(0x1p-40, 0x1p-40, 1+0x1p-23); got != 1+0x1p-23 {
		t.Errorf("tiny product: got %x", got)
	}
}
