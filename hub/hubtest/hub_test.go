package hubtest

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// The checks here speak plain HTTP, so that the hub is not only tested against
// our own client.

func plain(t *testing.T, method, url string, header ...string) (*http.Response, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept-Encoding", "identity")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return send(t, req)
}

func send(t *testing.T, req *http.Request) (*http.Response, []byte) {
	t.Helper()
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", req.Method, req.URL, err)
	}
	return res, b
}

func fixture(t *testing.T, opt Options) (*Hub, *Repo, string, map[string]*File) {
	t.Helper()
	files := map[string]*File{
		"config.json":   Git(`{"a":1}`),
		"w.safetensors": LFS([]byte("weights weights weights")),
		"sub/a.txt":     Git("a"),
		"sub/b.txt":     Git("b"),
	}
	r := NewRepo("org/name")
	commit := r.Commit(files)
	return New(t, opt, r), r, commit, files
}

func TestResolveLFS(t *testing.T) {
	h, _, commit, files := fixture(t, Options{})
	f := files["w.safetensors"]
	for _, method := range []string{"GET", "HEAD"} {
		res, body := plain(t, method, h.URL+"/org/name/resolve/main/w.safetensors")
		want := map[string]string{
			"X-Repo-Commit": commit, "X-Linked-Etag": `"` + f.SHA256() + `"`, "X-Linked-Size": "23",
		}
		for k, v := range want {
			if got := res.Header.Get(k); got != v {
				t.Errorf("%s: %s %q, want %q", method, k, got, v)
			}
		}
		if res.StatusCode != 302 || res.ContentLength == 23 || res.Header.Get("X-Request-Id") == "" {
			t.Errorf("%s: status %d, length %d", method, res.StatusCode, res.ContentLength)
		}
		if method == "GET" && len(body) == 0 {
			t.Error("the redirect has no body of its own")
		}
		loc := res.Header.Get("Location")
		if !strings.HasPrefix(loc, h.CDNURL+"/") {
			t.Fatalf("Location %q", loc)
		}
		cdn, data := plain(t, "GET", loc)
		tag := strings.Trim(cdn.Header.Get("ETag"), `"`)
		if string(data) != string(f.Data) || tag == f.SHA256() || len(tag) != 64 {
			t.Errorf("storage: %q, ETag %s", data, tag)
		}
		for k := range cdn.Header {
			if strings.HasPrefix(k, "X-") {
				t.Errorf("storage sent %s", k)
			}
		}
	}
}

func TestResolveGit(t *testing.T) {
	for _, direct := range []bool{false, true} {
		h, _, commit, files := fixture(t, Options{DirectGit: direct})
		res, body := plain(t, "GET", h.URL+"/org/name/resolve/main/config.json")
		if !direct {
			if res.StatusCode != 307 || res.Header.Get("X-Repo-Commit") != commit || res.Header.Get("Accept-Ranges") != "bytes" {
				t.Fatalf("first hop: %d %v", res.StatusCode, res.Header)
			}
			loc := res.Header.Get("Location")
			if !strings.HasPrefix(loc, "/api/resolve-cache/models/org/name/"+commit+"/config.json?") || !strings.Contains(loc, "&etag=") {
				t.Fatalf("Location %q", loc)
			}
			res, body = plain(t, "GET", h.URL+loc)
		}
		if res.StatusCode != 200 || string(body) != `{"a":1}` || res.Header.Get("ETag") != `"`+files["config.json"].OID()+`"` {
			t.Errorf("direct %v: %d %q %v", direct, res.StatusCode, body, res.Header)
		}
	}
}

func TestRanges(t *testing.T) {
	h, _, _, files := fixture(t, Options{})
	data := string(files["w.safetensors"].Data)
	loc := func() string {
		res, _ := plain(t, "HEAD", h.URL+"/org/name/resolve/main/w.safetensors")
		return res.Header.Get("Location")
	}()
	for _, c := range []struct {
		rng    string
		status int
		body   string
		cr     string
	}{
		{"bytes=2-5", 206, data[2:6], "bytes 2-5/23"},
		{"bytes=20-", 206, data[20:], "bytes 20-22/23"},
		{"bytes=0-0", 206, data[:1], "bytes 0-0/23"},
		{"bytes=20-99", 206, data[20:], "bytes 20-22/23"},
		{"bytes=-3", 206, data[20:], "bytes 20-22/23"},
		{"bytes=23-", 416, "", "bytes */23"},
		{"bytes=1-2,4-5", 200, data, ""},
		{"bytes=x", 200, data, ""},
	} {
		res, body := plain(t, "GET", loc, "Range", c.rng)
		if res.StatusCode != c.status || string(body) != c.body || res.Header.Get("Content-Range") != c.cr {
			t.Errorf("%s: %d %q %q", c.rng, res.StatusCode, body, res.Header.Get("Content-Range"))
		}
		res, body = plain(t, "HEAD", loc, "Range", c.rng)
		if res.StatusCode != c.status || len(body) != 0 {
			t.Errorf("HEAD %s: %d, %d bytes", c.rng, res.StatusCode, len(body))
		}
	}
	h.Inject(Fault{On: CDN, IgnoreRange: true})
	if res, body := plain(t, "GET", loc, "Range", "bytes=2-5"); res.StatusCode != 200 || string(body) != data {
		t.Errorf("a server that ignores Range: %d %q", res.StatusCode, body)
	}
}

func TestCompressesUnlessIdentity(t *testing.T) {
	h, _, _, _ := fixture(t, Options{DirectGit: true})
	res, body := plain(t, "GET", h.URL+"/org/name/resolve/main/config.json", "Accept-Encoding", "gzip", "Range", "bytes=0-1")
	z, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil || string(text) != `{"a":1}` || res.ContentLength >= 0 || res.StatusCode != 200 {
		t.Errorf("%q, %v, length %d, status %d", text, err, res.ContentLength, res.StatusCode)
	}
}

func TestListings(t *testing.T) {
	h, _, commit, files := fixture(t, Options{PageSize: 3})
	f := files["w.safetensors"]
	var all []map[string]any
	next := h.URL + "/api/models/org/name/tree/main?recursive=true&expand=false"
	pages := 0
	for next != "" {
		res, body := plain(t, "GET", next)
		var page []map[string]any
		if err := json.Unmarshal(body, &page); err != nil || len(page) > 3 {
			t.Fatalf("%v: %s", err, body)
		}
		all = append(all, page...)
		next = ""
		if link := res.Header.Get("Link"); link != "" {
			next, _, _ = strings.Cut(strings.TrimPrefix(link, "<"), ">")
			if !strings.HasSuffix(link, `; rel="next"`) || !strings.HasPrefix(next, h.URL) {
				t.Fatalf("Link %q", link)
			}
		}
		pages++
	}
	if len(all) != 5 || pages != 2 {
		t.Errorf("%d entries in %d pages", len(all), pages)
	}
	kinds := map[string]any{}
	for _, e := range all {
		kinds[e["path"].(string)] = e["type"]
		if e["path"] == "w.safetensors" {
			lfs := e["lfs"].(map[string]any)
			if lfs["oid"] != f.SHA256() || e["oid"] != f.OID() || e["oid"] != blobHash([]byte(f.pointer())) || e["size"] != 23.0 {
				t.Errorf("tree entry %v", e)
			}
		}
	}
	if kinds["sub"] != "directory" || kinds["sub/a.txt"] != "file" {
		t.Errorf("kinds %v", kinds)
	}
	if res, body := plain(t, "GET", h.URL+"/api/models/org/name/tree/main/sub"); res.StatusCode != 200 || strings.Count(string(body), `"path"`) != 2 {
		t.Errorf("sub-folder: %d %s", res.StatusCode, body)
	}
	if res, _ := plain(t, "GET", h.URL+"/api/models/org/name/tree/main/none"); res.StatusCode != 404 || res.Header.Get("X-Error-Code") != "EntryNotFound" {
		t.Errorf("absent folder: %d", res.StatusCode)
	}

	for _, blobs := range []bool{false, true} {
		u := h.URL + "/api/models/org/name/revision/main"
		if blobs {
			u += "?blobs=true"
		}
		_, body := plain(t, "GET", u)
		var info struct {
			SHA      string           `json:"sha"`
			Siblings []map[string]any `json:"siblings"`
		}
		if err := json.Unmarshal(body, &info); err != nil || info.SHA != commit || len(info.Siblings) != 4 {
			t.Fatalf("%v: %s", err, body)
		}
		for _, s := range info.Siblings {
			lfs, has := s["lfs"].(map[string]any)
			if has != (blobs && s["rfilename"] == "w.safetensors") || has && lfs["sha256"] != f.SHA256() {
				t.Errorf("blobs %v: %v", blobs, s)
			}
		}
	}
}

func TestPathsInfo(t *testing.T) {
	h, _, _, _ := fixture(t, Options{})
	u := h.URL + "/api/models/org/name/paths-info/main"
	for _, c := range []struct{ name, contentType, body string }{
		{"form", "application/x-www-form-urlencoded", url.Values{"paths": {"config.json", "absent", "w.safetensors"}, "expand": {"false"}}.Encode()},
		{"JSON", "application/json", `{"paths":["config.json","absent","w.safetensors"]}`},
	} {
		req, _ := http.NewRequest("POST", u, strings.NewReader(c.body))
		req.Header.Set("Content-Type", c.contentType)
		_, body := send(t, req)
		var got []map[string]any
		if err := json.Unmarshal(body, &got); err != nil || len(got) != 2 || got[0]["path"] != "config.json" {
			t.Errorf("%s: %v: %s", c.name, err, body)
		}
	}
}

func TestRevisions(t *testing.T) {
	h, r, first, _ := fixture(t, Options{})
	second := r.Commit(map[string]*File{"config.json": Git("2")})
	r.SetTag("v1", first)
	r.SetRef("refs/pr/1", first)
	sha := func(rev string) string {
		_, body := plain(t, "GET", h.URL+"/api/models/org/name/revision/"+rev)
		var info struct {
			SHA string `json:"sha"`
		}
		json.Unmarshal(body, &info)
		return info.SHA
	}
	for rev, want := range map[string]string{"main": second, "v1": first, first: first, "refs%2Fpr%2F1": first, "refs/pr/1": "", "nope": ""} {
		if got := sha(rev); got != want {
			t.Errorf("%s: %q, want %q", rev, got, want)
		}
	}
	r.SetRef("main", first)
	if got := sha("main"); got != first {
		t.Errorf("main did not move: %s", got)
	}
	_, body := plain(t, "GET", h.URL+"/api/models/org/name/refs?include_prs=1")
	for _, s := range []string{`"branches":[{`, `"tags":[{`, `"converts":[]`, `"pullRequests":[{`} {
		if !strings.Contains(string(body), s) {
			t.Errorf("refs lack %s: %s", s, body)
		}
	}
}

func TestRenames(t *testing.T) {
	for _, mirror := range []bool{false, true} {
		h, _, _, _ := fixture(t, Options{AbsoluteRename: mirror})
		h.Rename("old", "org/name")
		for path, want := range map[string]string{
			"/api/models/old/revision/main?blobs=true": "/api/models/org/name/revision/main?blobs=true",
			"/old/resolve/main/config.json":            "/org/name/resolve/main/config.json",
		} {
			res, _ := plain(t, "GET", h.URL+path)
			status := 307
			if mirror {
				status, want = 308, h.URL+want
			}
			if res.StatusCode != status || res.Header.Get("Location") != want || res.Header.Get("X-Repo-Commit") != "" {
				t.Errorf("%s: %d to %q", path, res.StatusCode, res.Header.Get("Location"))
			}
		}
	}
}

func TestRawAndNotModified(t *testing.T) {
	h, _, _, files := fixture(t, Options{})
	f := files["w.safetensors"]
	want := fmt.Sprintf("version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize 23\n", f.SHA256())
	for _, method := range []string{"GET", "HEAD"} {
		res, body := plain(t, method, h.URL+"/org/name/raw/main/w.safetensors")
		if res.ContentLength != int64(len(want)) || res.Header.Get("ETag") != `"`+f.OID()+`"` || method == "GET" && string(body) != want {
			t.Errorf("raw %s: %d %q", method, res.ContentLength, body)
		}
		for path, tag := range map[string]string{"w.safetensors": f.SHA256(), "config.json": files["config.json"].OID()} {
			if res, body := plain(t, method, h.URL+"/org/name/resolve/main/"+path, "If-None-Match", `"`+tag+`"`); res.StatusCode != 304 || len(body) > 0 {
				t.Errorf("%s %s: %d", method, path, res.StatusCode)
			}
		}
	}
}

func TestXetHeaders(t *testing.T) {
	h, _, _, _ := fixture(t, Options{})
	u := h.URL + "/org/name/resolve/main/w.safetensors"
	res, _ := plain(t, "HEAD", u)
	if len(res.Header.Get("X-Xet-Hash")) != 64 || !strings.Contains(res.Header.Get("Link"), `rel="xet-auth"`) {
		t.Errorf("headers %v", res.Header)
	}
	if res, body := plain(t, "GET", u, "Accept", "application/vnd.xet-fileinfo+json"); res.StatusCode != 200 || !json.Valid(body) {
		t.Errorf("Xet Accept: %d %s", res.StatusCode, body)
	}
	if res, _ := plain(t, "GET", h.URL+"/api/models/org/name/xet-read-token/main"); res.StatusCode != 200 {
		t.Errorf("token: %d", res.StatusCode)
	}
}

func TestErrorRows(t *testing.T) {
	r := NewRepo("org/open")
	r.Commit(map[string]*File{"a": Git("a")})
	gated, private, off := NewRepo("org/gated"), NewRepo("org/private"), NewRepo("org/off")
	for _, x := range []*Repo{gated, private, off} {
		x.Commit(map[string]*File{"a": Git("a")})
	}
	gated.Gated, private.Private, off.Disabled = true, true, true
	h := New(t, Options{Tokens: map[string][]string{"good": {"org/gated", "org/private"}, "poor": nil}}, r, gated, private, off)
	for _, c := range []struct {
		name, path, token string
		status            int
		code              string
	}{
		{"entry", "/org/open/resolve/main/none", "", 404, "EntryNotFound"},
		{"revision", "/org/open/resolve/none/a", "", 404, "RevisionNotFound"},
		{"repo with token", "/org/none/resolve/main/a", "good", 404, "RepoNotFound"},
		{"repo anonymous", "/org/none/resolve/main/a", "", 401, ""},
		{"private anonymous", "/org/private/resolve/main/a", "", 401, ""},
		{"private without access", "/org/private/resolve/main/a", "poor", 404, "RepoNotFound"},
		{"private", "/org/private/resolve/main/a", "good", 307, ""},
		{"gated anonymous", "/org/gated/resolve/main/a", "", 401, "GatedRepo"},
		{"gated garbage", "/org/gated/resolve/main/a", "x", 401, "GatedRepo"},
		{"gated without access", "/org/gated/resolve/main/a", "poor", 403, "GatedRepo"},
		{"gated", "/org/gated/resolve/main/a", "good", 307, ""},
		{"bad token on a public repo", "/org/open/resolve/main/a", "x", 401, ""},
		{"disabled", "/org/off/resolve/main/a", "", 403, ""},
	} {
		for _, method := range []string{"GET", "HEAD"} {
			var header []string
			if c.token != "" {
				header = []string{"Authorization", "Bearer " + c.token}
			}
			res, body := plain(t, method, h.URL+c.path, header...)
			if res.StatusCode != c.status || res.Header.Get("X-Error-Code") != c.code || res.Header.Get("X-Request-Id") == "" {
				t.Errorf("%s %s: %d %q", method, c.name, res.StatusCode, res.Header.Get("X-Error-Code"))
			}
			if res.StatusCode >= 400 && (res.Header.Get("X-Error-Message") == "" || (len(body) > 0) != (method == "GET")) {
				t.Errorf("%s %s: message %q, %d bytes", method, c.name, res.Header.Get("X-Error-Message"), len(body))
			}
			if c.code == "EntryNotFound" && (res.Header.Get("X-Repo-Commit") == "" || !strings.HasPrefix(res.Header.Get("ETag"), "W/") || res.ContentLength != 15) {
				t.Errorf("%s %s: %v", method, c.name, res.Header)
			}
			if res.Header.Get("RateLimit") == "" || res.Header.Get("RateLimit-Policy") == "" {
				t.Errorf("%s %s: no RateLimit", method, c.name)
			}
		}
	}
}

func TestSignedAddressesEnd(t *testing.T) {
	h, _, _, _ := fixture(t, Options{SignedUses: 1})
	get := func() string {
		res, _ := plain(t, "HEAD", h.URL+"/org/name/resolve/main/w.safetensors")
		return res.Header.Get("Location")
	}
	a := get()
	for i, want := range []int{200, 403} {
		if res, _ := plain(t, "GET", a); res.StatusCode != want {
			t.Errorf("use %d: %d", i+1, res.StatusCode)
		}
	}
	b := get()
	if a == b {
		t.Error("the next address is the same")
	}
	h.Expire()
	if res, _ := plain(t, "GET", b); res.StatusCode != 403 {
		t.Errorf("expired: %d", res.StatusCode)
	}
}

func TestLeakIsAViolation(t *testing.T) {
	r := NewRepo("org/name")
	r.Commit(map[string]*File{"w": LFS([]byte("w"))})
	h, err := Start(Options{}, r)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	res, _ := plain(t, "HEAD", h.URL+"/org/name/resolve/main/w")
	plain(t, "GET", res.Header.Get("Location"), "Authorization", "Bearer x")
	plain(t, "GET", h.HostileURL, "Cookie", "a=b")
	if v := h.Violations(); len(v) != 2 {
		t.Errorf("violations %v", v)
	}
	if h.Count(CDN, "w") != 1 || h.Sent("w") != 1 {
		t.Errorf("%d requests, %d bytes", h.Count(CDN, "w"), h.Sent("w"))
	}
}
