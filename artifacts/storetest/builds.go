package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"quern/artifacts"
	"quern/artifacts/mem"
)

// Example makes a build with two outputs, whose blobs are in s, and stores it.
func Example(t *testing.T, s artifacts.Store, seed uint64) (*artifacts.Build, artifacts.Descriptor) {
	t.Helper()
	one, two := Bytes(seed, 3000), Bytes(seed+1, 100)
	for _, b := range [][]byte{one, two} {
		put(t, s, b)
	}
	tensor := func(name string, off, n int64) artifacts.BuildTensor {
		return artifacts.BuildTensor{Name: name, Type: "Q8_0", Shape: []int64{n / 34, 32}, Offset: off, Bytes: n,
			Digest: artifacts.DigestOf(one[off : off+n]), Key: key(seed + uint64(off)), Reason: "preset Q8_0"}
	}
	b := &artifacts.Build{
		Version: artifacts.BuildVersion,
		Tool:    artifacts.Tool{Name: "quern", Version: "1.0.0"},
		Name:    fmt.Sprintf("example-%d", seed),
		Recipe:  json.RawMessage(`{"version":1,"name":"example","note":"a <b> & c"}`),
		Sources: []artifacts.BuildSource{{
			Name: "base", Kind: "hf", Ref: "org/name@main", Commit: "0123456789abcdef0123456789abcdef01234567",
			Files: []artifacts.BuildFile{
				{Path: "config.json", Size: 10, Git: "89e6c98d92887913cadf06b2adb97f26cde4849b"},
				{Path: "sub/model.safetensors", Size: 5000, Digest: artifacts.DigestOf([]byte("weights"))},
			},
		}},
		Steps: []artifacts.BuildStep{{Stage: "quantize", Version: "1", Params: json.RawMessage(`{"preset":"Q8_0"}`)}},
		Outputs: []artifacts.BuildOutput{
			{File: "example.gguf", Format: "gguf", MediaType: artifacts.MediaTypeGGUF, Digest: artifacts.DigestOf(one), Size: 3000, Key: key(seed),
				Tensors: []artifacts.BuildTensor{tensor("blk.0.attn_q.weight", 32, 1088), tensor("output.weight", 1120, 1088)}},
			{File: "small/ids.bin", Format: "ids", MediaType: artifacts.MediaTypeOctets, Digest: artifacts.DigestOf(two), Size: 100},
		},
	}
	d, err := artifacts.WriteBuild(t.Context(), s, b)
	if err != nil {
		t.Fatal(err)
	}
	return b, d
}

func testBuild(t *testing.T, u Suite) {
	ctx, s := t.Context(), u.Open(t)
	b, d := Example(t, s, 1)
	got, err := artifacts.ReadBuild(ctx, s, d)
	if err != nil {
		t.Fatal(err)
	}
	x, _ := b.Marshal()
	y, err := got.Marshal()
	if err != nil || string(x) != string(y) {
		t.Errorf("%v\nwrote %s\nread  %s", err, x, y)
	}
	if _, again := Example(t, s, 1); !again.Same(d) {
		t.Errorf("the same build is %v and %v", d, again)
	}
	if _, other := Example(t, s, 2); other.Same(d) {
		t.Error("two builds are the same")
	}
	if err := s.Tag(ctx, "example", d); err != nil {
		t.Fatal(err)
	}
	r, err := s.Resolve(ctx, "example")
	if err != nil || !r.Same(d) || r.ArtifactType != artifacts.ArtifactTypeBuild {
		t.Errorf("%v, %v", r, err)
	}
	if r, err = s.Resolve(ctx, d.Digest.Hex()[:12]); err != nil || !r.Same(d) {
		t.Errorf("by prefix: %v, %v", r, err)
	}
	b.Outputs[0].Digest = artifacts.DigestOf([]byte("absent"))
	_, err = artifacts.WriteBuild(ctx, s, b)
	want(t, err, artifacts.ErrNotFound)
}

func testTagComplete(t *testing.T, u Suite) {
	ctx, s := t.Context(), u.Open(t)
	b, d := Example(t, s, 1)
	if err := s.Delete(ctx, b.Outputs[1].Digest); err != nil {
		t.Fatal(err)
	}
	want(t, s.Tag(ctx, "example", d), artifacts.ErrNotFound)
	if names, err := s.Names(ctx); err != nil || len(names) != 0 {
		t.Errorf("%v, %v", names, err)
	}
}

func testOutputs(t *testing.T, u Suite) {
	ctx, s := t.Context(), u.Open(t)
	b, d := Example(t, s, 1)
	k := b.Outputs[0].Key
	if _, found, err := artifacts.FindOutput(ctx, s, k); err != nil || found {
		t.Errorf("found before it was put: %v", err)
	}
	if err := artifacts.PutOutput(ctx, s, k, d); err != nil {
		t.Fatal(err)
	}
	got, found, err := artifacts.FindOutput(ctx, s, k)
	if err != nil || !found || !got.Same(d) {
		t.Errorf("%v, %v, %v", got, found, err)
	}
	if err := s.Delete(ctx, b.Outputs[1].Digest); err != nil {
		t.Fatal(err)
	}
	if _, found, err := artifacts.FindOutput(ctx, s, k); err != nil || found {
		t.Errorf("found though an output is gone: %v", err)
	}
}

func testCopyImage(t *testing.T, u Suite) {
	ctx, s := t.Context(), u.Open(t)
	_, d := Example(t, s, 1)
	there := mem.New()
	if err := artifacts.CopyImage(ctx, there, s, d); err != nil {
		t.Fatal(err)
	}
	if err := there.Tag(ctx, "example", d); err != nil {
		t.Fatal(err)
	}
	back := u.Open(t)
	if err := artifacts.CopyImage(ctx, back, there, d); err != nil {
		t.Fatal(err)
	}
	a, _ := s.List(ctx)
	b, err := back.List(ctx)
	if err != nil || !slices.Equal(a, b) || len(a) != 4 {
		t.Errorf("%v and %v, %v", a, b, err)
	}
	for _, in := range a {
		broken := Wrap(s, map[artifacts.Digest]Damage{in.Digest: {Flip: 8, Do: true}})
		dst := u.Open(t)
		if err := artifacts.CopyImage(ctx, dst, broken, d); err == nil {
			t.Errorf("a damaged blob %s was copied", in.Digest)
		}
		if _, err := dst.Stat(ctx, d.Digest); !errors.Is(err, artifacts.ErrNotFound) {
			t.Errorf("the manifest was copied: %v", err)
		}
		u.clean(t, dst)
	}
}

func testUsage(t *testing.T, u Suite) {
	ctx, s := t.Context(), u.Open(t)
	_, one := Example(t, s, 1) // blobs of seeds 1 and 2
	_, two := Example(t, s, 2) // blobs of seeds 2 and 3
	put(t, s, make([]byte, 777))
	for n, d := range map[string]artifacts.Descriptor{"one": one, "one-too": one, "two": two} {
		if err := s.Tag(ctx, n, d); err != nil {
			t.Fatal(err)
		}
	}
	use, err := artifacts.Measure(ctx, s)
	if err != nil {
		t.Fatal(err)
	}
	var sum int64
	l, _ := s.List(ctx)
	for _, in := range l {
		sum += in.Size
	}
	if use.Blobs != len(l) || use.Bytes != sum || use.Loose != 777 || len(use.Names) != 3 {
		t.Errorf("%+v, want %d blobs of %d bytes", use, len(l), sum)
	}
	for _, n := range use.Names {
		if n.Bytes != n.Shared+n.Unique || (n.Name == "two") != (n.Unique > 0) {
			t.Errorf("%+v", n)
		}
	}
	// Seed 2 gives 100 bytes to one and 3000 to two: they share no blob. With
	// one name fewer nothing is shared any more.
	if err := s.Untag(ctx, "one-too"); err != nil {
		t.Fatal(err)
	}
	if use, err = artifacts.Measure(ctx, s); err != nil || use.Names[0].Shared != 0 || use.Names[0].Unique != use.Names[0].Bytes {
		t.Errorf("%+v, %v", use, err)
	}
}

// testVerifyFindsDamage damages one blob after the other, in every way: each
// time exactly that blob must be found. A verifier that finds nothing is broken.
func testVerifyFindsDamage(t *testing.T, u Suite) {
	ctx, s := t.Context(), u.Open(t)
	b, d := Example(t, s, 1)
	if err := s.Tag(ctx, "example", d); err != nil {
		t.Fatal(err)
	}
	blob := b.Outputs[0].Digest
	if err := s.PutKeys(ctx, []artifacts.KeyRef{{Key: key(1), Ref: ref(artifacts.Descriptor{Digest: blob}, Bytes(1, 3000), 32, 1088)}}); err != nil {
		t.Fatal(err)
	}
	var done, total int64
	f, err := artifacts.Verify(ctx, s, artifacts.VerifyOptions{Progress: func(d, n int64) { done, total = d, n }})
	if err != nil || len(f) != 0 {
		t.Fatalf("a good store: %v, %v", f, err)
	}
	l, _ := s.List(ctx)
	sum := int64(1088)
	for _, in := range l {
		sum += in.Size
	}
	if done != sum || total != sum {
		t.Errorf("progress ended at %d of %d, want %d", done, total, sum)
	}
	rng := rand.New(rand.NewPCG(11, 12))
	for _, in := range l {
		bit := rng.Int64N(in.Size * 8)
		for _, c := range []struct {
			damage Damage
			kind   artifacts.FindingKind
		}{
			{Damage{Flip: bit, Do: true}, artifacts.FindingDigest},
			{Damage{Short: in.Size - 1}, artifacts.FindingSize},
			{Damage{LieShort: in.Size - 1}, artifacts.FindingDigest},
			{Damage{Break: 1 + rng.Int64N(in.Size-1)}, artifacts.FindingRead},
			{Damage{Missing: true}, artifacts.FindingMissing},
		} {
			broken := Wrap(s, map[artifacts.Digest]Damage{in.Digest: c.damage})
			var first []artifacts.Finding
			for _, jobs := range []int{1, 4} {
				f, err := artifacts.Verify(ctx, broken, artifacts.VerifyOptions{Jobs: jobs})
				if err != nil {
					t.Fatal(err)
				}
				hit := false
				for _, x := range f {
					if x.Subject != in.Digest.String() {
						t.Errorf("%+v to %s: also found %v", c.damage, in.Digest, x)
					}
					if x.Kind == c.kind {
						hit = true
						if x.Got == "" || x.Want == "" && x.Kind != artifacts.FindingRead {
							t.Errorf("a value is missing: %+v", x)
						}
					}
				}
				if !hit {
					t.Errorf("%+v to %s: found %v", c.damage, in.Digest, f)
				}
				if first == nil {
					first = f
				} else if !slices.Equal(first, f) {
					t.Errorf("1 job finds %v, 4 find %v", first, f)
				}
			}
		}
	}
	// A key beyond its blob, and one with another digest.
	beyond := ref(artifacts.Descriptor{Digest: blob}, Bytes(1, 3000), 0, 3000)
	beyond.Offset = 1
	wrong := ref(artifacts.Descriptor{Digest: blob}, Bytes(1, 3000), 0, 10)
	wrong.Offset = 1
	if err := s.PutKeys(ctx, []artifacts.KeyRef{{Key: key(7), Ref: beyond}, {Key: key(8), Ref: wrong}}); err != nil {
		t.Fatal(err)
	}
	f, err = artifacts.Verify(ctx, s, artifacts.VerifyOptions{})
	if err != nil || len(f) != 2 || f[0].Kind != artifacts.FindingKey || f[1].Kind != artifacts.FindingKey {
		t.Errorf("bad keys: %v, %v", f, err)
	}
}
