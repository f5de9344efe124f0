package convert

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"quern/formats/gguf"
	"quern/internal/pyjson"
	"quern/internal/testmodel"
	"quern/model"
	"quern/model/modeltest"
)

// TestMetadataCases holds the general keys of many folder names, model cards and
// sampling settings against what gguf-py makes of them.
func TestMetadataCases(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(testmodel.Root(), "convert", "metadata", "cases.json"))
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Folder    string
		Files     map[string]json.RawMessage
		Params    [4]int64
		Override  json.RawMessage
		ModelName *string `json:"model_name"`
		Keys      [][3]any
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	if err := dec.Decode(&cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) < 100 {
		t.Fatalf("only %d cases", len(cases))
	}
	for i, c := range cases {
		t.Run(fmt.Sprintf("%d %s", i, c.Folder), func(t *testing.T) {
			files := map[string][]byte{"config.json": []byte(`{}`)}
			for name, raw := range c.Files {
				var s string
				if json.Unmarshal(raw, &s) == nil {
					files[name] = []byte(s)
				} else {
					files[name] = raw
				}
			}
			cfg, err := model.ParseConfig("config.json", files["config.json"])
			if err != nil {
				t.Fatal(err)
			}
			m := &model.Model{Form: model.HF, Name: c.Folder, Config: cfg, Files: modeltest.New(c.Folder, files)}
			opt := Options{}
			if c.Override != nil {
				if opt.Metadata, err = pyjson.ParseObject(c.Override); err != nil {
					t.Fatal(err)
				}
			}
			if c.ModelName != nil {
				opt.ModelName = *c.ModelName
			}
			g, _, err := loadGeneral(t.Context(), m, opt, c.Params[0])
			if err != nil {
				t.Fatal(err)
			}
			if g.sizeLabel == nil && c.Params[0] > 0 {
				g.sizeLabel = sizeLabelOf(c.Params[0], c.Params[1], c.Params[2], c.Params[3])
			}
			w := kvWriter{meta: gguf.NewMetadata()}
			w.meta.Set("general.architecture", gguf.Scalar("llama"))
			w.meta.Set("general.type", gguf.Scalar("model"))
			g.write(&w)
			if w.err != nil {
				t.Fatal(w.err)
			}
			for k := range max(len(c.Keys), w.meta.Len()) {
				if k >= w.meta.Len() {
					t.Fatalf("missing: %v", c.Keys[k:])
				}
				if k >= len(c.Keys) {
					t.Fatalf("too much: %v", w.meta.At(k))
				}
				if err := sameKey(c.Keys[k], w.meta.At(k)); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// sameKey compares with a key of the cases, where arrays are written out.
func sameKey(want [3]any, kv gguf.KV) error {
	list, ok := want[2].([]any)
	if !ok {
		return sameValue(want, kv)
	}
	if got := fmt.Sprint(kv.Key, kv.Value.Any()); got != fmt.Sprint(want[0], list) {
		return fmt.Errorf("%s, want %v %v", got, want[0], list)
	}
	return nil
}
