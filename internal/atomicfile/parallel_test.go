package atomicfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
)

func TestNoReplace(t *testing.T) {
	ways(t, func(t *testing.T, opt Options) {
		dir := t.TempDir()
		path := filepath.Join(dir, "a")
		opt.NoReplace = true
		const n = 8
		var ws [n]*File
		for i := range ws {
			w, err := Create(path, opt)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(w, "writer %d", i)
			ws[i] = w
		}
		var wg sync.WaitGroup
		var errs [n]error
		for i, w := range ws {
			wg.Go(func() { errs[i] = w.Commit() })
		}
		wg.Wait()
		winner := -1
		for i, err := range errs {
			switch {
			case err == nil && winner < 0:
				winner = i
			case err == nil:
				t.Errorf("writers %d and %d both committed", winner, i)
			case !errors.Is(err, fs.ErrExist):
				t.Errorf("writer %d: %v", i, err)
			}
		}
		if got, want := content(t, path), fmt.Sprintf("writer %d", winner); got != want {
			t.Errorf("content %q, want %q", got, want)
		}
		if got := names(t, dir); got != "a" {
			t.Errorf("folder has %q", got)
		}
		if _, err := Create(path, opt); !errors.Is(err, fs.ErrExist) {
			t.Errorf("Create on a taken name: %v", err)
		}
	})
}

// TestParallelWriters lets many writers replace one file while readers look:
// what is seen is always one of the contents, whole.
func TestParallelWriters(t *testing.T) {
	ways(t, func(t *testing.T, opt Options) {
		path := filepath.Join(t.TempDir(), "index.json")
		body := func(i int) []byte { return bytes.Repeat([]byte{'a' + byte(i)}, 5000) }
		if err := WriteFile(path, body(0), opt); err != nil {
			t.Fatal(err)
		}
		var writers, readers sync.WaitGroup
		stop := make(chan struct{})
		for range 2 {
			readers.Go(func() {
				for {
					b, err := os.ReadFile(path)
					if err != nil || len(b) != 5000 || !bytes.Equal(b, bytes.Repeat(b[:1], 5000)) {
						t.Errorf("read %d bytes, %v", len(b), err)
						return
					}
					select {
					case <-stop:
						return
					default:
					}
				}
			})
		}
		for i := range 8 {
			writers.Go(func() {
				for range 5 {
					if err := WriteFile(path, body(i), opt); err != nil {
						t.Error(err)
					}
				}
			})
		}
		writers.Wait()
		close(stop)
		readers.Wait()
		if got := names(t, filepath.Dir(path)); got != "index.json" {
			t.Errorf("folder has %q", got)
		}
	})
}

func TestAbandonedFilesAreRemoved(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Log("there an open file cannot be removed, and an age decides")
		return
	}
	dir := t.TempDir()
	opt := Options{named: true}
	path := filepath.Join(dir, "out")
	alive, err := Create(path, opt)
	if err != nil {
		t.Fatal(err)
	}
	defer alive.Abort()
	// What a killed process leaves: the names, without the locks.
	dead := filepath.Join(dir, tempPrefix("out")+"0123abcd"+TempMark)
	keep := []string{
		filepath.Join(dir, tempPrefix("other")+"0123abcd"+TempMark),
		filepath.Join(dir, tempPrefix("out.x")+"0123abcd"+TempMark),
		filepath.Join(dir, ".out.hidden"),
	}
	for _, p := range append(keep, dead) {
		if err := os.WriteFile(p, []byte("half"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	other, err := Create(path, opt)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Abort()
	if _, err := os.Lstat(dead); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("abandoned file is still there: %v", err)
	}
	for _, p := range append(keep, alive.Name(), other.Name()) {
		if _, err := os.Lstat(p); err != nil {
			t.Errorf("removed: %v", err)
		}
	}
	io.WriteString(alive, "alive")
	if err := alive.Commit(); err != nil {
		t.Error(err)
	}
	if RemoveAbandoned(path) {
		t.Error("a finished file was removed")
	}
}

// TestCleanersAndWriters lets cleaners hunt while writers of the same name
// work: no writer may lose its file.
func TestCleanersAndWriters(t *testing.T) {
	ways(t, func(t *testing.T, opt Options) {
		dir := t.TempDir()
		path := filepath.Join(dir, "out")
		stop := make(chan struct{})
		var cleaners, writers sync.WaitGroup
		for range 2 {
			cleaners.Go(func() {
				for {
					removeAbandoned(dir, "out")
					select {
					case <-stop:
						return
					default:
					}
				}
			})
		}
		for range 4 {
			writers.Go(func() {
				for range 50 {
					if err := WriteFile(path, []byte("whole"), opt); err != nil {
						t.Error(err)
					}
				}
			})
		}
		writers.Wait()
		close(stop)
		cleaners.Wait()
		if names(t, dir) != "out" || content(t, path) != "whole" {
			t.Errorf("folder has %q", names(t, dir))
		}
	})
}
