package main

import (
	"math"
	"path/filepath"
	"strings"
	"testing"
)

// TestKMCUWithInt8: both layouts of KMCU run with activations of 8 bits. The
// matrices of stories260k have rows of 64 values, which are whole blocks, and of 172,
// which are padded in one layout and start anywhere in a block in the other.
func TestKMCUWithInt8(t *testing.T) {
	b := newBench(t)
	b.write("r.yaml", "version: 1\nname: x\nsources:\n  base: {dir: '"+storiesModel()+"'}\noutputs:\n  - {format: kmcu, file: row.kmcu}\n  - {format: kmcu, file: flat.kmcu, align: none}\n")
	b.ok("build", b.path("r.yaml"), "-o", b.path("out"))
	scores := map[string]float64{}
	for _, file := range []string{"row.kmcu", "flat.kmcu"} {
		for _, act := range []string{"exact", "q8"} {
			for _, jobs := range []string{"1", "3"} {
				var doc pplDoc
				b.ok("ppl", filepath.Join(b.path("out"), file), "-f", evalStories(), "-c", "64", "--chunks", "4", "--tokenizer", storiesModel(), "--act", act, "-j", jobs, "--json").json(t, &doc)
				key := file + " " + act
				if old, ok := scores[key]; ok && old != doc.Perplexity.Perplexity || doc.Act != act {
					t.Errorf("%s with %s jobs: %v, before %v", key, jobs, doc.Perplexity.Perplexity, old)
				}
				scores[key] = doc.Perplexity.Perplexity
			}
		}
	}
	t.Log(scores)
	for _, file := range []string{"row.kmcu", "flat.kmcu"} {
		exact, q8 := scores[file+" exact"], scores[file+" q8"]
		if d := math.Abs(q8/exact - 1); d == 0 || d > 0.02 {
			t.Errorf("%s: %v with 8 bits, %v exact", file, q8, exact)
		}
	}
	if out := b.ok("run", filepath.Join(b.path("out"), "flat.kmcu"), "--tokenizer", storiesModel(), "-n", "12", "--act", "q8").out; !strings.HasPrefix(out, " Once upon a time") {
		t.Errorf("text %q", out)
	}
}
