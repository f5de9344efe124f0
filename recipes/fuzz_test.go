package recipes

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
)

// FuzzParse checks that no text makes the parser panic, that errors point into
// the text, and that the JSON Schema accepts what the parser accepts.
func FuzzParse(f *testing.F) {
	for _, file := range goldens(f) {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, strings.Join(setLines(text), "\n"))
	}
	schema := compileSchema(f)
	f.Fuzz(func(t *testing.T, text []byte, set string) {
		var opt Options
		if set != "" {
			opt.Set = strings.Split(set, "\n")
		}
		r, err := Parse("x", text, opt)
		if err != nil {
			list, ok := errors.AsType[Errors](err)
			if !ok || len(list) == 0 || r != nil {
				t.Fatalf("%T %v, recipe %v", err, err, r)
			}
			lines := strings.Count(string(text), "\n") + strings.Count(string(text), "\r") + strings.Count(string(text), "\u0085") +
				strings.Count(string(text), "\u2028") + strings.Count(string(text), "\u2029") + 1
			for _, e := range list {
				if e.Pos.Line < 0 || e.Pos.Line > lines+1 || e.Pos.Line > 0 && e.Pos.Column < 1 {
					t.Fatalf("position %v outside of %d lines: %v", e.Pos, lines, e)
				}
				if e.Pos.Line == 0 && !strings.HasPrefix(e.Pos.File, "--set") {
					t.Fatalf("no position: %v", e)
				}
				if strings.Contains(e.Error(), "\n") {
					t.Fatalf("error of several lines: %v", e)
				}
			}
			return
		}
		if !json.Valid(r.Canonical()) {
			t.Fatalf("canonical form is not JSON: %s", r.Canonical())
		}
		if opt.Set == nil {
			if err := schema.Validate(plain(t, text)); err != nil {
				t.Fatalf("the schema refuses what the parser accepts: %v\n%s", err, text)
			}
		}
	})
}
