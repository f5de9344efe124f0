package imatrix

import (
	"math"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"quern/internal/testmodel"
)

// FuzzRead: no panic, no more memory than a small multiple of the input, and
// what is read is usable.
func FuzzRead(f *testing.F) {
	for _, r := range rejects(f) {
		f.Add(r.file)
	}
	f.Add(begin(2).entry("a", 1, 1, 2).entry("b", 2, 3).i32(4).text("x.txt").Bytes())
	f.Add(file(f, []sums{{"w.in_sum2", []int64{2}, []float32{1, 2}}, {"w.counts", []int64{1}, []float32{1}}}))
	for _, name := range []string{"stories-wide.imatrix.dat", "stories-wide.imatrix.gguf"} {
		b, err := os.ReadFile(filepath.Join(testmodel.Root(), "convert/presets", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		m, err := parse(b)
		runtime.ReadMemStats(&after)
		if got, most := after.TotalAlloc-before.TotalAlloc, uint64(len(b))*64+1<<20; got > most {
			t.Fatalf("%d bytes allocated for %d bytes of input", got, len(b))
		}
		if err != nil {
			return
		}
		if len(m.Entries) == 0 || m.Chunks < 0 {
			t.Fatalf("%+v", m)
		}
		for i, e := range m.Entries {
			if e.Name == "" || len(e.Weights) == 0 || i > 0 && m.Entries[i-1].Name >= e.Name {
				t.Fatalf("entry %d: %q with %d weights", i, e.Name, len(e.Weights))
			}
			for _, w := range e.Weights {
				if !(w >= 0) || w > math.MaxFloat32 {
					t.Fatalf("%s: weight %g", e.Name, w)
				}
			}
			for n := range int64(5) {
				for _, x := range e.Unseen(n) {
					if x < 0 || x >= n {
						t.Fatalf("matrix %d of %d", x, n)
					}
				}
			}
			if got, ok := m.Find(e.Name); !ok || got.Name != e.Name {
				t.Fatalf("%q is not found", e.Name)
			}
		}
	})
}
