package needle

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"quern/formats/cact"
)

// TestMelBank holds mel bands of other rates and sizes against the exporter's, to the
// bit.
func TestMelBank(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "testdata", "cact", "whistle-mel.json"))
	if err != nil {
		t.Fatal(err)
	}
	var list []struct {
		Rate, FFT, Mels uint32
		SHA256          string
	}
	if err := json.Unmarshal(text, &list); err != nil || len(list) < 5 {
		t.Fatal(err, len(list))
	}
	for _, c := range list {
		h := sha256.New()
		for _, v := range MelBank(&cact.Audio{Rate: c.Rate, FFT: c.FFT, Mels: c.Mels}) {
			h.Write(binary.LittleEndian.AppendUint32(nil, math.Float32bits(v)))
		}
		if got := hex.EncodeToString(h.Sum(nil)); got != c.SHA256 {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

// TestRounded: logarithms and powers are right to the last place where float64 can
// tell.
func TestRounded(t *testing.T) {
	for _, c := range []struct{ x, ln float64 }{
		{1, 0}, {2, 0.6931471805599453}, {6.4, 1.8562979903656263}, {8, 2.0794415416798357}, {0.75, -0.2876820724517809}, {24, 3.1780538303479458},
	} {
		if got := lnRounded(c.x); got != c.ln {
			t.Errorf("ln %v is %v, want %v", c.x, got, c.ln)
		}
	}
	for _, c := range []struct{ x, exp float64 }{{0, 1}, {1, 2.718281828459045}, {-1, 0.36787944117144233}, {5.5, 244.69193226422038}} {
		if got := expRounded(c.x); got != c.exp {
			t.Errorf("exp %v is %v, want %v", c.x, got, c.exp)
		}
	}
}
