package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestKill kills builds at 100 random moments. After each, the output is the
// old one or the new one, whole, the store has no damage, and the next build
// needs no help to give the right bytes.
func TestKill(t *testing.T) {
	moments := 100
	if testing.Short() {
		moments = 12
	}
	b := newBench(t)
	b.sparseModel("model", 1, 1024)
	recipe := b.recipe("outputs:\n  - {format: gguf, file: r.gguf, outtype: q8_0}\n  - {format: kmcu, file: sub/r.kmcu}\n")
	out := b.path("out")
	names := []string{"r.gguf", "sub/r.kmcu"}
	variants := [][]string{{"outputs.0.outtype=q8_0", "outputs.1.max-seq=256"}, {"outputs.0.outtype=bf16", "outputs.1.max-seq=128"}}
	args := func(variant int) []string {
		return []string{"build", recipe, "-o", out, "--set", variants[variant][0], "--set", variants[variant][1], "--no-cache", "--measure", "never"}
	}
	// What is right, by variant and file.
	var want [2][2]string
	for v := range variants {
		b.ok(args(v)...)
		for i, n := range names {
			want[v][i] = sum(t, filepath.Join(out, filepath.FromSlash(n)))
		}
	}
	// How long a whole build takes, as a process.
	took := time.Duration(1 << 62)
	for range 3 {
		start := time.Now()
		if msg, err := b.command(args(1)...).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, msg)
		}
		if d := time.Since(start); d < took {
			took = d
		}
	}
	rng := rand.New(rand.NewPCG(20, 26))
	now := 1 // the variant that stands there
	finished, replaced := 0, 0
	for round := range moments {
		if round%2 == 0 {
			os.RemoveAll(b.path("store")) // so that blobs are new again
		}
		next := 1 - now
		cmd := b.command(args(next)...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		delay := time.Duration(rng.Int64N(int64(took + took/8)))
		start := time.Now()
		timer := time.AfterFunc(delay, func() { cmd.Process.Kill() })
		err := cmd.Wait()
		timer.Stop()
		if err == nil {
			finished++
		}
		// Other work on the machine comes and goes: aim by what a build takes
		// now.
		if d := time.Since(start); err == nil {
			took = (took + d) / 2
		} else if delay > took {
			took = delay
		}
		where := fmt.Sprintf("round %d, killed after %v", round, delay)
		for i, n := range names {
			got := sum(t, filepath.Join(out, filepath.FromSlash(n)))
			switch {
			case got == want[next][i]:
				replaced++
			case got != want[now][i]:
				t.Errorf("%s: %s has SHA-256 %q, the old one %s, the new one %s", where, n, got, want[now][i], want[next][i])
			case err == nil:
				t.Errorf("%s: the build was done, and %s is the old one", where, n)
			}
		}
		if r := b.run("store", "verify"); r.code != exitDone {
			t.Errorf("%s: store verify: %s%s", where, r.out, r.err)
		}
		b.ok(args(next)...)
		for i, n := range names {
			if got := sum(t, filepath.Join(out, filepath.FromSlash(n))); got != want[next][i] {
				t.Errorf("%s: built again, %s has SHA-256 %s, want %s", where, n, got, want[next][i])
			}
		}
		now = next
		if t.Failed() {
			t.FailNow()
		}
	}
	t.Logf("a build takes %v; of %d builds %d came to their end, and %d of %d files were the new ones", took, moments, finished, replaced, 2*moments)
	if finished > moments*3/4 {
		t.Errorf("%d of %d builds came to their end: the kills came too late to show anything", finished, moments)
	}
	// What killed processes have left goes when it is old enough, or at once
	// when asked for. On Linux an unfinished file has no name at all.
	b.ok("store", "gc", "--grace", "0s")
	noTemps(t, b.path("store"))
	noTemps(t, out)
	b.ok("store", "verify")
}
