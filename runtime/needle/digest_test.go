package needle_test

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
	"testing"

	infer "quern/runtime"
	"quern/runtime/needle"
)

// TestDigests holds the bits of logits: they are the same with and without
// assembly, with fused multiplication at hand or not, on every architecture. They
// change only with the arithmetic itself.
func TestDigests(t *testing.T) {
	for _, c := range []struct {
		file   string
		opt    needle.Options
		digest string
	}{
		{"needle2-a-mixed.cact", needle.Options{}, "4ea542efcfae84a382beb4b336a2b3ee"},
		{"needle2-b-w4.cact", needle.Options{Round8: true}, "161fb33ce2dad66cc851043f71eb0078"},
		{"needle3-a.cact", needle.Options{}, "32fabaf3cb788cb35f9c05f753c3534b"},
		{"needle3-a.cact", needle.Options{Round8: true, KV8: true}, "742ff4e5453a5e1ef45744e4eebd99b8"},
		{"needle3-b-width32.cact", needle.Options{Round8: true}, "c7a1ca1f336efa61487ab4ca17024c07"},
		{"whistle.cact", needle.Options{}, "8eae0f1b8d333f20f96f05eaaf3a3b2c"},
		{"whistle-lora.cact", needle.Options{Round8: true, KV8: true}, "7acbaa53a8a22e60f6c640d746f09373"},
		{"needle3-c-layers5.cact", needle.Options{}, "905c5b7b2db4fbf068b19bb61660fd3b"},
	} {
		m := openArchive(t, c.file)
		if m.IsSpeech() {
			sound := make([]float32, 1500)
			for i := range sound {
				sound[i] = float32(i*i*7919%2003-1001) / 1001
			}
			c.opt.Heard = hear(t, m, sound, infer.SessionOptions{}, c.opt)
		}
		rows := logits(t, session(t, m, infer.SessionOptions{}, c.opt), text(30, m.Info().Vocab))
		if len(m.Heads()) > 0 {
			r, err := m.Read(t.Context(), text(30, m.Info().Vocab), infer.SessionOptions{}, c.opt)
			if err != nil {
				t.Fatal(err)
			}
			rows = append(rows, r.Embedding, r.Confidence, r.Router)
		}
		h := sha256.New()
		for _, row := range rows {
			for _, v := range row {
				h.Write(binary.LittleEndian.AppendUint32(nil, math.Float32bits(v)))
			}
		}
		if got := hex.EncodeToString(h.Sum(nil)[:16]); got != c.digest {
			t.Errorf("%s %+v: %s, want %s", c.file, c.opt, got, c.digest)
		}
	}
}
