package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"quern/artifacts/sink/sinktest"
	"quern/internal/digest"
	"quern/internal/testmodel"
)

// fakeADB stands for the adb client.
func fakeADB(t *testing.T, before string) string {
	t.Helper()
	return strings.Join(sinktest.Client(t, before), " ")
}

func toSend(t *testing.T, n int) (string, []byte) {
	t.Helper()
	b := sinktest.Content(n)
	path := filepath.Join(t.TempDir(), "model.gguf")
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	return path, b
}

func TestSend(t *testing.T) {
	path, data := toSend(t, 100_000)
	dir := t.TempDir()
	adb := fakeADB(t, "")
	for i, verb := range []string{"sent to", "was at"} {
		var out, errOut bytes.Buffer
		if code := run(t.Context(), []string{"quern", "send", path, "adb:" + dir + "/", "--adb", adb}, nil, &out, &errOut); code != 0 {
			t.Fatalf("exit code %d: %s", code, errOut.String())
		}
		if b, err := os.ReadFile(filepath.Join(dir, "model.gguf")); err != nil || !bytes.Equal(b, data) {
			t.Errorf("%d bytes, %v", len(b), err)
		}
		if !strings.Contains(out.String(), verb) || !strings.Contains(out.String(), digest.Of(data).Hex()) {
			t.Errorf("run %d prints %s", i, out.String())
		}
		if i == 1 && !strings.Contains(errOut.String(), "already there") {
			t.Errorf("run %d says %s", i, errOut.String())
		}
	}
	if left := fileNames(t, dir); len(left) != 1 {
		t.Errorf("left: %q", left)
	}
}

func fileNames(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func TestSendJSON(t *testing.T) {
	path, data := toSend(t, 5000)
	var out, errOut bytes.Buffer
	to := filepath.Join(t.TempDir(), "x.img")
	if code := run(t.Context(), []string{"quern", "send", "--json", path, "flash:" + to + "?partition-size=8K"}, nil, &out, &errOut); code != 0 {
		t.Fatal(errOut.String())
	}
	var doc sent
	if err := json.Unmarshal(out.Bytes(), &doc); err != nil || doc.SHA256 != digest.Of(data) || doc.Already || doc.Targets[0] != "flash:"+to {
		t.Errorf("%v: %s", err, out.String())
	}
	b, err := os.ReadFile(to)
	if err != nil || len(b) != 8192 || !bytes.Equal(b[:5000], data) || b[5000] != 0xff || b[8191] != 0xff {
		t.Errorf("image of %d bytes, %v", len(b), err)
	}
}

func TestSendStdout(t *testing.T) {
	path, data := toSend(t, 5000)
	var out, errOut bytes.Buffer
	if code := run(t.Context(), []string{"quern", "send", path, "-"}, nil, &out, &errOut); code != 0 || !bytes.Equal(out.Bytes(), data) {
		t.Errorf("exit code %d, %d bytes: %s", code, out.Len(), errOut.String())
	}
}

// sendFault is a command line of send and how it ends.
type sendFault struct {
	args []string
	code int
	says string
}

func (c sendFault) check(t *testing.T) {
	t.Helper()
	var out, errOut bytes.Buffer
	code := run(t.Context(), append([]string{"quern", "send"}, c.args...), nil, &out, &errOut)
	if all := errOut.String() + out.String(); code != c.code || !strings.Contains(all, c.says) {
		t.Errorf("send %q: exit code %d, want %d: %s", c.args, code, c.code, all)
	}
}

func TestSendExitCodes(t *testing.T) {
	path, _ := toSend(t, 5000)
	dir := t.TempDir()
	for _, c := range []sendFault{
		{[]string{path}, 2, "a file and where it goes"},
		{[]string{path, "scp:box:/x"}, 2, "unknown kind"},
		{[]string{path, path}, 2, "is the file itself"},
		{[]string{path, "flash:" + path + "?partition-size=8K"}, 2, "is the file itself"},
		{[]string{path, dir + "/", filepath.Join(dir, "model.gguf")}, 2, "given twice"},
		{[]string{path, "flash:" + dir + "/i?partition-size=4K"}, 2, "904 more than the 4096"},
		{[]string{path, "-", "--json"}, 2, "standard output"},
		{[]string{dir, "-"}, 2, "no regular file"},
		{[]string{dir + "/none", "-"}, 4, "no such file"},
		{[]string{path, "adb:/x", "--adb", dir + "/no-adb"}, 4, "not"},
	} {
		c.check(t)
	}
}

func TestSendExitCodesOfADB(t *testing.T) {
	path, _ := toSend(t, 5000)
	for _, c := range []sendFault{
		{[]string{path, "adb:/x", "--adb", fakeADB(t, "echo 'error: device unauthorized.' >&2; exit 1")}, 4, "allow this computer"},
		{[]string{path, "adb:" + t.TempDir(), "--adb", fakeADB(t, "")}, 2, "end the target with /"},
	} {
		c.check(t)
	}
}

func TestSendThroughALink(t *testing.T) {
	path, _ := toSend(t, 5000)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(path, link); err != nil {
		t.Skipf("no links here: %v", err)
	}
	sendFault{[]string{path, link}, 2, "is the file itself"}.check(t)
}

// TestBuildSends builds the demo's recipe to a server: nothing stays here, no
// spool, no store, and the same bytes arrive that a folder gets.
func TestBuildSends(t *testing.T) {
	recipe := filepath.Join(testmodel.Root(), "q8.yaml")
	dir, store := t.TempDir(), t.TempDir()
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	var out, errOut bytes.Buffer
	copied := filepath.Join(dir, "r.yaml")
	text, err := os.ReadFile(recipe)
	if err != nil {
		t.Fatal(err)
	}
	text = bytes.ReplaceAll(text, []byte("dir: "), []byte("dir: "+testmodel.Root()+"/"))
	if err := os.WriteFile(copied, text, 0o644); err != nil {
		t.Fatal(err)
	}
	if code := run(t.Context(), []string{"quern", "build", copied, "-o", filepath.Join(dir, "out"), "--no-store", "--progress", "none"}, nil, &out, &errOut); code != 0 {
		t.Fatalf("exit code %d: %s", code, errOut.String())
	}
	lock, err := os.ReadFile(filepath.Join(dir, "r.lock"))
	if err != nil {
		t.Fatal(err)
	}
	s := &sinktest.Server{DAV: true, Parts: true}
	server := s.Start(t)
	out.Reset()
	errOut.Reset()
	to := strings.Replace(server, "://", "://me:s3cret@", 1) + "/llm/"
	if code := run(t.Context(), []string{"quern", "build", copied, "-o", filepath.Join(dir, "none"), "--store", store, "--to", to}, nil, &out, &errOut); code != 0 {
		t.Fatalf("exit code %d: %s", code, errOut.String())
	}
	var name string
	for _, f := range fileNames(t, filepath.Join(dir, "out")) {
		name = f
		want, err := os.ReadFile(filepath.Join(dir, "out", f))
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := s.File("/llm/" + f); !ok || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes arrived, %d were built", f, len(got), len(want))
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "none")); err == nil {
		t.Error("an output folder was made")
	}
	if blobs := fileNames(t, filepath.Join(store, "blobs", "sha256")); len(blobs) != 0 {
		t.Errorf("the store holds %d blobs", len(blobs))
	}
	again, err := os.ReadFile(filepath.Join(dir, "r.lock"))
	if err != nil || !bytes.Equal(again, lock) {
		t.Errorf("the lock differs: %v", err)
	}
	if all := out.String() + errOut.String() + string(again); strings.Contains(all, "s3cret") {
		t.Errorf("a secret is shown: %s", all)
	}
	// Standard output gets the file and nothing else.
	out.Reset()
	if code := run(t.Context(), []string{"quern", "build", copied, "--store", store, "--to", "-", "--locked"}, nil, &out, &errOut); code != 0 {
		t.Fatalf("exit code %d: %s", code, errOut.String())
	}
	if want, _ := s.File("/llm/" + name); !bytes.Equal(out.Bytes(), want) {
		t.Errorf("standard output got %d bytes, want %d", out.Len(), len(want))
	}
	// plan says where it goes, verify of the store minds no journal.
	out.Reset()
	if code := run(t.Context(), []string{"quern", "plan", copied, "--store", store, "--to", to}, nil, &out, &errOut); code != 0 || !strings.Contains(out.String(), "goes to "+server+"/llm/"+name) {
		t.Errorf("plan: exit code %d: %s", code, out.String())
	}
	if code := run(t.Context(), []string{"quern", "store", "verify", "--store", store}, nil, &out, &errOut); code != 0 {
		t.Errorf("store verify: exit code %d: %s", code, errOut.String())
	}
}
