package hub

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"quern/hub/hubtest"
)

// The kill test runs this binary again as a client that is killed.
const (
	childHub   = "HUB_TEST_CHILD_ENDPOINT"
	childSpool = "HUB_TEST_CHILD_SPOOL"
	childSize  = 6_000_000
)

func TestMain(m *testing.M) {
	if end := os.Getenv(childHub); end != "" {
		fmt.Println(childFetch(end, os.Getenv(childSpool)))
		return
	}
	os.Exit(m.Run())
}

// childFetch reads all of the weights.
func childFetch(endpoint, spool string) error {
	ctx := context.Background()
	c, err := New(Options{Endpoint: endpoint, SpoolDir: spool, Concurrency: 2})
	if err != nil {
		return err
	}
	s, err := c.Snapshot(ctx, Ref{rigID, "main"}, SnapshotOptions{})
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.Need(ctx, weights, []Range{{0, childSize}}); err != nil {
		return err
	}
	b, err := s.Open(ctx, weights)
	if err != nil {
		return err
	}
	if err := b.ReadAt(ctx, make([]byte, childSize), 0); err != nil {
		return err
	}
	return s.Finish(ctx)
}

// TestSpoolSurvivesKill kills a client in the middle of its fetch, several
// times over, and then finishes: everything is right, and no more is fetched
// twice than was under way when it died.
func TestSpoolSurvivesKill(t *testing.T) {
	data := noise(40, childSize)
	r := newRig(t, hubtest.Options{}, map[string]*hubtest.File{weights: hubtest.LFS(data)})
	const kills = 5
	for i := range int64(kills) {
		var cmd *exec.Cmd
		started := make(chan struct{})
		r.hub.ClearFaults()
		cut := 600_000 + i*70_001
		journal := filepath.Join(r.spool, "sha256-"+sumHex(data), journalName)
		want := fileSize(journal) + cut/pieceBytes*recordBytes
		r.hub.Inject(hubtest.Fault{On: hubtest.CDN, Times: -1, Stall: true, CutAfter: cut, Stalled: func() {
			<-started
			// Everything but the last, unfinished piece is on disk then.
			for fileSize(journal) < want && t.Context().Err() == nil {
				runtime.Gosched()
			}
			cmd.Process.Kill()
		}})
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd = exec.Command(exe)
		cmd.Env = append(os.Environ(), childHub+"="+r.hub.URL, childSpool+"="+r.spool)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		close(started)
		if err := cmd.Wait(); err == nil {
			t.Fatal("the child was not killed")
		}
	}
	list, err := ListSpool(r.spool)
	if err != nil || len(list.Snapshots) != 1 || list.Snapshots[0].Status() != "partial 0/1" {
		t.Errorf("%+v, %v", list, err)
	}
	r.hub.ClearFaults()
	s := r.snapshot(r.client())
	if err := s.Need(t.Context(), weights, []Range{{0, childSize}}); err != nil {
		t.Fatal(err)
	}
	wantBytes(t, "content", read(t, s, weights, 0, childSize), data)
	if err := s.Finish(t.Context()); err != nil {
		t.Error(err)
	}
	if st := s.Stats(); st.FromSpool < 2*kills*pieceBytes || st.Fetched+st.FromSpool != childSize {
		t.Errorf("%+v", st)
	}
	// A dying client loses what it had not journaled: less than a piece of
	// each connection, and there is one.
	if sent, most := r.hub.Sent(weights), int64(childSize+kills*pieceBytes); sent > most {
		t.Errorf("%d bytes sent, at most %d expected", sent, most)
	}
}

func fileSize(path string) int64 {
	st, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return st.Size()
}

// spooled makes a spool with all of a file in several extents, and gives the
// folder of its entry.
func spooled(t *testing.T, data []byte) (*rig, string) {
	t.Helper()
	r := newRig(t, hubtest.Options{}, map[string]*hubtest.File{weights: hubtest.LFS(data)})
	s := r.snapshot(r.client())
	step := int64(len(data) / 4)
	for off := int64(0); off < int64(len(data)); off += step {
		if err := s.Need(t.Context(), weights, []Range{{off, step}}); err != nil {
			t.Fatal(err)
		}
		read(t, s, weights, off, step)
	}
	if err := s.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.Close()
	r.hub.ResetLog()
	return r, filepath.Join(r.spool, "sha256-"+s.Files()[0].SHA256)
}

// TestSpoolDamage: whatever happens to the files of an entry, the bytes that
// come out are right, and only what was lost is fetched again.
func TestSpoolDamage(t *testing.T) {
	data := noise(41, 400_000)
	edit := func(name string, f func([]byte) []byte) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			path := filepath.Join(dir, name)
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, f(b), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	remove := func(name string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, c := range []struct {
		name   string
		damage func(*testing.T, string)
		again  int64 // bytes fetched again
	}{
		{"none", func(*testing.T, string) {}, 0},
		{"journal torn in its last record", edit(journalName, func(b []byte) []byte { return b[:len(b)-10] }), 0},
		{"journal torn in an extent", edit(journalName, func(b []byte) []byte { return b[:3*recordBytes+30] }), 100_000},
		{"a record with a wrong bit", edit(journalName, func(b []byte) []byte { b[recordBytes+30] ^= 1; return b }), 100_000},
		{"journal with garbage at its end", edit(journalName, func(b []byte) []byte { return append(b, bytes.Repeat([]byte("x"), 200)...) }), 0},
		{"journal zeroed", edit(journalName, func(b []byte) []byte { clear(b); return b }), 400_000},
		{"journal gone", remove(journalName), 400_000},
		{"info gone", remove(infoName), 400_000},
		{"info of another size", edit(infoName, func(b []byte) []byte { return bytes.Replace(b, []byte("400000"), []byte("400001"), 1) }), 400_000},
		{"info of another version", edit(infoName, func(b []byte) []byte { return bytes.Replace(b, []byte(`"version":1`), []byte(`"version":2`), 1) }), 400_000},
		{"a data bit", edit(dataName, func(b []byte) []byte { b[150_000] ^= 1; return b }), 100_000},
		{"data lost in a power failure", edit(dataName, func(b []byte) []byte { clear(b[90_000:210_000]); return b }), 300_000},
		{"data cut", edit(dataName, func(b []byte) []byte { return b[:250_000] }), 200_000},
		{"data gone", remove(dataName), 400_000},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, dir := spooled(t, data)
			c.damage(t, dir)
			s := r.snapshot(r.client())
			if err := s.Need(t.Context(), weights, []Range{{0, 400_000}}); err != nil {
				t.Fatal(err)
			}
			wantBytes(t, "content", read(t, s, weights, 0, 400_000), data)
			if err := s.Finish(t.Context()); err != nil {
				t.Error(err)
			}
			if sent := r.hub.Sent(weights); sent != c.again {
				t.Errorf("%d bytes fetched again, want %d", sent, c.again)
			}
			s.Close()
			// And it has healed.
			r.hub.ResetLog()
			s = r.snapshot(r.client())
			wantBytes(t, "content", read(t, s, weights, 0, 400_000), data)
			if sent := r.hub.Sent(weights); sent != 0 {
				t.Errorf("%d bytes fetched a third time", sent)
			}
		})
	}
}

// noLock is a file system without flock.
type noLock struct{ err error }

func (l noLock) Lock() error            { return l.err }
func (l noLock) RLock() error           { return l.err }
func (l noLock) TryLock() (bool, error) { return false, l.err }
func (l noLock) Unlock() error          { return l.err }

func TestSpoolWithoutFlock(t *testing.T) {
	data := noise(42, 1_000_000)
	for _, lockErr := range []error{syscall.ENOTSUP, syscall.ENOSYS, &os.PathError{Op: "flock", Err: syscall.ENOLCK}} {
		r := newRig(t, hubtest.Options{}, map[string]*hubtest.File{weights: hubtest.LFS(data)})
		soft := func(o *Options) {
			o.hooks.locks.flock = func(string) flocker { return noLock{lockErr} }
		}
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				s, err := r.client(soft).Snapshot(t.Context(), Ref{rigID, "main"}, SnapshotOptions{})
				if err != nil {
					t.Error(err)
					return
				}
				defer s.Close()
				got, err := s.ReadFile(t.Context(), weights, 2_000_000)
				if err != nil || !bytes.Equal(got, data) {
					t.Errorf("%v: %v", lockErr, err)
				}
			})
		}
		wg.Wait()
		for _, name := range listDir(t, r.spool) {
			if strings.HasSuffix(name, "-soft") {
				t.Errorf("lock left behind: %s", name)
			}
		}
		res, err := cleanSpool(t.Context(), r.spool, CleanOptions{OlderThan: -1}, hooks{locks: locks{flock: func(string) flocker { return noLock{lockErr} }}})
		if err != nil || len(res.Removed) != 1 {
			t.Errorf("clean: %+v, %v", res, err)
		}
	}
	r := newRig(t, hubtest.Options{}, map[string]*hubtest.File{weights: hubtest.LFS(data)})
	other := errors.New("some other trouble")
	s := r.snapshot(r.client(func(o *Options) { o.hooks.locks.flock = func(string) flocker { return noLock{other} } }))
	if _, err := s.ReadFile(t.Context(), weights, 2_000_000); !errors.Is(err, other) {
		t.Errorf("a lock that fails for another reason: %v", err)
	}
}

func TestSpoolStaleSoftLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "append")
	if err := os.WriteFile(path+"-soft", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	old := newFakeClock().Now()
	if err := os.Chtimes(path+"-soft", old, old); err != nil {
		t.Fatal(err)
	}
	unlock, err := softLock(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	unlock()
}

// TestSpoolSharesContent: the same content under another name, revision or
// repository is not fetched again.
func TestSpoolSharesContent(t *testing.T) {
	data := noise(43, 200_000)
	r := newRig(t, hubtest.Options{}, map[string]*hubtest.File{"a.safetensors": hubtest.LFS(data)})
	fetchAll(t, r.snapshot(r.client()), map[string]*hubtest.File{"a.safetensors": hubtest.LFS(data)})
	other := hubtest.NewRepo("org/copy")
	other.Commit(map[string]*hubtest.File{"b.safetensors": hubtest.LFS(data)})
	r.hub.Add(other)
	r.hub.ResetLog()
	s, err := r.client().Snapshot(t.Context(), Ref{"org/copy", "main"}, SnapshotOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	wantBytes(t, "copy", read(t, s, "b.safetensors", 0, 200_000), data)
	if sent := r.hub.Sent(""); sent != 0 {
		t.Errorf("%d bytes sent", sent)
	}
}

func TestSpoolRemove(t *testing.T) {
	files := toyFiles()
	r := newRig(t, hubtest.Options{}, files)
	s := r.snapshot(r.client())
	fetchAll(t, s, files)
	if err := s.RemoveSpool(t.Context()); err != nil {
		t.Fatal(err)
	}
	list, err := ListSpool(r.spool)
	if err != nil || len(list.Entries) != 0 || len(list.Snapshots) != 0 {
		t.Errorf("%+v, %v", list, err)
	}
	b, err := s.Open(t.Context(), weights)
	if err == nil {
		err = b.ReadAt(t.Context(), make([]byte, 1), 0)
	}
	if !errors.Is(err, ErrClosed) {
		t.Errorf("read after close: %v", err)
	}
}

func TestListSpoolOfNothing(t *testing.T) {
	list, err := ListSpool(filepath.Join(t.TempDir(), "none"))
	if err != nil || len(list.Entries)+len(list.Snapshots) != 0 {
		t.Errorf("%+v, %v", list, err)
	}
	if res, err := CleanSpool(t.Context(), filepath.Join(t.TempDir(), "none"), CleanOptions{OlderThan: -1}); err != nil || len(res.Removed) != 0 {
		t.Errorf("%+v, %v", res, err)
	}
}
