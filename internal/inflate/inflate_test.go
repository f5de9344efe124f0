package inflate

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

func TestNewReader(t *testing.T) {
	text := strings.Repeat("once upon a time ", 1000)
	var gz, zs bytes.Buffer
	g := gzip.NewWriter(&gz)
	z, err := zstd.NewWriter(&zs)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []io.WriteCloser{g, z} {
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	read := func(b []byte) (string, error) {
		r, done, err := NewReader(bytes.NewReader(b))
		if err != nil {
			return "", err
		}
		defer done()
		out, err := io.ReadAll(r)
		return string(out), err
	}
	for name, b := range map[string][]byte{"plain": []byte(text), "gzip": gz.Bytes(), "zstd": zs.Bytes()} {
		if got, err := read(b); err != nil || got != text {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
		if name == "plain" {
			continue
		}
		if _, err := read(b[:len(b)/2]); !errors.Is(err, ErrData) || !strings.Contains(err.Error(), name) {
			t.Errorf("half of %s: %v", name, err)
		}
	}
	for _, s := range []string{"", "a", "\x1f\x8b", "\x28\xb5\x2f"} {
		if got, err := read([]byte(s)); err != nil || got != s {
			t.Errorf("%q: %q, %v", s, got, err)
		}
	}
}
