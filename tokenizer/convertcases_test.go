package tokenizer

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
)

// convertCases is testdata/tokenizer/convert.json.gz: folders and the keys that
// convert_hf_to_gguf.py of llama.cpp v0.5.0 writes for them. A file is text,
// JSON, or made from a base file: some top-level fields replaced, or one part.
type convertCases struct {
	Cases []struct {
		Name  string
		Files map[string]json.RawMessage
		KV    [][]any
	}
}

func buildFolder(t testing.TB, files map[string]json.RawMessage) memFiles {
	t.Helper()
	m := memFiles{}
	for name, raw := range files {
		var text string
		if json.Unmarshal(raw, &text) == nil {
			m[name] = text
			continue
		}
		var ref struct {
			Base string                     `json:"$base"`
			Part string                     `json:"$part"`
			Set  map[string]json.RawMessage `json:"$set"`
		}
		if err := json.Unmarshal(raw, &ref); err != nil || ref.Base == "" {
			m[name] = string(raw)
			continue
		}
		data := readTestFile(t, filepath.Join("..", "testdata", "convert", "tokenizers", ref.Base))
		if ref.Part != "" {
			m[name] = tokenizerPart(t, data, ref.Part)
			continue
		}
		if len(ref.Set) > 0 {
			var doc map[string]json.RawMessage
			if err := json.Unmarshal(data, &doc); err != nil {
				t.Fatal(err)
			}
			for key, v := range ref.Set {
				doc[key] = v
			}
			var err error
			if data, err = json.Marshal(doc); err != nil {
				t.Fatal(err)
			}
		}
		m[name] = string(data)
	}
	return m
}

// tokenizerPart makes vocab.json or merges.txt out of a tokenizer.json.
func tokenizerPart(t testing.TB, data []byte, part string) string {
	t.Helper()
	var doc struct {
		Model struct {
			Vocab  json.RawMessage
			Merges [][2]string
		}
	}
	unmarshal(t, data, &doc)
	if part == "vocab" {
		return string(doc.Model.Vocab)
	}
	var b strings.Builder
	b.WriteString("#version: 0.2\n")
	for _, m := range doc.Model.Merges {
		b.WriteString(m[0] + " " + m[1] + "\n")
	}
	return b.String()
}

func TestConvertCases(t *testing.T) {
	var g convertCases
	if err := json.Unmarshal(readTestFile(t, "../testdata/tokenizer/convert.json.gz"), &g); err != nil {
		t.Fatal(err)
	}
	if len(g.Cases) < 25 {
		t.Fatalf("only %d cases", len(g.Cases))
	}
	for _, c := range g.Cases {
		t.Run(c.Name, func(t *testing.T) {
			v, err := buildFolder(t, c.Files).load(t)
			if err != nil {
				t.Fatal(err)
			}
			var want []string
			for _, kv := range c.KV {
				line, err := json.Marshal(kv)
				if err != nil {
					t.Fatal(err)
				}
				want = append(want, string(line))
			}
			compareLines(t, describe(t, v.Keys()), want)
		})
	}
}
