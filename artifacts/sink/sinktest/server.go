package sinktest

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
)

// Server is an HTTP server that takes files by PUT and knows as much beyond that as
// a test wants. Files are in memory.
type Server struct {
	DAV      bool   // OPTIONS says so, MOVE works, quota is told
	Parts    bool   // PUT with Content-Range; else such a part replaces the file
	Refuse   bool   // parts are refused with 501
	Digests  bool   // HEAD and GET have Repr-Digest when asked
	NoGet    bool   // nothing can be read back
	Quota    int64  // with DAV: bytes free, 0 for unknown
	Auth     string // the Authorization that is demanded
	BreakAt  int64  // the connection ends when a file has so many bytes,
	Breaks   int    // so often; what has arrived stays where Parts is set
	Status   []int  // answers to the next PUTs, 0 for none
	Redirect string // where PUTs of files are sent, with 307

	mu    sync.Mutex
	files map[string][]byte
	busy  map[string]*sync.Mutex // one request a file at a time
	Log   []string
	Leaks []string // requests with credentials
}

// File gives the content of a path.
func (s *Server) File(path string) ([]byte, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, ok := s.files[path]
	return append([]byte{}, b...), ok
}

// Put makes a file.
func (s *Server) Put(path string, b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set(path, b)
}

func (s *Server) set(path string, b []byte) {
	if s.files == nil {
		s.files = map[string][]byte{}
	}
	s.files[path] = append([]byte{}, b...)
}

// Paths lists the files.
func (s *Server) Paths() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for p := range s.files {
		out = append(out, p)
	}
	return out
}

// hold waits until nobody else is at a file.
func (s *Server) hold(path string) (release func()) {
	s.mu.Lock()
	if s.busy == nil {
		s.busy = map[string]*sync.Mutex{}
	}
	if s.busy[path] == nil {
		s.busy[path] = &sync.Mutex{}
	}
	m := s.busy[path]
	s.mu.Unlock()
	m.Lock()
	return m.Unlock
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer s.hold(r.URL.Path)()
	s.mu.Lock()
	s.Log = append(s.Log, strings.TrimSpace(r.Method+" "+r.URL.Path+" "+r.Header.Get("Content-Range")))
	if a := r.Header.Get("Authorization"); a != "" {
		s.Leaks = append(s.Leaks, a)
	}
	s.mu.Unlock()
	if s.Auth != "" && r.Header.Get("Authorization") != s.Auth {
		http.Error(w, "who are you?", http.StatusUnauthorized)
		return
	}
	switch r.Method {
	case http.MethodOptions:
		w.Header().Set("Allow", "OPTIONS, GET, HEAD, PUT, DELETE")
		if s.DAV {
			w.Header().Set("DAV", "1")
			w.Header().Set("Allow", "OPTIONS, GET, HEAD, PUT, DELETE, MOVE, PROPFIND")
		}
	case "PROPFIND":
		s.propfind(w)
	case http.MethodGet, http.MethodHead:
		s.get(w, r)
	case http.MethodPut:
		s.put(w, r)
	case http.MethodDelete:
		s.mu.Lock()
		defer s.mu.Unlock()
		if _, ok := s.files[r.URL.Path]; !ok {
			http.NotFound(w, r)
			return
		}
		delete(s.files, r.URL.Path)
		w.WriteHeader(http.StatusNoContent)
	case "MOVE":
		s.move(w, r)
	default:
		http.Error(w, "no", http.StatusMethodNotAllowed)
	}
}

func (s *Server) propfind(w http.ResponseWriter) {
	if !s.DAV {
		http.Error(w, "no", http.StatusMethodNotAllowed)
		return
	}
	w.WriteHeader(http.StatusMultiStatus)
	free := ""
	if s.Quota > 0 {
		free = fmt.Sprintf("<D:quota-available-bytes>%d</D:quota-available-bytes>", s.Quota)
	}
	fmt.Fprintf(w, `<?xml version="1.0"?><D:multistatus xmlns:D="DAV:"><D:response><D:propstat><D:prop>%s</D:prop></D:propstat></D:response></D:multistatus>`, free)
}

func (s *Server) get(w http.ResponseWriter, r *http.Request) {
	b, ok := s.File(r.URL.Path)
	switch {
	case s.NoGet:
		http.Error(w, "write only", http.StatusMethodNotAllowed)
		return
	case !ok:
		http.NotFound(w, r)
		return
	}
	if s.Digests && r.Header.Get("Want-Repr-Digest") != "" {
		sum := sha256.Sum256(b)
		w.Header().Set("Repr-Digest", "md5=:AAAA:, sha-256=:"+base64.StdEncoding.EncodeToString(sum[:])+":")
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	if r.Method == http.MethodGet {
		_, _ = w.Write(b) // who hangs up early has seen enough
	}
}

func (s *Server) put(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	probe := strings.HasSuffix(path, "-probe")
	s.mu.Lock()
	status := 0
	if len(s.Status) > 0 && !probe {
		status, s.Status = s.Status[0], s.Status[1:]
	}
	s.mu.Unlock()
	switch {
	case status != 0:
		http.Error(w, "as asked for", status)
		return
	case s.Redirect != "" && !probe:
		w.Header().Set("Location", s.Redirect+path)
		w.WriteHeader(http.StatusTemporaryRedirect)
		return
	}
	at, total := int64(0), r.ContentLength
	if cr := r.Header.Get("Content-Range"); cr != "" {
		var last int64
		if _, err := fmt.Sscanf(cr, "bytes %d-%d/%d", &at, &last, &total); err != nil || last-at+1 != r.ContentLength {
			http.Error(w, "bad range", http.StatusBadRequest)
			return
		}
		if s.Refuse {
			http.Error(w, "no parts", http.StatusNotImplemented)
			return
		}
	}
	old, _ := s.File(path)
	if !s.Parts {
		at = 0
	}
	if at > int64(len(old)) {
		http.Error(w, "a gap", http.StatusRequestedRangeNotSatisfiable)
		return
	}
	b := old[:at:at]
	buf := make([]byte, 4096)
	for {
		n, err := r.Body.Read(buf)
		b = append(b, buf[:n]...)
		s.mu.Lock()
		broken := s.Breaks > 0 && int64(len(b)) >= s.BreakAt && !probe
		if broken {
			b = b[:min(int64(len(b)), s.BreakAt)]
			s.Breaks--
		}
		s.mu.Unlock()
		if broken || err != nil && err != io.EOF {
			if s.Parts {
				s.Put(path, b)
			}
			panic(http.ErrAbortHandler)
		}
		if err == io.EOF {
			break
		}
	}
	s.Put(path, b)
	w.WriteHeader(http.StatusCreated)
}

func (s *Server) move(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	to, err := url.Parse(r.Header.Get("Destination"))
	b, ok := s.files[r.URL.Path]
	switch {
	case !s.DAV:
		http.Error(w, "no", http.StatusMethodNotAllowed)
	case err != nil || !ok:
		http.NotFound(w, r)
	default:
		delete(s.files, r.URL.Path)
		s.set(to.Path, b)
		w.WriteHeader(http.StatusCreated)
	}
}
