package registrytest

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"quern/artifacts"
)

func (s *Server) upload(w http.ResponseWriter, r *http.Request, repo, id string) {
	if s.MaxBody > 0 && r.ContentLength > s.MaxBody {
		Fail(w, http.StatusRequestEntityTooLarge, "SIZE_INVALID")
		return
	}
	if r.Method == http.MethodPost {
		s.begin(w, r, repo)
		return
	}
	s.mu.Lock()
	u := s.uploads[id]
	known := u != nil && u.repo == repo && (!s.OldAddresses || strconv.Itoa(u.step) == r.URL.Query().Get("step"))
	s.mu.Unlock()
	if !known || r.Method == http.MethodGet && s.NoState {
		Fail(w, http.StatusNotFound, "BLOB_UPLOAD_UNKNOWN")
		return
	}
	switch r.Method {
	case http.MethodGet:
		s.mu.Lock()
		defer s.mu.Unlock()
		s.where(w, repo, id, u)
		w.WriteHeader(http.StatusNoContent)
	case http.MethodPatch:
		s.patch(w, r, repo, id, u)
	case http.MethodPut:
		s.close(w, r, repo, id, u)
	case http.MethodDelete:
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.uploads, id)
		w.WriteHeader(http.StatusNoContent)
	}
}

// where tells how far an upload is.
func (s *Server) where(w http.ResponseWriter, repo, id string, u *upload) {
	u.step++
	w.Header().Set("Location", fmt.Sprintf("/v2/%s/blobs/uploads/%s?step=%d", repo, id, u.step))
	w.Header().Set("Range", fmt.Sprintf("0-%d", max(len(u.data)-1, 0)))
}

func (s *Server) begin(w http.ResponseWriter, r *http.Request, repo string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d, err := artifacts.ParseDigest(r.URL.Query().Get("mount")); err == nil && !s.NoMount {
		if b, ok := s.blobs[r.URL.Query().Get("from")][d]; ok {
			if s.blobs[repo] == nil {
				s.blobs[repo] = map[artifacts.Digest][]byte{}
			}
			s.blobs[repo][d] = b
			w.WriteHeader(http.StatusCreated)
			return
		}
	}
	s.serial++
	id := fmt.Sprintf("u%d", s.serial)
	u := &upload{repo: repo}
	s.uploads[id] = u
	s.where(w, repo, id, u)
	if s.MinChunk > 0 {
		w.Header().Set("OCI-Chunk-Min-Length", strconv.FormatInt(s.MinChunk, 10))
	}
	w.WriteHeader(http.StatusAccepted)
}

func (s *Server) patch(w http.ResponseWriter, r *http.Request, repo, id string, u *upload) {
	if s.NoChunks != 0 {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Location", r.URL.RequestURI())
		w.WriteHeader(s.NoChunks)
		return
	}
	b, err := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	from, to, _ := strings.Cut(r.Header.Get("Content-Range"), "-")
	first, ferr := strconv.Atoi(from)
	last, lerr := strconv.Atoi(to)
	switch {
	case ferr != nil || lerr != nil || r.Header.Get("Content-Type") != "application/octet-stream":
		Fail(w, http.StatusBadRequest, "BLOB_UPLOAD_INVALID")
	case first != len(u.data):
		s.where(w, repo, id, u)
		w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
	case err != nil: // the client is gone; what came of it counts
		u.data = append(u.data, b...)
	case last-first+1 != len(b):
		Fail(w, http.StatusBadRequest, "SIZE_INVALID")
	default:
		u.data = append(u.data, b...)
		s.where(w, repo, id, u)
		w.WriteHeader(http.StatusAccepted)
	}
}

func (s *Server) close(w http.ResponseWriter, r *http.Request, repo, id string, u *upload) {
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	d, err := artifacts.ParseDigest(r.URL.Query().Get("digest"))
	s.mu.Lock()
	defer s.mu.Unlock()
	all := append(u.data, b...)
	if err != nil || artifacts.DigestOf(all) != d {
		Fail(w, http.StatusBadRequest, "DIGEST_INVALID")
		return
	}
	delete(s.uploads, id)
	if s.blobs[repo] == nil {
		s.blobs[repo] = map[artifacts.Digest][]byte{}
	}
	s.blobs[repo][d] = all
	w.Header().Set("Docker-Content-Digest", d.String())
	w.WriteHeader(http.StatusCreated)
}
