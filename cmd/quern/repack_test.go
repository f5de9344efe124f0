package main

import (
	"os"
	"strings"
	"testing"
)

// TestRepackCache builds a file with a cache, looks into the cache, holds it
// against the file, finds a damaged scale in it, and refuses it as a source.
func TestRepackCache(t *testing.T) {
	b := newBench(t)
	b.model("stories-moe", "model")
	recipe := b.recipe("steps:\n  - pad: {ffn: 32}\n  - quantize: {type: Q4_0}\n  - reorder: {experts: last, align: 16KiB}\n" +
		"outputs:\n  - {format: gguf, file: r.gguf, repack: [q4_0_4x4]}\n")
	r := b.ok("build", recipe, "-o", b.path("out"), "--no-store")
	if !strings.Contains(r.err, "begin at byte") || strings.Contains(r.out, " 0.00 bits") {
		t.Errorf("%s%s", r.out, r.err)
	}
	file, cache := b.path("out", "r.gguf"), b.path("out", "r.gguf.q4_0_4x4.repack")
	if in := b.inspect(file); in.detail("bytes to map") == "" || len(in.Problems) > 0 {
		t.Errorf("%+v %q", in.Details, in.Problems)
	}
	doc := b.inspect(cache)
	if doc.Format != "repack" || doc.detail("layout") != "q4_0_4x4" || len(doc.Tensors) == 0 || doc.Tensors[0].Type != "Q4_0" {
		t.Errorf("%+v", doc)
	}
	var report struct {
		Tensors []struct {
			Name  string
			Equal bool
		}
	}
	b.ok("verify", cache, "--against", file, "--json").json(t, &report)
	if len(report.Tensors) != len(doc.Tensors) {
		t.Errorf("%d tensors compared of %d", len(report.Tensors), len(doc.Tensors))
	}
	for _, x := range report.Tensors {
		if !x.Equal {
			t.Errorf("tensor %s differs from the file's", x.Name)
		}
	}
	data, err := os.ReadFile(cache)
	if err != nil {
		t.Fatal(err)
	}
	data[doc.Tensors[0].Offset+1] ^= 0x7c // the exponent of a scale
	b.fails(exitVerify, []string{doc.Tensors[0].Name}, "verify", b.write("bad.repack", string(data)), "--against", file, "--min-snr", "40")
	b.fails(exitSource, []string{"repack cache", "take the GGUF file"}, "quantize", cache, b.path("again.gguf"), "Q4_0")
}
