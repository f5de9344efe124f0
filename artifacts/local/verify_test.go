package local_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"quern/artifacts"
	"quern/artifacts/local"
	"quern/artifacts/storetest"
)

func example(t *testing.T) (*local.Store, *artifacts.Build, artifacts.Descriptor) {
	t.Helper()
	s := open(t, t.TempDir(), local.Options{})
	b, d := storetest.Example(t, s, 1)
	if err := s.Tag(t.Context(), "example", d); err != nil {
		t.Fatal(err)
	}
	if err := artifacts.PutOutput(t.Context(), s, b.Outputs[0].Key, d); err != nil {
		t.Fatal(err)
	}
	return s, b, d
}

func replaceFile(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestVerifyDisk damages every file of a store that holds data, at a seeded
// bit, by a cut, by one more byte and by removal: verify must name that file.
func TestVerifyDisk(t *testing.T) {
	s, _, _ := example(t)
	rng := rand.New(rand.NewPCG(3, 1))
	for _, f := range files(t, s.Dir()) {
		path := filepath.Join(s.Dir(), filepath.FromSlash(f))
		st, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if st.IsDir() || st.Size() == 0 { // locks are empty
			continue
		}
		good, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		flipped := slices.Clone(good)
		bit := rng.IntN(len(good) * 8)
		flipped[bit/8] ^= 1 << (bit % 8)
		for name, damage := range map[string]func(){
			fmt.Sprint("flip of bit ", bit): func() { replaceFile(t, path, flipped) },
			"cut":                           func() { replaceFile(t, path, good[:len(good)-1-rng.IntN(len(good)-1)]) },
			"one more byte":                 func() { replaceFile(t, path, append(slices.Clone(good), 'x')) },
			"removal":                       func() { os.Remove(path) },
		} {
			damage()
			found, err := s.Verify(t.Context(), artifacts.VerifyOptions{})
			if err != nil {
				t.Errorf("%s of %s: %v", name, f, err)
			}
			subject := f
			if hex, ok := strings.CutPrefix(f, "blobs/sha256/"); ok {
				subject = "sha256:" + hex
			}
			hit := slices.ContainsFunc(found, func(x artifacts.Finding) bool { return x.Subject == subject && x.Got != "" })
			harmless := strings.HasPrefix(f, "quern/keys/") && name == "removal" || // a miss, no damage
				f == "index.json" && strings.HasPrefix(name, "flip") // may still be JSON, of other content
			if !hit && !harmless {
				t.Errorf("%s of %s: found %v", name, f, found)
			}
			os.Remove(path)
			if err := os.WriteFile(path, good, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if found, err := s.Verify(t.Context(), artifacts.VerifyOptions{}); err != nil || len(found) != 0 {
			t.Fatalf("after repair of %s: %v, %v", f, found, err)
		}
	}
}

// TestBadManifests verifies manifests that are whole but wrong.
func TestBadManifests(t *testing.T) {
	ctx := t.Context()
	s, b, d := example(t)
	m, err := artifacts.ReadManifest(ctx, s, d)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := artifacts.ReadAll(ctx, s, d, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	absent := artifacts.DigestOf([]byte("absent")).String()
	for _, c := range []struct {
		name, old, new string
		kind           artifacts.FindingKind
	}{
		{"absent layer", b.Outputs[1].Digest.String(), absent, artifacts.FindingMissing},
		{"absent config", string(m.Config.Digest), absent, artifacts.FindingMissing},
		{"layer size", `"size":3000`, `"size":3001`, artifacts.FindingSize},
		{"other title", `example.gguf`, `exemple.gguf`, artifacts.FindingManifest},
		{"bad digest", b.Outputs[1].Digest.String(), "sha256:../../x", artifacts.FindingManifest},
		{"no JSON", `{"schemaVersion"`, `{schemaVersion`, artifacts.FindingManifest},
		{"negative size", `"size":3000`, `"size":-3`, artifacts.FindingManifest},
	} {
		bad := strings.Replace(string(raw), c.old, c.new, 1)
		if bad == string(raw) {
			t.Fatalf("%s: nothing to replace", c.name)
		}
		bd, err := artifacts.PutBytes(ctx, s, d.MediaType, []byte(bad))
		if err != nil {
			t.Fatal(err)
		}
		// Tag would refuse it: the index is written as another tool would.
		bd.ArtifactType = d.ArtifactType
		x := artifacts.NewIndex()
		if err := x.Tag("bad", bd); err != nil {
			t.Fatal(err)
		}
		index, err := x.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		replaceFile(t, filepath.Join(s.Dir(), "index.json"), index)
		found, err := s.Verify(ctx, artifacts.VerifyOptions{})
		if err != nil || !slices.ContainsFunc(found, func(f artifacts.Finding) bool { return f.Kind == c.kind && f.Got != "" }) {
			t.Errorf("%s: %v, %v", c.name, found, err)
		}
		if _, err := artifacts.ReadBuild(ctx, s, bd); err == nil {
			t.Errorf("%s: read as a build", c.name)
		}
	}
}

func TestVerifyHasAStringForEach(t *testing.T) {
	f := artifacts.Finding{Kind: artifacts.FindingSize, Subject: "sha256:ab", From: "manifest sha256:cd", Want: "5 bytes", Got: "4 bytes"}
	if got := f.String(); got != "sha256:ab: wrong size, needed by manifest sha256:cd: want 5 bytes, got 4 bytes" {
		t.Error(got)
	}
}
