package hub

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"quern/hub/hubtest"
)

// Each test of the files pitfalls_*_test.go is a public failure of some
// downloader, with its number in our collection.

// Pitfall 6: a Git LFS pointer in place of the file.
func TestPitfall006Pointer(t *testing.T) {
	text := "version https://git-lfs.github.com/spec/v1\noid sha256:" + strings.Repeat("ab", 32) + "\nsize 123456789\n"
	r := newRig(t, hubtest.Options{}, map[string]*hubtest.File{weights: hubtest.Git(text), "x.gguf": hubtest.LFS([]byte(text))})
	s := r.snapshot(r.client())
	for _, path := range []string{weights, "x.gguf"} {
		_, err := s.ReadFile(t.Context(), path, 1000)
		if !errors.Is(err, ErrPointer) || !strings.Contains(err.Error(), strings.Repeat("ab", 32)) || !strings.Contains(err.Error(), "123456789") {
			t.Errorf("%s: %v", path, err)
		}
	}
	s.Close()
	list, err := ListSpool(r.spool)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list.Entries {
		if e.Have > 0 {
			t.Errorf("the pointer was kept: %+v", e)
		}
	}
}

// Pitfall 7: an HTML page saved as a model.
func TestPitfall007HTMLPage(t *testing.T) {
	for name, fault := range map[string]hubtest.Fault{
		"by type":    {Status: 200, ContentType: "text/html; charset=utf-8", Body: "<p>log in</p>"},
		"by content": {Status: 200, ContentType: "application/octet-stream", Body: "  <!DOCTYPE html><html>" + strings.Repeat(" ", 977)},
	} {
		r := newRig(t, hubtest.Options{}, map[string]*hubtest.File{weights: hubtest.LFS(noise(1, 1000)), "page.html": hubtest.Git("<!doctype html><p>a page of the repository")})
		fault.On, fault.Times = hubtest.CDN, -1
		r.hub.Inject(fault)
		s := r.snapshot(r.client())
		if _, err := s.ReadFile(t.Context(), weights, 1000); !errors.Is(err, ErrHTML) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := s.ReadFile(t.Context(), "page.html", 1000); err != nil {
			t.Errorf("a file that is a page: %v", err)
		}
		s.Close()
		list, _ := ListSpool(r.spool)
		for _, e := range list.Entries {
			if e.Have > 0 && !strings.Contains(e.What, "page.html") {
				t.Errorf("%s: the page was kept: %+v", name, e)
			}
		}
	}
}

// Pitfall 7: a page of which only the first bytes came at first is seen all the
// same.
func TestPitfall007PageInTwoParts(t *testing.T) {
	page := []byte("<!DOCTYPE html><p>" + strings.Repeat("log in ", 200))
	r := newRig(t, hubtest.Options{}, map[string]*hubtest.File{weights: hubtest.LFS(page)})
	r.hub.Inject(hubtest.Fault{On: hubtest.CDN, Cut: true, CutAfter: 5}, hubtest.Fault{On: hubtest.CDN, Status: 400, Times: 6})
	s := r.snapshot(r.client())
	_, first := s.ReadFile(t.Context(), weights, 10_000)
	r.hub.ClearFaults()
	_, second := s.ReadFile(t.Context(), weights, 10_000)
	if first == nil || errors.Is(first, ErrHTML) || !errors.Is(second, ErrHTML) {
		t.Errorf("first %v, then %v", first, second)
	}
}

// Pitfall 103: a resume that gets 200 with the whole file.
func TestPitfall103ResumeGetsWholeFile(t *testing.T) {
	data := noise(10, 300_000)
	for name, change := range map[string]func(*Options){"spool": func(*Options) {}, "memory": inMemory} {
		r := newRig(t, hubtest.Options{}, map[string]*hubtest.File{weights: hubtest.LFS(data)})
		r.hub.Inject(hubtest.Fault{On: hubtest.CDN, Cut: true, CutAfter: 100}, hubtest.Fault{On: hubtest.CDN, IgnoreRange: true, Times: -1})
		s := r.snapshot(r.client(change))
		got, err := s.ReadFile(t.Context(), weights, 1<<20)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		wantBytes(t, name, got, data)
		if name == "spool" {
			st, err := os.Stat(filepath.Join(r.spool, "sha256-"+r.sha(weights), dataName))
			if err != nil || st.Size() != int64(len(data)) {
				t.Errorf("spooled file: %v, %v", st, err)
			}
		}
	}
}

func (r *rig) sha(path string) string {
	r.t.Helper()
	s := r.snapshot(r.client())
	for _, f := range s.Files() {
		if f.Path == path {
			return f.SHA256
		}
	}
	r.t.Fatalf("no %s", path)
	return ""
}

// Pitfall 105: a resumed range goes on at the right offset.
func TestPitfall105ResumeOfARange(t *testing.T) {
	data := noise(11, 5000)
	r := newRig(t, hubtest.Options{}, map[string]*hubtest.File{weights: hubtest.LFS(data)})
	r.hub.Inject(hubtest.Fault{On: hubtest.CDN, Cut: true, CutAfter: 20})
	s := r.snapshot(r.client())
	if err := s.Need(t.Context(), weights, []Range{{15, 100}}); err != nil {
		t.Fatal(err)
	}
	wantBytes(t, "range", read(t, s, weights, 15, 100), data[15:115])
	var ranges []string
	for _, q := range r.hub.Requests() {
		if q.Kind == hubtest.CDN {
			ranges = append(ranges, q.Range)
		}
	}
	if got := strings.Join(ranges, " "); got != "bytes=15-114 bytes=35-114" {
		t.Errorf("ranges %s", got)
	}
}

// Pitfall 105: another ETag on a later part means another file: everything is
// dropped and fetched once more, then it is an error.
func TestPitfall105ETagChanges(t *testing.T) {
	data := noise(12, 400_000)
	for name, change := range map[string]func(*Options){"spool": func(*Options) {}, "memory": inMemory} {
		for changes := 1; changes <= 2; changes++ {
			r := newRig(t, hubtest.Options{}, map[string]*hubtest.File{weights: hubtest.LFS(data)})
			// The first answer is of an old version, with another first byte.
			r.hub.Inject(hubtest.Fault{On: hubtest.CDN, ETag: "old", Flip: 1})
			if changes == 2 {
				r.hub.Inject(hubtest.Fault{On: hubtest.CDN, Skip: 2, ETag: "newer"})
			}
			s := r.snapshot(r.client(change, func(o *Options) { o.Concurrency = 1 }))
			b, err := s.Open(t.Context(), weights)
			if err != nil {
				t.Fatal(err)
			}
			var errs []error
			for _, off := range []int64{0, 150_000, 200_000, 250_000} {
				p := make([]byte, 10_000)
				err := b.ReadAt(t.Context(), p, off)
				if err == nil && off > 0 {
					wantBytes(t, name, p, data[off:off+10_000])
				}
				errs = append(errs, err)
			}
			err = errors.Join(errs...)
			if name == "memory" || changes == 2 {
				// Without a spool the first part cannot be taken back.
				if !errors.Is(err, ErrChanged) {
					t.Errorf("%s, %d changes: %v", name, changes, err)
				}
				continue
			}
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if len(r.events.of(EventRefetch)) != 1 {
				t.Errorf("%d refetches", len(r.events.of(EventRefetch)))
			}
			// Bytes of the first part had been given out.
			if err := s.Finish(t.Context()); !errors.Is(err, ErrRepaired) {
				t.Errorf("finish: %v", err)
			}
			wantBytes(t, "the first part again", read(t, s, weights, 0, 10_000), data[:10_000])
			if err := s.Finish(t.Context()); err != nil {
				t.Errorf("finish again: %v", err)
			}
		}
	}
}

// Pitfall 107: 416 about a 177-byte error object.
func TestPitfall107UnsatisfiedOfAnotherObject(t *testing.T) {
	data := noise(13, 100_000)
	for _, always := range []bool{false, true} {
		r := newRig(t, hubtest.Options{}, map[string]*hubtest.File{weights: hubtest.LFS(data)})
		f := hubtest.Fault{On: hubtest.CDN, Status: 416, Header: map[string]string{"Content-Range": "bytes */177"}, Body: "<Error/>"}
		if always {
			f.Times = -1
		}
		r.hub.Inject(f)
		s := r.snapshot(r.client())
		b, err := s.Open(t.Context(), weights)
		if err != nil {
			t.Fatal(err)
		}
		p := make([]byte, 1000)
		err = b.ReadAt(t.Context(), p, 50_000)
		if always {
			if !errors.Is(err, ErrSize) || !strings.Contains(err.Error(), "177") || r.hub.Count(hubtest.CDN, "") != maxFresh {
				t.Errorf("always: %v after %d requests", err, r.hub.Count(hubtest.CDN, ""))
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		wantBytes(t, "range", p, data[50_000:51_000])
		if n := r.hub.Count(hubtest.Resolve, ""); n != 2 {
			t.Errorf("%d fresh addresses", n)
		}
	}
}

// Pitfall 108: answers that are not the range that was asked for.
func TestPitfall108NotTheRange(t *testing.T) {
	data := noise(14, 300_000)
	for name, fault := range map[string]hubtest.Fault{
		"multipart":     {Multipart: true},
		"another start": {ContentRange: "bytes 0-999/300000"},
		"too long":      {ContentRange: "bytes 200000-299999/300000", Chunked: true},
		"length":        {ContentRange: "bytes 200000-200998/300000"},
		"another total": {ContentRange: "bytes 200000-200999/300001"},
		"no range":      {ContentRange: "bytes */300000"},
		"nonsense":      {ContentRange: "pages 1-2/3"},
	} {
		r := newRig(t, hubtest.Options{}, map[string]*hubtest.File{weights: hubtest.LFS(data)})
		fault.On, fault.Times = hubtest.CDN, -1
		r.hub.Inject(fault)
		s := r.snapshot(r.client())
		b, err := s.Open(t.Context(), weights)
		if err != nil {
			t.Fatal(err)
		}
		p := make([]byte, 1000)
		if err := b.ReadAt(t.Context(), p, 200_000); !errors.Is(err, ErrRange) && !errors.Is(err, ErrSize) {
			t.Errorf("%s: %v", name, err)
		}
		r.hub.ClearFaults()
		if err := b.ReadAt(t.Context(), p, 200_000); err != nil || !bytes.Equal(p, data[200_000:201_000]) {
			t.Errorf("%s: after it: %v", name, err)
		}
	}
}
