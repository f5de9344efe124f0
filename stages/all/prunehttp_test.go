package all_test

import (
	"fmt"
	"slices"
	"testing"

	"quern/hub/hubtest"
	"quern/pipeline"
)

// TestPruneOverHTTP: of a head that is pruned, the rows that are kept are fetched.
func TestPruneOverHTTP(t *testing.T) {
	o := goOnline(t, "stories-wide", hubtest.Options{})
	b := &pruneBench{t: t, tmp: t.TempDir()}
	list := b.listFile([]int32{0, 1, 2, 3, 4, 5, 400, 401, 402, 403})
	recipe := fmt.Sprintf("version: 1\nname: p\nsources:\n  base: {hf: org/x}\n  keep: {file: %q}\nsteps:\n  - prune-head: {tokens: keep}\noutputs:\n  - {format: gguf, file: out.gguf}\n", list)
	res := o.build(recipe)
	o.same(res, o.fromDir(recipe))
	res.Sources = slices.DeleteFunc(res.Sources, func(s pipeline.SourceRecord) bool { return s.Name == "keep" })
	lo, hi := o.tensor("lm_head.weight")
	o.frugal(res, o.needed(res, "lm_head.weight")+(hi-lo)*10/512)
}

// TestPruneAgainOverHTTP: a GGUF file under an address is cut, and cut once more, as one
// on disk is; the list in it is read while the build is planned.
func TestPruneAgainOverHTTP(t *testing.T) {
	const step = "  - prune-head: {tokens: keep}\n"
	b := newPruneBench(t, "stories-wide")
	first, second := []int32{0, 2, 5, 500, 501, 502, 511}, []int32{2, 500, 502}
	whole := b.build(b.dir, nil, "", "")
	once := b.build(whole, first, step, "")
	o := goOnline(t, "stories260k", hubtest.Options{})
	for _, c := range []struct {
		file string
		ids  []int32
	}{{whole, first}, {once, second}} {
		s := serveFile(t, readAll(t, c.file))
		text := fmt.Sprintf("version: 1\nname: p\nsources:\n  base: {url: %q}\n  keep: {file: %q}\nsteps:\n%soutputs:\n  - {format: gguf, file: out.gguf}\n", s.URL+"/m.gguf", b.listFile(c.ids), step)
		res, err := build1(t.Context(), t, text, o.env(), o.options())
		if err != nil {
			t.Fatal(err)
		}
		sameModel(t, c.file, res.Outputs[0].Path, b.build(c.file, c.ids, step, ""))
	}
}
