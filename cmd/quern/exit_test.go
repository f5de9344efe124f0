package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestExitCodes has a case for each reason that a build, or its plan, can fail
// for. What the recipe is to blame for is 2, what the source is to blame for 4.
func TestExitCodes(t *testing.T) {
	for _, c := range []struct {
		name   string
		model  string // stories260k when empty
		recipe string
		spoil  func(*bench) // what is wrong with the model
		code   int
		plans  bool // the fault shows only when weights are read
		words  []string
	}{
		{name: "good", recipe: q8, code: exitDone, plans: true},
		{name: "unknown key", recipe: "steps:\n  - quantise: {type: Q8_0}\n", code: exitUsage,
			words: []string{"r.yaml:6:5", "quantise", "quantize"}},
		{name: "bad value", recipe: "outputs:\n  - {format: gguf, file: r.gguf, outtype: f17}\n", code: exitUsage,
			words: []string{"r.yaml:6:43", "f17"}},
		{name: "rows do not divide", recipe: strings.ReplaceAll(q8, ", fallback: F16", ""), code: exitUsage,
			words: []string{"r.yaml:6:5", "quantize", "172", "32", "pad"}},
		{name: "rule that meets nothing", recipe: "steps:\n  - quantize: {type: Q8_0, fallback: F16, rules: [{match: nothing, type: Q4_0}]}\noutputs:\n  - {format: gguf, file: r.gguf}\n",
			code: exitUsage, words: []string{"r.yaml:6:", "nothing"}},
		{name: "partition too small", recipe: "outputs:\n  - {format: kmcu, file: r.kmcu, flash: 100KiB}\n", code: exitUsage,
			words: []string{"r.yaml:6:5", "partition", "102400", "154880", "52480"}},
		{name: "no place in the container", model: "tiny-qwen3", recipe: "outputs:\n  - {format: kmcu, file: r.kmcu}\n", code: exitUsage,
			words: []string{"r.yaml:6:5", "Qwen3ForCausalLM"}},
		{name: "trained head", model: "stories-wide", recipe: "steps:\n  - tie-head: {}\noutputs:\n  - {format: kmcu, file: r.kmcu}\n", code: exitUsage,
			words: []string{"r.yaml:6:5", "force: true"}},
		{name: "missing folder", recipe: q8, spoil: func(b *bench) { os.RemoveAll(b.path("model")) }, code: exitSource,
			words: []string{"r.yaml:4:3", "source base", "model"}},
		{name: "no config", recipe: q8, spoil: func(b *bench) { os.Remove(b.path("model", "config.json")) }, code: exitSource, words: []string{"config.json"}},
		{name: "truncated file", recipe: q8, spoil: func(b *bench) {
			b.patch("model/model.safetensors", func(d []byte) []byte { return d[:len(d)-1] })
		}, code: exitSource, words: []string{"model.safetensors", "truncated"}},
		{name: "truncated shard", model: "stories-wide", recipe: q8, spoil: func(b *bench) {
			b.patch("model/model-00002-of-00002.safetensors", func(d []byte) []byte { return d[:len(d)/2] })
		}, code: exitSource, words: []string{"model-00002-of-00002.safetensors", "truncated"}},
		{name: "missing shard", model: "stories-wide", recipe: q8, spoil: func(b *bench) {
			os.Remove(b.path("model", "model-00001-of-00002.safetensors"))
		}, code: exitSource, words: []string{"model-00001-of-00002.safetensors"}},
		{name: "Git LFS pointer", recipe: q8, spoil: func(b *bench) {
			b.write("model/model.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:"+strings.Repeat("4d", 32)+"\nsize 1060336\n")
		}, code: exitSource, words: []string{"pointer", strings.Repeat("4d", 32), "1060336"}},
		{name: "web page", recipe: q8, spoil: func(b *bench) { b.write("model/model.safetensors", "<!DOCTYPE html><html></html>") },
			code: exitSource, words: []string{"HTML"}},
		{name: "unknown architecture", recipe: q8, spoil: func(b *bench) {
			b.patch("model/config.json", b.replace("LlamaForCausalLM", "MillstoneForCausalLM"))
		}, code: exitSource, words: []string{"r.yaml:6:5", "MillstoneForCausalLM"}},
		{name: "unknown architecture for KMCU", recipe: "outputs:\n  - {format: kmcu, file: r.kmcu}\n", spoil: func(b *bench) {
			b.patch("model/config.json", b.replace("LlamaForCausalLM", "MillstoneForCausalLM"))
		}, code: exitSource, words: []string{"r.yaml:6:5", "MillstoneForCausalLM"}},
		{name: "leftover tensor", recipe: q8, spoil: func(b *bench) {
			b.patch("model/model.safetensors", b.replace("model.norm.weight", "model.nurm.weight"))
		},
			code: exitSource, words: []string{"model.nurm.weight"}},
		{name: "leftover tensor for KMCU", recipe: "outputs:\n  - {format: kmcu, file: r.kmcu}\n", spoil: func(b *bench) {
			b.patch("model/model.safetensors", b.replace("model.norm.weight", "model.nurm.weight"))
		}, code: exitSource, words: []string{"model.nurm.weight"}},
		{name: "config without a size", recipe: q8, spoil: func(b *bench) { b.patch("model/config.json", b.replace("intermediate_size", "intermediate_size_")) },
			code: exitSource, words: []string{"11008", "172"}},
		{name: "config that is no JSON", recipe: q8, spoil: func(b *bench) { b.write("model/config.json", "{") }, code: exitSource, words: []string{"config.json"}},
		{name: "no tokenizer", recipe: q8, spoil: func(b *bench) { os.Remove(b.path("model", "tokenizer.model")) }, code: exitSource, words: []string{"tokenizer"}},
		{name: "NaN", recipe: q8, spoil: nan, code: exitSource, plans: true, words: []string{"r.gguf", "not a number"}},
		{name: "NaN for KMCU", recipe: "outputs:\n  - {format: kmcu, file: r.kmcu}\n", spoil: nan, code: exitSource, plans: true, words: []string{"r.kmcu", "not a number"}},
		{name: "failed gate", recipe: q8 + "gates:\n  - tensors: {min-snr-db: 200}\n", code: exitVerify, plans: true,
			words: []string{"r.yaml:10:5", "SNR", "200", "nothing was published"}},
		{name: "failed gate that runs the model", recipe: scored + "max: 1.5}\n", spoil: story, code: exitVerify, plans: true,
			words: []string{"r.yaml:11:5", "perplexity of r.gguf is ", " +/- ", " beyond the limit of 1.5", "nothing was published"}},
		{name: "scores that cannot be compared", recipe: strings.Replace(scored, "  text:", "  kept: {file: kept.json}\n  text:", 1) + "baseline: kept, max-increase: 1 %}\n",
			spoil: func(b *bench) {
				story(b)
				b.write("kept.json", `{"context": 16, "stride": 16, "first_scored": 8, "text_sha256": "sha256:`+strings.Repeat("00", 32)+`", "pieces_sha256": "sha256:`+strings.Repeat("00", 32)+`", "chunks": 9, "tokens": 90, "bos": true, "act": "exact", "bytes": 100, "perplexity": 5, "standard_error": 1, "bits_per_byte": 1}`)
			}, code: exitVerify, plans: true, words: []string{"r.yaml:12:5", "not comparable", "baseline kept", "text is"}},
		{name: "text of a gate too short", recipe: scored + "max: 9}\n", spoil: func(b *bench) { b.write("text.txt", "Once.\n") }, code: exitUsage,
			words: []string{"r.yaml:11:5", "source text", "too short"}},
		{name: "text of a gate missing", recipe: scored + "max: 9}\n", code: exitSource, words: []string{"source text", "text.txt"}},
		{name: "baseline that is no model", recipe: scored + "max: 9}\n  - kl-divergence: {text: text, context: 16, baseline: text, max: 1}\n", spoil: story, code: exitUsage,
			words: []string{"r.yaml:12:5", "source text is no model"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t)
			if c.model == "" {
				c.model = "stories260k"
			}
			b.model(c.model, "model")
			if c.spoil != nil {
				c.spoil(b)
			}
			recipe := b.recipe(c.recipe)
			r := b.run("plan", recipe)
			if want := c.code; c.plans && r.code != exitDone || !c.plans && r.code != want {
				t.Errorf("plan: exit code %d, want %d\n%s", r.code, want, r.err)
			}
			b.fails(c.code, c.words, "build", recipe, "-o", b.path("out"))
			if c.code == exitDone {
				return
			}
			// A build that fails publishes nothing, not even a folder.
			if _, err := os.Stat(b.path("out")); err == nil {
				t.Errorf("the folder for outputs was made: %v", files(t, b.path("out")))
			}
			if _, err := os.Stat(b.path("r.lock")); err == nil {
				t.Error("a lock file was written")
			}
			if r := b.ok("store", "ls", "--json"); !strings.Contains(r.out, `"names": []`) {
				t.Errorf("the store has a name: %s", r.out)
			}
		})
	}
}

// nan puts a value that is not a number into the first matrix.
func nan(b *bench) {
	b.patch("model/model.safetensors", func(d []byte) []byte {
		start := 8 + binary.LittleEndian.Uint64(d)
		binary.LittleEndian.PutUint32(d[start+400:], math.Float32bits(float32(math.NaN())))
		return d
	})
}

func TestUsage(t *testing.T) {
	b := newBench(t)
	b.model("stories260k", "model")
	recipe := b.recipe(q8)
	for _, c := range []struct {
		args  []string
		words []string
	}{
		{[]string{"bild"}, []string{`unknown command "bild"`, `did you mean "build"`}},
		{[]string{"store"}, []string{"quern store --help"}},
		{[]string{"store", "lss"}, []string{`unknown command "lss"`, `"ls"`}},
		{[]string{"--verbose"}, []string{"unknown flag --verbose"}},
		{[]string{"build"}, []string{"recipe"}},
		{[]string{"build", recipe, recipe}, []string{"2 arguments"}},
		{[]string{"build", recipe, "--job", "2"}, []string{"unknown flag --job ", "--jobs", "quern build --help"}},
		{[]string{"build", recipe, "--jobs", "two"}, []string{"two", "--jobs"}},
		{[]string{"build", recipe, "--jobs"}, []string{"--jobs needs a value"}},
		{[]string{"build", recipe, "--jobs", "-1"}, []string{"--jobs -1"}},
		{[]string{"build", recipe, "--memory", "1MB"}, []string{"--memory 1MB", "16MiB"}},
		{[]string{"build", recipe, "--memory", "1024"}, []string{"--memory 1024", "16MiB"}},
		{[]string{"build", recipe, "--memory", "lots"}, []string{"--memory", "lots"}},
		{[]string{"build", recipe, "--memory", "-1GiB"}, []string{"--memory"}},
		{[]string{"build", recipe, "--max-header", "0"}, []string{"--max-header 0"}},
		{[]string{"build", recipe, "--max-header", "x"}, []string{"--max-header"}},
		{[]string{"build", recipe, "--measure", "perhaps"}, []string{"--measure", "perhaps", "never"}},
		{[]string{"build", recipe, "--progress", "loud"}, []string{"--progress", "loud", "plain"}},
		{[]string{"build", recipe, "--set", "steps.quantize.typ=Q4_0"}, []string{"--set", "steps.quantize.typ"}},
		{[]string{"build", recipe, "--set", "nonsense"}, []string{"nonsense"}},
		{[]string{"build", b.path("none.yaml")}, []string{"none.yaml"}},
		{[]string{"build", b.dir}, []string{b.dir}},
		{[]string{"build", recipe, "--endpoint", "gopher://x"}, []string{"gopher://x"}},
		{[]string{"build", recipe, "--store", b.path("model")}, []string{"not a store", "config.json"}},
		{[]string{"plan", recipe, "--memory", "1KiB"}, []string{"16MiB"}},
		{[]string{"verify"}, []string{"file"}},
		{[]string{"inspect"}, []string{"file"}},
		{[]string{"inspect", "hf:no/such/thing"}, []string{"hf:no/such/thing"}},
		{[]string{"completion", "tcsh"}, []string{"tcsh", "bash"}},
		{[]string{"completion"}, []string{"bash"}},
		{[]string{"schema", "x"}, []string{"no arguments"}},
		{[]string{"schema", "--json", "--markdown"}, []string{"not both"}},
		{[]string{"store", "tag", "x"}, []string{"1 arguments"}},
		{[]string{"store", "verify", "--jobs", "-2"}, []string{"--jobs -2"}},
		{[]string{"store", "show", "sha256:12"}, []string{"sha256:12"}},
		{[]string{"store", "show", "bad name!"}, []string{"bad name!"}},
	} {
		r := b.fails(exitUsage, append(c.words, "quern: "), c.args...)
		if r.out != "" && !slices.Contains(c.args, "--json") {
			t.Errorf("quern %v: stdout has %q", c.args, r.out)
		}
		if strings.Count(strings.TrimSpace(r.err), "\n") > 0 {
			t.Errorf("quern %v: more than the error on stderr:\n%s", c.args, r.err)
		}
	}
}

// noWait passes time without waiting.
type noWait struct{ past atomic.Int64 }

func (c *noWait) Now() time.Time { return time.Unix(1_700_000_000, c.past.Load()) }

func (c *noWait) Sleep(ctx context.Context, d time.Duration) error {
	c.past.Add(int64(d))
	return context.Cause(ctx)
}

// TestNetworkFailure asks a port that nobody listens on.
func TestNetworkFailure(t *testing.T) {
	b := newBench(t)
	b.hooks.clock = &noWait{}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	endpoint := "http://" + l.Addr().String()
	l.Close()
	recipe := b.write("r.yaml", "version: 1\nname: r\nsources:\n  base: {hf: org/model}\n"+q8)
	for _, args := range [][]string{
		{"build", recipe, "-o", b.path("out"), "--endpoint", endpoint},
		{"plan", recipe, "--endpoint", endpoint},
		{"inspect", "hf:org/model", "--endpoint", endpoint},
	} {
		b.fails(exitSource, []string{"org/model", "refused"}, args...)
	}
	b.fails(exitSource, []string{"offline", "org/model"}, "build", recipe, "--offline", "--endpoint", endpoint)
}

// TestCancelled runs every command that works for a while with a context that
// has ended.
func TestCancelled(t *testing.T) {
	b := newBench(t)
	b.model("stories260k", "model")
	recipe := b.recipe(q8)
	b.ok("build", recipe, "-o", b.path("out"))
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errInterrupted)
	for _, args := range [][]string{
		{"build", recipe, "-o", b.path("other")},
		{"build", recipe, "-o", b.path("other"), "--no-store"},
		{"plan", recipe},
		{"verify", b.path("out", "r.gguf")},
		{"verify", b.path("out", "r.gguf"), "--against", b.path("model")},
		{"store", "verify"},
		{"store", "gc"},
		{"store", "export", "r", "-o", b.path("other")},
	} {
		r := b.runCtx(ctx, args...)
		if r.code != exitInterrupted || !strings.Contains(r.err, "interrupted") {
			t.Errorf("quern %v: exit code %d\n%s", args, r.code, r.err)
		}
	}
	if got := files(t, b.path("other")); len(got) != 0 {
		t.Errorf("files were made: %v", got)
	}
}

// TestCancelAnywhere ends the context at one event after the other: whatever
// the build does then, it stops, publishes nothing and leaves nothing.
func TestCancelAnywhere(t *testing.T) {
	b := newBench(t)
	b.model("stories260k", "model")
	recipe := b.recipe(q8)
	done := false
	for n := 0; !done; n += 1 + n/4 {
		out := b.path(fmt.Sprint("out", n))
		ctx, cancel := context.WithCancelCause(t.Context())
		seen := 0
		b.hooks.event = func() {
			if seen++; seen > n {
				cancel(errInterrupted)
			}
		}
		r := b.runCtx(ctx, "build", recipe, "-o", out, "--no-cache", "--jobs", "2")
		done = ctx.Err() == nil
		cancel(nil)
		switch {
		case done && r.code != exitDone:
			t.Fatalf("exit code %d\n%s", r.code, r.err)
		case !done && r.code == exitDone:
			// The last event came after the last thing that can fail.
			if len(files(t, out)) == 0 {
				t.Errorf("event %d: done, and there is no output", n)
			}
		case !done:
			if got := files(t, out); r.code != exitInterrupted || len(got) != 0 {
				t.Errorf("event %d: exit code %d, files %v\n%s", n, r.code, got, r.err)
			}
		}
	}
}
