package hub

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"quern/hub/hubtest"
)

// Pitfall 112: right size, wrong bytes. A small file is refused and fetched
// again; the second failure keeps evidence.
func TestPitfall112WrongBytesInASmallFile(t *testing.T) {
	for _, lfs := range []bool{false, true} {
		f := &hubtest.File{Data: noise(16, 5000), LFS: lfs}
		on := hubtest.ResolveCache
		if lfs {
			on = hubtest.CDN
		}
		r := newRig(t, hubtest.Options{}, map[string]*hubtest.File{"f": f})
		r.hub.Inject(hubtest.Fault{On: on, Flip: 1 + 2500})
		got, err := r.snapshot(r.client()).ReadFile(t.Context(), "f", 10_000)
		if err != nil || !bytes.Equal(got, f.Data) {
			t.Errorf("LFS %v: %v", lfs, err)
		}
		r = newRig(t, hubtest.Options{}, map[string]*hubtest.File{"f": f})
		r.hub.Inject(hubtest.Fault{On: on, Flip: 1 + 2500, Times: -1})
		_, err = r.snapshot(r.client()).ReadFile(t.Context(), "f", 10_000)
		checkEvidence(t, r, err, f)
	}
}

// checkEvidence wants an error with both digests and the bytes in the spool.
func checkEvidence(t *testing.T, r *rig, err error, f *hubtest.File) {
	t.Helper()
	want := "git:" + f.OID()
	if f.LFS {
		want = "sha256:" + f.SHA256()
	}
	if !errors.Is(err, ErrDigest) || !strings.Contains(err.Error(), want) || strings.Count(err.Error(), ":"+strings.Split(want, ":")[1]) != 1 {
		t.Fatalf("no digest error with %s: %v", want, err)
	}
	var bad []string
	for _, name := range listDir(t, r.spool) {
		if strings.HasSuffix(name, ".bad") {
			bad = append(bad, name)
		}
	}
	if len(bad) != 1 || !strings.Contains(err.Error(), bad[0]) {
		t.Fatalf("evidence %v: %v", bad, err)
	}
	kept, rerr := os.ReadFile(filepath.Join(r.spool, bad[0]))
	if rerr != nil || len(kept) != len(f.Data) || bytes.Equal(kept, f.Data) {
		t.Errorf("evidence has %d bytes, %v", len(kept), rerr)
	}
}

// Pitfall 112: in a large file the damage is found by comparing, only as much
// is fetched as that takes, and the caller is told to start over.
func TestPitfall112WrongByteInALargeFile(t *testing.T) {
	data := noise(17, 3*repairStep+12345)
	file := hubtest.LFS(data)
	at := int64(repairStep + 77)
	fetch := func(r *rig, opt SnapshotOptions) (*Snapshot, error) {
		s, err := r.client().Snapshot(t.Context(), Ref{rigID, "main"}, opt)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		if err := s.Need(t.Context(), weights, []Range{{0, int64(len(data))}}); err != nil {
			t.Fatal(err)
		}
		read(t, s, weights, 0, int64(len(data)))
		return s, s.Finish(t.Context())
	}
	t.Run("repaired", func(t *testing.T) {
		r := newRig(t, hubtest.Options{}, map[string]*hubtest.File{weights: file})
		r.hub.Inject(hubtest.Fault{On: hubtest.CDN, Flip: at + 1})
		s, err := fetch(r, SnapshotOptions{})
		if !errors.Is(err, ErrRepaired) {
			t.Fatalf("finish: %v", err)
		}
		// Two steps were compared; the digest was right after the second.
		if sent := r.hub.Sent(weights); sent != int64(len(data))+2*repairStep {
			t.Errorf("%d bytes sent for %d and two steps", sent, len(data))
		}
		wantBytes(t, "after repair", read(t, s, weights, 0, int64(len(data))), data)
		if err := s.Finish(t.Context()); err != nil {
			t.Errorf("finish again: %v", err)
		}
	})
	t.Run("by the lock's range digest", func(t *testing.T) {
		r := newRig(t, hubtest.Options{}, map[string]*hubtest.File{weights: file})
		r.hub.Inject(hubtest.Fault{On: hubtest.CDN, Flip: at + 1})
		x := Range{at - 1000, 2000}
		sum := sha256.Sum256(data[x.Off : x.Off+x.Len])
		s, err := fetch(r, SnapshotOptions{Ranges: map[string][]RangeDigest{weights: {{x, fmt.Sprintf("%x", sum)}}}})
		if !errors.Is(err, ErrRepaired) {
			t.Fatalf("finish: %v", err)
		}
		if sent := r.hub.Sent(weights); sent != int64(len(data))+x.Len {
			t.Errorf("%d bytes sent for %d and the range", sent, len(data))
		}
		wantBytes(t, "after repair", read(t, s, weights, 0, int64(len(data))), data)
		s.Close()
		// The repair is as lasting as the rest.
		next := r.snapshot(r.client(offline))
		wantBytes(t, "next run", read(t, next, weights, 0, int64(len(data))), data)
	})
	t.Run("always", func(t *testing.T) {
		r := newRig(t, hubtest.Options{}, map[string]*hubtest.File{weights: file})
		r.hub.Inject(hubtest.Fault{On: hubtest.CDN, Flip: at + 1, Times: -1})
		_, err := fetch(r, SnapshotOptions{})
		checkEvidence(t, r, err, file)
		// The next run starts from nothing and may succeed.
		r.hub.ClearFaults()
		if _, err := fetch(r, SnapshotOptions{}); err != nil {
			t.Errorf("next run: %v", err)
		}
	})
}

// Pitfall 113: an incomplete blob of our own, offline.
func TestPitfall113IncompleteSpoolOffline(t *testing.T) {
	data := noise(18, 300_000)
	r := newRig(t, hubtest.Options{}, map[string]*hubtest.File{weights: hubtest.LFS(data)})
	s := r.snapshot(r.client())
	read(t, s, weights, 0, int64(len(data)))
	s.Close()
	path := filepath.Join(r.spool, "sha256-"+s.Files()[0].SHA256, dataName)
	if err := os.Truncate(path, 1000); err != nil {
		t.Fatal(err)
	}
	off := r.snapshot(r.client(offline))
	if _, err := off.ReadFile(t.Context(), weights, 1<<20); !errors.Is(err, ErrOffline) {
		t.Errorf("truncated spool offline: %v", err)
	}
	off.Close()
	got, err := r.snapshot(r.client()).ReadFile(t.Context(), weights, 1<<20)
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("online: %v", err)
	}
}

// Pitfall 114: an interrupted fetch shows as partial and goes on.
func TestPitfall114InterruptedFetch(t *testing.T) {
	files := map[string]*hubtest.File{}
	for i := range 3 {
		files[fmt.Sprintf("w-%d.safetensors", i)] = hubtest.LFS(noise(uint64(30+i), 200_000))
	}
	r := newRig(t, hubtest.Options{}, files)
	s := r.snapshot(r.client(func(o *Options) { o.Concurrency = 1 }))
	// The second file stops in its middle and never goes on.
	ctx, cancel := context.WithCancelCause(t.Context())
	interrupted := errors.New("interrupted")
	r.hub.Inject(hubtest.Fault{On: hubtest.CDN, Path: "w-1.safetensors", Cut: true, CutAfter: 70_000},
		hubtest.Fault{On: hubtest.CDN, Path: "w-1.safetensors", Stall: true, Times: -1, Stalled: func() { cancel(interrupted) }})
	for i := range 3 {
		if err := s.Need(t.Context(), fmt.Sprintf("w-%d.safetensors", i), []Range{{0, 200_000}}); err != nil {
			t.Fatal(err)
		}
	}
	read(t, s, "w-0.safetensors", 0, 200_000)
	b, err := s.Open(t.Context(), "w-1.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	if err := b.ReadAt(ctx, make([]byte, 200_000), 0); !errors.Is(err, interrupted) {
		t.Fatalf("interrupted: %v", err)
	}
	s.Close()
	list, err := ListSpool(r.spool)
	if err != nil || len(list.Snapshots) != 1 {
		t.Fatalf("%+v, %v", list, err)
	}
	got := list.Snapshots[0]
	if got.Status() != "partial 1/3" || got.Repo != rigID || got.Commit != r.commit || strings.Join(got.Missing, " ") != "w-1.safetensors w-2.safetensors" || got.Need != 600_000 || got.Have != 270_000 {
		t.Errorf("%s: %+v", got.Status(), got)
	}
	r.hub.ClearFaults()
	r.hub.ResetLog()
	s = r.snapshot(r.client())
	fetchAll(t, s, files)
	s.Close()
	if sent := r.hub.Sent(""); sent != 600_000-270_000 {
		t.Errorf("%d bytes sent to finish", sent)
	}
	if list, _ := ListSpool(r.spool); list.Snapshots[0].Status() != "complete 3/3" {
		t.Errorf("%+v", list.Snapshots[0])
	}
}
