package tokenizer

import (
	"fmt"
	"path"
	"sort"
	"strings"
)

// templateFiles are the chat templates that lie in files of their own.
type templateFiles struct {
	jinja *string         // chat_template.jinja
	more  []namedTemplate // additional_chat_templates/*.jinja, by name
	json  any             // "chat_template" of chat_template.json
	hasJS bool            // chat_template.json exists
}

func (t templateFiles) any() bool { return t.jinja != nil || t.hasJS }

type namedTemplate struct{ name, text string }

// chatTemplate is what is written: one text, or several by name.
type chatTemplate struct {
	one   string
	named []namedTemplate // nil when there is just one
	multi bool
}

// pickTemplate follows the converter: "chat_template" of tokenizer_config.json,
// even when null, beats chat_template.jinja, which beats chat_template.json.
// Losers that differ from the winner are named in warnings.
func pickTemplate(cfg *jsonObject, f templateFiles, warn func(string, ...any)) chatTemplate {
	type source struct {
		name string
		t    any
	}
	var found []source
	if cfg.has("chat_template") {
		found = append(found, source{"tokenizer_config.json", cfg.get("chat_template")})
	}
	if f.jinja != nil {
		var t any = *f.jinja
		if len(f.more) > 0 {
			list := []any{object("name", "default", "template", *f.jinja)}
			for _, m := range f.more {
				list = append(list, object("name", m.name, "template", m.text))
			}
			t = list
		}
		found = append(found, source{"chat_template.jinja", t})
	}
	if f.hasJS {
		found = append(found, source{"chat_template.json", f.json})
	}
	if len(found) == 0 {
		return chatTemplate{}
	}
	win := found[0]
	for _, lose := range found[1:] {
		if !sameJSON(win.t, lose.t) {
			warn("chat template of %s is used; that of %s differs and is ignored", win.name, lose.name)
		}
	}
	switch t := win.t.(type) {
	case nil:
	case string:
		return chatTemplate{one: t}
	case []any:
		return namedTemplates(t, win.name, warn)
	default:
		warn("chat_template of %s is neither text nor a list and is ignored", win.name)
	}
	return chatTemplate{}
}

// namedTemplates reads a list of {name, template}. Letters and digits of a name
// stay, everything else becomes "_", since the name goes into a key.
func namedTemplates(list []any, file string, warn func(string, ...any)) chatTemplate {
	c := chatTemplate{multi: true}
	for i, e := range list {
		o, _ := e.(*jsonObject)
		raw, _ := o.str("name")
		text, ok := o.str("template")
		name := strings.Map(func(r rune) rune {
			if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
				return r
			}
			return '_'
		}, raw)
		if name == "" || !ok {
			warn("chat template %d of %s has no name or no text and is ignored", i, file)
			continue
		}
		c.named = append(c.named, namedTemplate{name, text})
	}
	return c
}

// write puts the templates into the key list: the named ones, their names, the
// default. The converter takes the names from a set in random order; here they
// are sorted.
func (c chatTemplate) write(k *keyList) {
	if !c.multi {
		k.set(keyChatTemplate, c.one)
		return
	}
	seen := map[string]bool{}
	names := []string{}
	text := ""
	for _, t := range c.named {
		if t.name == "default" {
			text = t.text
			continue
		}
		k.set(keyTemplateN+t.name, t.text)
		if !seen[t.name] {
			seen[t.name] = true
			names = append(names, t.name)
		}
	}
	sort.Strings(names)
	k.set(keyChatTemplates, names)
	k.set(keyChatTemplate, text)
}

// additionalTemplates picks the paths of more templates out of a listing.
func additionalTemplates(paths []string) []string {
	var out []string
	for _, p := range paths {
		if path.Dir(p) == "additional_chat_templates" && path.Ext(p) == ".jinja" {
			out = append(out, p)
		}
	}
	sort.Strings(out)
	return out
}

// sameJSON compares two JSON values as text.
func sameJSON(a, b any) bool { return jsonText(a) == jsonText(b) }

func jsonText(v any) string {
	switch v := v.(type) {
	case *jsonObject:
		var b strings.Builder
		keys := append([]string(nil), v.keys...)
		sort.Strings(keys)
		for _, k := range keys {
			fmt.Fprintf(&b, "%q:%s,", k, jsonText(v.vals[k]))
		}
		return "{" + b.String() + "}"
	case []any:
		var b strings.Builder
		for _, e := range v {
			b.WriteString(jsonText(e) + ",")
		}
		return "[" + b.String() + "]"
	case string:
		return fmt.Sprintf("%q", v)
	}
	return fmt.Sprint(v)
}
