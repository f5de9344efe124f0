package sinktest

import (
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"quern/artifacts/sink"
)

// Folder is a place on this machine, reached by whatever target.
type Folder struct {
	Dir    string
	Target string // a file in Dir
	Opt    sink.Options
}

// Open makes a sink of the target.
func (f Folder) Open(t *testing.T) sink.Sink {
	t.Helper()
	return Open(t, f.Target, f.Opt)
}

func (f Folder) Read(_ *testing.T, name string) ([]byte, bool) {
	b, err := os.ReadFile(filepath.Join(f.Dir, name))
	return b, err == nil
}

func (f Folder) Write(t *testing.T, name string, b []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(f.Dir, name), b, 0o644); err != nil {
		t.Fatal(err)
	}
}

// Open makes a sink of a target.
func Open(t *testing.T, target string, opt sink.Options) sink.Sink {
	t.Helper()
	tg, err := sink.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	s, err := sink.Open(tg, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// Client writes a script that stands for ssh or adb: it runs its last argument, as
// the other side would. before is put in front.
func Client(t *testing.T, before string) []string {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("needs a POSIX shell")
	}
	path := filepath.Join(t.TempDir(), "client.sh")
	script := "for a; do :; done\n" + before + "\nexec sh -c \"$a\"\n"
	if err := os.WriteFile(path, []byte(script), 0o644); err != nil {
		t.Fatal(err)
	}
	return []string{"sh", path}
}

// Start serves until the test ends, and gives the address.
func (s *Server) Start(t *testing.T) string {
	t.Helper()
	ts := httptest.NewUnstartedServer(s)
	ts.Config.ErrorLog = log.New(io.Discard, "", 0) // connections are broken on purpose
	ts.Start()
	t.Cleanup(ts.Close)
	return ts.URL
}
