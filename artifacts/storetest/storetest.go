// Package storetest is what every artifacts.Store must pass. It also breaks
// stores: it wraps them so that blobs come back flipped, short or not at all.
package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"quern/artifacts"
)

// Suite is the store under test.
type Suite struct {
	// Open makes an empty store.
	Open func(t *testing.T) artifacts.Store
	// Leftovers, if set, lists what unfinished writes have left in a store.
	Leftovers func(t *testing.T, s artifacts.Store) []string
}

// Run runs the suite.
func (u Suite) Run(t *testing.T) {
	for _, c := range []struct {
		name string
		f    func(*testing.T, Suite)
	}{
		{"Blobs", testBlobs},
		{"Twice", testTwice},
		{"Promises", testPromises},
		{"Abort", testAbort},
		{"Cancel", testCancel},
		{"BrokenSources", testBrokenSources},
		{"Delete", testDelete},
		{"VerifiedReads", testVerifiedReads},
		{"Names", testNames},
		{"Prefixes", testPrefixes},
		{"TagComplete", testTagComplete},
		{"Keys", testKeys},
		{"ManyKeys", testManyKeys},
		{"Build", testBuild},
		{"Outputs", testOutputs},
		{"CopyImage", testCopyImage},
		{"Usage", testUsage},
		{"VerifyFindsDamage", testVerifyFindsDamage},
		{"Parallel", testParallel},
	} {
		t.Run(c.name, func(t *testing.T) { c.f(t, u) })
	}
}

// empty fails the test if the store has blobs or leftovers.
func (u Suite) empty(t *testing.T, s artifacts.Store) {
	t.Helper()
	u.clean(t, s)
	l, err := s.List(t.Context())
	if err != nil || len(l) != 0 {
		t.Errorf("the store has %v, %v; want nothing", l, err)
	}
}

func (u Suite) clean(t *testing.T, s artifacts.Store) {
	t.Helper()
	if u.Leftovers == nil {
		return
	}
	if l := u.Leftovers(t, s); len(l) != 0 {
		t.Errorf("left behind: %v", l)
	}
}

// Bytes makes n bytes that depend on the seed alone.
func Bytes(seed uint64, n int) []byte {
	r := rand.New(rand.NewPCG(seed, 0x9E3779B97F4A7C15))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func put(t *testing.T, s artifacts.Store, b []byte) artifacts.Descriptor {
	t.Helper()
	d, err := artifacts.PutBytes(t.Context(), s, "application/x-test", b)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func get(t *testing.T, s artifacts.BlobReader, d artifacts.Descriptor) []byte {
	t.Helper()
	b, err := artifacts.ReadAll(t.Context(), s, d, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func want(t *testing.T, err, kind error) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Errorf("error %v, want %v", err, kind)
	}
}

func testBlobs(t *testing.T, u Suite) {
	ctx, s := t.Context(), u.Open(t)
	u.empty(t, s)
	var all []artifacts.Info
	for i, n := range []int{0, 1, 4095, 1 << 20, 1<<20 + 3, 3<<20 - 1} {
		data := Bytes(uint64(i), n)
		w, err := s.NewBlob(ctx, artifacts.BlobOptions{MediaType: "application/x-test"})
		if err != nil {
			t.Fatal(err)
		}
		for at := 0; at < n; {
			k := min(1+at*7%99991, n-at)
			if m, err := w.Write(data[at : at+k]); err != nil || m != k {
				t.Fatalf("wrote %d of %d: %v", m, k, err)
			}
			at += k
		}
		if w.Size() != int64(n) || w.Sum() != artifacts.DigestOf(data) {
			t.Errorf("%d bytes: writer says %d, %s", n, w.Size(), w.Sum())
		}
		if _, err := s.Stat(ctx, artifacts.DigestOf(data)); !errors.Is(err, artifacts.ErrNotFound) {
			t.Errorf("%d bytes: there before Commit: %v", n, err)
		}
		d, err := w.Commit(artifacts.Digest{})
		if err != nil {
			t.Fatal(err)
		}
		if d.Digest != artifacts.DigestOf(data) || d.Size != int64(n) || d.MediaType != "application/x-test" {
			t.Errorf("%d bytes: %v", n, d)
		}
		if !bytes.Equal(get(t, s, d), data) {
			t.Errorf("%d bytes: read back other ones", n)
		}
		in, err := s.Stat(ctx, d.Digest)
		if err != nil || in != (artifacts.Info{Digest: d.Digest, Size: d.Size}) {
			t.Errorf("%d bytes: Stat gives %v, %v", n, in, err)
		}
		all = append(all, in)
	}
	l, err := s.List(ctx)
	if err != nil || len(l) != len(all) {
		t.Fatalf("%d blobs listed, want %d, %v", len(l), len(all), err)
	}
	for i, in := range l {
		if i > 0 && l[i-1].Digest.String() >= in.Digest.String() {
			t.Errorf("entry %d of List is out of order", i)
		}
	}
	u.clean(t, s)
	_, err = s.Open(ctx, artifacts.DigestOf([]byte("absent")))
	want(t, err, artifacts.ErrNotFound)
	_, err = s.Stat(ctx, artifacts.DigestOf([]byte("absent")))
	want(t, err, artifacts.ErrNotFound)
}

func testTwice(t *testing.T, u Suite) {
	s := u.Open(t)
	a := put(t, s, []byte("same"))
	b := put(t, s, []byte("same"))
	if !a.Same(b) {
		t.Errorf("%v and %v", a, b)
	}
	if l, err := s.List(t.Context()); err != nil || len(l) != 1 {
		t.Errorf("%v, %v", l, err)
	}
	u.clean(t, s)
}

func testPromises(t *testing.T, u Suite) {
	ctx, s := t.Context(), u.Open(t)
	data := Bytes(1, 5000)
	for _, c := range []struct {
		name string
		size int64
		want artifacts.Digest
	}{
		{"too short", 5001, artifacts.Digest{}},
		{"too long", 4999, artifacts.Digest{}},
		{"other bytes", 5000, artifacts.DigestOf([]byte("other"))},
		{"other bytes, size unknown", 0, artifacts.DigestOf([]byte("other"))},
	} {
		w, err := s.NewBlob(ctx, artifacts.BlobOptions{Size: c.size})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
		d, err := w.Commit(c.want)
		if !errors.Is(err, artifacts.ErrMismatch) {
			t.Errorf("%s: %v, %v", c.name, d, err)
		}
		u.empty(t, s)
		if _, err := w.Commit(artifacts.Digest{}); err == nil {
			t.Errorf("%s: second Commit did not fail", c.name)
		}
	}
	w, err := s.NewBlob(ctx, artifacts.BlobOptions{Size: 5000})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if d, err := w.Commit(artifacts.DigestOf(data)); err != nil || d.MediaType != artifacts.MediaTypeOctets {
		t.Errorf("%v, %v", d, err)
	}
}

func testAbort(t *testing.T, u Suite) {
	ctx, s := t.Context(), u.Open(t)
	w, err := s.NewBlob(ctx, artifacts.BlobOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte("half")); err != nil {
		t.Fatal(err)
	}
	w.Abort()
	w.Abort()
	u.empty(t, s)
	_, err = w.Write([]byte("more"))
	want(t, err, artifacts.ErrClosed)
	_, err = w.Commit(artifacts.Digest{})
	want(t, err, artifacts.ErrClosed)

	w, err = s.NewBlob(ctx, artifacts.BlobOptions{})
	if err != nil {
		t.Fatal(err)
	}
	d, err := w.Commit(artifacts.Digest{})
	if err != nil {
		t.Fatal(err)
	}
	w.Abort() // as a deferred one
	if _, err := s.Stat(ctx, d.Digest); err != nil {
		t.Errorf("Abort after Commit: %v", err)
	}
}

// testCancel cancels at every point of a write. Nobody aborts the writer: a
// cancelled one must clear up by itself.
func testCancel(t *testing.T, u Suite) {
	s := u.Open(t)
	cause := errors.New("interrupted by the user")
	for _, point := range []string{"before", "write", "commit"} {
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		if point == "before" {
			cancel(cause)
		}
		w, err := s.NewBlob(ctx, artifacts.BlobOptions{})
		if point == "before" {
			want(t, err, cause)
			continue
		}
		if _, err := w.Write([]byte("first")); err != nil {
			t.Fatal(err)
		}
		cancel(cause)
		if point == "write" {
			_, err := w.Write([]byte("second"))
			want(t, err, cause)
		}
		_, err = w.Commit(artifacts.Digest{})
		want(t, err, cause)
		u.empty(t, s)
	}
	d := put(t, s, []byte("there"))
	ctx, cancelNow := context.WithCancelCause(t.Context())
	cancelNow(cause)
	var k artifacts.Key
	for name, f := range map[string]func() error{
		"Open":    func() error { _, err := s.Open(ctx, d.Digest); return err },
		"Stat":    func() error { _, err := s.Stat(ctx, d.Digest); return err },
		"List":    func() error { _, err := s.List(ctx); return err },
		"Resolve": func() error { _, err := s.Resolve(ctx, "a"); return err },
		"Names":   func() error { _, err := s.Names(ctx); return err },
		"Roots":   func() error { _, err := s.Roots(ctx); return err },
		"Lookup":  func() error { _, err := s.Lookup(ctx, []artifacts.Key{k}); return err },
		"Keys":    func() error { _, err := s.Keys(ctx); return err },
		"Delete":  func() error { return s.Delete(ctx, d.Digest) },
		"Tag":     func() error { return s.Tag(ctx, "a", d) },
		"Untag":   func() error { return s.Untag(ctx, "a") },
		"PutKeys": func() error { return s.PutKeys(ctx, nil) },
		"ReadAll": func() error { _, err := artifacts.ReadAll(ctx, s, d, 10); return err },
		"Verify":  func() error { _, err := artifacts.Verify(ctx, s, artifacts.VerifyOptions{}); return err },
	} {
		if err := f(); !errors.Is(err, cause) {
			t.Errorf("%s: error %v, want the cause", name, err)
		}
	}
	if names, err := s.Names(t.Context()); err != nil || len(names) != 0 {
		t.Errorf("%v, %v", names, err)
	}
}

func testDelete(t *testing.T, u Suite) {
	ctx, s := t.Context(), u.Open(t)
	d, keep := put(t, s, []byte("gone")), put(t, s, []byte("kept"))
	if err := s.Delete(ctx, d.Digest); err != nil {
		t.Fatal(err)
	}
	_, err := s.Open(ctx, d.Digest)
	want(t, err, artifacts.ErrNotFound)
	want(t, s.Delete(ctx, d.Digest), artifacts.ErrNotFound)
	if string(get(t, s, keep)) != "kept" {
		t.Error("the other blob changed")
	}
	if d = put(t, s, []byte("gone")); string(get(t, s, d)) != "gone" {
		t.Error("cannot come back")
	}
}

func testVerifiedReads(t *testing.T, u Suite) {
	ctx, s := t.Context(), u.Open(t)
	d := put(t, s, []byte("0123456789"))
	if _, err := artifacts.ReadAll(ctx, s, d, 9); err == nil {
		t.Error("a blob over the limit was read")
	}
	for _, size := range []int64{0, 9, 11, 1 << 40} {
		lie := d
		lie.Size = size
		_, err := artifacts.ReadAll(ctx, s, lie, 1<<50)
		want(t, err, artifacts.ErrCorrupt)
	}
	for name, c := range map[string]struct {
		damage Damage
		want   error
	}{
		"flip first":  {Damage{Flip: 0, Do: true}, artifacts.ErrCorrupt},
		"flip last":   {Damage{Flip: 79, Do: true}, artifacts.ErrCorrupt},
		"short":       {Damage{Short: 9}, artifacts.ErrCorrupt},
		"trailing":    {Damage{Trailing: 1}, artifacts.ErrCorrupt},
		"lies, short": {Damage{LieShort: 9}, artifacts.ErrCorrupt},
		"unreadable":  {Damage{Break: 5}, ErrDamage},
	} {
		broken := Wrap(s, map[artifacts.Digest]Damage{d.Digest: c.damage})
		b, err := artifacts.ReadAll(ctx, broken, d, 100)
		if err == nil || b != nil || !errors.Is(err, c.want) {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
	ref := artifacts.Ref{Blob: d.Digest, Offset: 3, Bytes: 4, Sum: artifacts.DigestOf([]byte("3456"))}
	var buf bytes.Buffer
	if err := artifacts.CopyRef(ctx, &buf, s, ref); err != nil || buf.String() != "3456" {
		t.Errorf("%q, %v", buf.String(), err)
	}
	for _, bit := range []int64{24, 55} {
		broken := Wrap(s, map[artifacts.Digest]Damage{d.Digest: {Flip: bit, Do: true}})
		want(t, artifacts.CopyRef(ctx, &buf, broken, ref), artifacts.ErrCorrupt)
	}
	ref.Bytes = 8
	want(t, artifacts.CopyRef(ctx, &buf, s, ref), artifacts.ErrCorrupt)
}

func testParallel(t *testing.T, u Suite) {
	s := u.Open(t)
	const n = 8
	errs := make(chan error, n)
	for i := range n {
		go func() { errs <- Work(t.Context(), s, i, 4) }()
	}
	for range n {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	CheckWork(t, s, n, 4)
	u.clean(t, s)
}

// Work is what each of several parallel users does: it writes blobs that all
// write and ones of its own, names and keys, and reads what is there.
func Work(ctx context.Context, s artifacts.Store, id, rounds int) error {
	for r := range rounds {
		shared, err := artifacts.PutBytes(ctx, s, "", Bytes(uint64(r), 20000))
		if err != nil {
			return err
		}
		own, err := artifacts.PutBytes(ctx, s, "", Bytes(uint64(1000+id*100+r), 300))
		if err != nil {
			return err
		}
		for _, n := range []struct {
			name string
			d    artifacts.Descriptor
		}{{fmt.Sprintf("shared-%d", r), shared}, {fmt.Sprintf("own-%d-%d", id, r), own}} {
			if err := s.Tag(ctx, n.name, n.d); err != nil {
				return err
			}
			got, err := s.Resolve(ctx, n.name)
			if err != nil {
				return err
			}
			if got.Digest != n.d.Digest {
				return fmt.Errorf("%s is %s, want %s", n.name, got.Digest, n.d.Digest)
			}
		}
		k := artifacts.Key(own.Digest)
		if err := s.PutKeys(ctx, []artifacts.KeyRef{{Key: k, Ref: artifacts.Ref{Blob: own.Digest, Bytes: own.Size, Sum: own.Digest}}}); err != nil {
			return err
		}
		if refs, err := s.Lookup(ctx, []artifacts.Key{k}); err != nil || len(refs) != 1 {
			return fmt.Errorf("key of round %d: %v, %w", r, refs, err)
		}
		if _, err := artifacts.ReadAll(ctx, s, shared, 1<<20); err != nil {
			return err
		}
		if _, err := s.Names(ctx); err != nil {
			return err
		}
	}
	return nil
}

// CheckWork makes sure that nothing of the work of n users is missing.
func CheckWork(t *testing.T, s artifacts.ReadStore, n, rounds int) {
	t.Helper()
	ctx := t.Context()
	names, err := s.Names(ctx)
	if err != nil || len(names) != rounds+n*rounds {
		t.Errorf("%d names, want %d, %v", len(names), rounds+n*rounds, err)
	}
	l, err := s.List(ctx)
	if err != nil || len(l) != rounds+n*rounds {
		t.Errorf("%d blobs, want %d, %v", len(l), rounds+n*rounds, err)
	}
	var keys []artifacts.Key
	for _, in := range l {
		keys = append(keys, artifacts.Key(in.Digest))
	}
	if refs, err := s.Lookup(ctx, keys); err != nil || len(refs) != n*rounds {
		t.Errorf("%d keys, want %d, %v", len(refs), n*rounds, err)
	}
	if f, err := artifacts.Verify(ctx, s, artifacts.VerifyOptions{}); err != nil || len(f) != 0 {
		t.Errorf("verify: %v, %v", f, err)
	}
}
