package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"quern/internal/testmodel"
)

// TestTrace records a trace of a small model, counts it, plays it through pools
// and draws the outcome.
func TestTrace(t *testing.T) {
	b := newBench(t)
	b.model("stories-moe", "model")
	recipe := b.recipe("steps:\n  - pad: {ffn: 32}\n  - quantize: {type: Q4_0}\n  - reorder: {experts: last}\noutputs:\n  - {format: gguf, file: m.gguf}\n")
	b.ok("build", recipe, "-o", b.path("out"), "--no-store")
	model, text := b.path("out", "m.gguf"), b.write("text.txt", string(mustRead(t, filepath.Join(testmodel.Root(), "text", "eval-stories.txt"))))
	var rec struct{ Tokens int64 }
	b.ok("trace", "record", model, "-f", text, "-o", b.path("t.trace.zst"), "--scores", "--ahead", "1", "--json").json(t, &rec)
	// Pieces of another length see other contexts, but have the same number of
	// tokens but for those in front of each.
	var short struct{ Tokens int64 }
	b.ok("trace", "record", model, "-f", text, "-o", b.path("short.trace"), "--context", "100", "--json").json(t, &short)
	if rec.Tokens < 400 || short.Tokens <= rec.Tokens {
		t.Errorf("%d tokens, %d in short pieces", rec.Tokens, short.Tokens)
	}
	var use struct {
		Tokens        int64
		Cut           bool
		Experts, Used int
		Layers        []struct{ Uses int64 }
	}
	b.ok("trace", "stats", b.path("t.trace.zst"), "--json", "--warm", b.path("warm.txt"), "--top", "2").json(t, &use)
	if use.Tokens != rec.Tokens || use.Cut || use.Experts != 8 || use.Used != 2 || len(use.Layers) != 5 || use.Layers[0].Uses != 2*rec.Tokens {
		t.Errorf("%+v", use)
	}
	if warm := string(mustRead(t, b.path("warm.txt"))); strings.Count(warm, "\n") != 5 || !strings.HasPrefix(warm, "0: ") {
		t.Errorf("warm list:\n%s", warm)
	}
	var sim struct {
		Runs []struct {
			Policy     string
			Pool       int
			Bias       float64
			Uses       int64
			Misses     int64
			Replaced   int64
			PerSecond  float64 `json:"tokens_per_second"`
			PoolBytes  int64   `json:"pool_bytes"`
			Prefetched int64
		}
	}
	args := []string{"trace", "simulate", b.path("t.trace.zst"), "--model", model, "--flash", "2MB/s", "--compute", "100", "--json"}
	b.ok(append(args, "--bias", "0,0.2", "--policy", "lru,decay", "--plot", b.path("p.svg"))...).json(t, &sim)
	if len(sim.Runs) != 2*2*7 {
		t.Fatalf("%d runs", len(sim.Runs))
	}
	for i, r := range sim.Runs {
		if r.Uses != 10*rec.Tokens || r.PoolBytes != int64(r.Pool)*5*3*64*192/32*18 {
			t.Errorf("run %d: %+v", i, r)
		}
		if i%7 > 0 && (r.Misses >= sim.Runs[i-1].Misses || r.PerSecond <= sim.Runs[i-1].PerSecond) {
			t.Errorf("a pool of %d misses %d, one of %d %d", r.Pool, r.Misses, sim.Runs[i-1].Pool, sim.Runs[i-1].Misses)
		}
	}
	if lru, biased := sim.Runs[1], sim.Runs[8]; biased.Bias != 0.2 || biased.Misses >= lru.Misses || biased.Replaced == 0 || lru.Replaced != 0 {
		t.Errorf("%+v\n%+v", lru, biased)
	}
	if svg := string(mustRead(t, b.path("p.svg"))); !strings.Contains(svg, "decay, bias 0.2") {
		t.Errorf("%s", svg)
	}
	b.ok(append(args, "--pool", "4", "--prefetch", "2", "--warm", "--skip", "10")...).json(t, &sim)
	if len(sim.Runs) != 1 || sim.Runs[0].Prefetched == 0 {
		t.Errorf("%+v", sim.Runs)
	}
	traceFaults(b, model, text)
}

func traceFaults(b *bench, model, text string) {
	tr := b.path("t.trace.zst")
	b.fails(exitUsage, []string{"--flash"}, "trace", "simulate", tr, "--model", model)
	b.fails(exitUsage, []string{"--expert-bytes"}, "trace", "simulate", tr, "--flash", "1MB")
	b.fails(exitUsage, []string{"a pool of 1"}, "trace", "simulate", tr, "--flash", "1MB", "--expert-bytes", "1MB", "--pool", "1")
	b.fails(exitUsage, []string{"needs scores"}, "trace", "simulate", b.path("short.trace"), "--flash", "1MB", "--expert-bytes", "1MB", "--bias", "0.1")
	b.fails(exitUsage, []string{"--skip"}, "trace", "simulate", tr, "--flash", "1MB", "--expert-bytes", "1MB", "--skip", "100000")
	for _, compute := range []string{"1e-300", "1e300", "-1", "NaN"} {
		b.fails(exitUsage, []string{"--compute", "or 0"}, "trace", "simulate", tr, "--flash", "1MB", "--expert-bytes", "1MB", "--compute", compute)
	}
	b.fails(exitUsage, []string{"settings: -1 tokens skipped"}, "trace", "simulate", tr, "--flash", "1MB", "--expert-bytes", "1MB", "--skip", "-1")
	b.fails(exitSource, []string{"text.txt:1", "quern-expert-trace"}, "trace", "stats", text)
	b.model("stories260k", "dense")
	b.fails(exitUsage, []string{"experts", "none"}, "trace", "record", b.path("dense"), "-f", text, "-o", b.path("x.trace"))
	if _, err := os.Stat(b.path("x.trace")); !os.IsNotExist(err) {
		b.t.Error("a failed record left a file")
	}
	b.fails(exitUsage, []string{"--ahead 5", "the model has 5"}, "trace", "record", model, "-f", text, "-o", b.path("x.trace"), "--ahead", "5")
	b.fails(exitUsage, []string{"empty.txt", "no text"}, "trace", "record", model, "-f", b.write("empty.txt", ""), "-o", b.path("x.trace"))
	other := b.write("other.trace", "quern-expert-trace 1\nexperts 4\nused 1\nlayers 0\n\n0\t0\t1\n")
	b.fails(exitSource, []string{"another model"}, "trace", "simulate", other, "--model", model, "--flash", "1MB")
}

// TestPlanDevice asks what devices of several sizes hold.
func TestPlanDevice(t *testing.T) {
	b := newBench(t)
	b.model("stories-moe", "model")
	recipe := b.recipe("steps:\n  - pad: {ffn: 32}\n  - quantize: {type: Q4_0}\n  - reorder: {experts: last}\noutputs:\n  - {format: gguf, file: m.gguf, repack: [q4_0_4x4]}\n")
	type account struct {
		Devices []struct {
			File             string
			Fits             bool
			Resident, Needed int64
			Map              int64 `json:"map_bytes"`
			KV               int64 `json:"kv_bytes"`
			Experts          struct{ Pool int64 }
		}
	}
	plan := func(args ...string) account {
		var a account
		b.ok(slices.Concat([]string{"plan", recipe, "--no-store", "--json"}, args)...).json(t, &a)
		if len(a.Devices) != 1 { // the cache has no account of its own
			t.Fatalf("%+v", a)
		}
		return a
	}
	large := plan("--ram", "100MB").Devices[0]
	// 5 layers, 32 keys and 32 values of two bytes, 512 tokens.
	if !large.Fits || large.Resident != large.Needed || large.Experts.Pool != 8 || large.KV != 5*64*2*512 {
		t.Errorf("%+v", large)
	}
	small := plan("--ram", "700KB", "--kv", "q8_0", "--device-context", "100", "--map-limit", "10KB").Devices[0]
	if small.Fits || small.Experts.Pool >= 8 || small.Experts.Pool < 2 || small.Resident > 700_000 || small.KV != 5*64/32*34*100 {
		t.Errorf("%+v", small)
	}
	out := b.ok("plan", recipe, "--no-store", "--ram", "700KB", "--flash", "1MB/s").out
	for _, want := range []string{"m.gguf on a device with 683.59 KiB of memory", "of each layer", "tokens a second"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	b.fails(exitUsage, []string{"--ram"}, "plan", recipe, "--flash", "1MB")
	b.fails(exitUsage, []string{"keys and values as Q4_K"}, "plan", recipe, "--ram", "1MB", "--kv", "q4_k")
	b.model("stories260k", "dense")
	kmcu := b.write("k.yaml", "version: 1\nname: k\nsources: {base: {dir: dense}}\noutputs: [{format: kmcu, file: k.kmcu}]\n")
	if out := b.ok("plan", kmcu, "--no-store", "--ram", "1MB").out; !strings.Contains(out, "note: --ram: no output") {
		t.Errorf("not a word of --ram in\n%s", out)
	}
	var none account
	b.ok("plan", recipe, "--no-store", "--json").json(t, &none)
	if none.Devices != nil {
		t.Errorf("%+v", none)
	}
}
