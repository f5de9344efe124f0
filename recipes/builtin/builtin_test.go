package builtin

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"quern/recipes"
)

func TestNames(t *testing.T) {
	names := Names()
	for _, want := range []string{"qwen3.5-0.8b", "qwen3.5-2b", "qwen3.5-9b-mtp", "ternary-bonsai-4b", "bonsai-8b", "moon-beam-8b-a1b", "ling-mini-2.0",
		"minueza-32m", "minueza-32m-tied", "needle2", "needle3"} {
		if !slices.Contains(names, want) {
			t.Errorf("%s is missing", want)
		}
	}
	for _, name := range names {
		r, err := Parse(name, recipes.Options{})
		if err != nil {
			t.Error(err)
			continue
		}
		if r.Name != name || About(name) == "" {
			t.Errorf("%s is called %s: %q", name, r.Name, About(name))
		}
		for _, s := range r.Sources {
			// Texts are the user's own.
			if texts := r.TextSources(); (s.Kind == recipes.SourceHF) == texts[s.Name] {
				t.Errorf("%s: source %s is of kind %s", name, s.Name, s.Kind)
			}
		}
	}
}

func TestParse(t *testing.T) {
	r, err := Parse("bonsai-8b", recipes.Options{Set: []string{"sources.base.hf=org/other@v1", "sources.base.path=x.gguf"}})
	if err != nil {
		t.Fatal(err)
	}
	if s := r.Sources[0]; s.Value != "org/other@v1" || s.Path != "x.gguf" || r.Dir != "." {
		t.Errorf("%+v in %s", s, r.Dir)
	}
	_, err = Parse("bonsai-8b", recipes.Options{Set: []string{"sources.base.hf=org/a b"}})
	if err == nil || !strings.Contains(err.Error(), "sources.base.hf") {
		t.Errorf("a bad repository: %v", err)
	}
	for _, name := range []string{"", "bonsai", "../builtin/bonsai-8b", "*"} {
		if _, err := Text(name); !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), "bonsai-8b") {
			t.Errorf("%q: %v", name, err)
		}
		if About(name) != "" {
			t.Errorf("%q is about something", name)
		}
	}
	if name, ok := Cut("builtin:x"); name != "x" || !ok {
		t.Error(name, ok)
	}
	if _, ok := Cut("x.yaml"); ok {
		t.Error("a path is a name")
	}
}
