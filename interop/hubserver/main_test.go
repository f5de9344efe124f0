package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestServeAndRead(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "org", "toy")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"config.json": "{}", "w.safetensors": strings.Repeat("weights", 1000)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	in, stop := io.Pipe()
	lines, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := run(t.Context(), []string{"serve", "-root", root, "-cut", "500", "-private", "org/toy", "-token", "good=org/toy"}, in, out)
		out.Close()
		ended <- err
	}()
	from := bufio.NewScanner(lines)
	var addr struct{ Endpoint string }
	if !from.Scan() || json.Unmarshal(from.Bytes(), &addr) != nil {
		t.Fatalf("no address: %q", from.Text())
	}
	for k, v := range map[string]string{"HF_ENDPOINT": addr.Endpoint, "HF_TOKEN": "good", "HF_HOME": t.TempDir(), "HF_HUB_OFFLINE": "", "TRANSFORMERS_OFFLINE": ""} {
		t.Setenv(k, v)
	}
	var b bytes.Buffer
	if err := run(t.Context(), []string{"read", "org/toy"}, nil, &b); err != nil {
		t.Fatal(err)
	}
	var got struct{ Files map[string]string }
	if err := json.Unmarshal(b.Bytes(), &got); err != nil || len(got.Files) != 2 {
		t.Errorf("%v: %s", err, b.String())
	}
	// sha256 of "{}"
	if sum := got.Files["config.json"]; sum != "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a" {
		t.Errorf("config.json: %s", sum)
	}
	stop.Close()
	if !from.Scan() || !strings.Contains(from.Text(), `"violations":[]`) {
		t.Errorf("report %q", from.Text())
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for _, args := range [][]string{nil, {"eat"}, {"serve", "-root", t.TempDir()}, {"read"}} {
		if err := run(t.Context(), args, strings.NewReader(""), io.Discard); err == nil {
			t.Errorf("%v: no error", args)
		}
	}
}
