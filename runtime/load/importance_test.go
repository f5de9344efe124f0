package load_test

import (
	"bytes"
	"math"
	"path/filepath"
	"testing"

	"quern/formats/imatrix"
	"quern/runtime/importance"
	"quern/tensor"
)

// TestImportanceIsThatOfLlamaImatrix compares with what the real tool computed
// of the float16 model over the same text. It rounds activations to float16
// before it multiplies, so the sums differ in the fourth digit.
func TestImportanceIsThatOfLlamaImatrix(t *testing.T) {
	for _, name := range []string{"stories-wide", "stories-moe"} {
		m := open(t, filepath.Join("../../testdata/models", name))
		got, err := importance.Compute(t.Context(), m, evalText(t), importance.Options{Context: 256, Dataset: "eval-stories.txt"})
		if err != nil {
			t.Fatal(err)
		}
		var file bytes.Buffer
		if err := got.Write(t.Context(), &file); err != nil {
			t.Fatal(err)
		}
		read := func(name string, b tensor.Blob) *imatrix.Matrix {
			m, err := imatrix.Read(t.Context(), name, b, imatrix.Options{})
			if err != nil {
				t.Fatal(err)
			}
			return m
		}
		have := read("written", tensor.BytesBlob("written", file.Bytes()))
		path := filepath.Join("../../testdata/convert/presets", name+".imatrix.gguf")
		blob, err := tensor.OpenFile(path)
		if err != nil {
			t.Fatal(err)
		}
		defer blob.Close()
		want := read(path, blob)
		if have.Chunks != want.Chunks || have.ChunkSize != want.ChunkSize || len(have.Entries) != len(want.Entries) {
			t.Fatalf("%s: %d chunks of %d, %d entries; want %d, %d, %d", name, have.Chunks, have.ChunkSize, len(have.Entries), want.Chunks, want.ChunkSize, len(want.Entries))
		}
		worst := 0.0
		for i, w := range want.Entries {
			h := have.Entries[i]
			if h.Name != w.Name || len(h.Weights) != len(w.Weights) || len(h.Counts) != len(w.Counts) {
				t.Fatalf("%s: entry %d is %s with %d weights and %d counts, want %s, %d, %d", name, i, h.Name, len(h.Weights), len(h.Counts), w.Name, len(w.Weights), len(w.Counts))
			}
			for j, n := range w.Counts {
				// A router near a tie may send a token elsewhere.
				if math.Abs(float64(h.Counts[j]-n)) > float64(n)/100 {
					t.Errorf("%s: %s: count %d is %d, want %d", name, w.Name, j, h.Counts[j], n)
				}
			}
			// One such token changes a column of an expert visibly, but not the whole.
			part := len(w.Weights) / len(w.Counts)
			var sum, sumWant float64
			for j, v := range w.Weights {
				sum, sumWant = sum+float64(h.Weights[j]), sumWant+float64(v)
				if len(w.Counts) == 1 {
					worst = math.Max(worst, math.Abs(float64(h.Weights[j]-v))/float64(v))
				}
				if (j+1)%part == 0 {
					worst = math.Max(worst, math.Abs(sum-sumWant)/sumWant)
					sum, sumWant = 0, 0
				}
			}
		}
		t.Logf("%s: %d entries, weights differ by at most %.2g", name, len(want.Entries), worst)
		if !(worst < 0.01) {
			t.Errorf("%s: weights differ by %g", name, worst)
		}
	}
}
