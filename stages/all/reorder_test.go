package all_test

import (
	"slices"
	"strings"
	"testing"

	"quern/formats/gguf"
	"quern/internal/digest"
	"quern/model/order"
	"quern/pipeline"
)

const expertRecipe = `version: 1
name: experts
sources:
  base: {dir: .}
steps:
  - quantize: {type: Q8_0, fallback: F16}
  - reorder: {experts: last, align: 16KiB}
outputs:
  - {format: gguf, file: out.gguf}
gates:
  - tensors: {min-snr-db: 30}
`

// TestReorder: experts last moves tensors and changes no byte of them, the way
// back gives the very file that there would be without it, and the keys tell the
// truth of the file.
func TestReorder(t *testing.T) {
	make1 := func(text, source string) (string, []byte) {
		t.Helper()
		res, err := build1(t.Context(), t, text, sourceEnv(), pipeline.BuildOptions{OutDir: t.TempDir()}, source)
		if err != nil {
			t.Fatal(err)
		}
		return res.Outputs[0].Path, readAll(t, res.Outputs[0].Path)
	}
	read := func(data []byte) (*gguf.File, map[string]digest.Digest) {
		t.Helper()
		f, err := gguf.Open(t.Context(), "f", blobOf(data), gguf.Options{})
		if err != nil {
			t.Fatal(err)
		}
		sums := map[string]digest.Digest{}
		for _, x := range f.Tensors {
			sums[x.Name] = digest.Of(data[x.Offset:][:x.Bytes])
		}
		return f, sums
	}
	dir := "sources.base.dir=" + folder(t, "stories-moe")
	_, plain := make1(strings.Replace(expertRecipe, "  - reorder: {experts: last, align: 16KiB}\n", "", 1), dir)
	file, moved := make1(expertRecipe, dir)
	pf, want := read(plain)
	mf, got := read(moved)
	if len(got) != len(want) {
		t.Errorf("%d tensors, %d before", len(got), len(want))
	}
	for name, sum := range want {
		if got[name] != sum {
			t.Errorf("tensor %s: other bytes", name)
		}
	}
	isExpert := func(x gguf.Info) bool { return order.IsExpert(x.Name) }
	first := slices.IndexFunc(mf.Tensors, isExpert)
	if first <= 0 || slices.ContainsFunc(mf.Tensors[first:], func(x gguf.Info) bool { return !isExpert(x) }) {
		t.Errorf("experts are not last: the first is tensor %d", first)
	}
	if at := mf.Tensors[first].Offset; at%(16<<10) != 0 {
		t.Errorf("the first expert is at %d", at)
	} else if n, err := mf.Meta.Int64(order.KeyOffset); err != nil || n != at {
		t.Errorf("%s is %d, %v; the first expert is at %d", order.KeyOffset, n, err, at)
	}
	if slices.IndexFunc(pf.Tensors, isExpert) >= first {
		t.Error("experts were last before: the test shows nothing")
	}
	_, back := make1(`version: 1
name: back
sources:
  base: {gguf: x.gguf}
steps:
  - reorder: {experts: restore}
outputs:
  - {format: gguf, file: out.gguf}
`, "sources.base.gguf="+file)
	if digest.Of(back) != digest.Of(plain) {
		t.Error("restored, it is another file than the one that was not reordered")
	}
}
