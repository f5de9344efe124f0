package transformer_test

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"

	"quern/model"
	"quern/model/modeltest"
	infer "quern/runtime"
	"quern/runtime/transformer"
)

// longrope is tiny-llama-hf, or what is left of it without a tokenizer, with a
// rope_scaling.
func longrope(t *testing.T, scaling string) (*transformer.Model, error) {
	t.Helper()
	files, err := modeltest.Build("tiny-llama-hf")
	if err != nil {
		t.Fatal(err)
	}
	c := files.Files["config.json"]
	files.Files["config.json"] = bytes.Replace(c, []byte("{"), []byte(`{"original_max_position_embeddings": 64, `+scaling), 1)
	for name := range files.Files {
		if strings.HasPrefix(name, "tokenizer") {
			delete(files.Files, name)
		}
	}
	h, err := model.LoadHF(t.Context(), files, model.HFOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return transformer.FromHF(t.Context(), h)
}

// TestLongropeChoosesByTheContext: factors of 1 and 1 with an attention factor of
// 1 are no scaling at all; long ones count from the original context on.
func TestLongropeChoosesByTheContext(t *testing.T) {
	of := func(long, short string, context int) [][]float32 {
		m, err := longrope(t, `"rope_scaling": {"rope_type": "longrope", "attention_factor": 1.0, "long_factor": [`+long+`], "short_factor": [`+short+`]},`)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.Tokenizer(); !errors.Is(err, infer.ErrNoTokenizer) {
			t.Errorf("tokenizer: %v", err)
		}
		return logits(t, m, infer.SessionOptions{Context: context}, text)
	}
	m, err := longrope(t, "")
	if err != nil {
		t.Fatal(err)
	}
	plain := logits(t, m, infer.SessionOptions{}, text)
	ones, twos := "1,1,1,1", "2,2,2,2"
	if d := apart(plain, of(twos, ones, 64)); d != 0 {
		t.Errorf("short factors of 1 change logits by %g", d)
	}
	long := of(twos, ones, 65)
	if d := apart(plain, long); d == 0 {
		t.Error("long factors change nothing")
	}
	if d := apart(long, of(ones, twos, 64)); d != 0 {
		t.Errorf("the same factors, short and long, differ by %g", d)
	}
	// sqrt(1 + ln(256/64)/ln 64), by default.
	a, err := longrope(t, `"rope_scaling": {"rope_type": "longrope", "long_factor": [1,1,1,1], "short_factor": [1,1,1,1]},`)
	if err != nil {
		t.Fatal(err)
	}
	want := math.Sqrt(1 + math.Log(4)/math.Log(64))
	b, err := longrope(t, `"rope_scaling": {"rope_type": "longrope", "attention_factor": 1.1547005383792515, "long_factor": [1,1,1,1], "short_factor": [1,1,1,1]},`)
	if err != nil || math.Abs(want-1.1547005383792515) > 1e-12 {
		t.Fatal(err, want)
	}
	if d := apart(logits(t, a, infer.SessionOptions{}, text), logits(t, b, infer.SessionOptions{}, text)); d > 1e-6 {
		t.Errorf("the attention factor by default and as given differ by %g", d)
	}
}

func TestLongropeRefuses(t *testing.T) {
	for _, s := range []string{
		`"rope_scaling": {"rope_type": "longrope", "long_factor": [1,1,1,1], "short_factor": 1},`,
		`"rope_scaling": {"rope_type": "longrope", "long_factor": [1,1,1,"x"], "short_factor": [1,1,1,1]},`,
		`"rope_scaling": {"rope_type": "longrope", "long_factor": [1,1,1,0], "short_factor": [1,1,1,1]},`,
		`"rope_scaling": {"rope_type": "longrope", "long_factor": [1,1,1], "short_factor": [1,1,1,1]},`,
	} {
		if _, err := longrope(t, s); err == nil || !strings.Contains(err.Error(), "factor") {
			t.Errorf("%s: %v", s, err)
		}
	}
}

// TestLongropeOfBothForms: configs of transformers 4 have the original context at the
// root, where it decides the factor; those of transformers 5 among the parameters, where
// a factor comes first.
func TestLongropeOfBothForms(t *testing.T) {
	const lists = `"rope_type": "longrope", "rope_theta": 10000.0, "long_factor": [1,2,3,4], "short_factor": [1,1,1,2]`
	of := func(scaling string) [][]float32 {
		m, err := longrope(t, scaling)
		if err != nil {
			t.Fatal(err)
		}
		return logits(t, m, infer.SessionOptions{Context: 100}, text)
	}
	old := of(`"rope_scaling": {` + lists + `},`) // 256 over the 64 of the root
	if d := apart(old, of(`"rope_scaling": {"factor": 9.0, `+lists+`},`)); d != 0 {
		t.Errorf("the root's quotient does not come before the factor: %g", d)
	}
	if d := apart(old, of(`"rope_parameters": {`+lists+`, "original_max_position_embeddings": 64},`)); d != 0 {
		t.Errorf("the original context among the parameters: %g", d)
	}
	if d := apart(old, of(`"rope_parameters": {`+lists+`, "factor": 4.0, "original_max_position_embeddings": 64},`)); d != 0 {
		t.Errorf("the factor that the quotient is: %g", d)
	}
	if d := apart(old, of(`"rope_parameters": {`+lists+`, "factor": 9.0, "original_max_position_embeddings": 64},`)); d == 0 {
		t.Error("a factor does not come before the quotient")
	}
	if d := apart(old, of(`"rope_parameters": {`+lists+`, "original_max_position_embeddings": 128},`)); d == 0 {
		t.Error("an original context of 128 is none: 100 are beyond it")
	}
}
