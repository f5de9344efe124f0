package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"quern/internal/atomicfile"
	"quern/internal/faulty"
)

// twoVariants is a bench with an old set of outputs, and the arguments that
// build the new one.
func twoVariants(t *testing.T) (b *bench, out string, args []string) {
	b = newBench(t)
	b.model("stories260k", "model")
	recipe := b.recipe("outputs:\n  - {format: gguf, file: r.gguf}\n  - {format: kmcu, file: sub/r.kmcu}\n")
	out = b.path("out")
	args = []string{"build", recipe, "-o", out, "--measure", "never"}
	b.ok(args...)
	return b, out, append(args, "--set", "outputs.0.outtype=f32", "--set", "outputs.1.max-seq=100")
}

// state tells the old outputs from the new ones.
type state struct {
	old, now [2]string // digests
	files    [2][]byte // the old ones
}

var stateFiles = [2]string{"r.gguf", filepath.Join("sub", "r.kmcu")}

// newState builds the new outputs over the old ones to know both.
func newState(t *testing.T, b *bench, out string, args []string) *state {
	s := &state{}
	for i, n := range stateFiles {
		s.files[i] = mustRead(t, filepath.Join(out, n))
		s.old[i] = sum(t, filepath.Join(out, n))
	}
	b.ok(args...)
	for i, n := range stateFiles {
		s.now[i] = sum(t, filepath.Join(out, n))
	}
	return s
}

// restore puts the old outputs back and makes the store forget, so that a build
// writes all there is.
func (s *state) restore(t *testing.T, b *bench, out string) {
	for i, n := range stateFiles {
		check(t, os.WriteFile(filepath.Join(out, n), s.files[i], 0o644))
	}
	check(t, os.RemoveAll(b.path("store")))
}

func (s *state) of(t *testing.T, out string) string {
	var parts []string
	for i, n := range stateFiles {
		switch got := sum(t, filepath.Join(out, n)); got {
		case s.old[i]:
			parts = append(parts, "old")
		case s.now[i]:
			parts = append(parts, "new")
		default:
			parts = append(parts, "neither: "+got)
		}
	}
	return strings.Join(parts, " ")
}

// fewSteps leaves out steps that are as those before: a file is written in many
// pieces.
type fewSteps map[string]int

func (f fewSteps) enough(s atomicfile.Step, path string) bool {
	key := string(s) + " " + path
	f[key]++
	return f[key] > 2
}

// TestEveryStepFails lets every step of a build that touches the disk fail in
// turn, once or from then on: the disk is full, or cannot be written to. The
// build must say so, or do without, and leave every file whole.
func TestEveryStepFails(t *testing.T) {
	readOnly := fmt.Errorf("injected: %w", syscall.EROFS)
	for _, fault := range []struct {
		name string
		err  error
		make func(int, error) *faulty.Countdown
		by   int
		says []string
	}{
		{"disk full once", faulty.ErrDiskFull, faulty.FailOnce, 1, []string{"disk is full", "make room"}},
		{"disk full", faulty.ErrDiskFull, faulty.FailFrom, 3, []string{"disk is full", "make room"}},
		{"read-only", readOnly, faulty.FailFrom, 3, []string{"another"}},
	} {
		t.Run(fault.name, func(t *testing.T) {
			if testing.Short() {
				fault.by *= 5
			}
			b, out, args := twoVariants(t)
			s := newState(t, b, out, args)
			failed, steps := 0, 0
			for ; ; steps += fault.by {
				s.restore(t, b, out)
				count := fault.make(steps, fault.err)
				var kind atomicfile.Step
				at := ""
				few := fewSteps{}
				b.hooks.before = func(s atomicfile.Step, path string) error {
					if !count.Fired() && few.enough(s, path) {
						return nil
					}
					err := count.Next()
					if err != nil && at == "" {
						kind, at = s, strings.TrimPrefix(path, b.dir)
					}
					return err
				}
				r := b.run(args...)
				b.hooks.before = nil
				if !count.Fired() {
					if r.code != exitDone {
						t.Fatalf("no fault: %s", r.err)
					}
					break
				}
				where := fmt.Sprintf("step %d (%s of %s)", steps, kind, at)
				got := s.of(t, out)
				switch {
				case r.code == exitDone && got != "new new":
					t.Errorf("%s: the build succeeded, and the outputs are %s", where, got)
				case r.code == exitDone:
				case r.code != exitFailed:
					t.Errorf("%s: exit code %d\n%s", where, r.code, r.err)
				default:
					failed++
					for _, w := range fault.says {
						if !strings.Contains(r.err, w) {
							t.Errorf("%s: the error does not say %q: %s", where, w, r.err)
						}
					}
				}
				if strings.Contains(got, "neither") {
					t.Errorf("%s: the outputs are %s", where, got)
				}
				noTemps(t, b.dir)
				if r := b.run("store", "verify"); r.code != exitDone && !strings.Contains(r.err, "no oci-layout") {
					t.Errorf("%s: store verify: %s%s", where, r.out, r.err)
				}
				if steps%5 == 0 {
					b.ok(args...)
					if got := s.of(t, out); got != "new new" {
						t.Errorf("%s: built again, the outputs are %s", where, got)
					}
				}
			}
			t.Logf("%d of %d steps made the build fail", failed, steps/fault.by)
			if steps < 60 || failed < steps/fault.by/3 {
				t.Errorf("%d steps, of which %d failed", steps, failed)
			}
		})
	}
}

// TestDieAtEveryStep is a process that ends as by kill -9 right before each
// step that touches the disk.
func TestDieAtEveryStep(t *testing.T) {
	b, out, args := twoVariants(t)
	s := newState(t, b, out, args)
	by := 1
	if testing.Short() {
		by = 7
	}
	steps := 0
	seen := map[string]int{}
	for ; ; steps += by {
		s.restore(t, b, out)
		cmd := b.command(args...)
		cmd.Env = append(cmd.Env, fmt.Sprint(dieEnv, "=", steps))
		msg, err := cmd.CombinedOutput()
		if err == nil {
			break
		}
		if code := cmd.ProcessState.ExitCode(); code != dieCode {
			t.Fatalf("step %d: exit code %d\n%s", steps, code, msg)
		}
		got := s.of(t, out)
		seen[got]++
		if strings.Contains(got, "neither") {
			t.Errorf("step %d: the outputs are %s", steps, got)
		}
		if r := b.run("store", "verify"); r.code != exitDone {
			t.Errorf("step %d: store verify: %s%s", steps, r.out, r.err)
		}
		if steps%3 == 0 || got == "new old" {
			b.ok(args...)
			if got := s.of(t, out); got != "new new" {
				t.Errorf("step %d: built again, the outputs are %s", steps, got)
			}
			noTemps(t, out) // the next build clears up after the dead
		}
	}
	t.Logf("%d steps: %v", steps, seen)
	if seen["old old"] < 20/by || seen["new old"]+seen["new new"] == 0 {
		t.Errorf("deaths saw %v", seen)
	}
}
