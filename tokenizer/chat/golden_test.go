package chat_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"quern/internal/pyjson"
	"quern/tokenizer/chat"
)

// goldens reads what interop/make_chat.py wrote.
func goldens(t *testing.T, path string) *pyjson.Object {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasSuffix(path, ".gz") {
		z, err := gzip.NewReader(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		if b, err = io.ReadAll(z); err != nil {
			t.Fatal(err)
		}
	}
	o, err := pyjson.ParseObject(b)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func object(t *testing.T, o *pyjson.Object, key string) *pyjson.Object {
	t.Helper()
	v, _ := o.Get(key)
	out, ok := v.(*pyjson.Object)
	if !ok {
		t.Fatalf("%q is %s", key, pyjson.Kind(v))
	}
	return out
}

func text(o *pyjson.Object, key string) string {
	v, _ := o.Get(key)
	s, _ := v.(string)
	return s
}

// input is a conversation of the goldens with a vocabulary's special tokens.
func input(given, special *pyjson.Object) chat.Input {
	in := chat.Input{Variables: map[string]any{}, Now: time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)}
	for _, o := range []*pyjson.Object{given, special} {
		for _, k := range o.Keys() {
			switch v, _ := o.Get(k); k {
			case "messages":
				in.Messages, _ = v.([]any)
			case "tools":
				in.Tools, _ = v.([]any)
			case "add_generation_prompt":
				in.Generate, _ = v.(bool)
			default:
				in.Variables[k] = v
			}
		}
	}
	return in
}

// TestTransformers renders every template as transformers did. QUERN_CHAT_GOLDENS
// names one more file of the same kind.
func TestTransformers(t *testing.T) {
	files := []string{"features.json", "published.json.gz"}
	for i := range files {
		files[i] = filepath.Join("..", "..", "testdata", "chat", files[i])
	}
	if more := os.Getenv("QUERN_CHAT_GOLDENS"); more != "" {
		files = append(files, more)
	}
	for _, path := range files {
		doc := goldens(t, path)
		templates, inputs, special := object(t, doc, "templates"), object(t, doc, "inputs"), object(t, doc, "special")
		list, _ := doc.Get("cases")
		cases, _ := list.([]any)
		if len(cases) < 40 {
			t.Fatalf("%s has %d cases", path, len(cases))
		}
		for _, v := range cases {
			c := v.(*pyjson.Object)
			name, which := text(c, "template"), text(c, "input")
			t.Run(name+"/"+which, func(t *testing.T) {
				var got string
				tmpl, err := chat.Parse(text(templates, name))
				if err == nil {
					got, err = tmpl.Render(input(object(t, inputs, which), object(t, special, name)))
				}
				switch {
				case c.Has("refused"):
					if !errors.Is(err, chat.ErrRefused) || !strings.HasSuffix(err.Error(), text(c, "refused")) {
						t.Errorf("%q, %v; want refused with %q", got, err, text(c, "refused"))
					}
				case c.Has("fails"):
					// What is undefined, or of a wrong kind, need not fail here.
					if err != nil && !errors.Is(err, chat.ErrTemplate) {
						t.Error(err)
					}
				case c.Has("syntax"):
					if !errors.Is(err, chat.ErrTemplate) {
						t.Errorf("%q, %v; transformers cannot read it: %s", got, err, text(c, "syntax"))
					}
				case err != nil:
					t.Error(err)
				case got != text(c, "want"):
					t.Errorf("\n%q, transformers gives\n%q", got, text(c, "want"))
				}
			})
		}
	}
}
