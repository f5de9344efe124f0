package wav

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"
)

const dir = "../../testdata/wav"

func read(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestGoldens reads every kind of file as Needle's package does, to the bit.
func TestGoldens(t *testing.T) {
	var want map[string][]uint32
	if err := json.Unmarshal(read(t, "samples.json"), &want); err != nil {
		t.Fatal(err)
	}
	if len(want) < 7 {
		t.Fatalf("%d goldens", len(want))
	}
	for name, bits := range want {
		s, err := Parse(name, read(t, name))
		if err != nil {
			t.Error(err)
			continue
		}
		if s.Rate != 16000 || len(s.Samples) != len(bits) {
			t.Errorf("%s: %d samples, %d a second", name, len(s.Samples), s.Rate)
			continue
		}
		for i, v := range s.Samples {
			if math.Float32bits(v) != bits[i] {
				t.Errorf("%s: sample %d is %v, want %v", name, i, v, math.Float32frombits(bits[i]))
				break
			}
		}
	}
}

func TestRefuses(t *testing.T) {
	put := func(off int, v ...byte) func([]byte) []byte {
		return func(b []byte) []byte { copy(b[off:], v); return b }
	}
	for name, c := range map[string]struct {
		change func([]byte) []byte
		is     error
	}{
		"empty":               {func([]byte) []byte { return nil }, ErrNotWAV},
		"another format":      {put(0, 'R', 'I', 'F', 'X'), ErrNotWAV},
		"cut in the sound":    {func(b []byte) []byte { return b[:len(b)-3] }, ErrFormat},
		"no sound":            {func(b []byte) []byte { return b[:36] }, ErrFormat},
		"format cut":          {put(16, 12), ErrFormat},
		"compressed":          {put(20, 85), ErrFormat},
		"no channels":         {put(22, 0), ErrFormat},
		"no rate":             {put(24, 0, 0), ErrFormat},
		"frames of 0":         {put(32, 0), ErrFormat},
		"frames of 5":         {put(32, 5), ErrFormat},
		"absurd chunk":        {put(40, 0xfe, 0xff, 0xff, 0xff), ErrFormat},
		"sound before format": {put(12, 'f', 'm', 't', '_'), ErrFormat},
	} {
		if _, err := Parse("x.wav", c.change(read(t, "s24.wav"))); !errors.Is(err, c.is) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A size that was not known when it was written: the rest of the file.
	if s, err := Parse("x.wav", put(40, 0xff, 0xff, 0xff, 0xff)(read(t, "s24.wav"))); err != nil || len(s.Samples) != 24 {
		t.Errorf("unknown size: %v, %v", s, err)
	}
}

// FuzzParse: any bytes give an error or as many samples as they have room for.
func FuzzParse(f *testing.F) {
	for _, name := range []string{"u8.wav", "s16-stereo.wav", "f64-extensible.wav"} {
		f.Add(read(f, name))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := Parse("x.wav", b)
		if err == nil && (len(s.Samples) > len(b) || s.Rate <= 0) {
			t.Errorf("%d samples of %d bytes, %d a second", len(s.Samples), len(b), s.Rate)
		}
	})
}
