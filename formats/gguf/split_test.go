package gguf

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"quern/tensor"
)

// folder is a set of files in memory that counts what is closed.
type folder struct {
	files  map[string]string
	opened []string
	closed int
}

type closing struct {
	tensor.Blob
	f *folder
}

func (c closing) Close() error { c.f.closed++; return nil }

func (f *folder) open(_ context.Context, name string) (tensor.Blob, error) {
	f.opened = append(f.opened, name)
	s, ok := f.files[name]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return closing{tensor.BytesBlob(name, []byte(s)), f}, nil
}

func splitKeys(no, count uint32, total uint32) []string {
	le16 := func(n uint32) string { return u32(n)[:2] }
	return []string{kv(KeySplitNo, 2, le16(no)), kv(KeySplitCount, 2, le16(count)), kv(KeySplitTensors, 5, u32(total))}
}

func row(name string) string { return info(name, 0, 0, 8) }

func three() *folder {
	return &folder{files: map[string]string{
		"d/m-00001-of-00003.gguf": file(append([]string{kv("general.name", 8, str("m"))}, splitKeys(0, 3, 2)...), nil, ""),
		"d/m-00002-of-00003.gguf": file(splitKeys(1, 3, 2), []string{row("a")}, strings.Repeat("a", 32)),
		"d/m-00003-of-00003.gguf": file(splitKeys(2, 3, 2), []string{row("b")}, strings.Repeat("b", 32)),
	}}
}

func TestOpenSet(t *testing.T) {
	var key tensor.Key
	key[0] = 1
	f := three()
	s, err := OpenSet(ctx, "d/m-00001-of-00003.gguf", f.open, Options{Key: key})
	if err != nil {
		t.Fatal(err)
	}
	list, err := s.All()
	if err != nil || len(list) != 2 || list[0].Name != "a" || list[1].Name != "b" {
		t.Fatalf("tensors %v, %v", list, err)
	}
	// Both lie at the same place of their shard.
	if list[0].Origin[0].Offset != list[1].Origin[0].Offset || list[0].Key == list[1].Key || list[0].Key.IsZero() {
		t.Errorf("keys %v and %v of tensors at %v and %v", list[0].Key, list[1].Key, list[0].Origin, list[1].Origin)
	}
	b := make([]byte, 32)
	if err := list[1].ReadRows(ctx, b, 0, 1); err != nil || string(b) != strings.Repeat("b", 32) {
		t.Errorf("row of b: %q, %v", b, err)
	}
	if keys(s.Meta) != "general.name" || s.Find("b") == nil || s.Find("b").Tensor != list[1] || s.Find("c") != nil || len(s.Problems()) != 0 {
		t.Errorf("metadata %q, b %v", keys(s.Meta), s.Find("b"))
	}
	if err := s.Close(); err != nil || f.closed != 3 {
		t.Errorf("%d blobs closed, %v", f.closed, err)
	}

	alone := &folder{files: map[string]string{"x.gguf": two()}}
	s, err = OpenSet(ctx, "x.gguf", alone.open, Options{})
	if err != nil || len(s.Files) != 1 || s.Find("a") == nil || len(alone.opened) != 1 {
		t.Errorf("a file alone: %v", err)
	}
}

func TestOpenSetRefuses(t *testing.T) {
	const first = "d/m-00001-of-00003.gguf"
	tests := []struct {
		name, open string
		change     func(map[string]string)
		is         error
		text       string
	}{
		{"missing shard", first, func(m map[string]string) { delete(m, "d/m-00002-of-00003.gguf") }, fs.ErrNotExist, "shard 2 of 3: open d/m-00002-of-00003.gguf"},
		{"second shard given", "d/m-00002-of-00003.gguf", nil, ErrSplit, "give the first one, d/m-00001-of-00003.gguf"},
		{"name without numbers", "other.gguf", func(m map[string]string) { m["other.gguf"] = m[first] }, ErrSplit, "NAME-00001-of-00003.gguf"},
		{"name with another count", "d/m-00001-of-00004.gguf", func(m map[string]string) { m["d/m-00001-of-00004.gguf"] = m[first] }, ErrSplit, "says 4 shards"},
		{"wrong number", first, func(m map[string]string) {
			m["d/m-00003-of-00003.gguf"] = file(splitKeys(1, 3, 2), []string{row("b")}, zeros(32))
		}, ErrSplit, "split.no is 1, 2 is expected"},
		{"wrong count", first, func(m map[string]string) {
			m["d/m-00003-of-00003.gguf"] = file(splitKeys(2, 2, 2), []string{row("b")}, zeros(32))
		}, ErrSplit, "split.count is 2"},
		{"no number", first, func(m map[string]string) {
			m["d/m-00003-of-00003.gguf"] = file(splitKeys(2, 3, 2)[1:], []string{row("b")}, zeros(32))
		}, ErrNoKey, "split.no"},
		{"number as string", first, func(m map[string]string) {
			m["d/m-00003-of-00003.gguf"] = file(append([]string{kv(KeySplitNo, 8, str("2"))}, splitKeys(2, 3, 2)[1:]...), []string{row("b")}, zeros(32))
		}, ErrValue, "str"},
		{"count 0", first, func(m map[string]string) { m[first] = file(splitKeys(0, 0, 2), nil, "") }, ErrSplit, "split.count is 0"},
		{"count over u16", first, func(m map[string]string) {
			m[first] = file([]string{kv(KeySplitNo, 4, u32(0)), kv(KeySplitCount, 4, u32(1<<20))}, nil, "")
		}, ErrSplit, "1048576"},
		{"wrong total", first, func(m map[string]string) { m[first] = file(splitKeys(0, 3, 3), nil, "") }, ErrSplit, "says 3 tensors, the shards hold 2"},
		{"no total", first, func(m map[string]string) { m[first] = file(splitKeys(0, 3, 3)[:2], nil, "") }, ErrNoKey, KeySplitTensors},
		{"tensor twice", first, func(m map[string]string) {
			m["d/m-00003-of-00003.gguf"] = file(splitKeys(2, 3, 2), []string{row("a")}, zeros(32))
		}, ErrDuplicate, `tensor "a"`},
		{"broken shard", first, func(m map[string]string) { m["d/m-00003-of-00003.gguf"] = "<html>" }, ErrHTML, "shard 3 of 3"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := three()
			if tt.change != nil {
				tt.change(f.files)
			}
			_, err := OpenSet(ctx, tt.open, f.open, Options{})
			if !errors.Is(err, tt.is) || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("error %v, want %v with %q", err, tt.is, tt.text)
			}
			opened := 0
			for _, name := range f.opened {
				if _, ok := f.files[name]; ok {
					opened++
				}
			}
			if f.closed != opened {
				t.Errorf("%d of %d blobs closed after the error", f.closed, opened)
			}
		})
	}
}

// TestIntegerWidths: shards of other writers keep their numbers in other widths.
func TestIntegerWidths(t *testing.T) {
	f := three()
	f.files["d/m-00002-of-00003.gguf"] = file([]string{kv(KeySplitNo, 4, u32(1)), kv(KeySplitCount, 11, u64(3))}, []string{row("a")}, zeros(32))
	if _, err := OpenSet(ctx, "d/m-00001-of-00003.gguf", f.open, Options{}); err != nil {
		t.Error(err)
	}
}

func TestSplitNames(t *testing.T) {
	if got := SplitName("d/m", 0, 12); got != "d/m-00001-of-00012.gguf" {
		t.Error(got)
	}
	stem, i, n, ok := ParseSplitName("d/m-00002-of-00005-00003-of-00012.gguf")
	if stem != "d/m-00002-of-00005" || i != 2 || n != 12 || !ok {
		t.Error(stem, i, n, ok)
	}
	for _, name := range []string{"m.gguf", "m-1-of-2.gguf", "m-00000-of-00002.gguf", "m-00003-of-00002.gguf", "m-00001-of-00002.gguf.part", "m-000001-of-00002.gguf"} {
		if stem, i, n, ok := ParseSplitName(name); ok {
			t.Errorf("%s taken for shard %d of %d of %s", name, i, n, stem)
		}
	}
}

// TestSplitGoldens plans the shards of gguf-py and compares every byte.
func TestSplitGoldens(t *testing.T) {
	meta := NewMetadata(KV{"general.architecture", Scalar("quern-test")}, KV{"general.name", Scalar("split")})
	var list []TensorSpec
	for i, n := range []int64{8, 16, 24, 16, 8} {
		list = append(list, TensorSpec{fmt.Sprintf("t%d", i), tensor.F32, tensor.Shape{n}})
	}
	fill := []string{"\x00\x00\x00\x00", "\x00\x00\x80\x3f", "\x00\x00\x00\x40", "\x00\x00\x40\x40", "\x00\x00\x80\x40"} // 0 to 4 as f32
	for _, tt := range []struct {
		stem   string
		opt    SplitOptions
		shards int
		warn   int
	}{
		{"by-count", SplitOptions{MaxTensors: 2}, 3, 0},
		{"by-size", SplitOptions{MaxBytes: 130}, 3, 0},
		{"bare-first", SplitOptions{MaxBytes: 96, NoTensorFirst: true}, 4, 0},
	} {
		t.Run(tt.stem, func(t *testing.T) {
			shards, warn, err := PlanSplit(tt.stem, meta, list, tt.opt, LayoutOptions{})
			if err != nil || len(shards) != tt.shards || len(warn) != tt.warn {
				t.Fatalf("%d shards, warnings %q, %v, want %d", len(shards), warn, err, tt.shards)
			}
			for _, s := range shards {
				var out bytes.Buffer
				w, err := s.Layout.NewWriter(&out)
				if err != nil {
					t.Fatal(err)
				}
				for i, p := range s.Layout.Tensors {
					if _, err := w.Write([]byte(strings.Repeat(fill[s.First+i], int(p.Bytes/4)))); err != nil {
						t.Fatal(err)
					}
				}
				if err := w.Close(); err != nil {
					t.Fatal(err)
				}
				if want := fixture(t, s.Name); !bytes.Equal(out.Bytes(), want) {
					t.Errorf("%s\n got %q\nwant %q", s.Name, out.Bytes(), want)
				}
			}
			open := func(_ context.Context, name string) (tensor.Blob, error) {
				return tensor.BytesBlob(name, fixture(t, name)), nil
			}
			set, err := OpenSet(ctx, SplitName(tt.stem, 0, tt.shards), open, Options{})
			if err != nil || !set.Meta.Equal(meta) {
				t.Fatalf("shards read as one: %v", err)
			}
			if all, err := set.All(); err != nil || len(all) != 5 || all[4].Name != "t4" {
				t.Errorf("tensors %v, %v", all, err)
			}
		})
	}
}

// TestSplitLimit: no shard is over the limit unless one tensor is, and that is
// said.
func TestSplitLimit(t *testing.T) {
	var list []TensorSpec
	for i, n := range []int64{100, 40, 60, 1, 99, 101, 50, 50, 1, 250} {
		list = append(list, TensorSpec{fmt.Sprintf("t%d", i), tensor.I8, tensor.Shape{n}})
	}
	shards, warn, err := PlanSplit("m", nil, list, SplitOptions{MaxBytes: 100}, LayoutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range shards {
		sum := int64(0)
		for _, p := range s.Layout.Tensors {
			sum += p.Bytes
		}
		got = append(got, fmt.Sprintf("%d:%d", s.First, sum))
		if sum > 100 && len(s.Layout.Tensors) > 1 {
			t.Errorf("%s has %d bytes in %d tensors", s.Name, sum, len(s.Layout.Tensors))
		}
	}
	if want := "0:100 1:100 3:100 5:101 6:100 8:1 9:250"; strings.Join(got, " ") != want {
		t.Errorf("shards %v, want %s", got, want)
	}
	if len(warn) != 2 || !strings.Contains(warn[0], "t5") || !strings.Contains(warn[1], "t9") || !strings.Contains(warn[1], "250 bytes") {
		t.Errorf("warnings %q", warn)
	}
	shards, _, err = PlanSplit("m", nil, list, SplitOptions{MaxBytes: 1 << 20}, LayoutOptions{})
	if err != nil || len(shards) != 1 || shards[0].Name != "m.gguf" {
		t.Errorf("one file: %v, %v", shards, err)
	}
	// A shard must say its own alignment, since the keys of the first do not
	// reach it.
	shards, _, err = PlanSplit("m", NewMetadata(KV{KeyAlignment, Scalar(uint32(64))}), list, SplitOptions{MaxTensors: 5}, LayoutOptions{})
	if err != nil || len(shards) != 2 || shards[1].Layout.Alignment != 64 {
		t.Errorf("aligned shards: %v, %v", shards, err)
	}
	if _, _, err := PlanSplit("m", nil, list, SplitOptions{MaxBytes: -1}, LayoutOptions{}); !errors.Is(err, ErrWrite) {
		t.Errorf("negative limit: %v", err)
	}
}

func TestParseSplitSize(t *testing.T) {
	for s, want := range map[string]int64{"0": 0, "7": 7, "300K": 300e3, "2M": 2e6, "10G": 10e9} {
		if got, err := ParseSplitSize(s); err != nil || got != want {
			t.Errorf("%s: %d, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "K", "-1M", "1.5G", "1KM", "1k", "1T", "9223372036854775807K", "99999999999999999999"} {
		if got, err := ParseSplitSize(s); err == nil {
			t.Errorf("%q taken for %d", s, got)
		}
	}
}
