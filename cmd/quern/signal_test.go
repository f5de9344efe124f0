//go:build unix

package main

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// midway starts a build and returns when it has written some of its output.
func midway(t *testing.T, cmd *exec.Cmd) (rest func() string) {
	t.Helper()
	pipe, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(pipe)
	var text strings.Builder
	for lines.Scan() {
		text.WriteString(lines.Text() + "\n")
		var e struct {
			Kind        string
			Done, Total int64
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatalf("%q: %v", lines.Text(), err)
		}
		if e.Kind == "progress" && e.Done > e.Total/10 {
			if e.Done > e.Total/2 {
				t.Fatalf("the build is too quick to be interrupted: %+v", e)
			}
			return func() string {
				for lines.Scan() {
					text.WriteString(lines.Text() + "\n")
				}
				return text.String()
			}
		}
	}
	t.Fatalf("the build ended: %s", text.String())
	return nil
}

// TestInterrupt sends the signals of Ctrl-C and of a supervisor to a build in
// its midst: it ends within a second with its exit code, and it is as if it had
// never been started.
func TestInterrupt(t *testing.T) {
	b := newBench(t)
	b.model("stories260k", "model")
	out := b.path("out")
	b.ok("build", b.recipe(q8), "-o", out)
	old := sum(t, filepath.Join(out, "r.gguf"))
	os.RemoveAll(b.path("model"))
	b.sparseModel("model", 24, 2048)
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		for _, args := range [][]string{nil, {"--json"}, {"--no-store", "--jobs", "1"}} {
			cmd := b.command(append([]string{"build", b.path("r.yaml"), "-o", out, "--progress", "json"}, args...)...)
			var stdout strings.Builder
			cmd.Stdout = &stdout
			rest := midway(t, cmd)
			start := time.Now()
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			text := rest()
			err := cmd.Wait()
			if took := time.Since(start); took > time.Second {
				t.Errorf("%v %v: it took %v to stop", sig, args, took)
			}
			if code := cmd.ProcessState.ExitCode(); code != exitInterrupted {
				t.Errorf("%v %v: %v, exit code %d\n%s", sig, args, err, code, text)
			}
			if last := text[strings.LastIndex(strings.TrimSpace(text), "\n")+1:]; !strings.Contains(last, "interrupted") {
				t.Errorf("%v %v: the last word is %q", sig, args, last)
			}
			if args != nil && args[0] == "--json" {
				var f jsonFailure
				ran{out: stdout.String()}.json(t, &f)
				if f.ExitCode != exitInterrupted {
					t.Errorf("the document is %q", stdout.String())
				}
			} else if stdout.Len() > 0 {
				t.Errorf("stdout has %q", stdout.String())
			}
			if got := strings.Join(files(t, out), " "); got != "r.gguf" || sum(t, filepath.Join(out, "r.gguf")) != old {
				t.Errorf("%v %v: files %s", sig, args, got)
			}
			noTemps(t, b.path("store"))
			b.ok("store", "verify")
		}
	}
}

// TestImpatience: work that does not look at its context is not waited for.
func TestImpatience(t *testing.T) {
	b := newBench(t)
	cmd := b.command("build", b.path("pipe.yaml"))
	if err := syscall.Mkfifo(b.path("pipe.yaml"), 0o600); err != nil {
		t.Fatal(err)
	}
	// The child hangs in opening the pipe until somebody writes into it, which
	// tells this test in turn that the child is there.
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w, err := os.OpenFile(b.path("pipe.yaml"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	start := time.Now()
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	if took, code := time.Since(start), cmd.ProcessState.ExitCode(); took > time.Second || code != exitInterrupted {
		t.Errorf("exit code %d after %v", code, took)
	}
}
