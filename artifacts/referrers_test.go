package artifacts_test

import (
	"context"
	"errors"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"quern/artifacts"
	"quern/artifacts/mem"
)

// TestAboutBuild gives a manifest of another format the provenance of a build, and
// finds it again.
func TestAboutBuild(t *testing.T) {
	ctx := context.Background()
	s := mem.New()
	out, err := artifacts.PutBytes(ctx, s, "x/gguf", []byte("GGUF..."))
	if err != nil {
		t.Fatal(err)
	}
	b := &artifacts.Build{
		Version: 1, Tool: artifacts.Tool{Name: "quern", Version: "1"}, Name: "tiny", Recipe: []byte(`{}`),
		Outputs: []artifacts.BuildOutput{{File: "a.gguf", Format: "gguf", MediaType: "x/gguf", Digest: out.Digest, Size: out.Size}},
	}
	build, err := artifacts.WriteBuild(ctx, s, b)
	if err != nil {
		t.Fatal(err)
	}
	other, err := artifacts.PutBytes(ctx, s, ocispec.MediaTypeImageManifest, []byte(`{"schemaVersion":2,"mediaType":"`+ocispec.MediaTypeImageManifest+`","layers":[]}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := artifacts.FindBuild(ctx, s, other); !errors.Is(err, artifacts.ErrNotFound) {
		t.Errorf("without provenance: %v", err)
	}
	d, raw, err := artifacts.AboutBuild(ctx, s, build, other)
	if err != nil {
		t.Fatal(err)
	}
	if again, _, err := artifacts.AboutBuild(ctx, s, build, other); err != nil || again.Digest != d.Digest {
		t.Errorf("a second time: %v, %v", again, err)
	}
	if _, err := artifacts.PutBytes(ctx, s, ocispec.MediaTypeImageManifest, raw); err != nil {
		t.Fatal(err)
	}
	list, err := artifacts.Referrers(ctx, s, other.Digest, "")
	if err != nil || len(list) != 1 || list[0].Digest != d.Digest || list[0].ArtifactType != artifacts.ArtifactTypeBuild {
		t.Errorf("%v, %v", list, err)
	}
	if list, err := artifacts.Referrers(ctx, s, other.Digest, "x/y"); err != nil || len(list) != 0 {
		t.Errorf("%v, %v", list, err)
	}
	for _, from := range []artifacts.Descriptor{other, build} {
		if got, err := artifacts.FindBuild(ctx, s, from); err != nil || got.Name != "tiny" || got.Outputs[0].Digest != out.Digest {
			t.Errorf("%v, %v", got, err)
		}
	}
}
