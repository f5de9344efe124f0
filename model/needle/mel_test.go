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
