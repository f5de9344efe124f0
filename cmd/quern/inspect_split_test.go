package main

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"
)

// TestInspectSplit: the first shard of a split shows the whole model, and a
// later one says which is the first.
func TestInspectSplit(t *testing.T) {
	const dir = "../../formats/gguf/testdata/"
	var out, errOut bytes.Buffer
	code := run(context.Background(), []string{"quern", "inspect", dir + "by-count-00001-of-00003.gguf", "--json"}, nil, &out, &errOut)
	if code != exitDone {
		t.Fatalf("exit code %d: %s", code, errOut.String())
	}
	var doc inspection
	if err := json.Unmarshal(out.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	files := map[string]bool{}
	for _, x := range doc.Tensors {
		files[x.File] = true
	}
	if len(files) < 2 || len(doc.Files) != 3 {
		t.Errorf("tensors of %d files, %d files read; the split has 3", len(files), len(doc.Files))
	}
	errOut.Reset()
	code = run(context.Background(), []string{"quern", "inspect", dir + "by-count-00002-of-00003.gguf"}, nil, &out, &errOut)
	if code != exitSource || !bytes.Contains(errOut.Bytes(), []byte("by-count-00001-of-00003.gguf")) {
		t.Errorf("a later shard: exit code %d, %s", code, errOut.String())
	}
}
