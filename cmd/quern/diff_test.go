package main

import (
	"strings"
	"testing"

	"quern/verify"
)

func TestDiff(t *testing.T) {
	b := newBench(t)
	b.model("stories-moe", "model")
	build := func(steps, file string) string {
		b.ok("build", b.recipe(steps+"outputs:\n  - {format: gguf, file: "+file+"}\n"), "-o", b.path("out"), "--no-store")
		return b.path("out", file)
	}
	q8 := build("steps:\n  - pad: {ffn: 32}\n  - quantize: {type: Q8_0}\n", "q8.gguf")
	q4 := build("steps:\n  - pad: {ffn: 32}\n  - quantize: {type: Q8_0, rules: [{match: attn_q, type: Q4_0}]}\n", "q4.gguf")
	last := build("steps:\n  - pad: {ffn: 32}\n  - quantize: {type: Q8_0}\n  - reorder: {experts: last}\n", "last.gguf")

	if out := b.ok("diff", q8, q8, "--exit-code").out; !strings.Contains(out, "nothing differs") {
		t.Errorf("%s", out)
	}
	diff := func(args ...string) verify.Difference {
		var d verify.Difference
		b.ok(append([]string{"diff", "--json"}, args...)...).json(t, &d)
		return d
	}
	d := diff(q8, q4)
	if len(d.Changed) != 5 || d.Order || len(d.OnlyA)+len(d.OnlyB)+len(d.Metadata) != 0 {
		t.Errorf("%+v", d)
	}
	for _, c := range d.Changed {
		if !strings.Contains(c.Name, "attn_q") || c.TypeA != "Q8_0" || c.TypeB != "Q4_0" || c.Values == nil || c.Values.MaxAbs == 0 {
			t.Errorf("%+v", c)
		}
	}
	if d := diff(q8, q4, "--headers"); len(d.Changed) != 5 || d.Changed[0].Values != nil {
		t.Errorf("%+v", d)
	}
	d = diff(q8, last)
	if !d.Order || len(d.Changed) != 0 || len(d.Metadata) == 0 || d.Metadata[0].A != "" {
		t.Errorf("%+v", d)
	}
	// The source in another form: no name is the same.
	if d := diff(q8, b.path("model")); d.Same != 0 || len(d.OnlyA) == 0 || len(d.OnlyB) == 0 {
		t.Errorf("%+v", d)
	}
	b.fails(exitVerify, []string{"q8.gguf and q4.gguf differ"}, "diff", q8, q4, "--exit-code")
	b.fails(exitUsage, []string{"two files"}, "diff", q8)
	b.fails(exitSource, []string{"none.gguf"}, "diff", q8, b.path("none.gguf"))
	// A single byte of a weight is found.
	data := mustRead(t, q8)
	data[len(data)-5] ^= 1
	d = diff(q8, b.write("bad.gguf", string(data)))
	if len(d.Changed) != 1 || d.Changed[0].Values.Identical || d.Changed[0].TypeA != d.Changed[0].TypeB {
		t.Errorf("%+v", d)
	}
}
