package chat_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"quern/internal/pyjson"
	"quern/tokenizer/chat"
)

func render(t *testing.T, source string, in chat.Input) (string, error) {
	t.Helper()
	tmpl, err := chat.Parse(source)
	if err != nil {
		return "", err
	}
	return tmpl.Render(in)
}

func parse(t *testing.T, text string) any {
	t.Helper()
	v, err := pyjson.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestBounds(t *testing.T) {
	calls := func(n string) string {
		return "{% macro f(n) %}{% if n > 0 %}{{ f(n - 1) }}{% endif %}x{% endmacro %}{{ f(" + n + ") }}"
	}
	if out, err := render(t, calls("100"), chat.Input{}); err != nil || out != strings.Repeat("x", 101) {
		t.Errorf("100 calls: %q, %v", out, err)
	}
	for name, source := range map[string]string{
		"macros without end":    calls("100000"),
		"two macros":            "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}",
		"a macro that trims":    "{%- macro a() -%} {{- a() -}} {%- endmacro -%}{{ a() }}",
		"a long range":          "{{ range(1000000000) | length }}",
		"many ranges":           "{% for i in range(1000) %}{% for j in range(1000) %}{% endfor %}{% endfor %}",
		"a step of zero":        "{{ range(1, 2, 0) }}",
		"brackets":              "{{ " + strings.Repeat("(", 500) + "1" + strings.Repeat(")", 500) + " }}",
		"size":                  strings.Repeat("x", 300<<10),
		"another file":          "{% include 'other' %}",
		"not closed":            "a {{ b",
		"a comment, not closed": "a {# b",
		"no end of raw":         "{% raw %}x",
		"an unknown filter":     "{{ 1 | nonesuch }}",
		"an unknown statement":  "{% nonesuch %}",
		"the date, not given":   "{{ strftime_now('%Y') }}",
		"a wrong date":          "{{ strftime_now('%Q') }}",
		"a function as JSON":    "{{ range | tojson }}",
		"too much indent":       "{{ [1] | tojson(indent=1000000) }}",
		"an endless list":       "{% set a = {} %}{% set _ = a.update({'a': a}) %}{{ a | tojson }}",
	} {
		in := chat.Input{Now: time.Date(2026, 1, 31, 0, 0, 0, 0, time.UTC)}
		if name == "the date, not given" {
			in.Now = time.Time{}
		}
		out, err := render(t, source, in)
		if !errors.Is(err, chat.ErrTemplate) {
			t.Errorf("%s: %.60q, %v", name, out, err)
		}
		if err != nil && len(err.Error()) > 1000 {
			t.Errorf("%s: a message of %d bytes", name, len(err.Error()))
		}
	}
}

func TestRefusals(t *testing.T) {
	_, err := render(t, "a{{ raise_exception('Roles must alternate') }}b", chat.Input{})
	if !errors.Is(err, chat.ErrRefused) || !errors.Is(err, chat.ErrTemplate) || !strings.HasSuffix(err.Error(), ": Roles must alternate") {
		t.Error(err)
	}
	_, err = render(t, "x", chat.Input{Messages: []any{parse(t, `{"role": "user"}`), "hello"}})
	if !errors.Is(err, chat.ErrMessages) || !strings.Contains(err.Error(), "message 1 is a string") {
		t.Error(err)
	}
}

// TestOrder: keys stay in the order of the file, in every way to list them.
func TestOrder(t *testing.T) {
	in := chat.Input{Tools: []any{parse(t, `{"z": 1, "a": {"y": 2, "b": 3}, "m": 12345678901234567890}`)}}
	for source, want := range map[string]string{
		"{{ tools[0] | tojson }}":                               `{"z": 1, "a": {"y": 2, "b": 3}, "m": 1.2345678901234567e+19}`,
		"{% for k in tools[0] %}{{ k }}{% endfor %}":            "zam",
		"{% for k, v in tools[0].items() %}{{ k }}{% endfor %}": "zam",
		"{{ tools[0].keys() | list | join('') }}":               "zam",
		"{{ dict(b=1, a=2) | tojson }}":                         `{"a": 2, "b": 1}`,
		"{{ tools[0] }}":                                        "{'z': 1, 'a': {'y': 2, 'b': 3}, 'm': 1.2345678901234567e+19}",
	} {
		for range 4 {
			if got, err := render(t, source, in); err != nil || got != want {
				t.Errorf("%s: %q, %v; want %q", source, got, err, want)
			}
		}
	}
}

// FuzzRender: whatever the template, there is text or an ErrTemplate.
func FuzzRender(f *testing.F) {
	for _, s := range []string{
		"{% for m in messages %}{{ m.role + ': ' + m['content'] | trim }}\n{% endfor %}{%- if add_generation_prompt -%}A:{%- endif -%}",
		"{% set ns = namespace(n=0) %}{% for m in messages if m.role == 'user' %}{% set ns.n = ns.n + 1 %}{% set x = m %}{{ x }}{% else %}{% endfor %}{{ ns.n | tojson }}",
		"{% macro f(a, b='x') %}{{ a ~ b }}{% endmacro %}{{ f(1) }}{% call f(2) %}{% endcall %}", "{% raw %}{{ {% endraw %}{# c #}{%+ if x +%}a{% endif %}", "{{ messages[::-1][0].role[1:] }}",
		"{% generation %}{{ 'a' if x is defined else \"b}}\" }}{% endgeneration %}", "{{ {'a': [1, 2.5, none, true]} | tojson(indent=2) }}", "{%", "{{", "{#", "{", "{% set a %}b{% endset %}{{ a }}",
	} {
		f.Add(s)
	}
	in := chat.Input{Messages: []any{message("user", " hi "), message("assistant", "ho")}, Generate: true}
	f.Fuzz(func(t *testing.T, source string) {
		if strings.Contains(source, "*") || len(source) > 2000 {
			return // texts and numbers that grow without bounds
		}
		if _, err := render(t, source, in); err != nil && !errors.Is(err, chat.ErrTemplate) {
			t.Error(err)
		}
	})
}

func message(role, content string) *pyjson.Object {
	o := &pyjson.Object{}
	o.Set("role", role)
	o.Set("content", content)
	return o
}
