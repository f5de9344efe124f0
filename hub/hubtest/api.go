package hubtest

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	stdlog "log"
	"net/http"
	"net/url"
	"sort"
	"strconv"
	"strings"
)

func quiet() *stdlog.Logger { return stdlog.New(io.Discard, "", 0) }

// fail answers an error as the hub does: code and message in headers, JSON
// body, nothing after HEAD.
func (c *call) fail(status int, code, message string) {
	h := c.w.Header()
	if code != "" {
		h.Set("X-Error-Code", code)
	}
	if message != "" {
		h.Set("X-Error-Message", message)
	}
	if code == "EntryNotFound" {
		h.Set("Content-Type", "text/plain; charset=utf-8")
		h.Set("ETag", `W/"f-mY2VvLxuxB7KhsoOdQTlMTccuAQ"`)
		h.Set("Content-Length", "15")
		c.w.WriteHeader(status)
		if c.r.Method != http.MethodHead {
			io.WriteString(c.w, "Entry not found")
		}
		return
	}
	b, _ := json.Marshal(map[string]string{"error": message})
	h.Set("Content-Type", "application/json; charset=utf-8")
	c.w.WriteHeader(status)
	if c.r.Method != http.MethodHead {
		c.w.Write(b)
	}
}

// enter checks the token and the repository and finds the commit. It answers
// itself when something is wrong.
func (c *call) enter(files bool) (*Repo, string, map[string]*File, bool) {
	no := func(status int, code, message string) (*Repo, string, map[string]*File, bool) {
		c.fail(status, code, message)
		return nil, "", nil, false
	}
	repo, moved := c.h.repo(c.repo)
	if repo == nil && moved != "" {
		c.redirectRenamed(moved)
		return nil, "", nil, false
	}
	opens, known := c.h.opt.Tokens[c.token]
	known = known && c.hasToken
	access := false
	for _, id := range opens {
		access = access || id == c.repo
	}
	gone := repo == nil || repo.Private && !access
	switch {
	case c.hasToken && !known && files && repo != nil && repo.Gated:
		return no(401, "GatedRepo", fmt.Sprintf("Access to model %s is restricted. You must have access to it and be authenticated to access it. Please log in.", c.repo))
	case c.hasToken && !known:
		return no(401, "", "Invalid credentials in Authorization header")
	case gone && !c.hasToken:
		return no(401, "", "Invalid username or password.")
	case gone:
		return no(404, "RepoNotFound", "Repository not found")
	case repo.Disabled:
		return no(403, "", "Access to this resource is disabled.")
	case files && repo.Gated && !c.hasToken:
		return no(401, "GatedRepo", fmt.Sprintf("Access to model %s is restricted. You must have access to it and be authenticated to access it. Please log in.", c.repo))
	case files && repo.Gated && !access:
		return no(403, "GatedRepo", fmt.Sprintf("Access to model %s is restricted and you are not in the authorized list. Visit the page to ask for access.", c.repo))
	}
	commit, list, ok := repo.resolve(c.rev)
	if !ok {
		return no(404, "RevisionNotFound", "Invalid rev id: "+c.rev)
	}
	return repo, commit, list, true
}

// redirectRenamed: bare, relative 307; or a mirror's absolute 308.
func (c *call) redirectRenamed(id string) {
	to := c.prefix + id + c.rest
	if q := c.r.URL.RawQuery; q != "" {
		to += "?" + q
	}
	status := http.StatusTemporaryRedirect
	if c.h.opt.AbsoluteRename {
		status, to = http.StatusPermanentRedirect, c.h.URL+to
	}
	c.w.Header().Set("Location", to)
	c.w.WriteHeader(status)
}

func (c *call) api() {
	repo, commit, files, ok := c.enter(false)
	if !ok {
		return
	}
	switch c.kind {
	case Info:
		c.json(c.info(repo, commit, files))
	case Tree:
		c.tree(commit, files)
	case PathsInfo:
		c.pathsInfo(files)
	case Refs:
		c.json(refList(repo, truth(c.r.URL.Query().Get("include_prs"))))
	case XetToken:
		c.json(map[string]any{"accessToken": "xet-token", "exp": int64(4102444800), "casUrl": c.h.CDNURL})
	}
}

func (c *call) json(v any) {
	b, err := json.Marshal(v)
	if err != nil {
		c.fail(500, "", err.Error())
		return
	}
	c.w.Header().Set("Content-Type", "application/json; charset=utf-8")
	c.w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	if c.r.Method != http.MethodHead {
		c.w.Write(b)
	}
}

// truth reads a boolean as either client writes it: true, True or 1.
func truth(s string) bool { return strings.EqualFold(s, "true") || s == "1" }

func (c *call) info(repo *Repo, commit string, files map[string]*File) map[string]any {
	var siblings []map[string]any
	for _, p := range sortedPaths(files) {
		f := files[p]
		s := map[string]any{"rfilename": f.listedPath(p)}
		if truth(c.r.URL.Query().Get("blobs")) {
			s["size"], s["blobId"] = f.listedSize(), f.listedOID()
			if f.LFS {
				s["lfs"] = map[string]any{"sha256": f.listedSHA256(), "size": f.listedSize(), "pointerSize": len(f.pointer())}
			}
		}
		siblings = append(siblings, s)
	}
	gated := any(false)
	if repo.Gated {
		gated = "manual"
	}
	return map[string]any{
		"_id": "621ffdc036468d709f174338", "id": repo.ID, "modelId": repo.ID, "sha": commit,
		"private": repo.Private, "gated": gated, "disabled": repo.Disabled,
		"downloads": 1, "likes": 0, "tags": []string{"safetensors", "license:mit"},
		"cardData": map[string]any{"license": "mit"}, "lastModified": "2026-01-02T03:04:05.000Z",
		"createdAt": "2026-01-02T03:04:05.000Z", "siblings": siblings,
	}
}

// tree lists files and directories in pages. The order is not sorted, as on
// the public hub, which promises none.
func (c *call) tree(commit string, files map[string]*File) {
	if c.h.opt.NoTree {
		c.fail(404, "", "Not found")
		return
	}
	q := c.r.URL.Query()
	recursive := truth(q.Get("recursive"))
	var entries []map[string]any
	under := c.path
	inside := func(p string) bool {
		rest := p
		if under != "" {
			var ok bool
			if rest, ok = strings.CutPrefix(p, under+"/"); !ok {
				return false
			}
		}
		return recursive || !strings.Contains(rest, "/")
	}
	for _, d := range dirs(files) {
		if inside(d) {
			entries = append(entries, map[string]any{"type": "directory", "path": d, "size": 0, "oid": blobHash([]byte("tree " + d))})
		}
	}
	paths := sortedPaths(files)
	sort.Sort(sort.Reverse(sort.StringSlice(paths)))
	for _, p := range paths {
		if inside(p) {
			entries = append(entries, c.entry(p, files[p]))
		}
	}
	if under != "" && len(entries) == 0 {
		c.w.Header().Set("X-Repo-Commit", commit)
		c.fail(404, "EntryNotFound", under+" does not exist on \""+c.rev+"\"")
		return
	}
	start := 0
	if cur := q.Get("cursor"); cur != "" {
		b, err := base64.URLEncoding.DecodeString(cur)
		n, err2 := strconv.Atoi(strings.TrimPrefix(string(b), "at:"))
		if err != nil || err2 != nil || n < 0 || n > len(entries) {
			c.fail(400, "", "Invalid cursor")
			return
		}
		start = n
	}
	end := min(start+c.h.opt.PageSize, len(entries))
	if end < len(entries) {
		base := c.h.URL
		if c.h.opt.LinkHost != "" {
			base = c.h.opt.LinkHost
		}
		next := url.Values{}
		for k, v := range q {
			next[k] = v
		}
		next.Set("cursor", base64.URLEncoding.EncodeToString([]byte(fmt.Sprintf("at:%d", end))))
		c.w.Header().Set("Link", fmt.Sprintf("<%s%s?%s>; rel=\"next\"", base, c.r.URL.EscapedPath(), next.Encode()))
	}
	if entries = entries[start:end]; entries == nil {
		entries = []map[string]any{}
	}
	c.json(entries)
}

func (c *call) entry(p string, f *File) map[string]any {
	e := map[string]any{"type": "file", "path": f.listedPath(p), "size": f.listedSize(), "oid": f.listedOID()}
	if f.LFS {
		e["lfs"] = map[string]any{"oid": f.listedSHA256(), "size": f.listedSize(), "pointerSize": len(f.pointer())}
		if !c.h.opt.NoXet {
			e["xetHash"] = f.xetHash()
		}
	}
	return e
}

// pathsInfo takes a form (Python) or JSON (JavaScript). Missing paths are left
// out of the answer.
func (c *call) pathsInfo(files map[string]*File) {
	var paths []string
	if strings.HasPrefix(c.r.Header.Get("Content-Type"), "application/json") {
		var body struct {
			Paths []string `json:"paths"`
		}
		if err := json.NewDecoder(io.LimitReader(c.r.Body, 1<<20)).Decode(&body); err != nil {
			c.fail(400, "", "Invalid JSON")
			return
		}
		paths = body.Paths
	} else {
		if err := c.r.ParseForm(); err != nil {
			c.fail(400, "", "Invalid form")
			return
		}
		paths = c.r.PostForm["paths"]
	}
	out := []map[string]any{}
	for _, p := range paths {
		if f := files[p]; f != nil {
			out = append(out, c.entry(p, f))
		}
	}
	c.json(out)
}

func refList(r *Repo, withPulls bool) map[string]any {
	r.mu.Lock()
	defer r.mu.Unlock()
	branches, tags, pulls := []map[string]any{}, []map[string]any{}, []map[string]any{}
	names := make([]string, 0, len(r.refs))
	for n := range r.refs {
		names = append(names, n)
	}
	sort.Strings(names)
	for _, n := range names {
		ref := map[string]any{"name": n, "ref": "refs/heads/" + n, "targetCommit": r.refs[n]}
		switch {
		case strings.HasPrefix(n, "refs/pr/"):
			ref["ref"] = n
			pulls = append(pulls, ref)
		case r.tags[n]:
			ref["ref"] = "refs/tags/" + n
			tags = append(tags, ref)
		default:
			branches = append(branches, ref)
		}
	}
	out := map[string]any{"branches": branches, "tags": tags, "converts": []any{}}
	if withPulls {
		out["pullRequests"] = pulls
	}
	return out
}

func sortedPaths(files map[string]*File) []string {
	out := make([]string, 0, len(files))
	for p := range files {
		out = append(out, p)
	}
	sort.Strings(out)
	return out
}

func (f *File) listedPath(p string) string {
	if f.ListedPath != "" {
		return f.ListedPath
	}
	return p
}

func (f *File) listedSize() int64 {
	if f.ListedSize != nil {
		return *f.ListedSize
	}
	return f.Size
}

func (f *File) listedSHA256() string {
	if f.ListedSHA256 != "" {
		return f.ListedSHA256
	}
	return f.sha256
}

func (f *File) listedOID() string {
	if f.ListedOID != "" {
		return f.ListedOID
	}
	return f.oid
}
