package digest_test

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	stdlib "crypto/sha256"

	"quern/internal/digest"
)

// The vectors of FIPS 180-2 and its million-a example.
var vectors = []struct{ in, want string }{
	{"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
	{"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
	{"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
	{strings.Repeat("a", 1_000_000), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"},
}

func TestVectors(t *testing.T) {
	for _, v := range vectors {
		if got := digest.Of([]byte(v.in)).Hex(); got != v.want {
			t.Errorf("Of %d bytes: %s, want %s", len(v.in), got, v.want)
		}
		got, n, err := digest.OfReader(strings.NewReader(v.in))
		if err != nil || n != int64(len(v.in)) || got.Hex() != v.want {
			t.Errorf("OfReader %d bytes: %s, %d, %v", len(v.in), got, n, err)
		}
	}
}

// TestAsStandardLibrary compares both implementations at every length up to a
// few blocks, written in pieces of any size.
func TestAsStandardLibrary(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	buf := make([]byte, 1000)
	for i := range buf {
		buf[i] = byte(r.Uint32())
	}
	for n := range len(buf) {
		h := digest.New()
		for rest := buf[:n]; len(rest) > 0; {
			k := 1 + r.IntN(len(rest))
			h.Write(rest[:k])
			rest = rest[k:]
		}
		want := digest.Digest(stdlib.Sum256(buf[:n]))
		if got := digest.Sum(h); got != want {
			t.Fatalf("%d bytes: %s, want %s", n, got, want)
		}
		if got := digest.Of(buf[:n]); got != want {
			t.Fatalf("%d bytes at once: %s, want %s", n, got, want)
		}
	}
}

func TestParse(t *testing.T) {
	hex64 := vectors[1].want
	d, err := digest.Parse("sha256:" + hex64)
	if err != nil || d.String() != "sha256:"+hex64 || d != digest.Of([]byte("abc")) {
		t.Fatalf("%v, %v", d, err)
	}
	for name, s := range map[string]string{
		"empty":           "",
		"no algorithm":    hex64,
		"upper case":      "sha256:" + strings.ToUpper(hex64),
		"upper algorithm": "SHA256:" + hex64,
		"short":           "sha256:" + hex64[:63],
		"long":            "sha256:" + hex64 + "0",
		"not hex":         "sha256:" + hex64[:63] + "g",
		"path":            "sha256:../" + hex64[:61],
		"space":           "sha256: " + hex64[:63],
		"sha512":          "sha512:" + hex64,
		"multi-byte":      "sha256:" + hex64[:62] + "é",
	} {
		if d, err := digest.Parse(s); !errors.Is(err, digest.ErrFormat) || !d.IsZero() {
			t.Errorf("%s: %v, %v", name, d, err)
		}
	}
}

func TestJSON(t *testing.T) {
	type doc struct{ D digest.Digest }
	b, err := json.Marshal(doc{digest.Of(nil)})
	if err != nil || string(b) != `{"D":"sha256:`+vectors[0].want+`"}` {
		t.Fatalf("%s, %v", b, err)
	}
	var back doc
	if err := json.Unmarshal(b, &back); err != nil || back.D != digest.Of(nil) {
		t.Fatalf("%v, %v", back, err)
	}
	if err := json.Unmarshal([]byte(`{"D":"sha256:00"}`), &back); err == nil {
		t.Error("a short digest was read")
	}
}

func TestCompare(t *testing.T) {
	a, b := digest.Digest{0x0f}, digest.Digest{0xf0}
	if a.Compare(b) >= 0 || b.Compare(a) <= 0 || a.Compare(a) != 0 {
		t.Error("order differs from that of the text")
	}
}

func FuzzParse(f *testing.F) {
	f.Add("sha256:" + vectors[0].want)
	f.Add("sha256:")
	f.Fuzz(func(t *testing.T, s string) {
		d, err := digest.Parse(s)
		if err == nil && d.String() != s {
			t.Errorf("%q read as %s", s, d)
		}
		_, herr := hex.DecodeString(strings.TrimPrefix(s, "sha256:"))
		if err == nil && herr != nil {
			t.Errorf("%q is not hex", s)
		}
	})
}

func BenchmarkSHA256(b *testing.B) {
	buf := make([]byte, 1<<20)
	b.Run("ours", func(b *testing.B) {
		b.SetBytes(int64(len(buf)))
		for b.Loop() {
			digest.Of(buf)
		}
	})
	b.Run("standard library", func(b *testing.B) {
		b.SetBytes(int64(len(buf)))
		for b.Loop() {
			stdlib.Sum256(buf)
		}
	})
}

// TestResume cuts the hashing of a text at every place, also inside a block.
func TestResume(t *testing.T) {
	text := []byte(strings.Repeat("the same bytes on every machine ", 9))
	for cut := range text {
		h := digest.New()
		h.Write(text[:cut])
		state, err := digest.State(h)
		if err != nil {
			t.Fatal(err)
		}
		h.Write([]byte("what the state must not see"))
		r, err := digest.Resume(state)
		if err != nil {
			t.Fatal(err)
		}
		r.Write(text[cut:])
		if digest.Sum(r) != digest.Of(text) {
			t.Fatalf("cut at %d: another digest", cut)
		}
	}
	for _, bad := range [][]byte{nil, []byte("sha"), make([]byte, 108)} {
		if _, err := digest.Resume(bad); err == nil {
			t.Errorf("resumed from %q", bad)
		}
	}
}
