package hub

import (
	"errors"
	"io/fs"
	"testing"

	"quern/hub/hubtest"
)

func toyFiles() map[string]*hubtest.File {
	return map[string]*hubtest.File{
		"config.json":           hubtest.Git(`{"model_type":"llama"}`),
		"sub dir/notes#1.txt":   hubtest.Git("a file whose path must be escaped"),
		"model.safetensors":     hubtest.LFS(noise(1, 3_000_000)),
		"onnx/model.onnx":       hubtest.LFS(noise(2, 100)),
		"tokenizer_config.json": hubtest.Git("{}"),
	}
}

func TestSnapshotReads(t *testing.T) {
	for _, mode := range []struct {
		name   string
		change []func(*Options)
	}{{"spool", nil}, {"memory", []func(*Options){inMemory}}} {
		t.Run(mode.name, func(t *testing.T) {
			files := toyFiles()
			r := newRig(t, hubtest.Options{PageSize: 3}, files)
			s := r.snapshot(r.client(mode.change...))
			if s.Commit != r.commit || s.Name() != "toy" {
				t.Errorf("commit %s, name %s", s.Commit, s.Name())
			}
			list, err := s.List(t.Context())
			if err != nil || len(list) != len(files) {
				t.Fatalf("list: %v, %v", list, err)
			}
			for i, f := range list {
				want := files[f.Path]
				if want == nil || f.Size != int64(len(want.Data)) {
					t.Errorf("listed %+v", f)
				}
				if want != nil && want.LFS && f.SHA256 != want.SHA256() {
					t.Errorf("%s: digest %s", f.Path, f.SHA256)
				}
				if i > 0 && list[i-1].Path >= f.Path {
					t.Errorf("%s after %s", f.Path, list[i-1].Path)
				}
			}
			for path, f := range files {
				b, err := s.ReadFile(t.Context(), path, 10<<20)
				if err != nil {
					t.Fatalf("%s: %v", path, err)
				}
				wantBytes(t, path, b, f.Data)
			}
			data := files["model.safetensors"].Data
			wantBytes(t, "middle", read(t, s, "model.safetensors", 1_234_567, 89_012), data[1_234_567:1_234_567+89_012])
			if err := s.Finish(t.Context()); err != nil {
				t.Errorf("finish: %v", err)
			}
			if _, err := s.ReadFile(t.Context(), "absent", 10); !errors.Is(err, fs.ErrNotExist) || !errors.Is(err, ErrNotFound) {
				t.Errorf("absent file: %v", err)
			}
			if _, err := s.ReadFile(t.Context(), "model.safetensors", 2_999_999); !errors.Is(err, ErrTooLarge) {
				t.Errorf("file over the limit: %v", err)
			}
		})
	}
}
