package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"testing"
)

type inspected struct {
	Name, Format string
	Size         int64
	Details      []struct {
		Key   string
		Value any
	}
	Metadata []struct {
		Key, Type string
		Value     any
		Count     *int
	}
	Tensors []struct {
		Name, Type, File string
		Shape            []int64
		Offset, Bytes    int64
	}
	Files    []struct{ Path, SHA256 string }
	Ignored  []string
	Problems []string
}

func (i *inspected) detail(key string) string {
	for _, d := range i.Details {
		if d.Key == key {
			return fmt.Sprint(d.Value)
		}
	}
	return "none"
}

func (b *bench) inspect(args ...string) *inspected {
	b.t.Helper()
	doc := &inspected{}
	b.ok(append([]string{"inspect", "--json"}, args...)...).json(b.t, doc)
	return doc
}

func TestInspect(t *testing.T) {
	b, q8File, _, kmcuFile, _ := outputsOfAllFormats(t)
	for _, c := range []struct {
		what, format string
		tensors      int
		tensor       string // name, type, shape, offset, bytes
		details      map[string]string
	}{
		{q8File, "gguf", 47, "token_embd.weight Q8_0 [512 64]", map[string]string{"version": "3", "alignment": "32", "tensors": "47"}},
		{kmcuFile, "kmcu", 47, "tok_embed KMCU_Q4 [512 64]", map[string]string{"layers": "5", "dim": "64", "KV heads": "4", "tied embedding": "true"}},
		{b.path("model", "model.safetensors"), "safetensors", 47, "model.embed_tokens.weight F32 [512 64]", map[string]string{"tensors": "47", "weights": "260032"}},
		{b.path("model"), "hugging face", 47, "model.embed_tokens.weight F32 [512 64]", map[string]string{"architecture": "LlamaForCausalLM", "hidden_size": "64", "weights": "260032"}},
	} {
		doc := b.inspect(c.what)
		if doc.Format != c.format || len(doc.Tensors) != c.tensors || len(doc.Problems) != 0 {
			t.Errorf("%s: %s with %d tensors, problems %v", c.what, doc.Format, len(doc.Tensors), doc.Problems)
		}
		if st, err := os.Stat(c.what); err == nil && !st.IsDir() && doc.Size != st.Size() {
			t.Errorf("%s: size %d, is %d", c.what, doc.Size, st.Size())
		}
		found := false
		end := int64(0)
		for _, x := range doc.Tensors {
			found = found || fmt.Sprintln(x.Name, x.Type, x.Shape) == c.tensor+"\n"
			if x.Bytes <= 0 || x.Offset < end {
				t.Errorf("%s: tensor %s has %d bytes at %d, after %d", c.what, x.Name, x.Bytes, x.Offset, end)
			}
			end = x.Offset + x.Bytes
		}
		if !found {
			t.Errorf("%s: no tensor %s in %+v", c.what, c.tensor, doc.Tensors)
		}
		for k, v := range c.details {
			if got := doc.detail(k); got != v {
				t.Errorf("%s: %s is %s, want %s", c.what, k, got, v)
			}
		}
		text := b.ok("inspect", c.what).out
		for _, w := range []string{strings.Fields(c.tensor)[0], c.format} {
			if !strings.Contains(text, w) {
				t.Errorf("%s: no %q in\n%s", c.what, w, text)
			}
		}
	}
	// Arrays are cut, with their length.
	doc := b.inspect(q8File)
	for _, m := range doc.Metadata {
		if m.Key == "tokenizer.ggml.tokens" && (m.Count == nil || *m.Count != 512 || len(m.Value.([]any)) != 8) {
			t.Errorf("%+v", m)
		}
	}
}

// TestInspectUnknownType shows what can be shown of a file with a tensor type of
// tomorrow, and refuses to work with it.
func TestInspectUnknownType(t *testing.T) {
	b, q8File, _, _, _ := outputsOfAllFormats(t)
	p := b.write("new.gguf", string(mustRead(t, q8File)))
	b.patch("new.gguf", func(d []byte) []byte {
		at := bytes.LastIndex(d[:20000], []byte("output_norm.weight"))
		if at < 0 {
			t.Fatal("no such tensor")
		}
		at += len("output_norm.weight")
		at += 4 + 8*int(binary.LittleEndian.Uint32(d[at:]))
		binary.LittleEndian.PutUint32(d[at:], 200)
		return d
	})
	doc := b.inspect(p)
	seen := false
	for _, x := range doc.Tensors {
		if x.Name == "output_norm.weight" {
			seen = true
			if x.Bytes != -1 || !strings.Contains(x.Type, "200") {
				t.Errorf("%+v", x)
			}
		} else if x.Bytes <= 0 {
			t.Errorf("%+v", x)
		}
	}
	if !seen || len(doc.Tensors) != 47 || len(doc.Problems) == 0 || !strings.Contains(strings.Join(doc.Problems, " "), "output_norm.weight") {
		t.Errorf("%d tensors, problems %v", len(doc.Tensors), doc.Problems)
	}
	if r := b.ok("inspect", p); !strings.Contains(r.out, "unknown") || !strings.Contains(r.out, "note: ") {
		t.Errorf("%s", r.out)
	}
	b.fails(exitVerify, []string{"output_norm.weight", "200"}, "verify", p)
	recipe := b.write("g.yaml", "version: 1\nname: g\nsources:\n  base: {gguf: new.gguf}\nsteps:\n  - quantize: {type: Q4_0, allow-requantize: true}\noutputs:\n  - {format: gguf, file: g.gguf}\n")
	b.fails(exitSource, []string{"g.yaml:4:3", "output_norm.weight", "200"}, "build", recipe, "-o", b.path("out"))
}

// TestInspectDamage: a GGUF file whose data is cut is shown with what is wrong.
func TestInspectDamage(t *testing.T) {
	b, q8File, _, kmcuFile, _ := outputsOfAllFormats(t)
	data := mustRead(t, q8File)
	doc := b.inspect(b.write("cut.gguf", string(data[:len(data)-1000])))
	if len(doc.Tensors) != 47 || len(doc.Problems) == 0 {
		t.Errorf("%d tensors, problems %v", len(doc.Tensors), doc.Problems)
	}
	for _, f := range []string{b.write("head.gguf", string(data[:3000])), b.write("cut.kmcu", string(mustRead(t, kmcuFile)[:1000])), b.write("none", ""), b.path("r.yaml"), b.path("store")} {
		b.fails(exitSource, []string{"source failed"}, "inspect", f)
	}
	empty := b.path("empty")
	check(t, os.Mkdir(empty, 0o755))
	b.fails(exitSource, []string{"config.json"}, "inspect", empty)
}

// TestStaleIndex: an index that names shards which are not there is refused,
// with both lists, and left aside on demand. What is not read is listed.
func TestStaleIndex(t *testing.T) {
	b := newBench(t)
	b.model("stories-wide", "model")
	recipe := b.recipe("steps:\n  - quantize: {type: Q8_0}\noutputs:\n  - {format: gguf, file: r.gguf}\n")
	b.ok("build", recipe, "-o", b.path("out"))
	want := sum(t, b.path("out", "r.gguf"))
	b.model("stories260k", "stray")
	b.write("model/model.safetensors", string(mustRead(t, b.path("stray", "model.safetensors"))))
	doc := b.inspect(b.path("model"))
	if fmt.Sprint(doc.Ignored) != "[model.safetensors]" || len(doc.Files) != 4 {
		t.Errorf("ignored %v, read %v", doc.Ignored, doc.Files)
	}
	if r := b.ok("inspect", b.path("model")); !strings.Contains(r.out, "not read: model.safetensors") {
		t.Errorf("%s", r.out)
	}
	check(t, os.Remove(b.path("model", "model.safetensors")))

	b.patch("model/model.safetensors.index.json", b.replace("model-00002-of-00002", "model-00002-of-00030"))
	for _, args := range [][]string{
		{"build", recipe, "-o", b.path("out2")},
		{"plan", recipe},
		{"inspect", b.path("model")},
		{"verify", b.path("out", "r.gguf"), "--against", b.path("model")},
	} {
		b.fails(exitSource, []string{"model-00002-of-00030.safetensors", "--rebuild-index"}, args...)
		b.ok(append(args, "--rebuild-index")...)
	}
	if got := sum(t, b.path("out2", "r.gguf")); got != want {
		t.Errorf("built from the headers: SHA-256 %s, want %s", got, want)
	}
}

// TestMaxHeader: a long header is refused with the flag that allows it.
func TestMaxHeader(t *testing.T) {
	b := newBench(t)
	b.model("stories260k", "model")
	recipe := b.recipe("outputs:\n  - {format: gguf, file: r.gguf}\n")
	b.ok("build", recipe, "-o", b.path("out"))
	st, gg := b.path("model", "model.safetensors"), b.path("out", "r.gguf")
	fromGGUF := b.write("g.yaml", "version: 1\nname: g\nsources:\n  base: {gguf: out/r.gguf}\noutputs:\n  - {format: gguf, file: g.gguf}\n")
	for _, args := range [][]string{
		{"build", recipe, "-o", b.path("out2"), "--no-store"},
		{"plan", recipe},
		{"inspect", b.path("model")},
		{"inspect", st},
		{"inspect", gg},
		{"verify", st, "--against", b.path("model")},
		{"verify", gg},
		{"plan", fromGGUF},
	} {
		code := exitSource
		if args[0] == "verify" {
			code = exitVerify
		}
		b.fails(code, []string{"header", "--max-header"}, append(args, "--max-header", "1KiB")...)
		b.ok(append(args, "--max-header", "200MiB")...)
	}
}
