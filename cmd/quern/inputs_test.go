package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestOutputsAreNoInputs: no command writes over what it reads, under whatever name
// it has.
func TestOutputsAreNoInputs(t *testing.T) {
	b := newBench(t)
	folder := b.path("model")
	check(t, os.CopyFS(folder, os.DirFS(storiesModel())))
	text := b.path("text.txt")
	check(t, os.WriteFile(text, mustRead(t, evalStories()), 0o644))
	check(t, os.Symlink(text, b.path("link.txt")))
	check(t, os.Link(text, b.path("hard.txt")))
	b.ok("quantize", folder, b.path("whole.gguf"), "F16")
	for _, n := range []string{"a-00001-of-00002.gguf", "a-00002-of-00002.gguf"} {
		check(t, os.WriteFile(b.path(n), []byte("GGUF"), 0o644))
	}
	inTexts := b.path("texts", "deep", "a.dat")
	check(t, os.MkdirAll(filepath.Dir(inTexts), 0o755))
	check(t, os.WriteFile(inTexts, mustRead(t, text), 0o644))
	check(t, os.Symlink(b.path("texts"), b.path("linked")))
	weights := filepath.Join(folder, "model.safetensors")
	for _, c := range [][]string{
		{"imatrix", folder, "-f", text, "-c", "64", "-o", text},
		{"imatrix", folder, "-f", text, "-c", "64", "-o", b.path("link.txt")},
		{"imatrix", folder, "-f", text, "-c", "64", "-o", b.path("hard.txt")},
		{"imatrix", folder, "-f", text, "-c", "64", "-o", weights},
		{"imatrix", b.path("whole.gguf"), "-f", text, "-c", "64", "--tokenizer", folder, "-o", filepath.Join(folder, "tokenizer.model")},
		{"logits", folder, "--tokens", "1,2", "-o", weights},
		{"logits", folder, "--tokens", "1,2", "-o", filepath.Join(folder, "config.json")},
		{"logits", b.path("whole.gguf"), "--tokens", "1,2", "-o", b.path("whole.gguf")},
		{"verify", b.path("whole.gguf"), "--no-store", "--html", b.path("whole.gguf")},
		{"verify", b.path("whole.gguf"), "--no-store", "--against", folder, "--parquet", weights},
		{"verify", b.path("a-00001-of-00002.gguf"), "--no-store", "--html", b.path("a-00002-of-00002.gguf")},
		{"verify", b.path("whole.gguf"), "--no-store", "--html", b.path("r"), "--parquet", b.path("r")},
		{"verify", b.path("whole.gguf"), "--no-store", "--html", b.path("texts", "r"), "--parquet", b.path("linked", "r")},
		{"tokens", "select", folder, text, "--count", "300", "-o", text},
		{"tokens", "select", folder, "x=" + text, "--count", "300", "-o", b.path("hard.txt")},
		{"tokens", "select", folder, text, "--count", "300", "-o", b.path("texts", "r"), "--parquet", b.path("linked", "r")},
		{"tokens", "select", folder, text, "--count", "300", "-o", weights},
		{"tokens", "select", folder, b.path("texts"), "--count", "300", "-o", inTexts},
		{"tokens", "select", folder, text, "--count", "300", "--keep", b.path("texts"), "--parquet", b.path("linked", "deep", "a.dat")},
		{"tokens", "count", folder, b.path("texts"), "--parquet", inTexts},
	} {
		before := map[string][]byte{}
		for _, f := range []string{text, weights, filepath.Join(folder, "config.json"), filepath.Join(folder, "tokenizer.model"), b.path("whole.gguf"), b.path("a-00002-of-00002.gguf"), inTexts} {
			before[f] = mustRead(t, f)
		}
		b.fails(exitUsage, nil, c...)
		for f, was := range before {
			if !bytes.Equal(mustRead(t, f), was) {
				t.Fatalf("%v: %s was changed", c, f)
			}
		}
	}
	// Two links are replaced each by itself, whatever they lead to.
	check(t, os.Symlink(b.path("nothing"), b.path("one")))
	check(t, os.Symlink(b.path("nothing"), b.path("two")))
	b.ok("tokens", "select", folder, text, "--count", "300", "-o", b.path("one"), "--parquet", b.path("two"))
	if bytes.Equal(mustRead(t, b.path("one")), mustRead(t, b.path("two"))) {
		t.Error("two outputs became one file")
	}
	// A result of an earlier run is none of the inputs.
	for range 2 {
		b.ok("logits", folder, "--tokens", "1,2", "-o", b.path("model", "new.logits"))
	}
}

// TestWishesThatCannotBeMet: what the command line has to change for is bad usage,
// said before anything is printed.
func TestWishesThatCannotBeMet(t *testing.T) {
	b := newBench(t)
	model, text := storiesModel(), evalStories()
	kmcu := filepath.Join(model, "../../golden/kmcu/stories260k.kmcu")
	empty := b.path("empty.txt")
	check(t, os.WriteFile(empty, nil, 0o644))
	for _, c := range []struct {
		words []string
		args  []string
	}{
		{[]string{"id 512", "place 1", "512 tokens"}, []string{"logits", model, "--tokens", "1,512"}},
		{[]string{"id 512", "place 0"}, []string{"run", model, "--prompt-tokens", "512"}},
		{[]string{"lacks an id"}, []string{"logits", model, "--tokens", "1,,2"}},
		{[]string{"lacks an id"}, []string{"logits", model, "--tokens", "1,2,"}},
		{[]string{"lacks an id"}, []string{"logits", model, "--tokens", ", 1"}},
		{[]string{"lacks an id"}, []string{"run", model, "--prompt-tokens", "1, ,2"}},
		{[]string{"no token ids"}, []string{"logits", model, "--tokens", " "}},
		{[]string{`"+3"`}, []string{"logits", model, "--tokens", "+3"}},
		{[]string{`"2147483648"`}, []string{"logits", model, "--tokens", "2147483648"}},
		{[]string{"context"}, []string{"logits", model, "--tokens", "1,2,3", "-c", "2"}},
		{[]string{"context"}, []string{"run", model, "-p", "Once upon a time", "-c", "2"}},
		{[]string{"no tokenizer"}, []string{"run", kmcu, "-p", "x"}},
		{[]string{"no tokenizer"}, []string{"logits", kmcu, "-p", "x"}},
		{[]string{"no tokenizer"}, []string{"ppl", kmcu, "-f", text}},
		{[]string{"no tokenizer"}, []string{"loops", kmcu, "-f", text}},
		{[]string{"no tokenizer"}, []string{"imatrix", kmcu, "-f", text, "-o", b.path("x")}},
		{[]string{"no tokenizer"}, []string{"tokenize", kmcu, "x"}},
		{[]string{"4 tokens or more"}, []string{"ppl", model, "-f", text, "-c", "3"}},
		{[]string{"too short"}, []string{"ppl", model, "-f", empty}},
		{[]string{"too short"}, []string{"imatrix", model, "-f", empty, "-o", b.path("x")}},
		{[]string{"too short"}, []string{"loops", model, "-f", empty}},
		{[]string{"too short"}, []string{"loops", model, "-f", text, "--answers", "100000"}},
		{[]string{"--jobs 5000", "4096"}, []string{"run", model, "-p", "x", "--jobs", "5000"}},
		{[]string{"no heads"}, []string{"heads", model, "-p", "x"}},
		{[]string{"experts"}, []string{"trace", "record", model, "-f", text, "-o", b.path("x")}},
		{[]string{"--out is empty"}, []string{"logits", model, "--tokens", "1", "-o", ""}},
		{[]string{"--max NaN"}, []string{"loops", model, "-f", text, "--max", "nan"}},
		{[]string{"--max 2"}, []string{"loops", model, "-f", text, "--max", "2"}},
		{[]string{"--max -0.1"}, []string{"loops", model, "-f", text, "--max", "-0.1"}},
	} {
		if out := b.fails(exitUsage, c.words, c.args...).out; out != "" {
			t.Errorf("%v printed %q", c.args, out)
		}
	}
	if _, err := os.Stat(b.path("x")); err == nil {
		t.Error("a file was written")
	}
	// Line ends and blanks separate too.
	if a, b := b.ok("logits", model, "--tokens", "1, 2\n3").out, b.ok("logits", model, "--tokens", "1,2,3").out; a != b {
		t.Errorf("%q and %q", a, b)
	}
	b.fails(exitSource, []string{"none"}, "ppl", model, "-f", text, "-c", "64", "--base", b.path("none"))
}
