package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"quern/internal/testmodel"
)

// TestInspectFP8: a checkpoint in 8-bit floats is shown as its files have it,
// scales included; the weights are counted without them.
func TestInspectFP8(t *testing.T) {
	files, err := testmodel.Build("tiny-llama-fp8")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, b := range files {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var out, errOut bytes.Buffer
	if code := run(context.Background(), []string{"quern", "inspect", dir, "--json"}, nil, &out, &errOut); code != exitDone {
		t.Fatalf("exit code %d: %s", code, errOut.String())
	}
	var doc inspection
	if err := json.Unmarshal(out.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	types := map[string]string{}
	for _, x := range doc.Tensors {
		types[x.Name] = x.Type
	}
	const up = "model.layers.1.mlp.up_proj.weight"
	if types[up] != "F8_E4M3" || types[up+"_scale_inv"] != "BF16" || types["model.embed_tokens.weight"] != "BF16" {
		t.Errorf("%s is %s, its scale %s", up, types[up], types[up+"_scale_inv"])
	}
	// 512x72 twice, two layers of 2*(64+32)*72 + 3*100*72 and two norms of 72,
	// the last norm.
	want := 2*512*72 + 2*(2*(64+32)*72+3*100*72+2*72) + 72
	for _, f := range doc.Details {
		if f.Key == "weights" && f.Value != float64(want) {
			t.Errorf("%v weights, want %d", f.Value, want)
		}
	}
}
