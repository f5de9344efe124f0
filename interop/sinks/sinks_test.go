// Package sinks holds the targets of quern send against real peers: the sshd and
// the adb client of a Linux distribution, with a device of the tests' own behind
// the latter. `make -C interop sinks` runs it; elsewhere, and without these programs, it skips.
package sinks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"quern/artifacts/sink"
	"quern/artifacts/sink/sinktest"
	"quern/internal/adbdevice"
)

// need finds a program. The programs may be there by chance: only who asks for
// them pays the minutes.
func need(t *testing.T, program string) string {
	t.Helper()
	if os.Getenv("QUERN_INTEROP") == "" {
		t.Skip("QUERN_INTEROP is not set")
	}
	p, err := exec.LookPath(program)
	if err != nil {
		p = "/usr/sbin/" + program
		if _, err := os.Stat(p); err != nil {
			t.Skipf("%s is not installed", program)
		}
	}
	return p
}

// cutter passes a TCP connection on and cuts it, once, after so many bytes.
type cutter struct {
	l  net.Listener
	to string
	mu sync.Mutex
	at int64
}

func newCutter(t *testing.T, to string) *cutter {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	c := &cutter{l: l, to: to}
	go func() {
		for {
			a, err := l.Accept()
			if err != nil {
				return
			}
			go c.pass(a)
		}
	}()
	return c
}

func (c *cutter) cutAfter(n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = n
}

func (c *cutter) port() string {
	_, port, _ := net.SplitHostPort(c.l.Addr().String())
	return port
}

func (c *cutter) pass(a net.Conn) {
	defer a.Close()
	b, err := net.Dial("tcp", c.to)
	if err != nil {
		return
	}
	defer b.Close()
	go func() {
		_, _ = io.Copy(a, b) // the way back; its end is that of the connection
		a.Close()
	}()
	buf := make([]byte, 16<<10)
	for {
		n, err := a.Read(buf)
		c.mu.Lock()
		cut := c.at > 0 && c.at <= int64(n)
		if c.at > 0 {
			c.at = max(0, c.at-int64(n))
		}
		c.mu.Unlock()
		if err != nil || cut {
			return
		}
		if _, err := b.Write(buf[:n]); err != nil {
			return
		}
	}
}

// sshd starts a server with keys of its own and gives the client's command, which
// goes through a cutter.
func sshd(t *testing.T) ([]string, *cutter) {
	t.Helper()
	server, client, keygen := need(t, "sshd"), need(t, "ssh"), need(t, "ssh-keygen")
	dir := t.TempDir()
	for _, k := range []string{"host", "me"} {
		if out, err := exec.Command(keygen, "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(dir, k)).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	_, port, _ := net.SplitHostPort(addr)
	pub, err := os.ReadFile(filepath.Join(dir, "me.pub"))
	if err != nil {
		t.Fatal(err)
	}
	keys := filepath.Join(dir, "authorized")
	if err := os.WriteFile(keys, pub, 0o600); err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf("Port %s\nListenAddress 127.0.0.1\nHostKey %s\nAuthorizedKeysFile %s\nPidFile none\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin yes\n",
		port, filepath.Join(dir, "host"), keys)
	if err := os.WriteFile(filepath.Join(dir, "config"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		// A server of root's wants a folder to be confined to.
		if err := os.MkdirAll("/run/sshd", 0o755); err != nil {
			t.Skip(err)
		}
	}
	var log bytes.Buffer
	cmd := exec.Command(server, "-D", "-e", "-f", filepath.Join(dir, "config"))
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed
		if t.Failed() {
			t.Log(log.String())
		}
	})
	c := newCutter(t, addr)
	argv := []string{client, "-F", "none", "-i", filepath.Join(dir, "me"), "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=" + filepath.Join(dir, "known"), "-o", "BatchMode=yes", "-o", "LogLevel=ERROR", "-p", c.port()}
	for range 100 {
		if err = exec.Command(argv[0], append(argv[1:], "127.0.0.1", "true")...).Run(); err == nil {
			return argv, c
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("sshd does not answer: %v: %s", err, log.String())
	return nil, nil
}

const oddName = `a "model's" $HOME;-.gguf`

func TestSSHD(t *testing.T) {
	argv, cut := sshd(t)
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	at := func(t *testing.T) sinktest.Folder {
		dir := t.TempDir()
		return sinktest.Folder{Dir: dir, Target: "ssh:" + me.Username + "@127.0.0.1:" + filepath.Join(dir, oddName), Opt: sink.Options{SSH: argv}}
	}
	t.Run("promises", func(t *testing.T) {
		sinktest.Run(t, sinktest.Traits{}, func(t *testing.T) sinktest.Place { return at(t) })
	})
	t.Run("breaks", func(t *testing.T) {
		breaks(t, func(n int64) { cut.cutAfter(n) }, at)
	})
}

func TestADB(t *testing.T) {
	client := need(t, "adb")
	d, err := adbdevice.Start(os.Environ())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	// A server of our own, so that nobody's phone is in the way.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	l.Close()
	t.Setenv("ANDROID_ADB_SERVER_PORT", port)
	t.Setenv("HOME", t.TempDir())
	if out, err := exec.Command(client, "connect", d.Serial()).CombinedOutput(); err != nil || !strings.Contains(string(out), "connected to") {
		t.Fatalf("%v: %s", err, out)
	}
	defer func() { _ = exec.Command(client, "kill-server").Run() }() // ours alone, by its port
	at := func(t *testing.T) sinktest.Folder {
		dir := t.TempDir()
		return sinktest.Folder{Dir: dir, Target: "adb:" + d.Serial() + ":" + filepath.Join(dir, oddName), Opt: sink.Options{ADB: []string{client}, Settle: time.Second}}
	}
	t.Run("promises", func(t *testing.T) {
		sinktest.Run(t, sinktest.Traits{}, func(t *testing.T) sinktest.Place { return at(t) })
	})
	t.Run("breaks", func(t *testing.T) {
		breaks(t, func(n int64) { d.CutAfter(n) }, at)
	})
}

// breaks cuts the connection in the middle of a file, in one process and between
// two, and wants the rest sent and no more.
func breaks(t *testing.T, cutAfter func(int64), at func(*testing.T) sinktest.Folder) {
	data := sinktest.Content(24 << 20)
	for _, n := range []int64{100_000, 11 << 20} {
		p := at(t)
		f := &sinktest.Faulty{Sink: p.Open(t)}
		s := &sinktest.Send{Data: data}
		cutAfter(n)
		run(t, s, f)
		if b, ok := p.Read(t, oddName); !ok || !bytes.Equal(b, data) {
			t.Errorf("cut after %d: the target has %d bytes", n, len(b))
		}
		if f.Opens < 2 {
			t.Errorf("cut after %d: there was no break", n)
		}
		t.Logf("cut after %d: %d bytes handed over for a file of %d, %d pauses", n, f.Sent, len(data), s.Pauses)
	}
	p := at(t)
	gone := errors.New("killed")
	first := &sinktest.Send{Data: data, Stop: func(at int) error {
		if at > 17<<20 {
			return gone
		}
		return nil
	}}
	if err := first.Run(t.Context(), p.Open(t)); !errors.Is(err, gone) {
		t.Fatal(err)
	}
	part, _ := p.Read(t, oddName+sink.TempSuffix)
	f := &sinktest.Faulty{Sink: p.Open(t)}
	run(t, &sinktest.Send{Data: data}, f)
	if b, ok := p.Read(t, oddName); !ok || !bytes.Equal(b, data) {
		t.Errorf("the target has %d bytes", len(b))
	}
	if len(part) == 0 || f.Sent > int64(len(data)-len(part)) {
		t.Errorf("%d bytes were there and %d of %d were sent", len(part), f.Sent, len(data))
	}
}

// run sends with real pauses between tries.
func run(t *testing.T, s *sinktest.Send, to sink.Sink) {
	t.Helper()
	s.Wait = func(ctx context.Context, d time.Duration) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if err := s.Run(t.Context(), to); err != nil {
		t.Fatalf("%v; said %q", err, s.Said)
	}
}
