package convert

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"quern/internal/testmodel"
)

// TestExp compares with what torch gave, see interop/make_exp.py; half of the values
// are such that the nearest float32 is another one.
func TestExp(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(testmodel.Root(), "convert", "exp.json"))
	if err != nil {
		t.Fatal(err)
	}
	var pairs [][2]uint32
	if err := json.Unmarshal(text, &pairs); err != nil {
		t.Fatal(err)
	}
	others := 0
	for _, p := range pairs {
		x, want := math.Float32frombits(p[0]), math.Float32frombits(p[1])
		if got := expTorch(x); got != want {
			t.Errorf("e^%g is %g, torch gives %g", x, got, want)
		}
		exact := expExact(x)
		if exact != want {
			others++
		}
		if d := math.Abs(float64(exact)-float64(want)) / float64(want); d > 0x1p-23 {
			t.Errorf("e^%g: the nearest value is %g, torch gives %g", x, exact, want)
		}
	}
	if len(pairs) < 400 || others < 150 {
		t.Errorf("%d values, of which %d are not the nearest", len(pairs), others)
	}
	inf := float32(math.Inf(1))
	for _, c := range [][2]float32{{inf, inf}, {-inf, 0}, {90, inf}, {-105, 0}, {0, 1}, {88, 1.6516363e38}} {
		if got := expTorch(c[0]); got != c[1] {
			t.Errorf("e^%g is %g, want %g", c[0], got, c[1])
		}
	}
	if nan := expTorch(float32(math.NaN())); nan == nan {
		t.Error("e^NaN is", nan)
	}
}
