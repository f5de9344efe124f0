package storetest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"quern/artifacts"
)

func testNames(t *testing.T, u Suite) {
	ctx, s := t.Context(), u.Open(t)
	one, two := put(t, s, []byte("one")), put(t, s, []byte("two"))
	two.Annotations = map[string]string{"org.example.note": "kept"}
	two.ArtifactType = "application/x-artifact"
	for _, n := range []string{"b", "org/model:v1", "a", "A", "x-y--z_1.2"} {
		if err := s.Tag(ctx, n, one); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Tag(ctx, "b", two); err != nil { // moves
		t.Fatal(err)
	}
	list := func() string {
		t.Helper()
		names, err := s.Names(ctx)
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, n := range names {
			out = append(out, n.Name+"="+n.Digest.Hex()[:4])
		}
		return strings.Join(out, " ")
	}
	h1, h2 := one.Digest.Hex()[:4], two.Digest.Hex()[:4]
	if got, want := list(), fmt.Sprintf("A=%[1]s a=%[1]s b=%[2]s org/model:v1=%[1]s x-y--z_1.2=%[1]s", h1, h2); got != want {
		t.Errorf("names %q, want %q", got, want)
	}
	d, err := s.Resolve(ctx, "b")
	if err != nil || !d.Same(two) || d.ArtifactType != two.ArtifactType || fmt.Sprint(d.Annotations) != fmt.Sprint(two.Annotations) {
		t.Errorf("b is %v %v, %v", d, d.Annotations, err)
	}
	if d, err = s.Resolve(ctx, "a"); err != nil || !d.Same(one) || d.Annotations != nil {
		t.Errorf("a is %v %v, %v", d, d.Annotations, err)
	}
	if err := s.Untag(ctx, "b"); err != nil {
		t.Fatal(err)
	}
	want(t, s.Untag(ctx, "b"), artifacts.ErrNotFound)
	want(t, s.Untag(ctx, ""), artifacts.ErrNotFound)
	_, err = s.Resolve(ctx, "b")
	want(t, err, artifacts.ErrNotFound)
	if _, err := s.Stat(ctx, two.Digest); err != nil {
		t.Errorf("Untag removed the blob: %v", err)
	}
	roots, err := s.Roots(ctx)
	if err != nil || len(roots) != 4 {
		t.Errorf("%d roots, %v", len(roots), err)
	}
	for _, n := range []string{"", "-a", "a-", "a..b", "a---b", "a b", "ü", "a/", "/a", "../a", "sha256:a", "deadbeef",
		one.Digest.String(), one.Digest.Hex(), strings.Repeat("n", 256), "a\x00"} {
		if err := s.Tag(ctx, n, one); !errors.Is(err, artifacts.ErrName) {
			t.Errorf("Tag(%q): %v", n, err)
		}
	}
	want(t, s.Tag(ctx, "c", artifacts.Descriptor{Digest: artifacts.DigestOf([]byte("absent"))}), artifacts.ErrNotFound)
	lie := one
	lie.Size++
	want(t, s.Tag(ctx, "c", lie), artifacts.ErrCorrupt)
}

// collision finds two numbers whose digests begin with the same 8 hex digits.
func collision() (a, b []byte) {
	seen := map[[4]byte]uint64{}
	for i := uint64(0); ; i++ {
		n := binary.LittleEndian.AppendUint64(nil, i)
		d := artifacts.DigestOf(n)
		if j, ok := seen[[4]byte(d[:4])]; ok {
			return binary.LittleEndian.AppendUint64(nil, j), n
		}
		seen[[4]byte(d[:4])] = i
	}
}

func testPrefixes(t *testing.T, u Suite) {
	ctx, s := t.Context(), u.Open(t)
	a, b := collision()
	da, db := put(t, s, a), put(t, s, b)
	hex := da.Digest.Hex()
	for _, c := range []struct {
		ref  string
		want error
	}{
		{da.Digest.String(), nil},
		{hex, nil},
		{"sha256:" + hex[:40], nil},
		{hex[:63], nil},
		{hex[:8], artifacts.ErrAmbiguous},
		{"sha256:" + hex[:8], artifacts.ErrAmbiguous},
		{hex[:7], artifacts.ErrNotFound}, // may be a name
		{"sha256:" + hex[:7], artifacts.ErrName},
		{"sha256:" + strings.ToUpper(hex), artifacts.ErrName},
		{hex + "0", artifacts.ErrNotFound},
		{"sha256:" + hex + "0", artifacts.ErrName},
		{strings.Repeat("0", 64), artifacts.ErrNotFound},
		{strings.Repeat("0", 12), artifacts.ErrNotFound},
		{"", artifacts.ErrName},
		{"no such", artifacts.ErrName},
		{"nosuch", artifacts.ErrNotFound},
	} {
		d, err := s.Resolve(ctx, c.ref)
		if !errors.Is(err, c.want) || c.want == nil && (d.Digest != da.Digest || d.Size != 8 || d.MediaType != artifacts.MediaTypeOctets) {
			t.Errorf("%q: %v, %v", c.ref, d, err)
		}
	}
	// A name decides nothing for prefixes, but what it knows is used.
	da.MediaType = "application/x-known"
	if err := s.Tag(ctx, "known", da); err != nil {
		t.Fatal(err)
	}
	if d, err := s.Resolve(ctx, hex); err != nil || !d.Same(da) {
		t.Errorf("%v, %v", d, err)
	}
	_, err := s.Resolve(ctx, hex[:8])
	want(t, err, artifacts.ErrAmbiguous)
	if err := s.Delete(ctx, db.Digest); err != nil {
		t.Fatal(err)
	}
	if d, err := s.Resolve(ctx, hex[:8]); err != nil || !d.Same(da) {
		t.Errorf("%v, %v", d, err)
	}
}
