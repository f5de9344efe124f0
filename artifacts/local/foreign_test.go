package local_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content/oci"

	"quern/artifacts"
	"quern/artifacts/local"
	"quern/artifacts/storetest"
)

// TestReadableByORAS lets another implementation of OCI open the store, resolve
// names, check every digest while it copies, and add something of its own.
func TestReadableByORAS(t *testing.T) {
	ctx := t.Context()
	s, b, d := example(t)
	src, err := oci.NewWithContext(ctx, s.Dir())
	if err != nil {
		t.Fatal(err)
	}
	got, err := src.Resolve(ctx, "example")
	if err != nil || string(got.Digest) != d.Digest.String() || got.Size != d.Size || got.MediaType != d.MediaType {
		t.Fatalf("%v, %v, want %v", got, err, d)
	}
	there := t.TempDir()
	dst, err := oci.NewWithContext(ctx, there)
	if err != nil {
		t.Fatal(err)
	}
	copied, err := oras.Copy(ctx, src, "example", dst, "copied", oras.CopyOptions{})
	if err != nil || copied.Digest != got.Digest {
		t.Fatalf("%v, %v", copied, err)
	}
	sameImage(t, open(t, there, local.Options{ReadOnly: true}), "copied", b, d)

	// And the other way: what oras adds to our store is ours to read.
	note, err := oras.PushBytes(ctx, src, "text/plain", []byte("a note"))
	if err != nil {
		t.Fatal(err)
	}
	pack, err := oras.PackManifest(ctx, src, oras.PackManifestVersion1_1, "application/x-note", oras.PackManifestOptions{
		Layers:              []ocispec.Descriptor{note},
		ManifestAnnotations: map[string]string{ocispec.AnnotationCreated: "2000-01-01T00:00:00Z"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := src.Tag(ctx, pack, "note"); err != nil {
		t.Fatal(err)
	}
	if r, err := s.Resolve(ctx, "note"); err != nil || r.Digest.String() != string(pack.Digest) {
		t.Errorf("%v, %v", r, err)
	}
	gc(t, s, local.GCOptions{Grace: -1})
	if f, err := s.Verify(ctx, artifacts.VerifyOptions{}); err != nil || len(f) != 0 {
		t.Errorf("verify: %v, %v", f, err)
	}
	if names, err := s.Names(ctx); err != nil || len(names) != 2 {
		t.Errorf("%v, %v", names, err)
	}
}

// TestKeepsWhatItDoesNotKnow works on a layout of other tools, with entries and
// fields that mean nothing to quern.
func TestKeepsWhatItDoesNotKnow(t *testing.T) {
	ctx := t.Context()
	dir := t.TempDir()
	sha512 := "sha512:" + strings.Repeat("ab", 64)
	layer := "sha512:" + strings.Repeat("cd", 64)
	known := artifacts.DigestOf([]byte("layer known by a foreign manifest"))
	manifest := fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,"config":{"mediaType":"x","digest":%q,"size":3},"layers":[{"mediaType":"x","digest":%q,"size":33}]}`,
		ocispec.MediaTypeImageManifest, layer, known)
	odd := artifacts.DigestOf([]byte("odd"))
	index := fmt.Sprintf(`{
  "schemaVersion": 2,
  "x-vendor": {"b": 1, "a": [2]},
  "manifests": [
    {"mediaType": %q, "digest": %q, "size": %d, "x-entry": true},
    {"mediaType": "application/x-unknown", "digest": %q, "size": 3, "platform": {"architecture": "arm64", "os": "linux"}, "data": "b2Rk"}
  ],
  "annotations": {"k": "v"}
}`, ocispec.MediaTypeImageManifest, sha512, len(manifest), odd)
	for name, data := range map[string]string{
		"oci-layout":                              `{"imageLayoutVersion": "1.0.0"}`,
		"index.json":                              index,
		"blobs/sha512/" + sha512[7:]:              manifest,
		"blobs/sha512/" + layer[7:]:               "abc",
		"blobs/sha256/" + known.Hex():             "layer known by a foreign manifest",
		"blobs/sha256/" + odd.Hex():               "odd",
		"blobs/sha256/README":                     "not a blob",
		"ingest/sha256_0_123":                     "a leftover of another tool",
		"blobs/sha256/" + strings.Repeat("A", 64): "upper case is no digest",
	} {
		p := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		writeFile(t, p, data)
	}
	before := files(t, dir)
	s := open(t, dir, local.Options{})
	b, d := storetest.Example(t, s, 1)
	if err := s.Tag(ctx, "ours", d); err != nil {
		t.Fatal(err)
	}
	gc(t, s, local.GCOptions{Grace: -1})
	if err := s.Untag(ctx, "ours"); err != nil {
		t.Fatal(err)
	}
	gc(t, s, local.GCOptions{Grace: -1})
	if has(s, t, b.Outputs[0].Digest) {
		t.Error("ours is still there")
	}
	after := files(t, dir)
	for _, f := range before {
		if !slices.Contains(after, f) {
			t.Errorf("%s is gone", f)
		}
	}
	raw, err := os.ReadFile(filepath.Join(dir, "index.json"))
	if err != nil {
		t.Fatal(err)
	}
	var was, is any
	if err := json.Unmarshal([]byte(index), &was); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &is); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(was) != fmt.Sprint(is) {
		t.Errorf("index was %v\nis %v", was, is)
	}
	if f, err := s.Verify(ctx, artifacts.VerifyOptions{}); err != nil || len(f) != 0 {
		t.Errorf("verify: %v, %v", f, err)
	}
}
