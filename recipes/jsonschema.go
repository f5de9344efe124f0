package recipes

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// props keeps the table's order of keys in the printed schema.
type props []prop

type prop struct {
	key string
	val any
}

// MarshalJSON writes the properties in order.
func (p props) MarshalJSON() ([]byte, error) {
	var b strings.Builder
	b.WriteByte('{')
	for i, x := range p {
		if i > 0 {
			b.WriteByte(',')
		}
		k, err := json.Marshal(x.key)
		if err != nil {
			return nil, err
		}
		v, err := json.Marshal(x.val)
		if err != nil {
			return nil, err
		}
		b.Write(k)
		b.WriteByte(':')
		b.Write(v)
	}
	b.WriteByte('}')
	return []byte(b.String()), nil
}

// WriteJSONSchema prints the language as a JSON Schema (draft 2020-12) for
// editors. It accepts every recipe that the parser accepts and refuses unknown
// keys and wrong types; what needs the whole recipe (unused sources, equal
// outputs, regular expressions) is the parser's.
func WriteJSONSchema(w io.Writer) error {
	lang := theLanguage()
	root := lang.root.schema(func(f *field) any {
		switch f.key {
		case "sources":
			return props{
				{"type", "object"}, {"minProperties", 1},
				{"propertyNames", props{{"pattern", namePattern.String()}, {"maxLength", maxName}}},
				{"additionalProperties", props{{"$ref", "#/$defs/source"}}},
			}
		case "steps", "gates":
			return props{{"type", []string{"array", "null"}}, {"items", props{{"$ref", "#/$defs/" + strings.TrimSuffix(f.key, "s")}}}}
		case "outputs":
			return props{{"type", "array"}, {"minItems", 1}, {"items", props{{"$ref", "#/$defs/output"}}}}
		}
		return nil
	})
	root = append(props{
		{"$schema", "https://json-schema.org/draft/2020-12/schema"},
		{"$comment", "Printed from the schema in recipes/: go test ./recipes -update"},
		{"title", "quern recipe"},
	}, root...)
	var outputs []any
	for _, o := range lang.outputs {
		s := o.schema(nil)
		outputs = append(outputs, s)
	}
	root = append(root, prop{"$defs", props{
		{"source", lang.source.schema(nil)},
		{"step", single(lang.steps)},
		{"gate", single(lang.gates)},
		{"output", props{{"oneOf", outputs}}},
	}})
	b, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s\n", b)
	return err
}

// single is a mapping with one of the objects' names as its only key.
func single(list []*object) props {
	var ps props
	for _, o := range list {
		val := o.schema(nil)
		if o.short != "" {
			val = props{{"anyOf", []any{o.field(o.short).schema(o.name), val}}}
		}
		if !o.needsKeys() {
			val = props{{"anyOf", []any{props{{"type", "null"}}, val}}}
		}
		ps = append(ps, prop{o.name, val})
	}
	return props{{"type", "object"}, {"minProperties", 1}, {"maxProperties", 1}, {"additionalProperties", false}, {"properties", ps}}
}

// needsKeys reports whether an empty mapping is an error.
func (o *object) needsKeys() bool {
	for i := range o.fields {
		if o.fields[i].required {
			return true
		}
	}
	return len(o.oneOf)+len(o.anyOf) > 0
}

// schema describes a mapping. part gives the schema of fields with a decoder
// of their own.
func (o *object) schema(part func(*field) any) props {
	var ps props
	var required []string
	for i := range o.fields {
		f := &o.fields[i]
		var s any
		if f.kind == kindPart {
			s = append(part(f).(props), prop{"description", f.doc})
		} else {
			s = f.schema(o.name)
		}
		ps = append(ps, prop{f.key, s})
		if f.required {
			required = append(required, f.key)
		}
	}
	out := props{}
	if o.doc != "" {
		out = append(out, prop{"description", o.doc})
	}
	out = append(out, prop{"type", "object"}, prop{"additionalProperties", false}, prop{"properties", ps})
	if required != nil {
		out = append(out, prop{"required", required})
	}
	var all []any
	for _, g := range o.oneOf {
		all = append(all, props{{"oneOf", needs(g)}})
	}
	for _, g := range o.anyOf {
		all = append(all, props{{"anyOf", needs(g)}})
	}
	if all != nil {
		out = append(out, prop{"allOf", all})
	}
	return out
}

func needs(group []string) []any {
	var out []any
	for _, k := range group {
		out = append(out, props{{"required", []string{k}}})
	}
	return out
}

// schema describes one value. owner is the object's name, which is the only
// value of an output's format.
func (f *field) schema(owner string) props {
	s := f.scalarSchema(owner)
	if f.list {
		all := props{{"type", "array"}, {"items", s}}
		if f.one {
			all = props{{"anyOf", []any{s, all}}}
		}
		s = all
	}
	doc := f.doc
	if f.def == "" && f.noDef != "" {
		doc += " Default: " + f.noDef + "."
	}
	s = append(props{{"description", doc}}, s...)
	if f.def != "" {
		if f.kind == kindBool {
			s = append(s, prop{"default", f.def == "true"})
		} else {
			s = append(s, prop{"default", f.def})
		}
	}
	return s
}

func (f *field) scalarSchema(owner string) props {
	text := func(pattern string) props { return props{{"type", "string"}, {"pattern", pattern}} }
	limits := func(s props) props {
		if f.limited {
			s = append(s, prop{"minimum", f.min}, prop{"maximum", f.max})
		}
		return s
	}
	switch f.kind {
	case kindName, kindSource, kindResult:
		return append(text(namePattern.String()), prop{"maxLength", maxName})
	case kindInt:
		return limits(props{{"type", "integer"}})
	case kindNumber:
		return limits(props{{"type", "number"}})
	case kindShare:
		return props{{"anyOf", []any{
			props{{"type", "number"}, {"minimum", 0}, {"exclusiveMaximum", 1}},
			text(sharePattern.String()),
		}}}
	case kindBool:
		return props{{"type", "boolean"}}
	case kindSize:
		var units []string
		for _, u := range sizeUnits {
			units = append(units, u.name)
		}
		return props{{"oneOf", []any{
			limits(props{{"type", "integer"}}),
			text(`^[0-9]{1,19}(\.[0-9]{1,18})? ?(` + strings.Join(units, "|") + `)$`),
		}}}
	case kindChoice:
		if f.key == "format" {
			return props{{"const", owner}}
		}
		var words []string
		for _, c := range f.choices {
			words = append(words, c.name)
		}
		return props{{"enum", words}}
	case kindType:
		s := anyCase(typeNames())
		if f.choices != nil {
			s = props{{"anyOf", []any{props{{"enum", strings.Split(words(f.choices), ", ")}}, s}}}
		}
		return s
	case kindPreset:
		return anyCase(Presets())
	case kindRegexp:
		return props{{"type", "string"}, {"minLength", 1}}
	case kindOutputFile:
		return text(`^[^/\\<>:"|?*][^\\<>:"|?*]*$`)
	case kindRepoFile:
		return text(`^[^/\\][^\\]*$`)
	case kindURL:
		return text(`^https?://`)
	case kindHF:
		return text(`^[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)?(@[^@]+)?$`)
	case kindArtifact:
		return text(artifactPattern.String())
	case kindSHA256:
		return text(`^[0-9a-f]{64}$`)
	case kindObject:
		s := f.object.schema(nil)
		if f.object.short != "" {
			s = props{{"anyOf", []any{f.object.field(f.object.short).schema(f.object.name), s}}}
		}
		return s
	}
	return props{{"type", "string"}, {"minLength", 1}}
}

// anyCase completes names in their usual spelling and accepts any letter case.
func anyCase(names []string) props {
	alts := make([]string, len(names))
	for i, n := range names {
		var b strings.Builder
		for _, r := range n {
			up, low := strings.ToUpper(string(r)), strings.ToLower(string(r))
			if up == low {
				b.WriteString(up)
			} else {
				b.WriteString("[" + up + low + "]")
			}
		}
		alts[i] = b.String()
	}
	return props{{"anyOf", []any{
		props{{"enum", names}},
		props{{"type", "string"}, {"pattern", "^(" + strings.Join(alts, "|") + ")$"}},
	}}}
}
