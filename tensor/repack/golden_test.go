package repack

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"quern/tensor"
)

// noise are the bytes that interop/make_repack.py makes of a name.
func noise(name string, n int64) []byte {
	seed := uint64(0xcbf29ce484222325)
	for _, c := range []byte(name) {
		seed = (seed ^ uint64(c)) * 0x100000001b3
	}
	out := make([]byte, (n+7)/8*8)
	for i := 0; i < len(out); i += 8 {
		seed += 0x9e3779b97f4a7c15
		z := seed
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		binary.LittleEndian.PutUint64(out[i:], z^z>>31)
	}
	return out[:n]
}

// TestGolden compares with what ggml makes of the same blocks, both ways: the
// inverse starts at ggml's bytes, not at ours alone.
func TestGolden(t *testing.T) {
	text, err := os.ReadFile("../../testdata/repack/ggml.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Layout, SHA256, Bundle string
		Row, Rows, Experts     int64
	}
	if err := json.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, c := range cases {
		seen[c.Layout]++
		name := fmt.Sprintf("%s %d %d %d", c.Layout, c.Row, c.Rows, c.Experts)
		l, err := Parse(c.Layout)
		if err != nil {
			t.Fatal(err)
		}
		shape := tensor.Shape{c.Experts, c.Rows, c.Row}
		if err := l.Check(l.Type(), shape); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		size, err := tensor.Bytes(l.Type(), shape)
		if err != nil {
			t.Fatal(err)
		}
		src := noise(name, size)
		got := make([]byte, size)
		if err := l.Pack(got, src, c.Row); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if first := hex.EncodeToString(got[:len(c.Bundle)/2]); first != c.Bundle {
			t.Errorf("%s: the first bundle is\n%s, ggml's\n%s", name, first, c.Bundle)
		}
		if sum := sha256.Sum256(got); hex.EncodeToString(sum[:]) != c.SHA256 {
			t.Errorf("%s: SHA-256 is %x, ggml's %s", name, sum, c.SHA256)
			continue
		}
		// got is what ggml made, so the way back is tested on ggml's bytes.
		back := make([]byte, size)
		if err := l.Unpack(back, got, c.Row); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if string(back) != string(src) {
			t.Errorf("%s: unpacking ggml's bytes does not give the blocks that they were made of", name)
		}
	}
	for _, l := range Layouts() {
		if seen[l.String()] < 8 {
			t.Errorf("%s: %d cases", l, seen[l.String()])
		}
	}
}
