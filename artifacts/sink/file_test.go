package sink_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"quern/artifacts/sink"
	"quern/artifacts/sink/sinktest"
)

func TestFile(t *testing.T) {
	sinktest.Run(t, sinktest.Traits{NoKeep: true}, func(t *testing.T) sinktest.Place {
		dir := t.TempDir()
		return sinktest.Folder{Dir: dir, Target: filepath.Join(dir, "a model.gguf")}
	})
}

func TestFileMakesFolders(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a", "b", "c.bin")
	if err := (&sinktest.Send{Data: sinktest.Content(10)}).Run(t.Context(), sinktest.Open(t, path, sink.Options{})); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(path); err != nil || len(b) != 10 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

// image is a place inside a flash image.
type image struct{ sinktest.Folder }

func (i image) Read(t *testing.T, name string) ([]byte, bool) {
	b, ok := i.Folder.Read(t, name)
	if !ok || len(b) != 32<<10 { // a file that was there before
		return b, ok
	}
	for k, x := range b {
		if (k < 8192 || k >= 8192+10_000) && x != 0xff {
			t.Errorf("byte %d of the image is %#x", k, x)
		}
	}
	return b[8192 : 8192+10_000], true
}

// emptyImage is the image around an empty file.
type emptyImage struct{ image }

func TestFlash(t *testing.T) {
	sinktest.Run(t, sinktest.Traits{NoKeep: true}, func(t *testing.T) sinktest.Place {
		dir := t.TempDir()
		f := sinktest.Folder{Dir: dir, Target: "flash:" + filepath.Join(dir, "image.bin") + "?offset=0x2000&partition-size=32K"}
		if strings.HasSuffix(t.Name(), "/empty") {
			return emptyImage{image{f}}
		}
		return image{f}
	})
}

func (i emptyImage) Read(t *testing.T, name string) ([]byte, bool) {
	b, ok := i.Folder.Read(t, name)
	return []byte{}, ok && len(b) == 32<<10 && bytes.Count(b, []byte{0xff}) == len(b)
}

func TestFlashIsTooSmall(t *testing.T) {
	path := filepath.Join(t.TempDir(), "image.bin")
	s := sinktest.Open(t, "flash:"+path+"?offset=64K&partition-size=960KiB&map=64K", sink.Options{})
	err := (&sinktest.Send{Data: make([]byte, 896<<10+1)}).Run(t.Context(), s)
	if !errors.Is(err, sink.ErrTooLarge) || !strings.Contains(err.Error(), "1 more than the 917504") {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("an image was written")
	}
	if err := (&sinktest.Send{Data: make([]byte, 896<<10)}).Run(t.Context(), sinktest.Open(t, "flash:"+path+"?offset=64K&partition-size=960KiB&map=64K", sink.Options{})); err != nil {
		t.Error(err)
	}
}

// TestFlashAround: an image whose surroundings are not erased flash is no image of
// ours.
func TestFlashAround(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "image.bin")
	target := "flash:" + path + "?offset=4K&partition-size=8K"
	data := sinktest.Content(100)
	if err := (&sinktest.Send{Data: data}).Run(t.Context(), sinktest.Open(t, target, sink.Options{})); err != nil {
		t.Fatal(err)
	}
	b, _ := os.ReadFile(path)
	b[8000] = 0
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	s := &sinktest.Send{Data: data, Known: true}
	if err := s.Run(t.Context(), sinktest.Open(t, target, sink.Options{})); err != nil {
		t.Fatal(err)
	}
	if b, _ = os.ReadFile(path); b[8000] != 0xff || s.Produced == 0 {
		t.Error("the image was left as it was")
	}
}

func TestStdout(t *testing.T) {
	var out bytes.Buffer
	data := sinktest.Content(5000)
	if err := (&sinktest.Send{Data: data}).Run(t.Context(), sinktest.Open(t, "-", sink.Options{Stdout: &out})); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(out.Bytes(), data) {
		t.Errorf("%d other bytes", out.Len())
	}
}

// TestTee sends to four targets at once, one of which breaks: all get the same
// bytes, and standard output gets each once.
func TestTee(t *testing.T) {
	dir := t.TempDir()
	data := sinktest.Content(20_000)
	var out bytes.Buffer
	a := &sinktest.Faulty{Sink: sinktest.Open(t, filepath.Join(dir, "a"), sink.Options{}), BreakAt: 7001, Breaks: 1}
	b := &sinktest.Faulty{Sink: sinktest.Open(t, filepath.Join(dir, "b"), sink.Options{}), FlipAt: 3, Flips: 1}
	c := sinktest.Open(t, "flash:"+filepath.Join(dir, "c")+"?partition-size=20K&sector=1K", sink.Options{})
	s := &sinktest.Send{Data: data}
	if err := s.Run(t.Context(), a, b, c, sinktest.Open(t, "-", sink.Options{Stdout: &out})); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b", "c"} {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !bytes.Equal(got[:len(data)], data) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
	if !bytes.Equal(out.Bytes(), data) {
		t.Errorf("standard output got %d bytes", out.Len())
	}
}

// TestOnlyTheLength: where nothing computes a digest and nothing can be read back,
// the file is sent, and the user told.
func TestOnlyTheLength(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	data := sinktest.Content(5000)
	s := &sinktest.Send{Data: data}
	f := &sinktest.Faulty{Sink: sinktest.Open(t, path, sink.Options{}), NoSum: true}
	if err := s.Run(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(path); err != nil || !bytes.Equal(b, data) {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	if !strings.Contains(strings.Join(s.Said, "\n"), "only its length was compared") {
		t.Errorf("said %q", s.Said)
	}
}
