package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// smallDisk mounts a file system of some bytes.
func smallDisk(t *testing.T, size string) string {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("only root may mount a small file system (%v); TestEveryStepFails injects the same faults", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// TestRealFullDisk builds onto a disk of four megabytes, with the store on it
// and beside it.
func TestRealFullDisk(t *testing.T) {
	disk := smallDisk(t, "4m")
	b := newBench(t)
	b.sparseModel("model", 1, 2048) // 17 MiB, of which Q8_0 makes 4.5
	b.model("stories260k", "small/model")
	out := filepath.Join(disk, "out")
	recipe := b.recipe("steps:\n  - quantize: {type: Q8_0}\noutputs:\n  - {format: gguf, file: r.gguf}\n")
	small := b.write("small/r.yaml", "version: 1\nname: r\nsources:\n  base: {dir: model}\n"+q8)
	b.ok("build", small, "-o", out)
	old := sum(t, filepath.Join(out, "r.gguf"))

	// The plan warns first.
	r := b.ok("plan", recipe, "-o", out)
	if !strings.Contains(r.out, "note: ") || !strings.Contains(r.out, "are free in folder "+out) {
		t.Errorf("the plan does not warn: %s", r.out[strings.LastIndex(r.out, "peak"):])
	}
	if r := b.ok("plan", recipe, "-o", b.path("out")); strings.Contains(r.out, "are free") {
		t.Errorf("the plan warns of a disk with room: %s", r.out)
	}
	if r := b.ok("plan", recipe, "-o", b.path("out"), "--store", filepath.Join(disk, "plan-store")); !strings.Contains(r.out, "are free in the store") {
		t.Error("the plan does not warn of the store's disk")
	}
	check(t, os.RemoveAll(filepath.Join(disk, "plan-store")))

	for _, store := range []string{b.path("store"), filepath.Join(disk, "store")} {
		r := b.fails(exitFailed, []string{"are free", "the disk is full", "make room", "no space left"}, "build", recipe, "-o", out, "--store", store)
		if strings.Contains(r.err, "finished") {
			t.Errorf("%s", r.err)
		}
		if got := strings.Join(files(t, out), " "); got != "r.gguf" || sum(t, filepath.Join(out, "r.gguf")) != old {
			t.Errorf("files %s", got)
		}
		b.ok("store", "verify", "--store", store)
		noTemps(t, disk)
	}
	// The store alone does not fit: it says which, and how to do without.
	b.fails(exitFailed, []string{"are free in the store", "store " + filepath.Join(disk, "store"), "the disk is full", "--no-store"},
		"build", recipe, "-o", b.path("out"), "--store", filepath.Join(disk, "store"))
	if got := files(t, b.path("out")); len(got) != 0 {
		t.Errorf("files %v", got)
	}
	b.ok("build", recipe, "-o", b.path("out"), "--store", filepath.Join(disk, "store"), "--no-store")
}

// TestReadOnlyMount builds with a store and with an output folder that really
// cannot be written to, not even by root.
func TestReadOnlyMount(t *testing.T) {
	disk := smallDisk(t, "8m")
	b := newBench(t)
	b.model("stories260k", "model")
	recipe := b.recipe(q8)
	store := filepath.Join(disk, "store")
	b.ok("build", recipe, "-o", b.path("first"), "--store", store)
	check(t, unix.Mount("", disk, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	readOnlyStore(t, b, recipe, store)
	b.fails(exitFailed, []string{"read-only", "another"}, "build", recipe, "-o", filepath.Join(disk, "out"))
	b.fails(exitFailed, []string{"read-only"}, "store", "untag", "r", "--store", store)
	b.fails(exitFailed, []string{"read-only"}, "store", "tag", "r", "s", "--store", store)
	// A store that cannot be made is named; where nobody chose one it is done
	// without.
	b.fails(exitFailed, []string{filepath.Join(disk, "new"), "--no-store"}, "build", recipe, "-o", b.path("o2"), "--store", filepath.Join(disk, "new"))
	t.Setenv("QUERN_STORE", "")
	t.Setenv("XDG_CACHE_HOME", filepath.Join(disk, "cache"))
	if r := b.ok("build", recipe, "-o", b.path("o3")); !strings.Contains(r.err, "warning: store "+filepath.Join(disk, "cache")) {
		t.Errorf("no warning: %s", r.err)
	}
}
