package shardname_test

import (
	"testing"

	"quern/internal/shardname"
)

func TestSplit(t *testing.T) {
	for _, c := range []struct {
		name, ext string
		stem      string
		i, n      int
		ok        bool
	}{
		{"a/m-00001-of-00003.gguf", ".gguf", "a/m", 1, 3, true},
		{"m-12345-of-67890.safetensors", ".safetensors", "m", 12345, 67890, true},
		{"-00001-of-00002.gguf", ".gguf", "", 1, 2, true},
		{"m-00000-of-00002.gguf", ".gguf", "m", 0, 2, true}, // no shard, but such a name
		{"m-00003-of-00002.gguf", ".gguf", "m", 3, 2, true},
		{"m-00001-of-00002-00003-of-00004.gguf", ".gguf", "m-00001-of-00002", 3, 4, true},
		{name: "m-00001-of-00003.gguf", ext: ".safetensors"},
		{name: "m-00001-of-00003.GGUF", ext: ".gguf"},
		{name: "m-00001-of-00003.gguf.part", ext: ".gguf"},
		{name: "m-0001-of-0003.gguf", ext: ".gguf"},
		{name: "m-+0001-of-00003.gguf", ext: ".gguf"},
		{name: "m-00001-of- 0003.gguf", ext: ".gguf"},
		{name: "m-00001-of-000x3.gguf", ext: ".gguf"},
		{name: "m_00001-of-00003.gguf", ext: ".gguf"},
		{name: "00001-of-00003.gguf", ext: ".gguf"},
		{name: ".gguf", ext: ".gguf"},
		{name: "", ext: ".gguf"},
	} {
		stem, i, n, ok := shardname.Split(c.name, c.ext)
		if stem != c.stem || i != c.i || n != c.n || ok != c.ok {
			t.Errorf("Split(%q): %q %d %d %v", c.name, stem, i, n, ok)
		}
		if ok && shardname.Join(stem, i, n, c.ext) != c.name {
			t.Errorf("%q is put together as %q", c.name, shardname.Join(stem, i, n, c.ext))
		}
	}
}
