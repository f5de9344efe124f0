// Package stagetest is what every stage must pass: the same bytes however the
// rows are asked for, keys that change with what they stand for, and errors of
// the source that come through.
package stagetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"quern/internal/digest"
	"quern/internal/testmodel"
	"quern/model"
	"quern/model/needle"
	"quern/pipeline"
	"quern/tensor"
)

// Case is a stage with a model that it can work on.
type Case struct {
	// New makes the stage as a recipe would.
	New func() (pipeline.Stage, error)
	// Other makes the stage with one parameter changed so that some tensor
	// must come out differently; nil leaves that test out.
	Other func() (pipeline.Stage, error)
	// Model is a folder of testdata/models, or a file of testdata/cact: a Needle
	// checkpoint or an archive.
	Model string
	// Sources are files of testdata/cact that the stage reads besides its model, by
	// the recipe's names for them.
	Sources map[string]string
	// Changes says that the stage changes or drops at least one tensor.
	Changes bool
}

// Run holds a stage against the suite.
func Run(t *testing.T, c Case) {
	t.Run("plan reads no weights", func(t *testing.T) {
		src := load(t, c.Model)
		src.fail = errors.New("a weight was read")
		plan(t, c, c.New, src.model)
	})
	t.Run("input is left alone", func(t *testing.T) {
		src := load(t, c.Model)
		before := describe(src.model)
		plan(t, c, c.New, src.model)
		if after := describe(src.model); after != before {
			t.Error("the stage changed the model that it was given")
		}
	})
	t.Run("rows do not depend on how they are asked for", func(t *testing.T) {
		out := plan(t, c, c.New, load(t, c.Model).model)
		for _, x := range out.Tensors {
			whole := read(t, x, x.Rows())
			for _, step := range []int64{1, 3, 7} {
				if got := read(t, x, step); !bytes.Equal(got, whole) {
					t.Fatalf("tensor %s: rows in steps of %d differ from all at once", x.Name, step)
				}
			}
		}
	})
	t.Run("rows may be read by many at once", func(t *testing.T) {
		out := plan(t, c, c.New, load(t, c.Model).model)
		for _, x := range out.Tensors {
			want := read(t, x, x.Rows())
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					if got, err := tryRead(context.Background(), x, 5); err != nil || !bytes.Equal(got, want) {
						t.Errorf("tensor %s: %v, other bytes than alone", x.Name, err)
					}
				})
			}
			wg.Wait()
		}
	})
	t.Run("equal keys mean equal bytes", func(t *testing.T) {
		byKey := map[tensor.Key]digest.Digest{}
		models := []*model.Model{load(t, c.Model).model}
		models = append(models, plan(t, c, c.New, models[0]), plan(t, c, c.New, load(t, c.Model).model))
		if c.Other != nil {
			models = append(models, plan(t, c, c.Other, models[0]))
		}
		for _, m := range models {
			for _, x := range m.Tensors {
				if x.Key.IsZero() {
					t.Fatalf("tensor %s has no key", x.Name)
				}
				sum := digest.Of(read(t, x, x.Rows()))
				if old, ok := byKey[x.Key]; ok && old != sum {
					t.Errorf("tensor %s: its key stands for other bytes elsewhere", x.Name)
				}
				byKey[x.Key] = sum
			}
		}
		if a, b := keys(models[1]), keys(models[2]); a != b {
			t.Error("the same plan made twice has other keys")
		}
		if c.Changes && keys(models[0]) == keys(models[1]) {
			t.Error("the stage changes nothing")
		}
		if c.Other != nil && keys(models[1]) == keys(models[3]) {
			t.Error("a changed parameter changed no key")
		}
	})
	t.Run("errors of the source come through", func(t *testing.T) {
		for _, want := range []error{io.ErrUnexpectedEOF, fs.ErrPermission} {
			src := load(t, c.Model)
			out := plan(t, c, c.New, src.model)
			src.fail = want
			failed := 0
			for _, x := range out.Tensors {
				if _, err := tryRead(context.Background(), x, x.Rows()); errors.Is(err, want) {
					failed++
				}
			}
			if failed == 0 {
				t.Errorf("no tensor reports %v", want)
			}
		}
	})
	t.Run("cancelling ends reads", func(t *testing.T) {
		out := plan(t, c, c.New, load(t, c.Model).model)
		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(cause)
		for _, x := range out.Tensors {
			if len(x.Origin) == 0 {
				continue // made of nothing that could be waited for
			}
			if _, err := tryRead(ctx, x, x.Rows()); !errors.Is(err, cause) && !errors.Is(err, context.Canceled) {
				t.Fatalf("tensor %s: got %v after cancelling", x.Name, err)
			}
		}
	})
}

// source is a model folder in memory whose reads can be made to fail.
type source struct {
	files map[string][]byte
	name  string
	fail  error
	model *model.Model
}

func load(t *testing.T, name string) *source {
	t.Helper()
	if path.Ext(name) != "" {
		return loadFile(t, name)
	}
	files, err := testmodel.Build(name)
	if err != nil {
		t.Fatal(err)
	}
	s := &source{files: files, name: name}
	s.model, err = model.LoadHF(context.Background(), s, model.HFOptions{Source: "base"})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// loadFile opens a model that is one file.
func loadFile(t *testing.T, name string) *source {
	t.Helper()
	b := needleFile(t, name)
	s := &source{files: map[string][]byte{name: b}, name: name}
	blob, err := s.Open(context.Background(), name)
	if err != nil {
		t.Fatal(err)
	}
	s.model, err = needle.LoadFile(context.Background(), name, blob, needle.FileOptions{Source: "base", Key: tensor.Derive("file", digest.Of(b).Hex())})
	if err != nil {
		t.Fatal(err)
	}
	if s.model == nil {
		t.Fatalf("%s is no model", name)
	}
	return s
}

func needleFile(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(testmodel.Root(), "cact", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// sources opens what a case's stage reads besides its model.
func sources(t *testing.T, c Case) []*pipeline.Source {
	t.Helper()
	var out []*pipeline.Source
	for _, name := range slices.Sorted(maps.Keys(c.Sources)) {
		file := c.Sources[name]
		b := needleFile(t, file)
		out = append(out, &pipeline.Source{
			Name: name, Content: tensor.BytesBlob(file, b),
			Files: []pipeline.SourceFile{{Path: file, Size: int64(len(b)), SHA256: digest.Of(b).Hex()}},
		})
	}
	return out
}

func (s *source) Name() string { return s.name }

func (s *source) List(context.Context) ([]model.FileInfo, error) {
	var out []model.FileInfo
	for _, p := range slices.Sorted(maps.Keys(s.files)) {
		out = append(out, model.FileInfo{Path: p, Size: int64(len(s.files[p])), SHA256: digest.Of(s.files[p]).Hex()})
	}
	return out, nil
}

func (s *source) ReadFile(_ context.Context, p string, limit int64) ([]byte, error) {
	b, ok := s.files[p]
	if !ok {
		return nil, fs.ErrNotExist
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("%s is too large", p)
	}
	return b, nil
}

func (s *source) Open(_ context.Context, p string) (tensor.Blob, error) {
	b, ok := s.files[p]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return &failing{tensor.BytesBlob(p, b), s}, nil
}

type failing struct {
	*tensor.FileBlob
	s *source
}

func (f *failing) ReadAt(ctx context.Context, p []byte, off int64) error {
	if f.s.fail != nil {
		return f.s.fail
	}
	return f.FileBlob.ReadAt(ctx, p, off)
}

func plan(t *testing.T, c Case, make func() (pipeline.Stage, error), in *model.Model) *model.Model {
	t.Helper()
	st, err := make()
	if err != nil {
		t.Fatal(err)
	}
	var out *model.Model
	if r, ok := st.(pipeline.SourceReader); ok {
		out, err = r.PlanWith(context.Background(), in, sources(t, c))
	} else {
		out, err = st.Plan(context.Background(), in)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range out.Tensors {
		if err := x.Validate(); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func read(t *testing.T, x *tensor.Tensor, step int64) []byte {
	t.Helper()
	b, err := tryRead(context.Background(), x, step)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func tryRead(ctx context.Context, x *tensor.Tensor, step int64) ([]byte, error) {
	b := make([]byte, x.Bytes())
	for first := int64(0); first < x.Rows(); first += step {
		n := step
		if n > x.Rows()-first {
			n = x.Rows() - first
		}
		// Old bytes in the buffer must not matter.
		dst := b[first*x.RowBytes() : (first+n)*x.RowBytes()]
		for i := range dst {
			dst[i] = 0xa5
		}
		if err := x.ReadRows(ctx, dst, first, n); err != nil {
			return nil, err
		}
	}
	return b, nil
}

func keys(m *model.Model) string {
	var s string
	for _, x := range m.Tensors {
		s += x.Name + " " + x.Key.String() + "\n"
	}
	return s
}

func describe(m *model.Model) string {
	s := fmt.Sprintln(m.Form, m.Name, len(m.Notes))
	for _, x := range m.Tensors {
		s += fmt.Sprintln(x.Name, x.Type, x.Shape, x.Key)
	}
	return s
}
