package registry

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// TestResumesBetweenPieces kills a push when its fourth piece is about to go, and
// starts it again: three pieces are at docker-registry and are not sent again.
func TestResumesBetweenPieces(t *testing.T) {
	w := newWorld(t, "")
	big := w.write("big.bin", strings.Repeat("0123456789abcdef", 1<<19)) // 8 MiB
	back, err := url.Parse("http://" + w.host)
	if err != nil {
		t.Fatal(err)
	}
	var pieces atomic.Int64
	var cmd *exec.Cmd
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(back)
		r.Out.Host = r.In.Host // addresses of uploads lead here again
	}}
	srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Method == "PATCH" && pieces.Add(1) == 4 {
			cmd.Process.Kill()
			panic(http.ErrAbortHandler)
		}
		proxy.ServeHTTP(rw, r)
	}))
	defer srv.Close()
	ref := strings.TrimPrefix(srv.URL, "http://") + "/models/big:v1"
	args := []string{"push", big, ref, "--chunk", "1MiB", "--json"}
	cmd = exec.Command(os.Getenv("QUERN"), args...)
	if err := cmd.Run(); err == nil {
		t.Fatal("the push was not killed")
	}
	if list, err := os.ReadDir(filepath.Join(w.dir, "store", "quern", "uploads")); err != nil || len(list) != 1 {
		t.Fatalf("%v, %v", list, err)
	}
	before := pieces.Load()
	var doc struct {
		Sent int64
		Tags []struct{ Blobs []struct{ How string } }
	}
	if err := json.Unmarshal(w.quern(args...), &doc); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d pieces, %d bytes, %v", pieces.Load()-before, doc.Sent, doc.Tags[0].Blobs)
	if got := pieces.Load() - before; got != 5 || doc.Sent >= 6<<20 {
		t.Errorf("%d pieces and %d bytes were sent", got, doc.Sent)
	}
	w.quern("pull", ref, "-o", filepath.Join(w.dir, "out"))
	if sum(t, filepath.Join(w.dir, "out", "big.bin")) != sum(t, big) {
		t.Error("other bytes came")
	}
}
