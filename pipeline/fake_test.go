package pipeline_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"quern/artifacts"
	"quern/artifacts/mem"
	"quern/internal/digest"
	"quern/model"
	"quern/pipeline"
	"quern/tensor"
)

// bytesOf makes the content of a tensor from its name.
func bytesOf(name string, n int64) []byte {
	out := make([]byte, 0, n+32)
	for i := uint64(0); int64(len(out)) < n; i++ {
		d := digest.Of(binary.LittleEndian.AppendUint64([]byte(name), i))
		out = append(out, d[:]...)
	}
	return out[:n]
}

// world is a project of nothing but fakes: lazy tensors that count their reads,
// one emitter for each output, and a source that may be remote.
type world struct {
	t       *testing.T
	tensors []*tensor.Tensor
	reads   atomic.Int64 // bytes
	opened  int
	closed  int
	fetch   pipeline.Fetcher
	check   func() error
	rowErr  func(name string, row int64) error
	local   []string
	stages  []pipeline.PlacedStage
	outputs []pipeline.PlacedEmitter
	gates   []pipeline.PlacedGate
	said    []pipeline.Event
	saidMu  sync.Mutex
}

// newWorld has tensors of odd sizes: one of many rows, one without any, one
// whose row is larger than a piece, one that is not keyed when keyed is false.
func newWorld(t *testing.T, keyed bool) *world {
	w := &world{t: t}
	for _, s := range []struct {
		name string
		cols int64
		rows int64
	}{{"a.many", 100, 3000}, {"b.none", 8, 0}, {"c.wide", 400_000, 2}, {"d.one", 1, 1}} {
		w.add(s.name, s.rows, s.cols, keyed)
	}
	return w
}

func (w *world) add(name string, rows, cols int64, keyed bool) {
	data := bytesOf(name, rows*cols*4)
	x := &tensor.Tensor{Name: name, Type: tensor.F32, Shape: tensor.Shape{rows, cols},
		Origin: []tensor.Extent{{Source: "base", File: "weights", Offset: int64(len(w.tensors)) * 10_000_000, Bytes: int64(len(data))}}}
	if keyed {
		x.Key = tensor.Derive("fake", name)
	}
	x.Src = tensor.SourceFunc(func(ctx context.Context, dst []byte, first, n int64) error {
		if w.rowErr != nil {
			if err := w.rowErr(name, first); err != nil {
				return err
			}
		}
		w.reads.Add(int64(len(dst)))
		copy(dst, data[first*cols*4:(first+n)*cols*4])
		return context.Cause(ctx)
	})
	w.tensors = append(w.tensors, x)
}

// emitter lays tensors out with gaps between them.
type emitter struct {
	file, header string
	err          error
}

func (e emitter) Plan(_ context.Context, in *model.Model) (*pipeline.Layout, error) {
	if e.err != nil {
		return nil, e.err
	}
	l := &pipeline.Layout{File: e.file, Format: "fake", MediaType: "application/x-fake", Version: "1", Header: []byte(e.header), Model: in}
	at := int64(len(e.header))
	for _, x := range in.Tensors {
		at += 100 - at%64
		l.Items = append(l.Items, pipeline.Item{Tensor: x, Offset: at, From: x.Type})
		at += x.Bytes()
	}
	l.Size = at + 77
	return l, nil
}

// want is the file that an emitter promises.
func (w *world) want(e emitter) []byte {
	w.t.Helper()
	l, err := e.Plan(w.t.Context(), &model.Model{Tensors: w.tensors})
	if err != nil {
		w.t.Fatal(err)
	}
	out := make([]byte, l.Size)
	copy(out, l.Header)
	for _, it := range l.Items {
		copy(out[it.Offset:], bytesOf(it.Tensor.Name, it.Tensor.Bytes()))
	}
	return out
}

func (w *world) project() *pipeline.Project {
	p := &pipeline.Project{Name: "world", Recipe: []byte("{}"), Stages: w.stages, Emitters: w.outputs, Gates: w.gates}
	if p.Emitters == nil {
		p.Emitters = []pipeline.PlacedEmitter{{Emitter: emitter{file: "out.bin", header: "head"}, Where: "r.yaml:5:3"}}
	}
	p.Open = func(context.Context) ([]*pipeline.Source, error) {
		w.opened++
		sum := digest.Of([]byte("weights")).Hex()
		return []*pipeline.Source{{
			Name: "base", Kind: "dir", Ref: "m",
			Model: &model.Model{Form: model.GGUF, Name: "m", Tensors: w.tensors},
			Files: []pipeline.SourceFile{{Path: "weights", Size: 7, SHA256: sum}},
			Local: w.local, Fetch: w.fetch, Check: w.check,
			Close: func() error { w.closed++; return nil },
		}}, nil
	}
	return p
}

// build runs the project into a folder.
func (w *world) build(out string, change ...func(*pipeline.BuildOptions)) (*pipeline.Result, error) {
	w.t.Helper()
	opt := pipeline.BuildOptions{OutDir: out, Jobs: 2, Events: pipeline.EventFunc(func(e pipeline.Event) {
		w.saidMu.Lock()
		w.said = append(w.said, e)
		w.saidMu.Unlock()
	})}
	for _, c := range change {
		c(&opt)
	}
	res, err := pipeline.Build(w.t.Context(), w.project(), opt)
	if w.opened != w.closed {
		w.t.Errorf("sources were opened %d times and closed %d times", w.opened, w.closed)
	}
	return res, err
}

// warnings joins what the user was warned of.
func (w *world) warnings() string {
	w.saidMu.Lock()
	defer w.saidMu.Unlock()
	var out []string
	for _, e := range w.said {
		if e.Kind == pipeline.EventWarning {
			out = append(out, e.Message)
		}
	}
	return strings.Join(out, "\n")
}

// list gives the files of a folder, hidden ones too.
func list(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	out := []string{}
	for _, e := range entries {
		out = append(out, e.Name())
	}
	slices.Sort(out)
	return out
}

func read(t *testing.T, parts ...string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(parts...))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// store is a Store in memory that notes what is asked of it, and fails on
// demand.
type store struct {
	pipeline.Store
	mu    sync.Mutex
	calls []string
	fail  map[string]error
	free  int64 // 0 for unknown
	held  bool
}

func newStore() *store {
	return &store{Store: pipeline.Keep(mem.New(), artifacts.Tool{Name: "quern", Version: "test"}), fail: map[string]error{}}
}

func (s *store) call(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if name != "hold" && !s.held {
		s.calls = append(s.calls, "not held: "+name)
	}
	s.calls = append(s.calls, name)
	return s.fail[name]
}

func (s *store) Hold(context.Context) (func(), error) {
	if err := s.call("hold"); err != nil {
		return nil, err
	}
	s.held = true
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.held = false
		s.calls = append(s.calls, "release")
	}, nil
}

func (s *store) FreeBytes() (int64, error) {
	if s.free == 0 {
		return 0, errors.ErrUnsupported
	}
	return s.free, nil
}

func (s *store) Tensors(ctx context.Context, keys []tensor.Key) ([]pipeline.Kept, error) {
	if err := s.call("tensors"); err != nil {
		return nil, err
	}
	return s.Store.Tensors(ctx, keys)
}

func (s *store) File(ctx context.Context, key tensor.Key) (*pipeline.KeptFile, error) {
	if err := s.call("file"); err != nil {
		return nil, err
	}
	return s.Store.File(ctx, key)
}

func (s *store) OpenBlob(ctx context.Context, d digest.Digest) (pipeline.StoredBlob, error) {
	if err := s.call("open"); err != nil {
		return nil, err
	}
	return s.Store.OpenBlob(ctx, d)
}

func (s *store) NewBlob(ctx context.Context, size int64) (pipeline.BlobWriter, error) {
	if err := s.call("new"); err != nil {
		return nil, err
	}
	w, err := s.Store.NewBlob(ctx, size)
	return &blobWriter{w, s}, err
}

func (s *store) Record(ctx context.Context, r *pipeline.Record) (digest.Digest, error) {
	if err := s.call("record"); err != nil {
		return digest.Digest{}, err
	}
	return s.Store.Record(ctx, r)
}

type blobWriter struct {
	pipeline.BlobWriter
	s *store
}

func (w *blobWriter) Write(p []byte) (int, error) {
	if err := w.s.fail["write"]; err != nil {
		return 0, err
	}
	return w.BlobWriter.Write(p)
}

func (w *blobWriter) Commit(want digest.Digest) error {
	if err := w.s.call("commit"); err != nil {
		return err
	}
	return w.BlobWriter.Commit(want)
}

// fetcher is a network source that is asked for ranges.
type fetcher struct {
	need     [][]tensor.Extent
	finish   []error // by call, then nil
	finished int
	recheck  bool
	rechecks int
	unproved bool
	needErr  error
}

func (f *fetcher) Need(_ context.Context, r []tensor.Extent) error {
	f.need = append(f.need, r)
	return f.needErr
}

func (f *fetcher) Finish(context.Context) error {
	f.finished++
	if f.finished <= len(f.finish) {
		return f.finish[f.finished-1]
	}
	return nil
}

func (f *fetcher) Recheck(context.Context, []tensor.Extent) (bool, error) {
	f.rechecks++
	return f.recheck && f.rechecks == 1, nil
}

func (f *fetcher) Proved(string) bool { return !f.unproved }

func (f *fetcher) Missing(_ context.Context, ranges []tensor.Extent) (int64, error) {
	var n int64
	for _, e := range ranges {
		n += e.Bytes
	}
	return n, nil
}

func (f *fetcher) Stats() pipeline.FetchStats { return pipeline.FetchStats{Needed: 10, Fetched: 10} }

func (f *fetcher) needed() string {
	var out []string
	for _, n := range f.need {
		var bytes int64
		for _, e := range n {
			bytes += e.Bytes
		}
		out = append(out, fmt.Sprint(bytes))
	}
	return strings.Join(out, " ")
}
