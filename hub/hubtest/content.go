package hubtest

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// content answers resolve, resolve-cache and raw.
func (c *call) content() {
	if c.r.Method != http.MethodGet && c.r.Method != http.MethodHead {
		c.fail(405, "", "Method not allowed")
		return
	}
	_, commit, files, ok := c.enter(true)
	if !ok {
		return
	}
	h := c.w.Header()
	if h.Get("X-Repo-Commit") == "" && !(c.fault != nil && has(c.fault.Header, "X-Repo-Commit")) {
		h.Set("X-Repo-Commit", commit)
	}
	f := files[c.path]
	if f == nil {
		c.fail(404, "EntryNotFound", "Entry not found")
		return
	}
	switch {
	case c.kind == Raw:
		c.raw(f)
	case f.LFS:
		c.lfs(commit, f)
	case c.kind == Resolve && !c.h.opt.DirectGit:
		c.toCache(commit, f)
	default:
		c.send(f, f.oid)
	}
}

func has(m map[string]string, key string) bool {
	for k := range m {
		if strings.EqualFold(k, key) {
			return true
		}
	}
	return false
}

// raw is git's own content: the pointer of an LFS file. There is no 304.
func (c *call) raw(f *File) {
	if f.LFS {
		p := []byte(f.pointer())
		f = &File{Reader: bytes.NewReader(p), Size: int64(len(p)), oid: f.oid}
	}
	c.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	c.send(f, f.oid)
}

// toCache redirects a file in git, relative and with the ETag in the query.
func (c *call) toCache(commit string, f *File) {
	if c.notModified(f.oid) {
		return
	}
	h := c.w.Header()
	h.Set("Accept-Ranges", "bytes")
	h.Set("Location", fmt.Sprintf("/api/resolve-cache/models/%s/%s/%s?%s&etag=%s", c.repo, commit, escape(c.path),
		url.QueryEscape("/"+c.repo+"/resolve/"+c.rev+"/"+c.path)+"=", url.QueryEscape(`"`+f.oid+`"`)))
	c.w.WriteHeader(http.StatusTemporaryRedirect)
}

// lfs redirects to the storage host. The metadata is on this answer only.
func (c *call) lfs(commit string, f *File) {
	h := c.w.Header()
	if !c.h.opt.NoXet {
		h.Set("X-Xet-Hash", f.xetHash())
		h.Set("Link", fmt.Sprintf("<%s/api/models/%s/xet-read-token/%s>; rel=\"xet-auth\", <%s/v1/reconstructions/%s>; rel=\"xet-reconstruction-info\"",
			c.h.URL, c.repo, commit, c.h.CDNURL, f.xetHash()))
		if strings.Contains(c.r.Header.Get("Accept"), "application/vnd.xet-fileinfo+json") {
			c.json(map[string]any{"hash": f.xetHash(), "refreshUrl": "x", "reconstructionUrl": "x", "etag": f.sha256, "size": f.Size})
			return
		}
	}
	h.Set("X-Linked-Etag", `"`+f.sha256+`"`)
	h.Set("X-Linked-Size", strconv.FormatInt(f.Size, 10))
	h.Set("Accept-Ranges", "bytes")
	if c.notModified(f.sha256) {
		return
	}
	to := c.h.sign(f, c.path)
	h.Set("Location", to)
	body := "Found. Redirecting to " + to
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	c.w.WriteHeader(http.StatusFound)
	if c.r.Method != http.MethodHead {
		c.w.Write([]byte(body))
	}
}

func (c *call) notModified(tag string) bool {
	for _, v := range strings.Split(c.r.Header.Get("If-None-Match"), ",") {
		if strings.Trim(strings.TrimPrefix(strings.TrimSpace(v), "W/"), `"`) == tag {
			c.w.Header().Set("ETag", `"`+tag+`"`)
			c.w.WriteHeader(http.StatusNotModified)
			return true
		}
	}
	return false
}

func (c *call) send(f *File, tag string) {
	if c.notModified(tag) {
		return
	}
	h := c.w.Header()
	if h.Get("Content-Type") == "" {
		h.Set("Content-Type", "text/plain; charset=utf-8")
	}
	// The hub compresses small text unless it is asked not to, and forgets
	// about ranges then.
	compress := strings.Contains(c.r.Header.Get("Accept-Encoding"), "gzip")
	serve(c.w, c.r, f, tag, c.fault, compress, c.h.done)
}

func escape(p string) string {
	parts := strings.Split(p, "/")
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	return strings.Join(parts, "/")
}

// signature is a signed address of the storage host.
type signature struct {
	f    *File
	path string
	uses int
}

func (h *Hub) sign(f *File, path string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.signs++
	sig := fmt.Sprintf("secret-%d", h.signs)
	h.signed[sig] = &signature{f: f, path: path}
	return fmt.Sprintf("%s/xet-bridge-us/%s?X-Amz-Expires=3600&Signature=%s&response-content-disposition=inline", h.CDNURL, f.xetHash(), sig)
}

// Expire makes all signed addresses given out so far invalid.
func (h *Hub) Expire() {
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.signed)
}

func (h *Hub) serveCDN(w http.ResponseWriter, r *http.Request) {
	sig := r.URL.Query().Get("Signature")
	h.mu.Lock()
	s := h.signed[sig]
	if s != nil {
		s.uses++
		if h.opt.SignedUses > 0 && s.uses > h.opt.SignedUses {
			s = nil
		}
	}
	h.mu.Unlock()
	path := ""
	if s != nil {
		path = s.path
	}
	entry := &Request{Kind: CDN, Method: r.Method, URL: r.URL.RequestURI(), Path: path, Range: r.Header.Get("Range"), Auth: r.Header.Get("Authorization"), Header: r.Header.Clone()}
	h.log.add(entry)
	rec := &recorder{w, &h.log, entry}
	h.checkLeak("storage host", r)
	fault := h.faultFor(CDN, r, path)
	if fault.replaced(rec, r) {
		return
	}
	fault.headers(rec)
	if s == nil {
		rec.Header().Set("Content-Type", "application/xml")
		rec.WriteHeader(http.StatusForbidden)
		rec.Write([]byte("<?xml version=\"1.0\"?><Error><Code>AccessDenied</Code><Message>Access denied</Message></Error>"))
		return
	}
	rec.Header().Set("Content-Type", "application/octet-stream")
	// The storage host's tag is 64 hex digits too, and not the SHA-256.
	serve(rec, r, s.f, s.f.xetHash(), fault, false, h.done)
}

func (h *Hub) checkLeak(where string, r *http.Request) {
	for _, k := range []string{"Authorization", "Cookie", "X-Xet-Hash"} {
		if r.Header.Get(k) != "" {
			h.log.violate("%s got %s", where, k)
		}
	}
}

// serveHostile is a host that nobody should send anything private to.
func (h *Hub) serveHostile(w http.ResponseWriter, r *http.Request) {
	entry := &Request{Kind: Hostile, Method: r.Method, URL: r.URL.RequestURI(), Range: r.Header.Get("Range"), Auth: r.Header.Get("Authorization"), Header: r.Header.Clone()}
	h.log.add(entry)
	rec := &recorder{w, &h.log, entry}
	h.checkLeak("hostile host", r)
	if h.faultFor(Hostile, r, "").replaced(rec, r) {
		return
	}
	rec.Write([]byte("not what you want"))
}
