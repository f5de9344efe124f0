package recipes

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the goldens and the files in docs/ anew")

// setLines takes the overrides of a golden from its "# set: key=value" lines.
func setLines(text []byte) []string {
	var out []string
	for line := range strings.Lines(string(text)) {
		if s, ok := strings.CutPrefix(strings.TrimRight(line, "\r\n"), "# set: "); ok {
			out = append(out, s)
		}
	}
	return out
}

func goldens(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) < 40 {
		t.Fatalf("%d goldens, %v", len(files), err)
	}
	return files
}

// TestGolden parses testdata/x.yaml and compares with x-want.json, the recipe
// and its canonical form, or with x.err, all errors. Exactly one of the two
// is there.
func TestGolden(t *testing.T) {
	for _, file := range goldens(t) {
		stem := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(stem, func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			r, err := Parse(stem+".yaml", text, Options{Set: setLines(text)})
			var got []byte
			name, other := "testdata/"+stem+"-want.json", "testdata/"+stem+".err"
			if err != nil {
				name, other = other, name
				got = []byte(err.Error() + "\n")
				if !errors.Is(err, ErrRecipe) {
					t.Errorf("error is not ErrRecipe: %v", err)
				}
			} else {
				got = dump(t, r)
			}
			if bad := strings.HasPrefix(stem, "err-"); bad != (err != nil) {
				t.Errorf("error %v in %s", err, stem)
			}
			if *update {
				if err := os.WriteFile(name, got, 0o644); err != nil {
					t.Fatal(err)
				}
				os.Remove(other)
				return
			}
			want, err := os.ReadFile(name)
			if err != nil {
				t.Fatalf("%v; got:\n%s", err, got)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("got:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}

func dump(t *testing.T, r *Recipe) []byte {
	t.Helper()
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(map[string]any{"recipe": r, "canonical": json.RawMessage(r.Canonical())}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
