package load_test

import (
	"errors"
	"math"
	"testing"

	infer "quern/runtime"
	"quern/runtime/load"
	"quern/tokenizer"
)

// TestNeedle: an archive runs with its tokenizer; its checkpoint runs without one and
// gives other logits, but not very other ones.
func TestNeedle(t *testing.T) {
	const dir = "../../testdata/cact/"
	archive, float := open(t, dir+"needle3-a.cact"), open(t, dir+"needle3-a.safetensors")
	for _, m := range []infer.Model{archive, float} {
		// 400 of the 440 ids can be given.
		if i := m.Info(); i.Architecture != "needle3" || i.Vocab != 440 || i.Context != 96 || i.Params == 0 || i.Bytes == 0 {
			t.Errorf("%+v", i)
		}
	}
	tok, err := archive.Tokenizer()
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := tok.Encode("Once upon a time", tokenizer.EncodeOptions{Special: true})
	if err != nil {
		t.Fatal(err)
	}
	if alone, err := load.Tokenizer(t.Context(), dir+"needle3-a.cact"); err != nil || alone.Decode(tokens[1:], tokenizer.DecodeOptions{}) != "Once upon a time" {
		t.Errorf("the tokenizer alone: %v", err)
	}
	if _, err := float.Tokenizer(); !errors.Is(err, infer.ErrNoTokenizer) {
		t.Errorf("tokenizer of a checkpoint: %v", err)
	}
	a, b := all(t, session(t, archive, infer.SessionOptions{}), tokens), all(t, session(t, float, infer.SessionOptions{}), tokens)
	var dot, aa, bb float64
	for i := range a {
		for j := range 400 {
			x, y := float64(a[i][j]), float64(b[i][j])
			dot, aa, bb = dot+x*y, aa+x*x, bb+y*y
		}
		if !math.IsInf(float64(a[i][400]), -1) || !math.IsInf(float64(b[i][439]), -1) {
			t.Errorf("ids beyond the head have logits %v and %v", a[i][400], b[i][439])
		}
	}
	if cos := dot / math.Sqrt(aa*bb); !(cos > 0.5 && cos < 0.9999) {
		t.Errorf("logits of archive and checkpoint have a cosine of %v", cos)
	}
}

// TestNeedlePickle: the two forms of a checkpoint are one model.
func TestNeedlePickle(t *testing.T) {
	const name = "../../testdata/cact/needle3-b"
	tokens := []int32{2, 5, 90, 200, 7, 8}
	want := all(t, session(t, open(t, name+".safetensors"), infer.SessionOptions{}), tokens)
	equal(t, "pickle", all(t, session(t, open(t, name+".pkl"), infer.SessionOptions{}), tokens), want)
}

func TestNeedleRefuses(t *testing.T) {
	for path, want := range map[string]error{
		"../../testdata/models/stories260k/model.safetensors": infer.ErrModel,
		"../../testdata/cact/needle3-a-lora.safetensors":      infer.ErrModel,
		"../../testdata/cact/needle3-b-lora.pkl":              nil,
	} {
		if m, err := load.Open(t.Context(), path); err == nil || want != nil && !errors.Is(err, want) {
			t.Errorf("%s: %v, %v", path, m, err)
		}
	}
}
