package resident

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

const size = 1 << 20

// open maps a file of x.
func open(t *testing.T, prot, flags int) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, bytes.Repeat([]byte("x"), size), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := syscall.Mmap(int(f.Fd()), 0, size, prot, flags)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Munmap(b) })
	return b
}

// touched is how many bytes of the test's files are in the page table.
func touched(t *testing.T) int64 {
	t.Helper()
	text, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	n, ours := int64(0), false
	for line := range strings.SplitSeq(string(text), "\n") {
		words := strings.Fields(line)
		switch {
		case len(words) > 1 && words[0] == "Rss:" && ours:
			kib, err := strconv.ParseInt(words[1], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			n += kib << 10
		case len(words) > 4 && !strings.HasSuffix(words[0], ":"):
			ours = strings.Contains(line, t.Name())
		}
	}
	return n
}

func release() error {
	p, err := Find()
	if err != nil {
		return err
	}
	return p.Release()
}

func count(b []byte, c byte) int { return bytes.Count(b, []byte{c}) }

func TestReleaseGivesPagesOfFilesBack(t *testing.T) {
	for _, flags := range []int{syscall.MAP_SHARED, syscall.MAP_PRIVATE} {
		b := open(t, syscall.PROT_READ, flags)
		if n := count(b, 'x'); n != size {
			t.Fatalf("%d of %d bytes", n, size)
		}
		before := touched(t)
		if err := release(); err != nil {
			t.Fatal(err)
		}
		if after := touched(t); before < size || after >= before-size/2 {
			t.Errorf("flags %#x: %d bytes in memory before, %d after", flags, before, after)
		}
		if n := count(b, 'x'); n != size {
			t.Errorf("flags %#x: %d of %d bytes are what they were", flags, n, size)
		}
	}
}

// TestOnly: the pages of other files stay.
func TestOnly(t *testing.T) {
	b := open(t, syscall.PROT_READ, syscall.MAP_SHARED)
	if count(b, 'x') != size {
		t.Fatal("not what was written")
	}
	p, err := Find()
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	before := touched(t)
	if len(p.Only(exe).mappings) == 0 || len(p.Only("/no/such/file").mappings) != 0 {
		t.Errorf("%d mappings of the program", len(p.Only(exe).mappings))
	}
	if err := p.Only(exe).Release(); err != nil {
		t.Fatal(err)
	}
	if after := touched(t); after != before {
		t.Errorf("%d bytes of another file in memory before, %d after", before, after)
	}
}

// TestReleaseKeepsWhatIsNotTheFiles: private pages that were written, as a dynamic
// linker does before it makes them read-only, and mappings that may be written.
func TestReleaseKeepsWhatIsNotTheFiles(t *testing.T) {
	relocated := open(t, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE)
	relocated[size/2] = 'y'
	if err := syscall.Mprotect(relocated, syscall.PROT_READ); err != nil {
		t.Fatal(err)
	}
	written := open(t, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE)
	written[3] = 'z'
	if err := release(); err != nil {
		t.Fatal(err)
	}
	if relocated[size/2] != 'y' || written[3] != 'z' || count(relocated, 'x') != size-1 || count(written, 'x') != size-1 {
		t.Error("what was written is gone")
	}
}

func TestMappings(t *testing.T) {
	const text = `00400000-00d6d000 r-xp 00000000 fe:00 9996630                            /bin/quern
Rss:                2880 kB
Anonymous:             0 kB
Swap:                  0 kB
VmFlags: rd ex mr mw me
00d6d000-0162d000 r--p 00bf3000 fe:00 9996630                            /a  bin/quern (deleted)
Anonymous:             4 kB
Swap:                  0 kB
0162d000-016c9000 r--p 017e8000 fe:00 9996630                            /bin/quern
Anonymous:             0 kB
Swap:                  4 kB
016c9000-03723000 rw-p 00000000 00:00 0
7f8796400000-7f879bb7b000 rw-s 00000000 fe:00 1                          /model
Anonymous:             0 kB
Swap:                  0 kB
7fff0b278000-7fff0b299000 r--p 00000000 00:00 0                          [vvar]
Anonymous:             0 kB
Swap:                  0 kB
7fff0b280000-7fff0b290000 r-xp 00000000 00:0f 3                          /dev/hugepages/quern
Anonymous:             0 kB
Private_Hugetlb:    2048 kB
Swap:                  0 kB
7fff0b299000-7fff0b29a000 r--p 00000000 fe:00 2                          /without/counts
`
	list, err := mappings(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 8 || list[0].from != 0x400000 || list[0].to != 0xd6d000 || list[0].path != "/bin/quern" || list[1].path != "/a  bin/quern" || list[3].path != "" {
		t.Fatalf("%+v", list)
	}
	for i, m := range list {
		if want := i == 0; m.clean() != want {
			t.Errorf("%+v: clean %v, want %v", m, m.clean(), want)
		}
	}
	for _, bad := range []string{"Rss: 1 kB\n", "x-y r--p 0 0 0\n", "2-1 r--p 0 0 0\n", "1-2 r--p\n", "1-2 r--p 0 0 0 /x\nAnonymous: much\n", "1-2 r--p 0 0 0 /x\nSwap:\n"} {
		if _, err := mappings(strings.NewReader(bad)); !errors.Is(err, errForm) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
