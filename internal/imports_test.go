// Package internal_test keeps the house in order: who may import whom, who may
// touch files, and what no package may do at all. It reads the source of every
// file for every platform and needs no compiler.
package internal_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// layer is a row of the table: packages, and what of this module they may
// import. A name stands for a package and all below it; the longest name that
// fits a package counts.
type layer struct {
	name string
	may  []string
}

// layers is the one way that imports go. From the bottom up:
//
//   - internal is what any module could use: files, digests, ordered work, JSON
//     as Python reads it. It knows nothing of models, and neither does
//     artifacts, which keeps bytes and manifests.
//   - tensor is the vocabulary of everything above: shapes, types, lazy rows.
//   - A format knows tensors and what all formats share, but no other format. A
//     tokenizer is what a GGUF file's vocabulary keys hold.
//   - model puts them together. hub hands models their files over HTTP.
//   - recipes name what is to be done: types, roles, repositories, targets.
//   - pipeline runs it through interfaces. That it knows neither recipes, nor
//     formats, nor the hub keeps a new stage, format or source out of it.
//   - verify compares tensors of files and knows no pipeline, so that a check
//     does not share the faults of what it checks.
//   - runtime runs what was written, and knows no pipeline for the same reason.
//   - device predicts what a device makes of a file, from the file's layout and
//     from traces; it runs nothing.
//   - stages do one thing each, apart from each other; all is the table of
//     them, and gates compare with what emit lays out.
//   - cmd is the only place that sees everything.
var layers = []layer{
	{"internal", []string{"internal"}},
	{"artifacts", []string{"artifacts", "internal"}},
	{"tensor", []string{"tensor", "internal"}},
	{"formats", []string{"formats/internal", "tensor", "internal"}},
	{"formats/imatrix", []string{"formats/gguf", "formats/internal", "tensor", "internal"}}, // one kind is a GGUF file
	{"tokenizer", []string{"formats/gguf", "internal"}},
	{"tokenizer/count", []string{"tokenizer", "internal"}},
	{"model", []string{"model", "tokenizer", "formats", "tensor", "internal"}},
	{"hub", []string{"hub", "model", "tensor", "internal"}},
	{"recipes", []string{"artifacts/sink", "hub", "model", "tensor", "internal"}},
	{"recipes/builtin", []string{"recipes"}},
	{"pipeline", []string{"artifacts", "model", "tensor", "internal"}},
	{"verify/parquet", []string{"verify"}},
	{"verify", []string{"artifacts", "model", "formats", "tensor", "internal"}},
	{"runtime", []string{"runtime", "model", "tokenizer", "formats", "tensor", "internal"}},
	{"stages", []string{"runtime", "verify", "pipeline", "recipes", "hub", "artifacts", "model", "tokenizer", "formats", "tensor", "internal"}},
	{"stages/gates", []string{"stages/emit", "runtime", "verify", "pipeline", "recipes", "model", "tokenizer", "formats", "tensor", "internal"}},
	{"stages/all", []string{"stages", "verify", "pipeline", "recipes", "artifacts", "internal"}},
	{"device", []string{"device", "model", "formats", "tensor", "internal"}},
	{"cmd", []string{"cmd", "device", "stages", "runtime", "verify", "pipeline", "recipes", "hub", "artifacts", "model", "tokenizer", "formats", "tensor", "internal"}},
	{"interop", []string{"cmd", "stages", "runtime", "verify", "pipeline", "recipes", "hub", "artifacts", "model", "tokenizer", "formats", "tensor", "internal"}},
}

// testOnly are packages that only tests use, and tools of this repository that
// no user runs.
var testOnly = []string{
	"internal/adbdevice", "internal/faulty", "internal/testmodel", "internal/scripts", "internal/fmacheck",
	"artifacts/storetest", "artifacts/sink/sinktest", "artifacts/registry/registrytest", "artifacts/mem", "hub/hubtest", "model/modeltest", "stages/stagetest", "interop",
}

// outside are packages from elsewhere that have one place in the house; the
// value says where.
var outside = map[string][]string{
	"net/http":                            {"hub", "artifacts/sink", "artifacts/registry"}, // models in, files to devices, artifacts both ways: one client each, with one set of rules for tokens and redirects
	"os/exec":                             {"artifacts/sink"},                              // a recipe runs no command but the sinks it names
	"plugin":                              {},
	"unsafe":                              {"tensor/quant"},
	"github.com/urfave/cli/v2":            {"cmd"},
	"github.com/schollz/progressbar/v3":   {"cmd"},
	"github.com/apache/arrow/go/v17":      {"verify/parquet"},
	"oras.land/oras-go/v2":                {"artifacts/registry"}, // it runs docker's credential helpers, so see userOnly
	"github.com/klauspost/compress":       {"internal/inflate", "cmd"},
	"testing":                             {},
	"net/http/httptest":                   {},
	"github.com/minio/sha256-simd":        {"internal/digest"},
	"github.com/edsrzf/mmap-go":           {"runtime/mapped"},
	"github.com/gofrs/flock":              {"artifacts/local", "hub"},
	"github.com/opencontainers/go-digest": {"artifacts"},
	"go.yaml.in/yaml/v4":                  {"recipes", "model/convert"},
	"github.com/ardanlabs/jinja":          {"tokenizer/chat"},
}

// userOnly are packages of ours that the commands of a user alone may lead to, and
// nothing that a recipe does. The value says who may import them.
var userOnly = map[string][]string{
	"artifacts/registry": {"artifacts/registry", "cmd", "interop"},
}

// writers may give files their names: the one atomic writer, and the spool of
// unfinished downloads, which has rules of its own. internal/holes opens files
// that are there, to give bytes of them back.
var writers = []string{"internal/atomicfile", "internal/holes", "hub"}

// writing are the functions of package os that put files into place.
var writing = []string{"Create", "CreateTemp", "WriteFile", "OpenFile", "Rename", "Link", "Symlink", "CopyFS", "Truncate"}

const module = "quern/"

// source is a parsed file of the module.
type source struct {
	pkg  string // folder, with slashes; "" for the root
	file string
	ast  *ast.File
	fset *token.FileSet
}

func (s source) at(n ast.Node) string { return s.fset.Position(n.Pos()).String() }

func under(pkg string, names []string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return pkg == n || strings.HasPrefix(pkg, n+"/") })
}

// sources parses every Go file of the module but the tests, for all platforms.
func sources(t *testing.T) []source {
	t.Helper()
	root := ".."
	var out []source
	err := filepath.WalkDir(root, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := e.Name()
		if e.IsDir() {
			// Folders that the go command leaves out, and modules of their own.
			if p != root && (name == "testdata" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_")) {
				return filepath.SkipDir
			}
			if _, err := os.Stat(filepath.Join(p, "go.mod")); err == nil && p != root {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, p, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		file := filepath.ToSlash(rel)
		out = append(out, source{strings.TrimSuffix(path.Dir(file), "."), file, f, fset})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) < 100 {
		t.Fatalf("only %d files were found", len(out))
	}
	return out
}

// layerOf finds a package's row.
func layerOf(pkg string) *layer {
	var best *layer
	for i := range layers {
		if l := &layers[i]; under(pkg, []string{l.name}) && (best == nil || len(l.name) > len(best.name)) {
			best = l
		}
	}
	return best
}

func TestImportsGoOneWay(t *testing.T) {
	used := map[string]bool{}
	for _, s := range sources(t) {
		l := layerOf(s.pkg)
		if l == nil {
			t.Errorf("%s: package %q has no row in the table of layers", s.file, s.pkg)
			continue
		}
		used[l.name] = true
		for _, i := range s.ast.Imports {
			p, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			if what := forbidden(s.pkg, p, l); what != "" {
				t.Errorf("%s: imports %s: %s", s.at(i), p, what)
			}
		}
	}
	for _, l := range layers {
		if _, err := os.Stat(filepath.Join("..", filepath.FromSlash(l.name))); err == nil && !used[l.name] {
			t.Errorf("no package is of layer %s", l.name)
		}
	}
}

// forbidden says why a package must not import another, or nothing.
func forbidden(pkg, imported string, l *layer) string {
	own, ours := strings.CutPrefix(imported, module)
	inTest := under(pkg, testOnly)
	if !ours {
		for name, where := range outside {
			if under(imported, []string{name}) && imported != "net/http/httptest" && !under(pkg, where) && !inTest {
				return "it belongs in " + strings.Join(where, ", ")
			}
		}
		if _, ok := outside[imported]; ok && !under(pkg, outside[imported]) && !inTest {
			return "it belongs in " + strings.Join(outside[imported], ", ")
		}
		return ""
	}
	for name, where := range userOnly {
		if under(own, []string{name}) && !under(pkg, where) && !inTest {
			return "it is for " + strings.Join(where, ", ")
		}
	}
	switch {
	case under(own, testOnly) && !inTest:
		return "it is for tests only"
	case inTest:
		return "" // whatever the tests of a layer need
	case !under(own, l.may):
		return l.name + " may import " + strings.Join(l.may, ", ")
	}
	return ""
}

// TestTheTableCanFail tries imports that must not be.
func TestTheTableCanFail(t *testing.T) {
	for _, c := range []struct {
		pkg, imported string
		bad           bool
	}{
		{"tensor", "quern/model", true},
		{"tensor/quant", "quern/tensor", false},
		{"formats/gguf", "quern/formats/kmcu", true},
		{"formats/gguf", "quern/formats/internal/placed", false},
		{"pipeline", "quern/recipes", true},
		{"pipeline", "quern/formats/gguf", true},
		{"pipeline", "quern/stages/pad", true},
		{"stages/pad", "quern/stages/tie", true},
		{"stages/all", "quern/stages/tie", false},
		{"stages/gates", "quern/stages/emit", false},
		{"stages/pad", "quern/stages/emit", true},
		{"verify", "quern/pipeline", true},
		{"artifacts/local", "quern/tensor", true},
		{"cmd/quern", "quern/internal/testmodel", true},
		{"cmd/quern", "quern/hub/hubtest", true},
		{"cmd/quern", "quern/hub", false},
		{"hub/hubtest", "quern/internal/faulty", false},
		{"pipeline", "net/http", true},
		{"stages/source", "net/http/httptest", true},
		{"hub", "net/http", false},
		{"hub", "net/http/httptest", true},
		{"cmd/quern", "os/exec", true},
		{"artifacts/sink", "os/exec", false},
		{"artifacts/registry", "os/exec", true},
		{"artifacts/registry", "oras.land/oras-go/v2/registry/remote", false},
		{"artifacts/local", "oras.land/oras-go/v2/content/oci", true},
		{"stages/source", "quern/artifacts/registry", true},
		{"artifacts/sink", "quern/artifacts/registry", true},
		{"recipes", "quern/artifacts/registry", true},
		{"cmd/quern", "quern/artifacts/registry", false},
		{"artifacts/local", "os/exec", true},
		{"cmd/quern", "testing", true},
		{"artifacts/local", "github.com/apache/arrow/go/v17/parquet", true},
		{"verify", "github.com/apache/arrow/go/v17/parquet", true},
		{"verify/parquet", "github.com/apache/arrow/go/v17/parquet", false},
	} {
		l := layerOf(c.pkg)
		if l == nil {
			t.Fatalf("no layer for %s", c.pkg)
		}
		if what := forbidden(c.pkg, c.imported, l); (what != "") != c.bad {
			t.Errorf("%s imports %s: %q", c.pkg, c.imported, what)
		}
	}
}

// TestFilesAreWrittenInOnePlace: a final name is given by internal/atomicfile
// or not at all.
func TestFilesAreWrittenInOnePlace(t *testing.T) {
	found := 0
	for _, s := range sources(t) {
		ast.Inspect(s.ast, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if x, ok := sel.X.(*ast.Ident); !ok || x.Name != "os" || !slices.Contains(writing, sel.Sel.Name) {
				return true
			}
			found++
			if !under(s.pkg, writers) && !under(s.pkg, testOnly) {
				t.Errorf("%s: os.%s; files get their names from internal/atomicfile", s.at(sel), sel.Sel.Name)
			}
			return true
		})
	}
	if found == 0 {
		t.Error("nobody writes files: the check looks at the wrong thing")
	}
}

// TestNothingRunsOnImport: no init, so no registry that depends on who is
// linked in.
func TestNothingRunsOnImport(t *testing.T) {
	for _, s := range sources(t) {
		for _, d := range s.ast.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
				t.Errorf("%s: func init; make a table and pass it on", s.at(f))
			}
		}
	}
}
