package atomicfile

import (
	"bufio"
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The test binary is its own crash victim: with this variable set it writes
// files until it is killed.
const victimEnv = "QUERN_ATOMICFILE_VICTIM"

func TestMain(m *testing.M) {
	if v := os.Getenv(victimEnv); v != "" {
		dir, named, _ := strings.Cut(v, "|")
		victim(dir, named == "named")
	}
	os.Exit(m.Run())
}

func payload(i int) []byte {
	return bytes.Repeat([]byte(fmt.Sprintf("%08d", i)), 1+i*7919%40000)
}

func victim(dir string, named bool) {
	for i := 0; ; i++ {
		f := filepath.Join(dir, fmt.Sprintf("f%d", i%3))
		if err := WriteFile(f, payload(i), Options{named: named}); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		fmt.Println(i)
	}
}

// TestKill kills a writing process at random moments. Every file must then be
// whole and at least as new as the last one reported; without temporary names
// nothing else may be in the folder, with them the next write clears it.
func TestKill(t *testing.T) {
	ways(t, func(t *testing.T, opt Options) {
		dir := t.TempDir()
		rng := rand.New(rand.NewPCG(20260, 8))
		way := "unnamed"
		if opt.named {
			way = "named"
		}
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		left := 0
		for range 30 {
			cmd := exec.Command(self)
			cmd.Env = append(os.Environ(), victimEnv+"="+dir+"|"+way)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(out)
			last := -1
			count := rng.IntN(20)
			timer := time.AfterFunc(time.Hour, func() {})
			for lines.Scan() {
				if _, err := fmt.Sscan(lines.Text(), &last); err != nil {
					t.Fatalf("victim says %q", lines.Text())
				}
				if last == count {
					// At any point of the writes that follow.
					timer = time.AfterFunc(time.Duration(rng.IntN(3000))*time.Microsecond, func() { cmd.Process.Kill() })
				}
			}
			timer.Stop()
			cmd.Wait()
			left += check(t, dir, last, opt.named)
		}
		t.Logf("%d temporary files left", left)
		for i := range 3 {
			if err := WriteFile(filepath.Join(dir, fmt.Sprintf("f%d", i)), nil, opt); err != nil {
				t.Fatal(err)
			}
		}
		if got := names(t, dir); got != "f0 f1 f2" {
			t.Errorf("after the next writes the folder has %q", got)
		}
	})
}

func check(t *testing.T, dir string, last int, named bool) (temps int) {
	t.Helper()
	es, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range es {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		var i int
		whole := len(b) >= 8
		if whole {
			fmt.Sscanf(string(b[:8]), "%d", &i)
			whole = bytes.Equal(b, payload(i))
		}
		if IsTemp(e.Name()) {
			temps++
			if !whole && !named {
				t.Errorf("%s: a name for an unfinished file of %d bytes", e.Name(), len(b))
			}
			continue
		}
		if !whole {
			t.Errorf("%s: half a file of %d bytes", e.Name(), len(b))
		}
		if i < last-2 {
			t.Errorf("%s: content %d, but %d was committed", e.Name(), i, last)
		}
	}
	return temps
}
