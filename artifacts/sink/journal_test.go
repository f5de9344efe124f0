package sink

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"quern/internal/digest"
)

func state(t testing.TB, text string) []byte {
	t.Helper()
	h := digest.New()
	h.Write([]byte(text))
	b, err := digest.State(h)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func doc(t testing.TB, d journalDoc) []byte {
	t.Helper()
	b, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestJournalIsChecked: what is damaged, or of other bytes, is as good as none.
func TestJournalIsChecked(t *testing.T) {
	good := journalDoc{Version: 1, Key: "k", Size: 100, Marks: []Mark{{Offset: 10, State: state(t, "0123456789")}, {Offset: 20, State: state(t, "x")}}}
	if _, err := readJournal(doc(t, good)); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*journalDoc){
		"version":        func(d *journalDoc) { d.Version = 2 },
		"order":          func(d *journalDoc) { d.Marks[1].Offset = 10 },
		"beyond the end": func(d *journalDoc) { d.Marks[1].Offset = 101 },
		"at the start":   func(d *journalDoc) { d.Marks[0].Offset = 0 },
		"state":          func(d *journalDoc) { d.Marks[0].State = []byte("x") },
	} {
		d := good
		d.Marks = append([]Mark{}, good.Marks...)
		spoil(&d)
		if _, err := readJournal(doc(t, d)); err == nil {
			t.Errorf("%s: it was taken", name)
		}
	}
	if _, err := readJournal([]byte(`{"version":1,"more":2}`)); err == nil {
		t.Error("an unknown key was taken")
	}
}

func FuzzJournal(f *testing.F) {
	f.Add(doc(f, journalDoc{Version: 1, Key: "k", Size: 100, Marks: []Mark{{Offset: 10, State: state(f, "0123456789")}}}))
	f.Add([]byte(`{"version":1,"key":"k","size":5,"sha256":"sha256:00"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := readJournal(b)
		if err != nil {
			return
		}
		for _, m := range d.Marks {
			if m.Offset <= 0 || m.Offset > d.Size {
				t.Errorf("a mark at %d of %d", m.Offset, d.Size)
			}
		}
	})
}

// TestFileJournal: the name says nothing of the target, and only the user reads
// the file.
func TestFileJournal(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "sends")
	tg, err := Parse("https://me:s3cret@host/x")
	if err != nil {
		t.Fatal(err)
	}
	j := FileJournal(dir, []Target{tg})
	if b, err := j.Load(); b != nil || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	if err := j.Save([]byte("abc")); err != nil {
		t.Fatal(err)
	}
	if b, err := j.Load(); string(b) != "abc" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || strings.Contains(entries[0].Name(), "host") {
		t.Errorf("%v, %v", entries, err)
	}
	st, err := entries[0].Info()
	if err != nil || st.Mode().Perm()&0o077 != 0 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	other, err := Parse("https://me:other@host/x")
	if err != nil {
		t.Fatal(err)
	}
	if b, _ := FileJournal(dir, []Target{other}).Load(); b != nil {
		t.Error("another target has the same journal")
	}
}

// TestDF reads what df prints on several systems.
func TestDF(t *testing.T) {
	for _, c := range []struct {
		out  string
		want int64
		ok   bool
	}{
		{"Filesystem     1024-blocks     Used Available Capacity Mounted on\n/dev/vda         263107584 35651584  60817408      37% /", 60817408 << 10, true},
		{"Filesystem              1K-blocks     Used Available Use% Mounted on\n/dev/block/dm-43        115249236 53478148  61639072  47% /data/user/0", 61639072 << 10, true},
		{"Filesystem           1K-blocks      Used Available Use% Mounted on\n/dev/mapper/a-very-long-name-of-a-volume\n                      100   40   60  40% /", 60 << 10, true},
		{"Filesystem 1024-blocks Used Available Capacity iused ifree %iused Mounted on\n/dev/disk1s1 976490576 20 5 3% 1 2 0% /", 5 << 10, true},
		{"Filesystem               Size     Used     Free   Blksize\n/data                     12G      3G       9G   4096", 0, false}, // old Android
		{"df: /x: No such file or directory", 0, false},
		{"", 0, false},
		{"Filesystem 1024-blocks Used Available\nx 1 2 -3", 0, false},
	} {
		if n, ok := parseDF(c.out); n != c.want || ok != c.ok {
			t.Errorf("%s:\n%d, %v; want %d, %v", c.out, n, ok, c.want, c.ok)
		}
	}
}
