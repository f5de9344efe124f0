package main

import (
	"os"
	"strings"
	"testing"

	"quern/hub/hubtest"
	"quern/internal/testmodel"
)

// TestBuiltinRecipe builds a built-in recipe from a repository of another name:
// outputs and lock file go into the output folder and nowhere else.
func TestBuiltinRecipe(t *testing.T) {
	b := newBench(t)
	if r := b.ok("recipes", "ls"); !strings.Contains(r.out, "smollm2-135m ") || !strings.Contains(r.out, "needle2 ") {
		t.Errorf("the list:\n%s", r.out)
	}
	text, err := os.ReadFile("../../recipes/builtin/smollm2-135m.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if r := b.ok("recipes", "show", "builtin:smollm2-135m"); r.out != string(text) {
		t.Errorf("shown:\n%s", r.out)
	}
	repo := hubtest.NewRepo("org/stories")
	data, err := testmodel.Build("stories260k")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]*hubtest.File{}
	for name, d := range data {
		files[name] = hubtest.LFS(d)
	}
	repo.Commit(files)
	h := hubtest.New(t, hubtest.Options{}, repo)
	set := []string{"--endpoint", h.URL, "--set", "sources.base.hf=org/stories", "--set", "steps.quantize.preset=Q8_0", "--set", "steps.quantize.pure=false"}
	plan := b.ok(append([]string{"plan", "builtin:smollm2-135m"}, set...)...)
	if !strings.Contains(plan.out, "smollm2-135m-q4_k_m.gguf") {
		t.Errorf("the plan:\n%s", plan.out)
	}
	b.ok(append([]string{"build", "builtin:smollm2-135m", "-o", b.path("out")}, set...)...)
	for _, name := range []string{"out/smollm2-135m-q4_k_m.gguf", "out/smollm2-135m.lock"} {
		if _, err := os.Stat(b.path(name)); err != nil {
			t.Error(err)
		}
	}
	b.ok(append([]string{"build", "builtin:smollm2-135m", "--locked", "-o", b.path("out")}, set...)...)
}
