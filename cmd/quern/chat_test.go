package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// chatModel is a small model with a chat template.
func chatModel(t *testing.T, b *bench, template string) string {
	t.Helper()
	dir := b.path("chatty")
	check(t, os.CopyFS(dir, os.DirFS(storiesModel())))
	check(t, os.WriteFile(filepath.Join(dir, "chat_template.jinja"), []byte(template), 0o644))
	return dir
}

const chatTemplate = `{% if not messages %}{{ raise_exception('Nothing was said') }}{% endif %}{{ bos_token }}
{%- for m in messages %}
<{{ m.role }}>{{ m.content | trim }}</{{ m.role }}>
{% endfor %}
{%- if tools %}{{ tools | tojson }}{% endif %}{% if mood is defined %}{{ mood }}{% endif %}{% if strftime_now is defined %}{{ strftime_now('%d %b %Y') }}{% endif %}
{%- if add_generation_prompt %}<assistant>{% endif %}`

func TestChat(t *testing.T) {
	b := newBench(t)
	model := chatModel(t, b, chatTemplate)
	want := "<s><system>Be kind.</system>\n<user>Hello</user>\n<assistant>"
	if got := b.ok("tokenize", model, " Hello ", "--chat", "--system", "Be kind.", "--render").out; got != want {
		t.Errorf("rendered %q, want %q", got, want)
	}
	var ids tokenizeDoc
	b.ok("tokenize", model, "Hello", "--chat", "--system", "Be kind.", "--json").json(t, &ids)
	if ids.Rendered != want || len(ids.Tokens) < 5 || ids.Tokens[0] != 1 || ids.Tokens[1] == 1 {
		t.Errorf("one BOS is wanted: %+v", ids)
	}
	var doc runDoc
	b.ok("run", model, "-p", "Hello", "--chat", "--system", "Be kind.", "-n", "2", "--json").json(t, &doc)
	if doc.Rendered != want || !slices.Equal(doc.Prompt, ids.Tokens) || len(doc.Tokens) != 2 {
		t.Errorf("%+v", doc)
	}
	file := b.path("talk.json")
	check(t, os.WriteFile(file, []byte(`{"messages": [{"role": "user", "content": "Hi"}], "tools": [{"z": 1, "a": 2}], "mood": "merry", "add_generation_prompt": false}`), 0o644))
	if got := b.ok("tokenize", model, "--messages", file, "--date", "2026-02-03", "--render").out; got != `<s><user>Hi</user>`+"\n"+`[{"z": 1, "a": 2}]merry03 Feb 2026` {
		t.Errorf("rendered %q", got)
	}
	list := b.path("list.json")
	check(t, os.WriteFile(list, []byte(`[{"role": "user", "content": "Hi"}]`), 0o644))
	if got := b.ok("tokenize", model, "--messages", list, "--render").out; got != "<s><user>Hi</user>\n<assistant>" {
		t.Errorf("rendered %q", got)
	}
	empty := b.path("empty.json")
	check(t, os.WriteFile(empty, []byte(`{"messages": []}`), 0o644))
	odd := b.path("odd.json")
	check(t, os.WriteFile(odd, []byte(`{"messages": ["Hi"]}`), 0o644))
	for _, c := range []struct {
		code  int
		words []string
		args  []string
	}{
		{exitUsage, []string{"refuses", "Nothing was said"}, []string{"run", model, "--messages", empty}},
		{exitUsage, []string{"message 0", "string"}, []string{"run", model, "--messages", odd}},
		{exitUsage, []string{"no chat template"}, []string{"run", storiesModel(), "-p", "Hi", "--chat"}},
		{exitUsage, []string{"--template x"}, []string{"run", model, "-p", "Hi", "--chat", "--template", "x"}},
		{exitUsage, []string{"--date"}, []string{"run", model, "-p", "Hi", "--chat", "--date", "today"}},
		{exitUsage, []string{"--chat or --messages"}, []string{"run", model, "--chat", "--messages", list}},
		{exitUsage, []string{"--system goes with"}, []string{"run", model, "-p", "Hi", "--system", "x"}},
		{exitUsage, []string{"--render goes with"}, []string{"tokenize", model, "Hi", "--render"}},
		{exitUsage, []string{"not both"}, []string{"run", model, "-p", "Hi", "--messages", list}},
		{exitSource, []string{"nonesuch"}, []string{"run", model, "--messages", b.path("nonesuch")}},
	} {
		b.fails(c.code, c.words, c.args...)
	}
	bad := chatModel(t, newBench(t), "{% if true %}")
	b.fails(exitSource, []string{"chat template"}, "run", bad, "-p", "Hi", "--chat")
	failing := chatModel(t, newBench(t), "{{ 1 | nonesuch }}")
	if err := b.fails(exitUsage, []string{"chat template", "nonesuch"}, "run", failing, "-p", "Hi", "--chat"); strings.Contains(err.err, "panic") {
		t.Error(err.err)
	}
}
