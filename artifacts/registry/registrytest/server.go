// Package registrytest is an OCI registry in memory with the habits, good and bad,
// of those that are met: it stands in for them in tests.
package registrytest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"quern/artifacts"
)

// Server is a registry. The fields are set before Start.
type Server struct {
	// NoChunks answers that status to a PATCH.
	NoChunks int
	// MinChunk is the least length of a piece that is not the last.
	MinChunk int64
	// MaxBody is the longest body that is taken; 0 means any.
	MaxBody int64
	// NoHead answers 405 to HEAD.
	NoHead bool
	// NoState answers 404 to a GET of an upload.
	NoState bool
	// NoMount opens an upload where a mount is asked for.
	NoMount bool
	// Referrers has the API of that name; without it clients keep an index.
	Referrers bool
	// ContentType is sent with manifests in place of theirs.
	ContentType string
	// Users have passwords; with some the server wants to know who asks. With
	// Tokens it wants a token of its /token, for the scope that is needed.
	Users  map[string]string
	Tokens bool
	// Storage, if set, is where blobs are redirected to.
	Storage string
	// OldAddresses forget the earlier addresses of an upload, as Debian's does.
	OldAddresses bool
	// Before sees each request first and may answer it, by returning true.
	Before func(w http.ResponseWriter, r *http.Request) bool

	mu      sync.Mutex
	blobs   map[string]map[artifacts.Digest][]byte // by repository
	mans    map[string]map[string]manifest         // by repository, then tag or digest
	uploads map[string]*upload
	serial  int

	logMu sync.Mutex // answers are given under mu
	log   []string
}

type manifest struct {
	mediaType string
	raw       []byte
}

type upload struct {
	repo string
	data []byte
	step int
}

// Start serves until the test ends and returns the host with its port.
func (s *Server) Start(t testing.TB) string {
	s.blobs, s.mans, s.uploads = map[string]map[artifacts.Digest][]byte{}, map[string]map[string]manifest{}, map[string]*upload{}
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	return strings.TrimPrefix(srv.URL, "http://")
}

// Log lists what was asked, as "METHOD path status", queries left out. An answer
// is in it before a client has it; a request without one, of status 0, may come
// into it later.
func (s *Server) Log() []string {
	s.logMu.Lock()
	defer s.logMu.Unlock()
	return slices.Clone(s.log)
}

// Count counts the requests that begin so.
func (s *Server) Count(prefix string) int {
	n := 0
	for _, l := range s.Log() {
		if strings.HasPrefix(l, prefix) {
			n++
		}
	}
	return n
}

// PutBlob gives the server a blob, whatever its bytes are.
func (s *Server) PutBlob(repo string, d artifacts.Digest, b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.blobs[repo] == nil {
		s.blobs[repo] = map[artifacts.Digest][]byte{}
	}
	s.blobs[repo][d] = b
}

// Blob gives a blob.
func (s *Server) Blob(repo string, d artifacts.Digest) ([]byte, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, ok := s.blobs[repo][d]
	return b, ok
}

// PutManifest gives the server a manifest under a tag and its digest.
func (s *Server) PutManifest(repo, tag, mediaType string, raw []byte) artifacts.Digest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.putManifest(repo, tag, mediaType, raw)
}

func (s *Server) putManifest(repo, tag, mediaType string, raw []byte) artifacts.Digest {
	if s.mans[repo] == nil {
		s.mans[repo] = map[string]manifest{}
	}
	d := artifacts.DigestOf(raw)
	for _, name := range []string{tag, d.String()} {
		s.mans[repo][name] = manifest{mediaType, raw}
	}
	return d
}

// Manifest gives the bytes and the type of a manifest.
func (s *Server) Manifest(repo, name string) (raw []byte, mediaType string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.mans[repo][name]
	return m.raw, m.mediaType
}

// Uploads counts the unfinished uploads.
func (s *Server) Uploads() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.uploads)
}

// seen notes the status of an answer.
type seen struct {
	http.ResponseWriter
	note func(status int)
	once sync.Once
}

func (w *seen) is(status int) { w.once.Do(func() { w.note(status) }) }

func (w *seen) WriteHeader(code int) {
	w.is(code)
	w.ResponseWriter.WriteHeader(code)
}

func (w *seen) Write(b []byte) (int, error) {
	w.is(http.StatusOK)
	return w.ResponseWriter.Write(b)
}

// Unwrap lets handlers break connections.
func (w *seen) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (s *Server) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	w := &seen{ResponseWriter: rw, note: func(status int) {
		s.logMu.Lock()
		defer s.logMu.Unlock()
		s.log = append(s.log, fmt.Sprintf("%s %s %d", r.Method, r.URL.Path, status))
	}}
	defer w.is(0)
	if s.Before != nil && s.Before(w, r) {
		return
	}
	if r.URL.Path == "/token" {
		s.token(w, r)
		return
	}
	if !s.allowed(w, r) {
		return
	}
	rest, ok := strings.CutPrefix(r.URL.Path, "/v2/")
	switch {
	case !ok:
		http.NotFound(w, r)
	case rest == "":
		w.Write([]byte("{}"))
	case strings.Contains(rest, "/blobs/uploads/"):
		repo, id, _ := strings.Cut(rest, "/blobs/uploads/")
		s.upload(w, r, repo, id)
	case strings.Contains(rest, "/blobs/"):
		repo, d, _ := strings.Cut(rest, "/blobs/")
		s.blob(w, r, repo, d)
	case strings.Contains(rest, "/manifests/"):
		repo, name, _ := strings.Cut(rest, "/manifests/")
		s.manifest(w, r, repo, name)
	case strings.Contains(rest, "/referrers/") && s.Referrers:
		repo, d, _ := strings.Cut(rest, "/referrers/")
		s.referrers(w, r, repo, d)
	default:
		Fail(w, http.StatusNotFound, "UNSUPPORTED")
	}
}

// Fail answers as registries do.
func Fail(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"errors":[{"code":%q,"message":"the test's registry says no"}]}`, code)
}

// allowed asks for credentials where the server has users.
func (s *Server) allowed(w http.ResponseWriter, r *http.Request) bool {
	if s.Users == nil {
		return true
	}
	need := "pull"
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		need = "push"
	}
	head := r.Header.Get("Authorization")
	if !s.Tokens {
		if u, p, ok := r.BasicAuth(); ok && s.Users[u] == p && p != "" {
			return true
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
		Fail(w, http.StatusUnauthorized, "UNAUTHORIZED")
		return false
	}
	path := strings.TrimPrefix(r.URL.Path, "/v2/")
	repo := path
	for _, mark := range []string{"/blobs/", "/manifests/", "/referrers/"} {
		repo, _, _ = strings.Cut(repo, mark)
	}
	if strings.HasPrefix(head, "Bearer token:") && strings.Contains(head, repo+":") && strings.Contains(head[strings.Index(head, repo+":"):], need) {
		return true
	}
	w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="http://%s/token",service="test",scope="repository:%s:%s"`, r.Host, repo, need))
	Fail(w, http.StatusUnauthorized, "UNAUTHORIZED")
	return false
}

// token gives a token that says what it is for.
func (s *Server) token(w http.ResponseWriter, r *http.Request) {
	u, p, ok := r.BasicAuth()
	scopes := r.URL.Query()["scope"]
	if r.Method == http.MethodPost {
		r.ParseForm()
		u, p, ok = r.PostForm.Get("username"), r.PostForm.Get("password"), true
		scopes = r.PostForm["scope"]
	}
	if !ok || s.Users[u] != p || p == "" {
		Fail(w, http.StatusUnauthorized, "UNAUTHORIZED")
		return
	}
	json.NewEncoder(w).Encode(map[string]string{"token": "token:" + strings.ReplaceAll(strings.Join(scopes, ";"), " ", ";")})
}

func (s *Server) blob(w http.ResponseWriter, r *http.Request, repo, name string) {
	d, err := artifacts.ParseDigest(name)
	b, ok := s.Blob(repo, d)
	switch {
	case err != nil:
		Fail(w, http.StatusBadRequest, "DIGEST_INVALID")
	case r.Method == http.MethodHead && s.NoHead:
		Fail(w, http.StatusMethodNotAllowed, "UNSUPPORTED")
	case !ok:
		Fail(w, http.StatusNotFound, "BLOB_UNKNOWN")
	case r.Method == http.MethodGet && s.Storage != "":
		http.Redirect(w, r, s.Storage+r.URL.Path, http.StatusTemporaryRedirect)
	default:
		ServeBlob(w, r, b)
	}
}

// ServeBlob answers with bytes, or the range of them that is asked for.
func ServeBlob(w http.ResponseWriter, r *http.Request, b []byte) {
	from, ok := strings.CutPrefix(r.Header.Get("Range"), "bytes=")
	if !ok {
		w.Header().Set("Content-Length", strconv.Itoa(len(b)))
		w.WriteHeader(http.StatusOK)
	} else {
		at, err := strconv.Atoi(strings.TrimSuffix(from, "-"))
		if err != nil || at >= len(b) {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes */%d", len(b)))
			w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
			return
		}
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", at, len(b)-1, len(b)))
		w.Header().Set("Content-Length", strconv.Itoa(len(b)-at))
		w.WriteHeader(http.StatusPartialContent)
		b = b[at:]
	}
	if r.Method != http.MethodHead {
		w.Write(b)
	}
}

func (s *Server) manifest(w http.ResponseWriter, r *http.Request, repo, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch r.Method {
	case http.MethodPut:
		s.put(w, r, repo, name)
		return
	case http.MethodDelete:
		Fail(w, http.StatusMethodNotAllowed, "UNSUPPORTED")
		return
	case http.MethodHead:
		if s.NoHead {
			Fail(w, http.StatusMethodNotAllowed, "UNSUPPORTED")
			return
		}
	}
	m, ok := s.mans[repo][name]
	// As Debian's registry: an OCI manifest is for those who ask for it by name.
	if !ok || !strings.Contains(r.Header.Get("Accept"), m.mediaType) {
		Fail(w, http.StatusNotFound, "MANIFEST_UNKNOWN")
		return
	}
	w.Header().Set("Content-Type", m.mediaType)
	if s.ContentType != "" {
		w.Header().Set("Content-Type", s.ContentType)
	}
	w.Header().Set("Docker-Content-Digest", artifacts.DigestOf(m.raw).String())
	w.Header().Set("Content-Length", strconv.Itoa(len(m.raw)))
	if r.Method == http.MethodGet {
		w.Write(m.raw)
	}
}

// put takes a manifest whose blobs are there.
func (s *Server) put(w http.ResponseWriter, r *http.Request, repo, name string) {
	raw, err := io.ReadAll(r.Body)
	var m struct {
		MediaType string                 `json:"mediaType"`
		Config    *artifacts.Descriptor  `json:"config"`
		Layers    []artifacts.Descriptor `json:"layers"`
		Subject   *artifacts.Descriptor  `json:"subject"`
	}
	if err != nil || json.Unmarshal(raw, &m) != nil || m.MediaType != r.Header.Get("Content-Type") {
		Fail(w, http.StatusBadRequest, "MANIFEST_INVALID")
		return
	}
	if m.Config != nil {
		m.Layers = append(m.Layers, *m.Config)
	}
	for _, l := range m.Layers {
		if _, ok := s.blobs[repo][l.Digest]; !ok {
			Fail(w, http.StatusBadRequest, "MANIFEST_BLOB_UNKNOWN")
			return
		}
	}
	d := s.putManifest(repo, name, m.MediaType, raw)
	if m.Subject != nil && s.Referrers {
		w.Header().Set("OCI-Subject", m.Subject.Digest.String())
	}
	w.Header().Set("Docker-Content-Digest", d.String())
	w.Header().Set("Location", "/v2/"+repo+"/manifests/"+d.String())
	w.WriteHeader(http.StatusCreated)
}

func (s *Server) referrers(w http.ResponseWriter, r *http.Request, repo, subject string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []map[string]any{}
	for name, m := range s.mans[repo] {
		var doc struct {
			ArtifactType string `json:"artifactType"`
			Subject      struct {
				Digest string `json:"digest"`
			} `json:"subject"`
		}
		if !strings.HasPrefix(name, "sha256:") || json.Unmarshal(m.raw, &doc) != nil || doc.Subject.Digest != subject {
			continue
		}
		list = append(list, map[string]any{"mediaType": m.mediaType, "digest": name, "size": len(m.raw), "artifactType": doc.ArtifactType})
	}
	w.Header().Set("Content-Type", "application/vnd.oci.image.index.v1+json")
	json.NewEncoder(w).Encode(map[string]any{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": list})
}
