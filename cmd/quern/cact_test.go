package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"quern/internal/testmodel"
)

// archive copies a file of the .cact goldens into the bench's folder.
func (b *bench) archive(name string) string {
	b.t.Helper()
	text, err := os.ReadFile(filepath.Join(testmodel.Root(), "cact", name))
	if err != nil {
		b.t.Fatal(err)
	}
	file := b.path(name)
	if err := os.WriteFile(file, text, 0o644); err != nil {
		b.t.Fatal(err)
	}
	return file
}

func TestInspectCact(t *testing.T) {
	b := newBench(t)
	doc := b.inspect(b.archive("needle3-b.cact"))
	if doc.Format != "cact" || doc.Problems == nil || len(doc.Problems) != 0 {
		t.Errorf("%s, problems %v", doc.Format, doc.Problems)
	}
	for key, want := range map[string]string{"generation": "3", "d_model": "64", "group": "128", "hada_n": "64"} {
		if got := doc.detail(key); got != want {
			t.Errorf("%s is %s, want %s", key, got, want)
		}
	}
	if x := doc.Tensors[0]; x.Name != "embedding" || x.Type != "CQ4/128" || len(x.Shape) != 2 || x.Offset%64 != 0 {
		t.Errorf("%+v", x)
	}
	if x := doc.Tensors[len(doc.Tensors)-1]; x.Name != "tokenizer" || x.Type != "RAW" {
		t.Errorf("%+v", x)
	}
	books := 0
	for _, m := range doc.Metadata {
		if strings.HasPrefix(m.Key, "codebook") {
			books += *m.Count
		}
	}
	if books != 28 {
		t.Errorf("%d codebook entries", books)
	}
}

// TestVerifyCact compares an archive with the checkpoint that it was made of, and
// finds a damaged norm.
func TestVerifyCact(t *testing.T) {
	b := newBench(t)
	file, source := b.archive("needle2-b-w4.cact"), b.archive("needle2-b.safetensors")
	var doc struct {
		Tensors []struct {
			Name, Type, From string
			SNR              float64 `json:"snr_db"`
			Equal            bool
		}
	}
	b.ok("verify", file, "--against", source, "--json").json(t, &doc)
	seen := 0
	for _, x := range doc.Tensors {
		switch {
		case x.Type == "CQ4" && x.SNR > 18 && x.SNR < 23 && x.From == "F16":
			seen++
		case x.Type == "CQ4" || x.Type != "F16" || !x.Equal:
			t.Errorf("%+v", x)
		}
	}
	if seen != 1+2*5+3+2*3 {
		t.Errorf("%d matrices were compared", seen)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	at := 0
	for _, x := range b.inspect(file).Tensors {
		if x.Name == "layer01.k_proj" {
			at = int(x.Offset + x.Bytes - 1)
		}
	}
	text[at] |= 0x40 // a norm of thousands
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
	b.fails(exitVerify, []string{"layer01.k_proj"}, "verify", file, "--against", source, "--min-snr", "18")
}
