package recipes

import (
	"fmt"
	"io"
	"strings"
)

const referenceIntro = `# Recipes

<!-- Printed from the schema in recipes/. Do not edit: go test ./recipes -update -->

A recipe says where weights come from, what is done to them, which files are
written and what must hold of them. It is one YAML document. Unknown keys,
unused sources, wrong units and values out of range are errors, all of them
reported at once with file, line and column. A JSON Schema for editors is in
[recipe.schema.json](recipe.schema.json).

    version: 1
    name: stories-q8
    sources:
      base: {dir: ../models/stories}
    steps:
      - quantize: {preset: Q8_0}
    outputs:
      - {format: gguf, file: stories-q8_0.gguf}
    gates:
      - {tensors: {min-snr-db: 30}}
`

const referenceValues = `
## Values

- **Names** start with a lower-case letter or digit and go on with those, ` + "`.`, `_` and `-`" + `, at most 100 of them.
- **Sizes** are whole numbers of bytes, or numbers with a unit: ` + "`B`, `KB`, `MB`, `GB`, `TB`" + ` are powers of 1000,
  ` + "`KiB`, `MiB`, `GiB`, `TiB`" + ` powers of 1024. Letter case counts. They must come to whole bytes: ` + "`1.5MiB`" + ` does.
- **Whole numbers** are plain decimal digits.
- **Shares** are percentages, ` + "`5 %`" + `, or numbers under 1, ` + "`0.05`" + `. A plain ` + "`1`" + ` is an error: it could mean either.
- **Text** that looks like a number or a boolean is put in quotes.
- **Regular expressions** are RE2 (Go), searched, not anchored. They have no look-around and no back-references.
- **Paths** of sources are relative to the recipe's folder, with ` + "`/`" + ` between parts. Absolute ones work on one machine only.
- **Output files** are relative to the output folder and stay inside it. Names that some system cannot hold are errors:
  backslashes, drive letters, ` + "`<>:\"|?*`" + `, device names such as ` + "`con`" + `, a dot or space at the end. Two outputs must
  differ by more than letter case.
- **YAML**: anchors and aliases work, up to 100000 values in all; merge keys (` + "`<<`" + `), tags of other types and second
  documents are errors. The text is UTF-8, at most 1 MiB.

## Overrides

` + "`--set key=value`" + ` changes a value before the recipe is checked. The key is a path: ` + "`sources.base.dir`" + `,
` + "`steps.0.quantize.type`" + `, ` + "`steps.quantize.type`" + ` when there is one quantize step, ` + "`steps.ID.type`" + ` for the step with
that id. Keys that are not there are added. A key that excludes others replaces them: setting ` + "`sources.base.dir`" + ` drops
` + "`sources.base.hf`" + `. The value is a plain YAML scalar, a quoted one, or a flow collection such as ` + "`{hf: org/name}`" + `.
`

// WriteReference prints the reference of the language as Markdown.
func WriteReference(w io.Writer) error {
	p := &printer{w: w}
	lang := theLanguage()
	p.printf("%s", referenceIntro)
	p.printf("\n## The recipe\n\n")
	p.fields(lang.root)
	p.printf("\n## Sources\n\n%s\n\n", lang.source.doc)
	p.fields(lang.source)
	p.groups(lang.source)
	p.printf("\n## Steps\n")
	p.objects(lang.steps)
	p.printf("\n## Outputs\n")
	p.objects(lang.outputs)
	p.printf("\n## Gates\n")
	p.objects(lang.gates)
	p.printf("\n## Presets\n\n")
	for _, x := range presets() {
		p.printf("- `%s`: %s\n", x.name, x.doc)
	}
	p.printf("\n## Types\n\nLetter case does not count.\n\n%s\n", code(typeNames()))
	p.printf("%s", referenceValues)
	return p.err
}

type printer struct {
	w   io.Writer
	err error
}

func (p *printer) printf(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, args...)
	}
}

func (p *printer) objects(list []*object) {
	for _, o := range list {
		p.printf("\n### %s\n\n%s\n\n    - %s\n\n", o.name, o.doc, o.example)
		p.fields(o)
		p.groups(o)
		p.choices(o)
		for i := range o.fields {
			if in := o.fields[i].object; in != nil {
				p.printf("\n#### %s: items\n\n%s\n\n    - %s\n\n", o.fields[i].key, in.doc, in.example)
				p.fields(in)
				p.groups(in)
				p.choices(in)
			}
		}
	}
}

func (p *printer) fields(o *object) {
	p.printf("| Key | Value | Default | Meaning | Example |\n|---|---|---|---|---|\n")
	for i := range o.fields {
		f := &o.fields[i]
		p.printf("| `%s` | %s | %s | %s | `%s` |\n", f.key, f.valueDoc(), f.defaultDoc(), cell(f.doc), cell(f.example))
	}
}

// cell keeps text inside its table cell.
func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }

func (f *field) valueDoc() string {
	s := ""
	switch f.kind {
	case kindChoice:
		if len(f.choices) > 6 {
			s = "a word, see below"
		} else {
			var w []string
			for _, c := range f.choices {
				w = append(w, "`"+c.name+"`")
			}
			s = strings.Join(w, ", ")
		}
	case kindSize:
		s = "size"
	case kindPreset:
		s = "preset, see below"
	case kindType:
		s = "type, see below"
		for i := range f.choices {
			s = "`" + f.choices[len(f.choices)-1-i].name + "`, " + s
		}
	case kindPart:
		s = map[string]string{"sources": "mapping of names to sources", "steps": "list of steps", "outputs": "list of outputs", "gates": "list of gates"}[f.key]
	case kindObject:
		s = "items, see below"
	case kindSource:
		s = "the name of a source"
		for i := range f.choices {
			s = "`" + f.choices[len(f.choices)-1-i].name + "`, " + s
		}
	default:
		s = f.kindWords()
	}
	if f.unit != "" {
		s += " (" + f.unit + ")"
	}
	if f.limited {
		switch {
		case f.min == f.max:
			s += fmt.Sprintf(", %d", f.min)
		case f.kind == kindShare && f.max > 1:
		case f.kind == kindShare:
			s += fmt.Sprintf(", %d to %d %%", 100*f.min, 100*f.max)
		case f.kind == kindNumber:
			s += fmt.Sprintf(", at least %d", f.min)
		default:
			s += fmt.Sprintf(", %d to %d", f.min, f.max)
		}
	}
	if f.list && f.one {
		s += ", or a list of such"
	} else if f.list {
		s = "list of " + s
	}
	return cell(s)
}

func (f *field) defaultDoc() string {
	switch {
	case f.required:
		return "required"
	case f.def != "":
		return "`" + f.def + "`"
	case f.noDef != "":
		return f.noDef
	}
	return ""
}

func (p *printer) groups(o *object) {
	for _, g := range o.oneOf {
		p.printf("\nExactly one of %s.\n", code(g))
	}
	for _, g := range o.anyOf {
		p.printf("\nAt least one of %s.\n", code(g))
	}
}

func (p *printer) choices(o *object) {
	for i := range o.fields {
		f := &o.fields[i]
		if f.choices == nil || f.key == "format" {
			continue
		}
		p.printf("\nValues of `%s`:\n\n", f.key)
		var plain []string
		for _, c := range f.choices {
			if c.doc == "" {
				plain = append(plain, c.name)
				continue
			}
			p.printf("- `%s`: %s\n", c.name, c.doc)
		}
		if plain != nil {
			p.printf("- %s\n", code(plain))
		}
	}
}

func code(words []string) string { return "`" + strings.Join(words, "`, `") + "`" }
