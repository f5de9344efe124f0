package hub

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"quern/hub/hubtest"
)

func TestProved(t *testing.T) {
	data := noise(80, 500_000)
	for name, change := range map[string]func(*Options){"spool": func(*Options) {}, "memory": inMemory} {
		r := newRig(t, hubtest.Options{}, map[string]*hubtest.File{weights: hubtest.LFS(data), "config.json": hubtest.Git("{}")})
		s := r.snapshot(r.client(change))
		proved := func(path string, want bool) {
			t.Helper()
			if got := s.Proved(path); got != want {
				t.Errorf("%s: %s proved: %v", name, path, got)
			}
		}
		proved(weights, false)
		if err := s.Need(t.Context(), weights, []Range{{0, 400_000}}); err != nil {
			t.Fatal(err)
		}
		read(t, s, weights, 0, 400_000)
		if err := s.Finish(t.Context()); err != nil {
			t.Fatal(err)
		}
		proved(weights, false) // a part proves nothing
		if name == "spool" {
			read(t, s, weights, 400_000, 100_000)
			proved(weights, false)
			if err := s.Finish(t.Context()); err != nil {
				t.Fatal(err)
			}
			proved(weights, true)
			if _, err := s.ReadFile(t.Context(), "config.json", 10); err != nil {
				t.Fatal(err)
			}
			proved("config.json", true)
		}
		proved("absent", false)
	}
}

// TestRecheckFindsWrongBytesOfAPart: the digest of a whole proves nothing about
// a part, but a second fetch that differs shows that one of them is wrong.
func TestRecheckFindsWrongBytesOfAPart(t *testing.T) {
	data := noise(81, 1_000_000)
	r := newRig(t, hubtest.Options{}, map[string]*hubtest.File{weights: hubtest.LFS(data)})
	r.hub.Inject(hubtest.Fault{On: hubtest.CDN, Flip: 1 + 1234})
	s := r.snapshot(r.client())
	if err := s.Need(t.Context(), weights, []Range{{0, 300_000}}); err != nil {
		t.Fatal(err)
	}
	if got := read(t, s, weights, 0, 300_000); bytes.Equal(got, data[:300_000]) {
		t.Fatal("the fault did not show")
	}
	if changed, err := s.Recheck(t.Context(), weights, Range{100_000, 1000}); err != nil || changed {
		t.Errorf("another range: %v, %v", changed, err)
	}
	if changed, err := s.Recheck(t.Context(), weights); err != nil || !changed {
		t.Errorf("all that was read: %v, %v", changed, err)
	}
	wantBytes(t, "after it", read(t, s, weights, 0, 300_000), data[:300_000])
	if changed, err := s.Recheck(t.Context(), weights); err != nil || changed {
		t.Errorf("once more: %v, %v", changed, err)
	}
	if _, err := s.Recheck(t.Context(), "absent"); !errors.Is(err, ErrNotFound) {
		t.Errorf("absent: %v", err)
	}
}

func TestAllowedHosts(t *testing.T) {
	data := noise(82, 1000)
	for _, c := range []struct {
		allow []string
		good  bool
	}{
		{nil, true},
		{[]string{"example.com"}, false},
		{[]string{"example.com", "STORAGE"}, true},
		{[]string{"STORAGE:PORT"}, true},
		{[]string{".0.0.2"}, true},
		{[]string{"0.0.2"}, false},
	} {
		r := newRig(t, hubtest.Options{}, map[string]*hubtest.File{weights: hubtest.LFS(data)})
		if !strings.Contains(r.hub.CDNURL, "127.0.0.2") {
			// Systems with one loopback address cannot tell the hosts apart.
			return
		}
		addr := strings.TrimPrefix(r.hub.CDNURL, "http://")
		s := r.snapshot(r.client(func(o *Options) {
			for _, a := range c.allow {
				if a == "STORAGE:PORT" {
					a = addr
				}
				o.AllowHosts = append(o.AllowHosts, strings.Replace(a, "STORAGE", "127.0.0.2", 1))
			}
		}))
		_, err := s.ReadFile(t.Context(), weights, 1000)
		if c.good && err != nil || !c.good && !errors.Is(err, ErrHost) {
			t.Errorf("%v: %v", c.allow, err)
		}
		if n := r.hub.Count(hubtest.CDN, ""); !c.good && n != 0 {
			t.Errorf("%v: %d requests", c.allow, n)
		}
	}
}
