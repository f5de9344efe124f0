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

// blocksFor is noise that a layout gives back: without code 3 where it has none,
// and with scales that are equal where it has one for several.
func blocksFor(l *Layout, name string, n int64) []byte {
	b := noise(name, n)
	if l.typ != tensor.Q2_0 || l.fields != nil {
		return b
	}
	for at := 0; at < len(b); at += 18 {
		for i := at + 2; i < at+18; i++ {
			b[i] &^= b[i] & 0x55 << 1 // 3 becomes 1
		}
		if l.blocks == 2 && at/18%2 == 1 {
			copy(b[at:at+2], b[at-18:])
		}
	}
	return b
}

// TestGolden compares with what ggml makes of the same blocks, and for quern's own
// layouts with what the peer in interop does by their drawings, both ways: the
// inverse starts at the peer's bytes, not at ours alone.
func TestGolden(t *testing.T) {
	seen := map[string]int{}
	for _, file := range []string{"ggml.json", "own.json"} {
		text, err := os.ReadFile("../../testdata/repack/" + file)
		if err != nil {
			t.Fatal(err)
		}
		var cases []golden
		if err := json.Unmarshal(text, &cases); err != nil {
			t.Fatal(err)
		}
		for _, c := range cases {
			seen[c.Layout]++
			c.run(t, file == "own.json")
		}
	}
	for _, l := range Layouts() {
		if seen[l.String()] < 8 {
			t.Errorf("%s: %d cases", l, seen[l.String()])
		}
	}
}

type golden struct {
	Layout, SHA256, Bundle string
	Row, Rows, Experts     int64
}

func (c golden) run(t *testing.T, own bool) {
	name := fmt.Sprintf("%s %d %d %d", c.Layout, c.Row, c.Rows, c.Experts)
	l, err := Parse(c.Layout)
	if err != nil {
		t.Fatal(err)
	}
	shape := tensor.Shape{c.Experts, c.Rows, c.Row}
	if err := l.Check(l.Type(), shape); err != nil || l.Own() != own {
		t.Errorf("%s: own is %v, %v", name, l.Own(), err)
		return
	}
	plain, err := tensor.Bytes(l.Type(), shape)
	if err != nil {
		t.Fatal(err)
	}
	size, err := l.Bytes(shape)
	if err != nil {
		t.Fatal(err)
	}
	src := blocksFor(l, name, plain)
	got := make([]byte, size)
	if err := l.Pack(got, src, c.Row); err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	if first := hex.EncodeToString(got[:len(c.Bundle)/2]); first != c.Bundle {
		t.Errorf("%s: the first bundle is\n%s, the peer's\n%s", name, first, c.Bundle)
	}
	if sum := sha256.Sum256(got); hex.EncodeToString(sum[:]) != c.SHA256 {
		t.Errorf("%s: SHA-256 is %x, the peer's %s", name, sum, c.SHA256)
		return
	}
	// got is what the peer made, so the way back is tested on its bytes.
	back := make([]byte, plain)
	if err := l.Unpack(back, got, c.Row); err != nil {
		t.Errorf("%s: %v", name, err)
	}
	if string(back) != string(src) {
		t.Errorf("%s: unpacking the peer's bytes does not give the blocks that they were made of", name)
	}
}
