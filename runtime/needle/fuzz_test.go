package needle_test

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"

	"quern/formats/cact"
	infer "quern/runtime"
	"quern/runtime/needle"
	"quern/tensor"
)

// spoilt opens an archive of bytes and runs a few tokens of it.
func spoilt(t *testing.T, b []byte) error {
	f, err := cact.Open(t.Context(), "spoilt.cact", tensor.BytesBlob("spoilt.cact", b), cact.Options{})
	if err != nil {
		return err
	}
	m, err := needle.FromArchive(t.Context(), f)
	if err != nil {
		return err
	}
	opt, more := infer.SessionOptions{Jobs: 1, Act: infer.Q8, Context: 8}, needle.Options{}
	if m.IsSpeech() {
		sound := make([]float32, 400)
		for i := range sound {
			sound[i] = float32(i%7) / 7
		}
		if more.Heard, err = m.Hear(t.Context(), sound, opt, needle.Options{Round8: true}); err != nil {
			return err
		}
	}
	s, err := m.NewSessionWith(opt, more)
	if err != nil {
		return err
	}
	if err := s.Eval(t.Context(), []int32{0, 0, 0, 0, 0}, []int{4}, func(int, []float32) error { return nil }); err != nil {
		return err
	}
	if len(m.Heads()) == 0 {
		return nil
	}
	_, err = m.Read(t.Context(), []int32{0, 0}, infer.SessionOptions{Jobs: 1, Context: 8}, needle.Options{})
	return err
}

// FuzzArchive overwrites words of an archive: whatever opens runs or gives an
// error.
func FuzzArchive(f *testing.F) {
	var files [][]byte
	for _, name := range []string{"needle3-b-width32.cact", "needle3-c-layers5.cact", "needle2-a-mixed.cact", "needle3-a-layers3.cact", "whistle.cact"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			f.Fatal(err)
		}
		files = append(files, b)
	}
	f.Add(uint8(0), uint32(0), uint32(0), uint32(0), uint32(0))
	f.Add(uint8(1), uint32(9), uint32(0), uint32(10), uint32(1)) // heads
	f.Add(uint8(1), uint32(12), uint32(7), uint32(11), uint32(3))
	f.Add(uint8(2), uint32(20), uint32(math.MaxUint32), uint32(21), uint32(0))
	f.Add(uint8(3), uint32(16), uint32(1), uint32(17), uint32(math.MaxUint32))
	f.Add(uint8(4), uint32(17), uint32(64), uint32(18), uint32(0))
	f.Fuzz(func(t *testing.T, file uint8, at1, v1, at2, v2 uint32) {
		b := append([]byte(nil), files[int(file)%len(files)]...)
		for _, w := range [][2]uint32{{at1, v1}, {at2, v2}} {
			at := int(w[0]) % (len(b) / 4) * 4
			b[at], b[at+1], b[at+2], b[at+3] = byte(w[1]), byte(w[1]>>8), byte(w[1]>>16), byte(w[1]>>24)
		}
		_ = spoilt(t, b)
	})
}

// TestRefusesModels: archives that the format allows and no model fits.
func TestRefusesModels(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(dir, "needle3-b.cact"))
	if err != nil {
		t.Fatal(err)
	}
	if err := spoilt(t, b); err != nil {
		t.Fatal(err)
	}
	f, err := cact.Open(t.Context(), "b", tensor.BytesBlob("b", b), cact.Options{})
	if err != nil {
		t.Fatal(err)
	}
	set := func(off int64, v float32) {
		for i := range 4 {
			b[off+int64(i)] = byte(math.Float32bits(v) >> (8 * i))
		}
	}
	place := f.Entry("hada_p1").Offset
	for _, v := range []float32{-1, 0.5, 64, float32(math.NaN())} {
		set(place, v)
		if err := spoilt(t, b); !errors.Is(err, infer.ErrModel) {
			t.Errorf("a place of %v: %v", v, err)
		}
	}
	set(place, 0)
	theta := int64(4 * 48)
	for _, v := range []float32{0, -1, float32(math.Inf(1)), float32(math.NaN())} {
		set(theta, v)
		if err := spoilt(t, b); !errors.Is(err, infer.ErrModel) && !errors.Is(err, cact.ErrFormat) {
			t.Errorf("a base of %v: %v", v, err)
		}
	}
}
