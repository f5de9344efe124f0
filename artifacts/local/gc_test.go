package local_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"quern/artifacts"
	"quern/artifacts/local"
	"quern/artifacts/storetest"
)

// clock is a Now that tests move.
type clock struct{ offset time.Duration }

func (c *clock) now() time.Time { return time.Now().Add(c.offset) }

func gc(t *testing.T, s *local.Store, opt local.GCOptions) (*local.GCPlan, *local.GCResult) {
	t.Helper()
	p, err := s.PlanGC(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.ExecuteGC(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return p, r
}

func has(s artifacts.Store, t *testing.T, d artifacts.Digest) bool {
	t.Helper()
	_, err := s.Stat(t.Context(), d)
	if err != nil && !errors.Is(err, artifacts.ErrNotFound) {
		t.Fatal(err)
	}
	return err == nil
}

func TestGC(t *testing.T) {
	ctx := t.Context()
	c := &clock{}
	s := open(t, t.TempDir(), local.Options{Now: c.now})
	kept, keptD := storetest.Example(t, s, 1)
	lost, lostD := storetest.Example(t, s, 10)
	for n, d := range map[string]artifacts.Descriptor{"kept": keptD, "lost": lostD} {
		if err := s.Tag(ctx, n, d); err != nil {
			t.Fatal(err)
		}
	}
	keys := []artifacts.Key{kept.Outputs[0].Key, lost.Outputs[0].Key}
	for i, d := range []artifacts.Descriptor{keptD, lostD} {
		if err := artifacts.PutOutput(ctx, s, keys[i], d); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{"quern/ingest/.new.00112233.quern-tmp", "quern/spool/part", "quern/spool/host/part", ".oci-layout.00112233.quern-tmp", "blobs/sha256/foreign", "extra", "ingest/oras"} {
		p := filepath.Join(s.Dir(), filepath.FromSlash(f))
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Untag(ctx, "lost"); err != nil {
		t.Fatal(err)
	}

	p, r := gc(t, s, local.GCOptions{})
	if len(p.Remove) != 0 || r.Removed != 0 || p.Kept != 6 || p.Roots != 1 || p.Reachable != 4 {
		t.Errorf("within the grace time: %+v, %+v", p, r)
	}
	c.offset = local.DefaultGrace + time.Minute
	p, err := s.PlanGC(ctx, local.GCOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, x := range p.Remove {
		paths = append(paths, x.Path)
		if x.Reason == "" || x.Age == "" {
			t.Errorf("no reason or age: %+v", x)
		}
	}
	if len(p.Remove) != 6 || strings.Contains(strings.Join(paths, " "), "spool") {
		t.Errorf("planned %v", paths)
	}
	if !has(s, t, lostD.Digest) {
		t.Error("planning removed something")
	}
	r, err = s.ExecuteGC(ctx, p)
	if err != nil || r.Removed != 6 || r.Bytes != p.Bytes || r.Skipped != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	for _, d := range []artifacts.Digest{lostD.Digest, lost.Outputs[0].Digest, lost.Outputs[1].Digest} {
		if has(s, t, d) {
			t.Errorf("%s is still there", d)
		}
	}
	if f, err := s.Verify(ctx, artifacts.VerifyOptions{}); err != nil || len(f) != 0 {
		t.Errorf("verify: %v, %v", f, err)
	}
	if _, err := artifacts.ReadBuild(ctx, s, keptD); err != nil {
		t.Error(err)
	}
	for _, f := range []string{"blobs/sha256/foreign", "extra", "ingest/oras", "quern/spool/part", "quern/spool/host/part"} {
		if _, err := os.Stat(filepath.Join(s.Dir(), f)); err != nil {
			t.Errorf("what is not ours was removed: %v", err)
		}
	}
	if l, err := s.Keys(ctx); err != nil || len(l) != 1 || l[0].Key != keys[0] {
		t.Errorf("keys are %v, %v", l, err)
	}
	if _, found, err := artifacts.FindOutput(ctx, s, keys[0]); err != nil || !found {
		t.Errorf("the kept output is not found: %v", err)
	}
	if p, r := gc(t, s, local.GCOptions{}); len(p.Remove) != 0 || r.Removed != 0 {
		t.Errorf("a second run: %+v", p)
	}
}

// TestGCKeepsWhatCameIntoUse changes the store between plan and execution.
func TestGCKeepsWhatCameIntoUse(t *testing.T) {
	ctx := t.Context()
	c := &clock{}
	s := open(t, t.TempDir(), local.Options{Now: c.now})
	_, tagged := storetest.Example(t, s, 1)
	again := storetest.Bytes(77, 10)
	d, err := artifacts.PutBytes(ctx, s, "", again)
	if err != nil {
		t.Fatal(err)
	}
	gone, err := artifacts.PutBytes(ctx, s, "", []byte("gone"))
	if err != nil {
		t.Fatal(err)
	}
	c.offset = time.Hour
	p, err := s.PlanGC(ctx, local.GCOptions{Grace: time.Minute})
	if err != nil || len(p.Remove) != 6 {
		t.Fatalf("%+v, %v", p, err)
	}
	if err := s.Tag(ctx, "in-use", tagged); err != nil {
		t.Fatal(err)
	}
	if _, err := artifacts.PutBytes(ctx, s, "", again); err != nil { // makes it young
		t.Fatal(err)
	}
	r, err := s.ExecuteGC(ctx, p)
	if err != nil || r.Removed != 1 || r.Skipped != 5 {
		t.Errorf("%+v, %v", r, err)
	}
	if !has(s, t, d.Digest) || has(s, t, gone.Digest) {
		t.Error("the wrong blob went")
	}
	if f, err := s.Verify(ctx, artifacts.VerifyOptions{}); err != nil || len(f) != 0 {
		t.Errorf("verify: %v, %v", f, err)
	}
}

// TestGCWaitsForBuilds holds the store in another process.
func TestGCWaitsForBuilds(t *testing.T) {
	ctx := t.Context()
	s := open(t, t.TempDir(), local.Options{})
	if _, err := artifacts.PutBytes(ctx, s, "", []byte("loose")); err != nil {
		t.Fatal(err)
	}
	p, err := s.PlanGC(ctx, local.GCOptions{Grace: -1})
	if err != nil {
		t.Fatal(err)
	}
	cmd, lines := start(t, "hold", 0, s.Dir())
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if !lines.Scan() || lines.Text() != "held" {
		t.Fatalf("the other process says %q", lines.Text())
	}
	if _, err := s.ExecuteGC(ctx, p); !errors.Is(err, artifacts.ErrInUse) {
		t.Errorf("while held: %v", err)
	}
	// Writers do not hinder each other.
	if _, err := artifacts.PutBytes(ctx, s, "", []byte("loose")); err != nil {
		t.Error(err)
	}
	in.Write([]byte("x"))
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	p, err = s.PlanGC(ctx, local.GCOptions{Grace: -1, Wait: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := s.ExecuteGC(ctx, p); err != nil || r.Removed != 1 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestGCRefusesToGuess(t *testing.T) {
	ctx := t.Context()
	s := open(t, t.TempDir(), local.Options{})
	b, d := storetest.Example(t, s, 1)
	if err := s.Tag(ctx, "example", d); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(s.Dir(), "blobs", "sha256", d.Digest.Hex())
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, damage := range map[string]func() error{
		"missing": func() error { return os.Remove(path) },
		"flipped": func() error {
			os.Remove(path)
			return os.WriteFile(path, append([]byte(" "), good[1:]...), 0o444)
		},
	} {
		if err := damage(); err != nil {
			t.Fatal(err)
		}
		if p, err := s.PlanGC(ctx, local.GCOptions{Grace: -1}); err == nil || !strings.Contains(err.Error(), d.Digest.String()) {
			t.Errorf("%s manifest: %+v, %v", name, p, err)
		}
		if !has(s, t, b.Outputs[0].Digest) {
			t.Errorf("%s manifest: its layer was removed", name)
		}
	}
}

// TestGCKeepsReferrers has a signature that only its subject knows of: a
// manifest that no root reaches.
func TestGCKeepsReferrers(t *testing.T) {
	ctx := t.Context()
	s := open(t, t.TempDir(), local.Options{})
	_, d := storetest.Example(t, s, 1)
	_, other := storetest.Example(t, s, 5)
	if err := s.Tag(ctx, "example", d); err != nil {
		t.Fatal(err)
	}
	sign := func(of artifacts.Descriptor) (manifest, layer artifacts.Descriptor) {
		t.Helper()
		layer, err := artifacts.PutBytes(ctx, s, "", fmt.Append(nil, "signature of ", of.Digest))
		if err != nil {
			t.Fatal(err)
		}
		raw := fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,"config":{"mediaType":"application/vnd.oci.empty.v1+json","digest":%q,"size":%d},"layers":[],"subject":{"mediaType":%q,"digest":%q,"size":%d}}`,
			ocispec.MediaTypeImageManifest, layer.Digest, layer.Size, of.MediaType, of.Digest, of.Size)
		manifest, err = artifacts.PutBytes(ctx, s, ocispec.MediaTypeImageManifest, []byte(raw))
		if err != nil {
			t.Fatal(err)
		}
		return manifest, layer
	}
	m1, l1 := sign(d)
	m2, l2 := sign(m1) // a signature of the signature
	m3, l3 := sign(other)
	gc(t, s, local.GCOptions{Grace: -1})
	for _, x := range []artifacts.Descriptor{m1, l1, m2, l2} {
		if !has(s, t, x.Digest) {
			t.Errorf("%s was removed", x)
		}
	}
	for _, x := range []artifacts.Descriptor{m3, l3, other} {
		if has(s, t, x.Digest) {
			t.Errorf("%s was kept", x)
		}
	}
}
