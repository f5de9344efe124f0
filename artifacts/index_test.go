package artifacts_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"quern/artifacts"
)

func desc(s string) artifacts.Descriptor {
	return artifacts.Descriptor{MediaType: "application/x-test", Digest: artifacts.DigestOf([]byte(s)), Size: int64(len(s))}
}

func TestIndexBytes(t *testing.T) {
	x := artifacts.NewIndex()
	b, err := x.Marshal()
	if got, want := string(b), `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[]}`+"\n"; err != nil || got != want {
		t.Errorf("empty: %s, %v", got, err)
	}
	if err := x.Tag("b", desc("one")); err != nil {
		t.Fatal(err)
	}
	if err := x.Tag("a", desc("two")); err != nil {
		t.Fatal(err)
	}
	entry := func(name, s string) string {
		return fmt.Sprintf(`{"mediaType":"application/x-test","digest":%q,"size":%d,"annotations":{"org.opencontainers.image.ref.name":%q}}`,
			desc(s).Digest, len(s), name)
	}
	const head = `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[`
	b, err = x.Marshal()
	if want := head + entry("b", "one") + "," + entry("a", "two") + "]}\n"; err != nil || string(b) != want {
		t.Errorf("got  %s\nwant %s\n%v", b, want, err)
	}
	// A moved name keeps its place.
	if err := x.Tag("b", desc("three")); err != nil {
		t.Fatal(err)
	}
	b, err = x.Marshal()
	if want := head + entry("b", "three") + "," + entry("a", "two") + "]}\n"; err != nil || string(b) != want {
		t.Errorf("got  %s\nwant %s\n%v", b, want, err)
	}
}

func TestIndexNameless(t *testing.T) {
	d := desc("one")
	raw := fmt.Sprintf(`{"schemaVersion":2,"manifests":[{"mediaType":"x","digest":%q,"size":3},{"mediaType":"x","digest":%q,"size":3,"annotations":{"org.opencontainers.image.ref.name":"n"}}]}`,
		d.Digest, desc("two").Digest)
	x, err := artifacts.ParseIndex([]byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	if len(x.Roots()) != 2 || len(x.Names()) != 1 || x.Untag("") {
		t.Errorf("%v, %v", x.Roots(), x.Names())
	}
	if err := x.Tag("one", d); err != nil { // takes the nameless entry
		t.Fatal(err)
	}
	if len(x.Roots()) != 2 || len(x.Names()) != 2 {
		t.Errorf("%v, %v", x.Roots(), x.Names())
	}
	if !x.Untag("one") || x.Untag("one") || len(x.Roots()) != 1 {
		t.Errorf("%v", x.Roots())
	}
}

func TestIndexSameNameTwice(t *testing.T) {
	entry := func(s string) string {
		return fmt.Sprintf(`{"mediaType":"x","digest":%q,"size":3,"annotations":{"org.opencontainers.image.ref.name":"n"}}`, desc(s).Digest)
	}
	x, err := artifacts.ParseIndex([]byte(`{"schemaVersion":2,"manifests":[` + entry("a") + "," + entry("b") + "]}"))
	if err != nil {
		t.Fatal(err)
	}
	if _, found, err := x.Lookup("n"); !found || !errors.Is(err, artifacts.ErrAmbiguous) {
		t.Errorf("%v, %v", found, err)
	}
	if err := x.Tag("n", desc("c")); err != nil {
		t.Fatal(err)
	}
	if d, found, err := x.Lookup("n"); !found || err != nil || d.Digest != desc("c").Digest || len(x.Roots()) != 1 {
		t.Errorf("%v, %v, %v", d, found, err)
	}
}

func TestParseIndexRefuses(t *testing.T) {
	for name, s := range map[string]string{
		"empty":             ``,
		"cut":               `{"schemaVersion":2,"manifests":[`,
		"array":             `[]`,
		"null":              `null`,
		"no version":        `{"manifests":[]}`,
		"version 1":         `{"schemaVersion":1,"manifests":[]}`,
		"version text":      `{"schemaVersion":"2","manifests":[]}`,
		"manifests object":  `{"schemaVersion":2,"manifests":{}}`,
		"entry number":      `{"schemaVersion":2,"manifests":[7]}`,
		"no digest":         `{"schemaVersion":2,"manifests":[{"mediaType":"x","size":1}]}`,
		"short digest":      `{"schemaVersion":2,"manifests":[{"mediaType":"x","digest":"sha256:00","size":1}]}`,
		"path as digest":    `{"schemaVersion":2,"manifests":[{"mediaType":"x","digest":"sha512:../../etc/passwd","size":1}]}`,
		"path as algorithm": `{"schemaVersion":2,"manifests":[{"mediaType":"x","digest":"../x:00","size":1}]}`,
		"dot algorithm":     `{"schemaVersion":2,"manifests":[{"mediaType":"x","digest":"..:00","size":1}]}`,
		"negative size":     `{"schemaVersion":2,"manifests":[{"mediaType":"x","digest":"sha512:00","size":-1}]}`,
		"size of 2^64":      `{"schemaVersion":2,"manifests":[{"mediaType":"x","digest":"sha512:00","size":18446744073709551616}]}`,
		"trailing data":     `{"schemaVersion":2,"manifests":[]}{}`,
		"trailing brace":    `{"schemaVersion":2,"manifests":[]}}`,
	} {
		if _, err := artifacts.ParseIndex([]byte(s)); !errors.Is(err, artifacts.ErrManifest) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, s := range map[string]string{
		"no manifests":   `{"schemaVersion":2}`,
		"null manifests": `{"schemaVersion":2,"manifests":null}`,
		"spaces":         " {\n\"schemaVersion\" : 2 , \"manifests\":[ ] }\n ",
	} {
		if _, err := artifacts.ParseIndex([]byte(s)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCheckName(t *testing.T) {
	for _, s := range []string{"a", "A1", "stories-tv", "org/name:v1.2", "a--b", "a@b", "a+b", "1234567", "cafe", "0123456g", strings.Repeat("a/", 127) + "z"} {
		if err := artifacts.CheckName(s); err != nil {
			t.Errorf("%q: %v", s, err)
		}
	}
}

func FuzzParseIndex(f *testing.F) {
	f.Add([]byte(`{"schemaVersion":2,"manifests":[]}`))
	f.Add(fmt.Appendf(nil, `{"schemaVersion":2,"x":[1],"manifests":[{"mediaType":"x","digest":%q,"size":3,"annotations":{"org.opencontainers.image.ref.name":"n"}}]}`, desc("a").Digest))
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := artifacts.ParseIndex(b)
		if err != nil {
			return
		}
		once, err := x.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		y, err := artifacts.ParseIndex(once)
		if err != nil {
			t.Fatalf("%s: own bytes: %v", once, err)
		}
		if twice, err := y.Marshal(); err != nil || string(twice) != string(once) {
			t.Errorf("%s\n%s\n%v", once, twice, err)
		}
		if len(x.OCI()) != len(y.OCI()) || len(x.Roots()) != len(y.Roots()) {
			t.Errorf("entries were lost in %s", once)
		}
	})
}
