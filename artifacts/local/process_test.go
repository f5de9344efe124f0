package local_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"quern/artifacts"
	"quern/artifacts/local"
	"quern/artifacts/storetest"
)

// The test binary is also the other processes: with this variable set it does
// what the variable says.
const childEnv = "QUERN_STORE_CHILD"

func TestMain(m *testing.M) {
	if v := os.Getenv(childEnv); v != "" {
		mode, rest, _ := strings.Cut(v, " ")
		n, dir, _ := strings.Cut(rest, " ")
		num, err := strconv.Atoi(n)
		if err == nil {
			err = child(mode, num, dir)
		}
		if err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func child(mode string, n int, dir string) error {
	ctx := context.Background()
	s, err := local.Open(ctx, dir, local.Options{})
	if err != nil {
		return err
	}
	switch mode {
	case "work":
		return storetest.Work(ctx, s, n, processRounds)
	case "victim":
		return victim(ctx, s, n)
	case "hold":
		release, err := s.Hold(ctx)
		if err != nil {
			return err
		}
		fmt.Println("held")
		bufio.NewReader(os.Stdin).ReadByte()
		release()
		return nil
	}
	return fmt.Errorf("no mode %q", mode)
}

func start(t *testing.T, mode string, n int, dir string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d %s", childEnv, mode, n, dir))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	return cmd, bufio.NewScanner(out)
}

const processRounds = 4

// TestProcesses lets eight processes make the store and write to it while this
// one reads: nobody may see a half index, and nothing may be lost.
func TestProcesses(t *testing.T) {
	dir := t.TempDir()
	const n = 8
	var wg sync.WaitGroup
	for i := range n {
		cmd, lines := start(t, "work", i, dir)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			for lines.Scan() {
				t.Errorf("process %d: %s", i, lines.Text())
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("process %d: %v", i, err)
			}
		})
	}
	stop := make(chan struct{})
	var reader sync.WaitGroup
	reader.Go(func() {
		s, err := local.Open(t.Context(), dir, local.Options{})
		if err != nil {
			t.Error(err)
			return
		}
		for {
			names, err := s.Names(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			for _, n := range names {
				if _, err := s.Stat(t.Context(), n.Digest); err != nil {
					t.Error(err)
				}
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	wg.Wait()
	close(stop)
	reader.Wait()
	s := open(t, dir, local.Options{})
	storetest.CheckWork(t, s, n, processRounds)
	if l := leftovers(t, s); len(l) != 0 {
		t.Errorf("left behind: %v", l)
	}
}

// victim makes one build after the other until it is killed, and says what it
// has finished.
func victim(ctx context.Context, s *local.Store, from int) error {
	for i := from; ; i++ {
		data := storetest.Bytes(uint64(i), 1+i*7919%90_000)
		w, err := s.NewBlob(ctx, artifacts.BlobOptions{MediaType: artifacts.MediaTypeGGUF, Size: int64(len(data))})
		if err != nil {
			return err
		}
		for at := 0; at < len(data); at += 10_000 {
			if _, err := w.Write(data[at:min(at+10_000, len(data))]); err != nil {
				return err
			}
		}
		out, err := w.Commit(artifacts.Digest{})
		if err != nil {
			return err
		}
		key := artifacts.Key(artifacts.DigestOf(fmt.Append(nil, "key ", i)))
		if err := s.PutKeys(ctx, []artifacts.KeyRef{{Key: key, Ref: artifacts.Ref{Blob: out.Digest, Bytes: out.Size, Sum: out.Digest}}}); err != nil {
			return err
		}
		b := &artifacts.Build{
			Version: artifacts.BuildVersion, Tool: artifacts.Tool{Name: "quern", Version: "1"},
			Name: fmt.Sprint("build-", i), Recipe: []byte("{}"),
			Outputs: []artifacts.BuildOutput{{File: "a.gguf", Format: "gguf", MediaType: artifacts.MediaTypeGGUF, Digest: out.Digest, Size: out.Size}},
		}
		d, err := artifacts.WriteBuild(ctx, s, b)
		if err != nil {
			return err
		}
		if err := s.Tag(ctx, fmt.Sprint("build-", i%10), d); err != nil {
			return err
		}
		fmt.Println(i)
	}
}

// TestKill kills a process that makes builds at 100 random moments. The store
// must always be whole, hold every build that was reported done, and take the
// next one without help.
func TestKill(t *testing.T) {
	t.Parallel() // it waits for the disk most of the time
	dir := t.TempDir()
	rng := rand.New(rand.NewPCG(100, 9))
	next := 0
	for round := range 100 {
		cmd, lines := start(t, "victim", next, dir)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		last := next - 1
		count := rng.IntN(3)
		delay := time.Duration(rng.IntN(15_000)) * time.Microsecond
		var timer *time.Timer
		if count == 0 {
			// While the store is opened, or not long after.
			timer = time.AfterFunc(delay*2, func() { cmd.Process.Kill() })
		}
		for lines.Scan() {
			if _, err := fmt.Sscan(lines.Text(), &last); err != nil {
				t.Fatalf("victim says %q", lines.Text())
			}
			if timer == nil && last >= next-1+count {
				timer = time.AfterFunc(delay, func() { cmd.Process.Kill() })
			}
		}
		cmd.Wait()
		timer.Stop()
		s := open(t, dir, local.Options{})
		checkAlive(t, s, last)
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
		next = last + 1
	}
	t.Logf("%d builds", next)
	if next < 50 {
		t.Errorf("only %d builds were finished: the kills came too early to show anything", next)
	}
	s := open(t, dir, local.Options{})
	if f, err := s.Verify(t.Context(), artifacts.VerifyOptions{}); err != nil || len(f) != 0 {
		t.Errorf("verify: %v, %v", f, err)
	}
	p, err := s.PlanGC(t.Context(), local.GCOptions{Grace: -1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.ExecuteGC(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if l := leftovers(t, s); len(l) != 0 {
		t.Errorf("left after gc: %v", l)
	}
	checkAlive(t, s, next-1)
}

func checkAlive(t *testing.T, s *local.Store, last int) {
	t.Helper()
	ctx := t.Context()
	if f, err := s.Verify(ctx, artifacts.VerifyOptions{}); err != nil || len(f) != 0 {
		t.Errorf("verify: %v, %v", f, err)
	}
	for i := max(0, last-9); i <= last; i++ {
		name := fmt.Sprint("build-", i%10)
		d, err := s.Resolve(ctx, name)
		if err != nil {
			t.Error(err)
			continue
		}
		b, err := artifacts.ReadBuild(ctx, s, d)
		if err != nil {
			t.Error(err)
			continue
		}
		// The one that the kill hit may have got as far as its tag.
		if b.Name != fmt.Sprint("build-", i) && b.Name != fmt.Sprint("build-", i+10) {
			t.Errorf("%s is %s, want number %d", name, b.Name, i)
		}
		key := artifacts.Key(artifacts.DigestOf(fmt.Append(nil, "key ", i)))
		if refs, err := s.Lookup(ctx, []artifacts.Key{key}); err != nil || len(refs) != 1 {
			t.Errorf("key of build %d: %v, %v", i, refs, err)
		}
	}
}
