package hub

import (
	"encoding/json"
	"strings"
	"testing"
)

func FuzzParseContentRange(f *testing.F) {
	for _, s := range []string{"bytes 0-1/2", "bytes */177", "bytes 5-9/*", "bytes 0-9223372036854775807/9223372036854775807", "x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := parseContentRange(s)
		if err != nil {
			return
		}
		if r.Unsatisfied && r.Total < 0 || !r.Unsatisfied && (r.Start < 0 || r.End < r.Start || r.End+1 <= r.Start || r.Total >= 0 && r.End >= r.Total) {
			t.Errorf("%q: %+v", s, r)
		}
	})
}

func FuzzParseLinkNext(f *testing.F) {
	for _, s := range []string{`<https://h/x>; rel="next"`, `<a>; rel=prev, <b>; title="x\",y"; rel="last next"`, `<`, `<>;`, `"`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, ok := parseLinkNext([]string{s})
		if ok != (got != "") || ok && !strings.Contains(s, "<"+got+">") {
			t.Errorf("%q: %q, %v", s, got, ok)
		}
	})
}

func FuzzParseRateLimit(f *testing.F) {
	for _, s := range []string{`"api";r=0;t=55`, `"a";r=1;t=2, "b";r=0;t=9`, `;r=1;t=2`, `"x;r=0;t=1`, `a;r=99999999999999999999;t=1`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, rl := range parseRateLimit([]string{s}) {
			if rl.Left < 0 || rl.Reset < 0 || rl.Reset > seconds(1<<62) {
				t.Errorf("%q: %+v", s, rl)
			}
		}
	})
}

func FuzzParseRef(f *testing.F) {
	for _, s := range []string{"org/name@refs/pr/1", "gpt2", "a/b@c@d", "a--b", "../x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParseRef(s)
		if err != nil {
			return
		}
		if again, err := ParseRef(r.String()); err != nil || again != r {
			t.Errorf("%q: %+v, then %+v, %v", s, r, again, err)
		}
		if checkPath(r.Revision) != nil || checkPath(r.Repo) != nil {
			t.Errorf("%q is not safe as a path", s)
		}
	})
}

// FuzzTreeFile: what the cache's listing gives is safe to use.
func FuzzTreeFile(f *testing.F) {
	f.Add([]byte(`{"format_version":1,"files":{"a/b":{"size":5,"blob_id":"` + strings.Repeat("a", 40) + `","lfs_sha256":"` + strings.Repeat("b", 64) + `","lfs_size":5,"xet_hash":"x"}}}`))
	f.Add([]byte(`{"format_version":1,"files":{"..":{"size":-5,"blob_id":""}}}`))
	f.Add([]byte(`{"format_version":1,"files":null}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, b []byte) {
		files, err := parseTreeFile(b)
		if err == nil {
			checkFiles(t, files)
		}
	})
}

func checkFiles(t *testing.T, files []File) {
	t.Helper()
	for i, x := range files {
		if checkPath(x.Path) != nil || x.Size < -1 {
			t.Errorf("%+v", x)
		}
		if d := x.Digest(); !d.IsZero() && (!d.valid() || strings.ContainsAny(entryName(d), `/\.`)) {
			t.Errorf("%+v", x)
		}
		if i > 0 && files[i-1].Path >= x.Path {
			t.Errorf("%q after %q", x.Path, files[i-1].Path)
		}
	}
}

// FuzzAPIFiles: the same for the server's listings.
func FuzzAPIFiles(f *testing.F) {
	f.Add([]byte(`[{"type":"file","path":"a","size":1,"oid":"` + strings.Repeat("a", 40) + `"},{"type":"file","path":"b","size":9,"lfs":{"oid":"sha256:` + strings.Repeat("B", 64) + `","size":0}}]`))
	f.Add([]byte(`[{"path":"C:\\x"},{"rfilename":"x","lfs":{}}]`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var entries []apiFile
		if json.Unmarshal(b, &entries) != nil {
			return
		}
		var files []File
		for _, e := range entries {
			if x, err := e.file(); err == nil {
				files = append(files, x)
			}
		}
		if files, err := sortFiles("fuzz", files); err == nil {
			checkFiles(t, files)
		}
	})
}

func FuzzRefFile(f *testing.F) {
	f.Add([]byte(strings.Repeat("0a", 20) + "\n"))
	f.Add([]byte("../../x"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if c, err := parseRefFile(b); err == nil && !IsCommit(c) {
			t.Errorf("%q", c)
		}
	})
}

// FuzzJournal: any journal gives extents inside the file, and its claims and
// its records agree.
func FuzzJournal(f *testing.F) {
	var seed []byte
	for _, r := range []record{{kind: recordExtent, span: span{0, 100}}, {kind: recordExtent, span: span{50, 300}}, {kind: recordDrop, span: span{0, 10}}, {kind: recordVerified}} {
		seed = append(seed, r.encode()...)
	}
	f.Add(seed, int64(1000))
	f.Add(seed[:100], int64(100))
	f.Add([]byte("qsj1"), int64(0))
	f.Fuzz(func(t *testing.T, b []byte, size int64) {
		if size < 0 {
			return
		}
		var m extentMap
		m.apply(b, size)
		var union spans
		for _, r := range m.touching(span{0, size}) {
			if r.span.lo < 0 || r.span.hi > size || r.span.lo >= r.span.hi {
				t.Errorf("extent %v of %d", r.span, size)
			}
			union = union.add(r.span)
		}
		if union.total() != m.claimed.total() || m.claimed.total() > size {
			t.Errorf("claimed %v, extents %v", m.claimed, union)
		}
	})
}

func FuzzPointer(f *testing.F) {
	f.Add([]byte(pointerMagic + "oid sha256:ab\nsize 5\n"))
	f.Add([]byte("version https://git-lfs"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if oid, size, ok := parsePointer(b); ok && (oid == "" || size == "" || strings.ContainsAny(oid+size, "\n\x1b")) {
			t.Errorf("%q: %q, %q", b, oid, size)
		}
	})
}
