package recipes

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"
)

// eachObject calls f for every object of the table.
func eachObject(lang *language, f func(*object)) {
	var walk func(*object)
	walk = func(o *object) {
		f(o)
		for i := range o.fields {
			if in := o.fields[i].object; in != nil {
				walk(in)
			}
		}
	}
	walk(lang.root)
	walk(lang.source)
	for _, l := range [][]*object{lang.steps, lang.outputs, lang.gates} {
		for _, o := range l {
			walk(o)
		}
	}
}

// TestTable ties the rows to the structs: each row's field is there, each
// field of a struct has a row, and what a row says of itself holds.
func TestTable(t *testing.T) {
	lang := newLanguage()
	eachObject(lang, func(o *object) {
		s := reflect.ValueOf(o.new()).Elem()
		seen := map[string]bool{}
		for i := range o.fields {
			f := &o.fields[i]
			where := s.Type().Name() + "." + f.key
			if f.doc == "" || f.example == "" {
				t.Errorf("%s: no doc or example", where)
			}
			if !strings.HasSuffix(f.doc, ".") {
				t.Errorf("%s: the doc is no sentence: %s", where, f.doc)
			}
			exclusive := slices.ContainsFunc(o.oneOf, func(g []string) bool { return slices.Contains(g, f.key) })
			if n := btoi(f.required) + btoi(f.def != "") + btoi(f.noDef != ""); n > 1 || n == 0 && !exclusive {
				t.Errorf("%s: %d of required, def and noDef are set", where, n)
			}
			if seen[f.key] {
				t.Errorf("%s: twice", where)
			}
			seen[f.key] = true
			if f.kind == kindPart || f.key == "id" {
				continue
			}
			dst := s.FieldByName(f.goName)
			if !dst.IsValid() {
				t.Errorf("%s: the struct has no field %s", where, f.goName)
				continue
			}
			c := &checker{lang: lang, step: -1}
			if f.def != "" {
				c.value(f.defaultNode(), "", f, dst)
			}
			// The example must pass its own row, as text of a recipe.
			conv := c.parseYAML("example", []byte(f.example))
			if conv != nil {
				c.value(conv, "", f, dst)
			}
			for _, e := range c.errs {
				t.Errorf("%s: default or example: %v", where, e)
			}
		}
		for i := range s.NumField() {
			sf := s.Type().Field(i)
			if sf.Type == posType || s.Type() == reflect.TypeFor[Recipe]() {
				continue
			}
			owners := []*object{o}
			if s.Type() == reflect.TypeFor[Output]() {
				owners = lang.outputs
			}
			if !slices.ContainsFunc(owners, func(o *object) bool {
				return slices.ContainsFunc(o.fields, func(f field) bool { return f.goName == sf.Name })
			}) {
				t.Errorf("%s.%s has no row in the table", s.Type().Name(), sf.Name)
			}
		}
	})
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// TestExamples parses the example of every step, output and gate.
func TestExamples(t *testing.T) {
	lang := newLanguage()
	head := "version: 1\nname: x\nsources: {base: {dir: m}}\n"
	out := "outputs: [{format: gguf, file: x.gguf}]\n"
	named := strings.Replace(head, "}}", "}, calibration: {file: t}}", 1)
	for _, o := range lang.steps {
		head := head
		if strings.Contains(o.example, "calibration") {
			head = named
		}
		if strings.Contains(o.example, "corpus: [text]") {
			head = strings.Replace(named, "calibration", "text", 1)
		}
		if strings.Contains(o.example, "base: fine") {
			head = strings.Replace(named, "base: {dir: m}, calibration", "fine: {gguf: a}, small", 1)
		}
		if strings.Contains(o.example, "from: repo") {
			head = strings.Replace(named, "calibration: {file: t}", "repo: {hf: a/b}", 1)
		}
		if strings.Contains(o.example, "tuned") {
			head = strings.Replace(named, "calibration", "tuned", 1)
		}
		if _, err := Parse("x", []byte(head+out+"steps:\n- "+o.example), Options{}); err != nil {
			t.Error(err)
		}
	}
	for _, o := range lang.gates {
		head := head
		if strings.Contains(o.example, "text: eval") {
			head = strings.Replace(head, "}}", "}, eval: {file: t}}", 1)
		}
		if _, err := Parse("x", []byte(head+out+"gates:\n- "+o.example), Options{}); err != nil {
			t.Error(err)
		}
	}
	for _, o := range lang.outputs {
		if _, err := Parse("x", []byte(head+"outputs:\n- "+o.example), Options{}); err != nil {
			t.Error(err)
		}
	}
	// The one in the reference's first lines.
	_, rest, ok := strings.Cut(referenceIntro, "\n    version")
	if !ok {
		t.Fatal("no example in the reference")
	}
	if _, err := Parse("x", []byte("    version"+rest), Options{}); err != nil {
		t.Error(err)
	}
}

// TestDocs keeps docs/ equal to the table.
func TestDocs(t *testing.T) {
	for _, x := range []struct {
		file  string
		print func(*bytes.Buffer) error
	}{
		{"../docs/recipes.md", func(b *bytes.Buffer) error { return WriteReference(b) }},
		{"../docs/recipe.schema.json", func(b *bytes.Buffer) error { return WriteJSONSchema(b) }},
	} {
		var b bytes.Buffer
		if err := x.print(&b); err != nil {
			t.Fatal(err)
		}
		if *update {
			if err := os.WriteFile(x.file, b.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		have, err := os.ReadFile(x.file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(have, b.Bytes()) {
			t.Errorf("%s is stale; run go test ./recipes -update", x.file)
		}
	}
}

func compileSchema(t testing.TB) *jsonschema.Schema {
	t.Helper()
	var b bytes.Buffer
	if err := WriteJSONSchema(&b); err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(&b)
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	if err := c.AddResource("recipe.schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("recipe.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// plain turns YAML into what a JSON Schema validator takes. Dates are text in
// recipes and in JSON.
func plain(t *testing.T, text []byte) any {
	t.Helper()
	c := &checker{lang: theLanguage()}
	n := c.parseYAML("x", text)
	if n == nil || len(c.errs) > 0 {
		return nil
	}
	return plainNode(n)
}

func plainNode(n *node) any {
	switch n.kind {
	case mapping:
		m := map[string]any{}
		for _, x := range n.members {
			m[x.key] = plainNode(x.val)
		}
		return m
	case list:
		l := []any{}
		for _, x := range n.items {
			l = append(l, plainNode(x))
		}
		return l
	}
	switch n.tag {
	case "!!null":
		return nil
	case "!!bool":
		return strings.EqualFold(n.text, "true")
	case "!!int", "!!float":
		text := n.text
		if strings.HasPrefix(text, ".") {
			text = "0" + text
		}
		if json.Valid([]byte(text)) {
			return json.Number(text)
		}
		if v, err := strconv.ParseInt(text, 0, 64); err == nil {
			return v // 0x20 and the like are numbers to an editor
		}
	}
	return n.text
}

// TestJSONSchemaAccepts checks that the schema takes every golden that the
// parser takes.
func TestJSONSchemaAccepts(t *testing.T) {
	s := compileSchema(t)
	n := 0
	for _, file := range goldens(t) {
		if strings.Contains(file, "/err-") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if setLines(text) != nil {
			continue // valid with the overrides only
		}
		n++
		if err := s.Validate(plain(t, text)); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
	if n < 15 {
		t.Errorf("only %d recipes", n)
	}
}

// TestJSONSchemaRefuses checks that the schema refuses what needs no view of
// the whole recipe.
func TestJSONSchemaRefuses(t *testing.T) {
	s := compileSchema(t)
	for _, stem := range []string{"version", "version-text", "missing-keys", "unknown-keys", "unknown-far", "source-kinds", "source-values",
		"no-sources", "sources-list", "steps-shape", "steps-mapping", "quantize", "rules", "pad-tie", "sizes", "kmcu", "output-files",
		"no-outputs", "outputs-null", "gates", "names", "list", "scalar"} {
		text, err := os.ReadFile("testdata/err-" + stem + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		v := plain(t, text)
		if v == nil {
			t.Errorf("%s: no tree", stem)
			continue
		}
		if s.Validate(v) == nil {
			t.Errorf("the schema accepts err-%s.yaml", stem)
		}
	}
}

// TestUnknownKeyEverywhere puts an unknown key into every mapping of a recipe
// that has all of them; parser and schema must both refuse each.
func TestUnknownKeyEverywhere(t *testing.T) {
	s := compileSchema(t)
	text, err := os.ReadFile("testdata/everything.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	var maps []*yaml.Node
	var walk func(*yaml.Node)
	walk = func(n *yaml.Node) {
		if n.Kind == yaml.MappingNode {
			maps = append(maps, n)
		}
		for _, x := range n.Content {
			walk(x)
		}
	}
	walk(&doc)
	if len(maps) < 15 {
		t.Fatalf("%d mappings", len(maps))
	}
	for _, m := range maps {
		was := m.Content
		m.Content = append(slices.Clone(was), &yaml.Node{Kind: yaml.ScalarNode, Value: "zzz"}, &yaml.Node{Kind: yaml.ScalarNode, Value: "1"})
		bad, err := yaml.Marshal(&doc)
		m.Content = was
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Parse("x", bad, Options{}); err == nil || !strings.Contains(err.Error(), "zzz") {
			t.Errorf("parser: %v in\n%s", err, bad)
		}
		if s.Validate(plain(t, bad)) == nil {
			t.Errorf("the schema accepts\n%s", bad)
		}
	}
}
