package sink_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"quern/artifacts/sink"
	"quern/artifacts/sink/sinktest"
)

// only makes a folder with these programs and no others.
func only(t *testing.T, programs ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, p := range programs {
		full, err := exec.LookPath(p)
		if err != nil {
			t.Skipf("%s is not here", p)
		}
		if err := os.Symlink(full, filepath.Join(dir, p)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// oddNames are what a shell would trip over.
var oddNames = []string{"plain", "with space", `it's "so" $HOME`, "-rf", "a;b&c|d", "*", "back\\slash", "ünï", "`id`"}

func TestSSH(t *testing.T) {
	c := sinktest.Client(t, "")
	sinktest.Run(t, sinktest.Traits{}, func(t *testing.T) sinktest.Place {
		dir := t.TempDir()
		return sinktest.Folder{Dir: dir, Target: "ssh:box:" + filepath.Join(dir, "a model's.gguf"), Opt: sink.Options{SSH: c}}
	})
}

func TestADB(t *testing.T) {
	c := sinktest.Client(t, "")
	sinktest.Run(t, sinktest.Traits{}, func(t *testing.T) sinktest.Place {
		dir := t.TempDir()
		return sinktest.Folder{Dir: dir, Target: "adb:" + filepath.Join(dir, "a model's.gguf"), Opt: sink.Options{ADB: c, Settle: 150 * time.Millisecond}}
	})
}

// TestPoorDevice has no tool for SHA-256, no stat and no truncate.
func TestPoorDevice(t *testing.T) {
	bin := only(t, "sh", "cat", "head", "wc", "mkdir", "mv", "rm", "dirname", "sync")
	c := sinktest.Client(t, "PATH="+bin)
	sinktest.Run(t, sinktest.Traits{}, func(t *testing.T) sinktest.Place {
		dir := t.TempDir()
		return sinktest.Folder{Dir: dir, Target: "adb:" + filepath.Join(dir, "model.gguf"), Opt: sink.Options{ADB: c, Settle: 150 * time.Millisecond}}
	})
}

// TestNoisyLogin is a machine whose shell greets, also where it should not.
func TestNoisyLogin(t *testing.T) {
	c := sinktest.Client(t, `case "$a" in *cat*">>"*) ;; *) echo "welcome 12345"; esac`)
	dir := t.TempDir()
	data := sinktest.Content(3000)
	if err := (&sinktest.Send{Data: data}).Run(t.Context(), sinktest.Open(t, "ssh:box:"+dir+"/x", sink.Options{SSH: c})); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(dir + "/x"); err != nil || string(b) != string(data) {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

func TestNamesAreQuoted(t *testing.T) {
	c := sinktest.Client(t, "")
	for _, name := range oddNames {
		dir := filepath.Join(t.TempDir(), name)
		data := sinktest.Content(500)
		for _, target := range []string{"ssh:box:", "adb:"} {
			path := filepath.Join(dir, target[:3], name)
			s := sinktest.Open(t, target+path, sink.Options{SSH: c, ADB: c})
			if err := (&sinktest.Send{Data: data}).Run(t.Context(), s); err != nil {
				t.Errorf("%s: %v", path, err)
				continue
			}
			if b, err := os.ReadFile(path); err != nil || string(b) != string(data) {
				t.Errorf("%s: %d bytes, %v", path, len(b), err)
			}
			if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 1 {
				t.Errorf("%s: %v", path, left)
			}
		}
	}
}

// TestRelativePath of ssh starts at the home folder, and may start with a dash.
func TestRelativePath(t *testing.T) {
	home := t.TempDir()
	c := sinktest.Client(t, "cd "+home)
	s := sinktest.Open(t, "ssh:box:-models/-x", sink.Options{SSH: c})
	if err := (&sinktest.Send{Data: []byte("abc")}).Run(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(home + "/-models/-x"); err != nil || string(b) != "abc" {
		t.Errorf("%q, %v", b, err)
	}
}

// TestClientBreaks ends the client in the middle, as a cable does.
func TestClientBreaks(t *testing.T) {
	for _, kind := range []string{"ssh:box:", "adb:"} {
		for _, after := range []int{0, 1, 40_000, 99_999} {
			t.Run(fmt.Sprint(kind, after), func(t *testing.T) {
				dir := t.TempDir()
				once := filepath.Join(dir, "broken")
				c := sinktest.Client(t, fmt.Sprintf(`case "$a" in *cat*">>"*) if [ ! -e %s ]; then : > %s; head -c %d | sh -c "$a"; echo "Connection reset by peer" >&2; exit 255; fi;; esac`, once, once, after))
				data := sinktest.Content(100_000)
				s := &sinktest.Send{Data: data}
				f := &sinktest.Faulty{Sink: sinktest.Open(t, kind+dir+"/x", sink.Options{SSH: c, ADB: c})}
				if err := s.Run(t.Context(), f); err != nil {
					t.Fatal(err)
				}
				if b, err := os.ReadFile(dir + "/x"); err != nil || string(b) != string(data) {
					t.Errorf("%d bytes, %v", len(b), err)
				}
				if f.Opens != 2 || s.Pauses != 1 {
					t.Errorf("%d opens, %d pauses: %q", f.Opens, s.Pauses, s.Said)
				}
			})
		}
	}
}

// TestLateFlush is a device that takes its time: the client has ended long before
// the bytes are there.
func TestLateFlush(t *testing.T) {
	dir := t.TempDir()
	c := sinktest.Client(t, `case "$a" in *cat*">>"*) cat > `+dir+`/buffer; (sleep 0.3; sh -c "$a" < `+dir+`/buffer) > /dev/null 2>&1 & exit 0;; esac`)
	data := sinktest.Content(50_000)
	s := &sinktest.Send{Data: data}
	if err := s.Run(t.Context(), sinktest.Open(t, "adb:"+dir+"/x", sink.Options{ADB: c})); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(dir + "/x"); err != nil || string(b) != string(data) || s.Pauses != 0 {
		t.Errorf("%d bytes, %v, %d pauses", len(b), err, s.Pauses)
	}
}

func TestNotEnoughSpace(t *testing.T) {
	df := func(free int) string {
		dir := t.TempDir()
		text := fmt.Sprintf("#!/bin/sh\necho Filesystem 1024-blocks Used Available Capacity Mounted on\necho /dev/block/dm-0 100000 1 %d 1%% /data\n", free)
		if err := os.WriteFile(filepath.Join(dir, "df"), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		return "PATH=" + dir + ":$PATH"
	}
	for _, kind := range []string{"ssh:box:", "adb:"} {
		dir := t.TempDir()
		opt := sink.Options{SSH: sinktest.Client(t, df(97)), ADB: sinktest.Client(t, df(97))}
		f := &sinktest.Faulty{Sink: sinktest.Open(t, kind+dir+"/x", opt)}
		err := (&sinktest.Send{Data: make([]byte, 100_000)}).Run(t.Context(), f)
		if !errors.Is(err, sink.ErrNoSpace) || !strings.Contains(err.Error(), "100000 bytes are to be sent and 99328 are free") || f.Opens != 0 {
			t.Errorf("%s: %v after %d opens", kind, err, f.Opens)
		}
		opt = sink.Options{SSH: sinktest.Client(t, df(98)), ADB: sinktest.Client(t, df(98))}
		if err := (&sinktest.Send{Data: make([]byte, 100_000)}).Run(t.Context(), sinktest.Open(t, kind+dir+"/x", opt)); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// TestFullDisk is a device whose cat finds no more space.
func TestFullDisk(t *testing.T) {
	c := sinktest.Client(t, `case "$a" in *cat*">>"*) head -c 30000 | sh -c "$a"; echo "cat: write error: No space left on device" >&2; exit 1;; esac`)
	dir := t.TempDir()
	s := &sinktest.Send{Data: make([]byte, 100_000)}
	err := s.Run(t.Context(), sinktest.Open(t, "ssh:box:"+dir+"/x", sink.Options{SSH: c}))
	if !errors.Is(err, sink.ErrNoSpace) {
		t.Errorf("%v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

func TestMessages(t *testing.T) {
	for _, c := range []struct {
		target, says string
		code         int
		want         string
		refused      bool
	}{
		{"ssh:box:/x", "user@box: Permission denied (publickey).", 255, "must work without questions", true},
		{"ssh:box:/x", "ssh: connect to host box port 22: Connection refused", 255, "Connection refused", false},
		{"ssh:box:/x", "Host key verification failed.", 255, "Host key", true},
		{"adb:/x", "error: device unauthorized.", 1, "allow this computer", true},
		{"adb:/x", "error: more than one device/emulator", 1, "adb:SERIAL:/x", true},
		{"adb:AB12:/x", "error: device 'AB12' not found", 1, "AB12", false},
	} {
		cl := sinktest.Client(t, fmt.Sprintf("echo %q >&2; exit %d", c.says, c.code))
		s := &sinktest.Send{Data: []byte("x")}
		err := s.Run(t.Context(), sinktest.Open(t, c.target, sink.Options{SSH: cl, ADB: cl}))
		if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, sink.ErrRefused) != c.refused || !errors.Is(err, sink.ErrTarget) {
			t.Errorf("%s: %v", c.says, err)
		}
		if c.refused != (s.Pauses == 0) {
			t.Errorf("%s: %d pauses", c.says, s.Pauses)
		}
	}
}

func TestNoClient(t *testing.T) {
	err := (&sinktest.Send{Data: []byte("x")}).Run(t.Context(), sinktest.Open(t, "adb:/x", sink.Options{ADB: []string{"no-such-adb-here"}}))
	if err == nil || !strings.Contains(err.Error(), "not installed") {
		t.Errorf("%v", err)
	}
}

func TestTargetIsAFolder(t *testing.T) {
	c := sinktest.Client(t, "")
	dir := t.TempDir()
	err := (&sinktest.Send{Data: []byte("x")}).Run(t.Context(), sinktest.Open(t, "ssh:box:"+dir, sink.Options{SSH: c}))
	if !errors.Is(err, sink.ErrFolder) || !strings.Contains(err.Error(), "end the target with /") {
		t.Errorf("%v", err)
	}
}

// TestCancelEndsTheClient: a transfer that is broken off leaves no client behind
// and does not wait for one.
func TestCancelEndsTheClient(t *testing.T) {
	c := sinktest.Client(t, `case "$a" in *cat*">>"*) exec sleep 600;; esac`)
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("Ctrl-C")
	s := &sinktest.Send{Data: make([]byte, 20<<20), Stop: func(at int) error {
		if at > 100_000 {
			cancel(cause)
		}
		return ctx.Err()
	}}
	if err := s.Run(ctx, sinktest.Open(t, "ssh:box:"+t.TempDir()+"/x", sink.Options{SSH: c})); !errors.Is(err, cause) {
		t.Errorf("%v", err)
	}
}
