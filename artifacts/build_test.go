package artifacts_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	godigest "github.com/opencontainers/go-digest"

	"quern/artifacts"
	"quern/artifacts/mem"
	"quern/artifacts/storetest"
)

var update = flag.Bool("update", false, "write the golden files again")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
	}
}

// TestBuildBytes pins the bytes of a config and of a manifest: they may change
// only with the version in them.
func TestBuildBytes(t *testing.T) {
	s := mem.New()
	b, d := storetest.Example(t, s, 1)
	config, err := b.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "build-config.json", config)
	manifest, err := artifacts.ReadAll(t.Context(), s, d, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "build-manifest.json", manifest)
	var tar bytes.Buffer
	if err := artifacts.WriteTar(t.Context(), &tar, s, "example", d); err != nil {
		t.Fatal(err)
	}
	golden(t, "build-tar.sha256", []byte(artifacts.DigestOf(tar.Bytes()).String()+"\n"))
}

func TestParseBuildIsStrict(t *testing.T) {
	b, _ := storetest.Example(t, mem.New(), 1)
	raw, err := b.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := artifacts.ParseBuild(raw); err != nil {
		t.Fatal(err)
	}
	for name, r := range map[string][2]string{
		"unknown key":         {`"name":"quern"`, `"name":"quern","host":"x"`},
		"repeated key":        {`"name":"quern"`, `"name":"quern","name":"quern"`},
		"other order":         {`"name":"quern","version":"1.0.0"`, `"version":"1.0.0","name":"quern"`},
		"spaces":              {`"version":1`, `"version": 1`},
		"other case":          {`"tool"`, `"Tool"`},
		"version":             {`"version":1`, `"version":2`},
		"no version":          {`"version":1,`, ``},
		"float for int":       {`"size":3000`, `"size":3000.0`},
		"exponent":            {`"size":3000`, `"size":3e3`},
		"escaped":             {`"gguf"`, `"\u0067guf"`},
		"upper-case digest":   {`"digest":"sha256:b`, `"digest":"sha256:B`},
		"null list":           {`"shape":[32,32]`, `"shape":null`},
		"no JSON":             {`{"version"`, `{version`},
		"absolute output":     {`"small/ids.bin"`, `"/small/ids.bin"`},
		"escaping output":     {`"small/ids.bin"`, `"../ids.bin"`},
		"escaping inside":     {`"small/ids.bin"`, `"a/../../ids.bin"`},
		"backslash output":    {`"small/ids.bin"`, `"small\\ids.bin"`},
		"drive output":        {`"small/ids.bin"`, `"c:ids.bin"`},
		"unclean output":      {`"small/ids.bin"`, `"small//ids.bin"`},
		"dot output":          {`"small/ids.bin"`, `"."`},
		"empty output":        {`"small/ids.bin"`, `""`},
		"same output":         {`"small/ids.bin"`, `"example.gguf"`},
		"source file absent":  {`"path":"config.json"`, `"path":""`},
		"source file escapes": {`"path":"config.json"`, `"path":"../config.json"`},
		"same source file":    {`"path":"config.json"`, `"path":"sub/model.safetensors"`},
		"no digest":           {`,"git":"89e6c98d92887913cadf06b2adb97f26cde4849b"`, ``},
		"short git":           {`"git":"89e6`, `"git":"`},
		"negative size":       {`"size":5000`, `"size":-5000`},
		"negative dimension":  {`"shape":[32,32]`, `"shape":[32,-32]`},
		"overlapping tensors": {`"offset":1120`, `"offset":1119`},
		"tensor beyond":       {`"offset":1120`, `"offset":1913`},
		"offset overflow":     {`"offset":1120`, `"offset":9223372036854775807`},
		"same tensor":         {`"output.weight"`, `"blk.0.attn_q.weight"`},
		"tensor without name": {`"output.weight"`, `""`},
		"bad key":             {`"key":"`, `"key":"0`},
		"empty stage":         {`"stage":"quantize"`, `"stage":""`},
	} {
		bad := strings.Replace(string(raw), r[0], r[1], 1)
		if bad == string(raw) {
			t.Errorf("%s: nothing to replace", name)
		}
		if _, err := artifacts.ParseBuild([]byte(bad)); !errors.Is(err, artifacts.ErrManifest) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, bad := range map[string]string{
		"empty": "", "null": "null", "trailing space": string(raw) + " ", "trailing data": string(raw) + "{}", "cut": string(raw[:len(raw)-1]),
	} {
		if _, err := artifacts.ParseBuild([]byte(bad)); !errors.Is(err, artifacts.ErrManifest) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestMarshalBuildRefuses(t *testing.T) {
	for name, change := range map[string]func(*artifacts.Build){
		"recipe no JSON": func(b *artifacts.Build) { b.Recipe = json.RawMessage("a: 1") },
		"no recipe":      func(b *artifacts.Build) { b.Recipe = nil },
		"params no JSON": func(b *artifacts.Build) { b.Steps[0].Params = json.RawMessage("{") },
		"no outputs":     func(b *artifacts.Build) { b.Outputs = nil },
		"no digest":      func(b *artifacts.Build) { b.Outputs[0].Digest = artifacts.Digest{} },
		"no tool":        func(b *artifacts.Build) { b.Tool = artifacts.Tool{} },
		"same source":    func(b *artifacts.Build) { b.Sources = append(b.Sources, b.Sources[0]) },
	} {
		b, _ := storetest.Example(t, mem.New(), 1)
		change(b)
		if _, err := b.Marshal(); !errors.Is(err, artifacts.ErrManifest) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestBuildCanonicalForm gives the same build with spaces in its recipe and nil
// lists: the bytes are the same as without.
func TestBuildCanonicalForm(t *testing.T) {
	b, _ := storetest.Example(t, mem.New(), 1)
	b.Steps, b.Outputs[1].Tensors = nil, nil
	b.Recipe = json.RawMessage("{ \"a\" : [ 1,\n2 ] }")
	x, err := b.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	b.Steps, b.Outputs[1].Tensors = []artifacts.BuildStep{}, []artifacts.BuildTensor{}
	b.Recipe = json.RawMessage(`{"a":[1,2]}`)
	y, err := b.Marshal()
	if err != nil || !bytes.Equal(x, y) {
		t.Errorf("%s\n%s\n%v", x, y, err)
	}
	if _, err := artifacts.ParseBuild(x); err != nil {
		t.Error(err)
	}
}

func FuzzParseBuild(f *testing.F) {
	seed, err := os.ReadFile(filepath.Join("testdata", "build-config.json"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Add([]byte(`{"version":1,"tool":{"name":"q","version":"1"},"name":"n","recipe":{},"sources":[],"steps":[],"outputs":[]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := artifacts.ParseBuild(b)
		if err != nil {
			if !errors.Is(err, artifacts.ErrManifest) {
				t.Errorf("%v", err)
			}
			return
		}
		if again, err := x.Marshal(); err != nil || !bytes.Equal(again, b) {
			t.Errorf("%q was read as %q, %v", b, again, err)
		}
	})
}

// FuzzManifest walks any bytes as a manifest, through the store that holds them.
func FuzzManifest(f *testing.F) {
	seed, err := os.ReadFile(filepath.Join("testdata", "build-manifest.json"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Add([]byte(`{"manifests":[{"mediaType":"application/vnd.oci.image.index.v1+json","digest":"sha512:00","size":1}],"subject":{"digest":"x"}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s := mem.New()
		for _, mt := range []string{"application/vnd.oci.image.manifest.v1+json", "application/vnd.oci.image.index.v1+json"} {
			d, err := artifacts.PutBytes(t.Context(), s, mt, b)
			if err != nil {
				t.Fatal(err)
			}
			d.ArtifactType = artifacts.ArtifactTypeBuild
			_ = artifacts.CheckComplete(t.Context(), s, d)
			_, _ = artifacts.ReadBuild(t.Context(), s, d)
			_, _ = artifacts.Closure(t.Context(), s, d)
		}
	})
}

func TestDescriptor(t *testing.T) {
	d := desc("x")
	d.Annotations = map[string]string{"a": "b"}
	back, err := artifacts.FromOCI(d.OCI())
	if err != nil || !back.Same(d) || back.Annotations["a"] != "b" {
		t.Errorf("%v, %v", back, err)
	}
	for name, change := range map[string]func(*artifacts.Descriptor){
		"media type": func(d *artifacts.Descriptor) { d.MediaType += "x" },
		"digest":     func(d *artifacts.Descriptor) { d.Digest[31]++ },
		"size":       func(d *artifacts.Descriptor) { d.Size++ },
	} {
		o := d
		change(&o)
		if o.Same(d) {
			t.Errorf("another %s is the same", name)
		}
	}
	o := d.OCI()
	for _, bad := range []string{"", "sha256:00", "sha256:" + strings.Repeat("0", 64), "sha512:" + strings.Repeat("0", 128), strings.ToUpper(string(o.Digest))} {
		o.Digest = godigest.Digest(bad)
		if _, err := artifacts.FromOCI(o); !errors.Is(err, artifacts.ErrManifest) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
