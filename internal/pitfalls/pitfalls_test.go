// Package pitfalls holds docs/pitfalls.md against the tests that it names.
package pitfalls

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const root = "../.."

// required are the cases that must have a test.
var required = map[string][]int{
	"safetensors":         {1, 2, 3, 4, 6, 7, 8, 10, 11, 12, 13, 15, 16, 17, 18},
	"shards, heads, rows": {19, 21, 22, 23, 25, 26, 28, 29, 30, 32, 33, 34, 35},
	"GGUF":                {89, 90, 91, 93, 94, 96, 97, 98, 100, 101, 102},
	"tokenizers, RoPE":    {38, 39, 40, 41, 42, 43, 45, 46, 47, 48, 49, 50, 51, 52, 54, 55, 56, 57, 58},
	"quantization":        {59, 60, 61, 63, 64, 66, 68, 69, 71, 72, 73, 74, 75, 76, 77, 78},
	"imatrix, experts":    {79, 80, 81, 83, 84, 85, 87, 88},
	"devices, evaluation": {123, 124, 125, 127, 128},
	"network and disks":   {103, 105, 107, 108, 109, 110, 111, 112, 113, 114, 115, 116, 118, 119, 121, 122},
}

type row struct {
	n     int
	what  string
	tests []string
}

var line = regexp.MustCompile(`^\| ([0-9]+) \| (.+?) \| (.*?) ?\|$`)

// table reads the rows of the document.
func table(t *testing.T) []row {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs", "pitfalls.md"))
	if err != nil {
		t.Fatal(err)
	}
	var out []row
	for i, s := range strings.Split(string(text), "\n") {
		if !strings.HasPrefix(s, "| ") || strings.HasPrefix(s, "| case ") {
			continue
		}
		m := line.FindStringSubmatch(s)
		if m == nil {
			t.Fatalf("line %d is no row of the table: %s", i+1, s)
		}
		r := row{what: m[2]}
		if r.n, err = strconv.Atoi(m[1]); err != nil {
			t.Fatal(err)
		}
		for _, name := range strings.Split(m[3], ", ") {
			if name == "" {
				continue
			}
			if len(name) < 2 || name[0] != '`' || name[len(name)-1] != '`' {
				t.Fatalf("line %d: %s is no name of a test", i+1, name)
			}
			r.tests = append(r.tests, name[1:len(name)-1])
		}
		out = append(out, r)
	}
	return out
}

// pkg is what the test files of a package have.
type pkg struct {
	funcs map[string]bool
	text  map[string]string // of each file
}

func load(dir string) (*pkg, error) {
	files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(dir), "*_test.go"))
	if err != nil {
		return nil, err
	}
	p := &pkg{funcs: map[string]bool{}, text: map[string]string{}}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, text, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && isTest(fn) {
				p.funcs[fn.Name.Name] = true
				p.text[fn.Name.Name] = string(text)
			}
		}
	}
	return p, nil
}

// isTest: func TestX(t *testing.T).
func isTest(fn *ast.FuncDecl) bool {
	if !strings.HasPrefix(fn.Name.Name, "Test") || len(fn.Type.Params.List) != 1 {
		return false
	}
	star, ok := fn.Type.Params.List[0].Type.(*ast.StarExpr)
	if !ok {
		return false
	}
	sel, ok := star.X.(*ast.SelectorExpr)
	return ok && sel.Sel.Name == "T"
}

// TestTable: every case has its row, and every test that a row names exists.
func TestTable(t *testing.T) {
	rows := map[int]row{}
	last := 0
	pkgs := map[string]*pkg{}
	for _, r := range table(t) {
		if r.n <= last {
			t.Errorf("case %d follows case %d", r.n, last)
		}
		last = r.n
		rows[r.n] = r
		if len(r.tests) == 0 {
			t.Errorf("case %d has no test", r.n)
		}
		for _, name := range r.tests {
			dir, fn, ok := strings.Cut(name, "/Test")
			if !ok {
				t.Errorf("case %d: %s is not package/Test", r.n, name)
				continue
			}
			fn, sub, _ := strings.Cut("Test"+fn, "/")
			p := pkgs[dir]
			if p == nil {
				var err error
				if p, err = load(dir); err != nil {
					t.Fatal(err)
				}
				pkgs[dir] = p
			}
			if !p.funcs[fn] {
				t.Errorf("case %d: package %s has no %s", r.n, dir, fn)
				continue
			}
			if sub != "" && !strings.Contains(p.text[fn], strconv.Quote(sub)) {
				t.Errorf("case %d: %s in package %s has no case %q", r.n, fn, dir, sub)
			}
		}
	}
	for part, list := range required {
		for _, n := range list {
			if _, ok := rows[n]; !ok {
				t.Errorf("%s: case %d is not in the table", part, n)
			}
		}
	}
}

// TestTableCanFail: the checks see what they look for.
func TestTableCanFail(t *testing.T) {
	p, err := load("internal/pitfalls")
	if err != nil {
		t.Fatal(err)
	}
	if !p.funcs["TestTable"] || p.funcs["TestNothing"] || p.funcs["load"] {
		t.Errorf("found %v", p.funcs)
	}
	if m := line.FindStringSubmatch("| 7 | a, b | `x/TestY`, `z/TestW/a b` |"); m == nil || m[1] != "7" || m[2] != "a, b" || m[3] != "`x/TestY`, `z/TestW/a b`" {
		t.Errorf("row read as %q", m)
	}
	if m := line.FindStringSubmatch("| 122 | x |  |"); m == nil || m[3] != "" {
		t.Errorf("row read as %q", m)
	}
}
