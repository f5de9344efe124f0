package local_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"quern/artifacts"
	"quern/artifacts/local"
)

func TestResumeBlob(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	s, err := local.Open(ctx, dir, local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	all := []byte("the bytes of a model that take long to get")
	want := artifacts.Descriptor{MediaType: "x/y", Digest: artifacts.DigestOf(all), Size: int64(len(all))}
	put := func(p []byte) artifacts.BlobWriter {
		t.Helper()
		w, err := s.ResumeBlob(ctx, want)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(p); err != nil {
			t.Fatal(err)
		}
		return w
	}
	left := func() int {
		t.Helper()
		e, err := os.ReadDir(filepath.Join(dir, "quern", "ingest"))
		if err != nil {
			t.Fatal(err)
		}
		return len(e)
	}
	put(all[:10]).Abort()
	w := put(nil)
	if w.Size() != 10 || w.Sum() != artifacts.DigestOf(all[:10]) {
		t.Errorf("%d bytes of digest %s", w.Size(), w.Sum())
	}
	// A second writer of the same blob gets one of its own.
	other := put(nil)
	if other.Size() != 0 {
		t.Errorf("the second writer finds %d bytes", other.Size())
	}
	other.Abort()
	if _, err := w.Write(all[10:]); err != nil {
		t.Fatal(err)
	}
	if d, err := w.Commit(want.Digest); err != nil || d.Digest != want.Digest || d.Size != want.Size {
		t.Fatalf("%v, %v", d, err)
	}
	if err := artifacts.CheckComplete(ctx, s, want); err != nil || left() != 0 {
		t.Errorf("%v, %d files are left", err, left())
	}
	// It is there already: what comes once more is dropped.
	if _, err := put(all).Commit(want.Digest); err != nil || left() != 0 {
		t.Errorf("%v, %d files are left", err, left())
	}
	// Wrong bytes, and bytes of which there are too many, are of no use to anybody.
	want.Digest = artifacts.DigestOf([]byte("other"))
	if _, err := put(all).Commit(want.Digest); !errors.Is(err, artifacts.ErrMismatch) || left() != 0 {
		t.Errorf("%v, %d files are left", err, left())
	}
	put(append(all, 1)).Abort()
	w = put(nil)
	if w.Size() != 0 {
		t.Errorf("%d bytes of a blob that is shorter", w.Size())
	}
	w.Abort()
	// A cancelled write keeps what there is; gc removes it in time.
	c, cancel := context.WithCancel(ctx)
	w, err = s.ResumeBlob(c, want)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(all[:5]); err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := w.Write(all[5:]); !errors.Is(err, context.Canceled) || left() != 1 {
		t.Errorf("%v, %d files are left", err, left())
	}
	s2, err := local.Open(ctx, dir, local.Options{Now: func() time.Time { return time.Now().Add(48 * time.Hour) }})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := s2.PlanGC(ctx, local.GCOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s2.ExecuteGC(ctx, plan); err != nil || left() != 0 {
		t.Errorf("%v, %d files are left", err, left())
	}
}

// TestRecordsGoWithAge: gc with no grace at all leaves what a push or a build may go on
// with.
func TestRecordsGoWithAge(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	const day = 24 * time.Hour
	for _, c := range []struct {
		folder func(*local.Store) string
		age    time.Duration
		left   bool
	}{
		{(*local.Store).UploadDir, 6 * day, true},
		{(*local.Store).UploadDir, 8 * day, false},
		{(*local.Store).SendDir, 80 * day, true},
		{(*local.Store).SendDir, 100 * day, false},
	} {
		s, err := local.Open(ctx, dir, local.Options{Now: func() time.Time { return time.Now().Add(c.age) }})
		if err != nil {
			t.Fatal(err)
		}
		record := filepath.Join(c.folder(s), "x.json")
		if err := os.MkdirAll(c.folder(s), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(record, []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
		plan, err := s.PlanGC(ctx, local.GCOptions{Grace: -1})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.ExecuteGC(ctx, plan); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(record); (err == nil) != c.left {
			t.Errorf("%s after %v: %v", record, c.age, err)
		}
	}
}

func TestResumeBlobReadOnly(t *testing.T) {
	dir := t.TempDir()
	if _, err := local.Open(context.Background(), dir, local.Options{}); err != nil {
		t.Fatal(err)
	}
	s, err := local.Open(context.Background(), dir, local.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.ResumeBlob(context.Background(), artifacts.Descriptor{Size: 3}); !errors.Is(err, artifacts.ErrReadOnly) {
		t.Error(err)
	}
}
