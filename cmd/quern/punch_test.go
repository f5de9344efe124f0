package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// TestPunch builds a file with caches, runs it on them, takes the matrices that
// they have out of the file, and brings them back. In between the file says what
// it lacks, to every command.
func TestPunch(t *testing.T) {
	b := newBench(t)
	b.model("stories-moe", "model")
	recipe := b.recipe("steps:\n  - pad: {ffn: 32}\n  - quantize: {type: Q8_0, rules: [{match: _exps, type: Q4_0}]}\n  - reorder: {experts: last, align: 16KiB}\n" +
		"outputs:\n  - {format: gguf, file: r.gguf, repack: [q4_0_4x4, q8_0_4x8]}\n")
	b.ok("build", recipe, "-o", b.path("out"), "--no-store")
	file, q4, q8 := b.path("out", "r.gguf"), b.path("out", "r.gguf.q4_0_4x4.repack"), b.path("out", "r.gguf.q8_0_4x8.repack")
	whole := mustRead(t, file)

	logits := func(act string, more ...string) string {
		t.Helper()
		var doc struct{ SHA256 string }
		b.ok(append([]string{"logits", file, "--tokens", "1,5,9,20,31,77", "--act", act, "--json"}, more...)...).json(t, &doc)
		return doc.SHA256
	}
	want := map[string]string{"exact": logits("exact"), "q8": logits("q8")}
	for act, sum := range want {
		if got := logits(act, "--repack", q4, "--repack", q8); got != sum {
			t.Errorf("%s on the caches: logits %s, plain %s", act, got, sum)
		}
	}

	var doc punchDoc
	b.ok("punch", file, q4, q8, "--dry-run", "--json").json(t, &doc)
	if !bytes.Equal(mustRead(t, file), whole) || len(doc.Tensors) < 15 || !doc.DryRun {
		t.Fatalf("a dry run: %+v", doc)
	}
	// --zero works on every file system.
	b.ok("punch", file, q4, q8, "--zero", "--json").json(t, &doc)
	gone := mustRead(t, file)
	if len(gone) != len(whole) || bytes.Count(gone, []byte{0}) < len(whole)*8/10 {
		t.Error("the bytes are still there")
	}
	if in := b.inspect(file); len(in.Problems) != len(doc.Tensors) || !strings.Contains(in.Problems[0], "layout q") {
		t.Errorf("%q", in.Problems)
	}
	b.fails(exitVerify, []string{"token_embd.weight", "punched out", "q8_0_4x8"}, "verify", file, "--no-store")
	b.fails(exitSource, []string{"punched out", "--restore"}, "run", file, "-p", "Once")
	b.fails(exitSource, []string{"ffn_down_exps", "punched out", "q4_0_4x4"}, "run", file, "-p", "Once", "--repack", q8)
	b.fails(exitVerify, []string{"punched out"}, "punch", "--restore", file, q8)
	for act, sum := range want {
		if got := logits(act, "--repack", q4, "--repack", q8); got != sum {
			t.Errorf("%s without the file's own: logits %s, plain %s", act, got, sum)
		}
	}
	// Again, as after a call that was broken off.
	b.ok("punch", file, q4, q8, "--zero")
	if r := b.ok("punch", "--restore", file, q4, q8); !strings.Contains(r.out, "brought back") || !bytes.Equal(mustRead(t, file), whole) {
		t.Errorf("restored it is another file\n%s", r.out)
	}
	if r := b.ok("punch", "--restore", file, q4); !strings.Contains(r.out, "nothing was punched out") {
		t.Error(r.out)
	}
}

// TestPunchLosesNothing: a file that the caches are not of, or caches that were
// damaged, change nothing.
func TestPunchLosesNothing(t *testing.T) {
	b := newBench(t)
	b.model("stories-moe", "model")
	recipe := b.recipe("steps:\n  - pad: {ffn: 32}\n  - quantize: {type: Q4_0}\noutputs:\n  - {format: gguf, file: r.gguf, repack: [q4_0_8x8]}\n")
	b.ok("build", recipe, "-o", b.path("out"), "--no-store")
	file, cache := b.path("out", "r.gguf"), b.path("out", "r.gguf.q4_0_8x8.repack")
	whole, good := mustRead(t, file), mustRead(t, cache)

	damaged := bytes.Clone(good)
	damaged[b.inspect(cache).Tensors[0].Offset+3] ^= 1
	bad := b.write("bad.repack", string(damaged))
	b.fails(exitVerify, []string{"differs at byte", "nothing was changed"}, "punch", file, bad, "--zero")

	changed := bytes.Clone(whole)
	changed[len(changed)-33] ^= 1
	other := b.write("other.gguf", string(changed))
	b.fails(exitVerify, []string{"another file", "build it again"}, "punch", other, cache, "--zero")
	b.fails(exitSource, []string{"another file"}, "run", other, "-p", "x", "--repack", cache)
	if got := mustRead(t, other); !bytes.Equal(got, changed) {
		t.Error("the other file changed")
	}
	link := b.path("link.gguf")
	if err := os.Link(file, link); err == nil {
		b.fails(exitUsage, []string{"other names"}, "punch", file, cache, "--zero")
		if err := os.Remove(link); err != nil {
			t.Fatal(err)
		}
	}
	b.fails(exitUsage, []string{"caches"}, "punch", file)
	b.fails(exitSource, []string{"not a repack cache"}, "punch", file, file)
	b.fails(exitSource, []string{"repack cache"}, "punch", cache, cache)
	b.fails(exitUsage, []string{"--zero"}, "punch", file, cache, "--zero", "--restore")
	if !bytes.Equal(mustRead(t, file), whole) || !bytes.Equal(mustRead(t, cache), good) {
		t.Error("files changed")
	}
}
