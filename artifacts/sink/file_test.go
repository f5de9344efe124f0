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

// folder is a place on this machine, reached by whatever target.
type folder struct {
	dir    string
	target string
	opt    sink.Options
}

func open(t *testing.T, target string, opt sink.Options) sink.Sink {
	t.Helper()
	tg, err := sink.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	s, err := sink.Open(tg, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func (f folder) Open(t *testing.T) sink.Sink {
	t.Helper()
	return open(t, f.target, f.opt)
}

func (f folder) Read(t *testing.T, name string) ([]byte, bool) {
	b, err := os.ReadFile(filepath.Join(f.dir, name))
	return b, err == nil
}

func (f folder) Write(t *testing.T, name string, b []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(f.dir, name), b, 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestFile(t *testing.T) {
	sinktest.Run(t, sinktest.Traits{NoKeep: true}, func(t *testing.T) sinktest.Place {
		dir := t.TempDir()
		return folder{dir: dir, target: filepath.Join(dir, "a model.gguf")}
	})
}

func TestFileMakesFolders(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a", "b", "c.bin")
	if err := (&sinktest.Send{Data: sinktest.Content(10)}).Run(t.Context(), open(t, path, sink.Options{})); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(path); err != nil || len(b) != 10 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

// image is a place inside a flash image.
type image struct{ folder }

func (i image) Read(t *testing.T, name string) ([]byte, bool) {
	b, ok := i.folder.Read(t, name)
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
		f := folder{dir: dir, target: "flash:" + filepath.Join(dir, "image.bin") + "?offset=0x2000&partition-size=32K"}
		if strings.HasSuffix(t.Name(), "/empty") {
			return emptyImage{image{f}}
		}
		return image{f}
	})
}

func (i emptyImage) Read(t *testing.T, name string) ([]byte, bool) {
	b, ok := i.folder.Read(t, name)
	return []byte{}, ok && len(b) == 32<<10 && bytes.Count(b, []byte{0xff}) == len(b)
}

func TestFlashIsTooSmall(t *testing.T) {
	path := filepath.Join(t.TempDir(), "image.bin")
	s := open(t, "flash:"+path+"?offset=64K&partition-size=960KiB&map=64K", sink.Options{})
	err := (&sinktest.Send{Data: make([]byte, 896<<10+1)}).Run(t.Context(), s)
	if !errors.Is(err, sink.ErrTooLarge) || !strings.Contains(err.Error(), "1 more than the 917504") {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("an image was written")
	}
	if err := (&sinktest.Send{Data: make([]byte, 896<<10)}).Run(t.Context(), open(t, "flash:"+path+"?offset=64K&partition-size=960KiB&map=64K", sink.Options{})); err != nil {
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
	if err := (&sinktest.Send{Data: data}).Run(t.Context(), open(t, target, sink.Options{})); err != nil {
		t.Fatal(err)
	}
	b, _ := os.ReadFile(path)
	b[8000] = 0
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	s := &sinktest.Send{Data: data, Known: true}
	if err := s.Run(t.Context(), open(t, target, sink.Options{})); err != nil {
		t.Fatal(err)
	}
	if b, _ = os.ReadFile(path); b[8000] != 0xff || s.Produced == 0 {
		t.Error("the image was left as it was")
	}
}

func TestStdout(t *testing.T) {
	var out bytes.Buffer
	data := sinktest.Content(5000)
	if err := (&sinktest.Send{Data: data}).Run(t.Context(), open(t, "-", sink.Options{Stdout: &out})); err != nil {
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
	a := &sinktest.Faulty{Sink: open(t, filepath.Join(dir, "a"), sink.Options{}), BreakAt: 7001, Breaks: 1}
	b := &sinktest.Faulty{Sink: open(t, filepath.Join(dir, "b"), sink.Options{}), FlipAt: 3, Flips: 1}
	c := open(t, "flash:"+filepath.Join(dir, "c")+"?partition-size=20K&sector=1K", sink.Options{})
	s := &sinktest.Send{Data: data}
	if err := s.Run(t.Context(), a, b, c, open(t, "-", sink.Options{Stdout: &out})); err != nil {
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
