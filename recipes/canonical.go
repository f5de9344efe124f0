package recipes

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
)

// Canonical writes the recipe as JSON that is equal for recipes of equal
// meaning: keys in the table's order, sources sorted by name, defaults and
// positions left out, names of types in one spelling. Targets and local paths are left out
// too, dir, file and gguf sources show only their kind: where a file lies says
// nothing of its content, which the caller adds by digest.
func (r *Recipe) Canonical() []byte {
	lang := theLanguage()
	w := &writer{}
	w.raw(`{"version":`)
	w.value(r.Version)
	w.raw(`,"name":`)
	w.value(r.Name)
	w.raw(`,"sources":{`)
	sources := slices.Clone(r.Sources)
	slices.SortFunc(sources, func(a, b Source) int { return strings.Compare(a.Name, b.Name) })
	for i, s := range sources {
		if i > 0 {
			w.raw(",")
		}
		w.value(s.Name)
		w.raw(":")
		w.source(&s)
	}
	w.raw(`},"steps":[`)
	for i, s := range r.Steps {
		if i > 0 {
			w.raw(",")
		}
		w.raw("{")
		w.value(s.Kind)
		w.raw(":")
		w.object(find(lang.steps, s.Kind), reflect.ValueOf(s.Params), s.ID, true)
		w.raw("}")
	}
	w.raw(`],"outputs":[`)
	for i, o := range r.Outputs {
		if i > 0 {
			w.raw(",")
		}
		w.object(find(lang.outputs, o.Format), reflect.ValueOf(o), "", true)
	}
	w.raw(`],"gates":[`)
	for i, g := range r.Gates {
		if i > 0 {
			w.raw(",")
		}
		w.raw("{")
		w.value(g.Kind)
		w.raw(":")
		w.object(find(lang.gates, g.Kind), reflect.ValueOf(g.Params), "", true)
		w.raw("}")
	}
	w.raw("]}")
	return w.Bytes()
}

// Key is the canonical JSON of the parameters that can change the result, for
// derivation keys: without the id.
func (s Step) Key() string {
	w := &writer{}
	w.object(find(theLanguage().steps, s.Kind), reflect.ValueOf(s.Params), "", false)
	return w.String()
}

// Key is the canonical JSON of what can change the file's bytes: without its
// name.
func (o Output) Key() string {
	w := &writer{}
	w.object(find(theLanguage().outputs, o.Format), reflect.ValueOf(o), "", false)
	return w.String()
}

type writer struct{ bytes.Buffer }

func (w *writer) raw(s string) { w.WriteString(s) }

func (w *writer) value(v any) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		// Strings, integers, finite floats and booleans are all that comes.
		w.raw("null")
		return
	}
	w.Write(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
}

func (w *writer) source(s *Source) {
	w.raw("{")
	w.value(string(s.Kind))
	w.raw(":")
	switch s.Kind {
	case SourceDir, SourceFile, SourceGGUF:
		w.value("")
	default:
		w.value(s.Value)
	}
	if s.Path != "" {
		w.raw(`,"path":`)
		w.value(s.Path)
	}
	if s.SHA256 != "" {
		w.raw(`,"sha256":`)
		w.value(s.SHA256)
	}
	w.raw("}")
}

// object writes the fields that differ from their defaults. A nil obj stands
// for a kind that the table does not have and gives no fields.
func (w *writer) object(obj *object, v reflect.Value, id string, free bool) {
	w.raw("{")
	sep := ""
	if free && id != "" {
		w.raw(`"id":`)
		w.value(id)
		sep = ","
	}
	if obj != nil {
		for i := range obj.fields {
			f := &obj.fields[i]
			if f.goName == "" || f.free && !free || f.here {
				continue
			}
			x := v.FieldByName(f.goName)
			if x.IsZero() || f.isDefault(x) {
				continue
			}
			w.raw(sep)
			sep = ","
			w.value(f.key)
			w.raw(":")
			w.field(f, x, free)
		}
	}
	w.raw("}")
}

func (w *writer) field(f *field, x reflect.Value, free bool) {
	switch {
	case f.list:
		one := *f
		one.list = false
		w.raw("[")
		for i := range x.Len() {
			if i > 0 {
				w.raw(",")
			}
			w.field(&one, x.Index(i), free)
		}
		w.raw("]")
	case f.kind == kindObject:
		w.object(f.object, x, "", free)
	case x.Kind() == reflect.Pointer:
		w.value(x.Elem().Interface())
	default:
		w.value(x.Interface())
	}
}

func (f *field) isDefault(x reflect.Value) bool {
	return x.Kind() == reflect.String && f.def != "" && x.String() == f.def
}
