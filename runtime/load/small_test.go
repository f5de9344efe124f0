package load_test

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"testing"

	infer "quern/runtime"
)

// TestSmallFilesGiveTransformersLogits covers architectures that are run but not
// converted, see interop/make_small.py.
func TestSmallFilesGiveTransformersLogits(t *testing.T) {
	for _, name := range []string{"gemma2", "qwen2moe"} {
		b, err := os.ReadFile("../../testdata/golden/runtime/" + name + ".json")
		if err != nil {
			t.Fatal(err)
		}
		var g struct {
			Tokens []int32     `json:"tokens"`
			Logits [][]float32 `json:"logits"`
		}
		if err := json.Unmarshal(b, &g); err != nil {
			t.Fatal(err)
		}
		m := open(t, "../../testdata/golden/runtime/"+name+".gguf")
		if _, err := m.Tokenizer(); !errors.Is(err, infer.ErrNoTokenizer) {
			t.Errorf("%s: tokenizer: %v", name, err)
		}
		worst, largest := 0.0, 0.0
		for i, row := range all(t, session(t, m, infer.SessionOptions{}), g.Tokens) {
			for j, v := range row {
				worst = math.Max(worst, math.Abs(float64(v)-float64(g.Logits[i][j])))
				largest = math.Max(largest, math.Abs(float64(g.Logits[i][j])))
			}
		}
		t.Logf("%s: logits differ by %.2g of the largest", name, worst/largest)
		if len(g.Logits) != len(g.Tokens) || !(worst <= 1e-4*largest) {
			t.Errorf("%s: logits differ by %g, the largest is %g", name, worst, largest)
		}
	}
}
