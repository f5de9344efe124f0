package pipeline_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"quern/artifacts"
	"quern/internal/atomicfile"
	"quern/internal/faulty"
	"quern/model"
	"quern/pipeline"
	"quern/tensor"
)

// stage is a stage that fails, or passes its input on.
type stage struct{ err error }

func (stage) Name() string { return "fake" }

func (s stage) Plan(_ context.Context, in *model.Model) (*model.Model, error) { return in, s.err }

// TestWhoseFault says for every kind of error whether the recipe or the source
// is to blame.
func TestWhoseFault(t *testing.T) {
	odd := errors.New("something odd")
	for _, c := range []struct {
		err            error
		recipe, source bool
	}{
		{odd, true, false},
		{fmt.Errorf("x: %w", model.ErrArchitecture), false, true},
		{fmt.Errorf("x: %w", model.ErrTensors), false, true},
		{fmt.Errorf("x: %w", model.ErrConfig), false, true},
		{fmt.Errorf("x: %w", pipeline.ErrSource), false, true},
		{fmt.Errorf("x: %w", pipeline.ErrRecipe), true, false},
		{fmt.Errorf("x: %w", pipeline.ErrLayout), false, false},
		{pipeline.SourceFault(odd), false, true},
	} {
		for _, where := range []string{"stage", "emitter"} {
			w := newWorld(t, true)
			if where == "stage" {
				w.stages = []pipeline.PlacedStage{{Stage: stage{c.err}, Where: "r.yaml:3:5"}}
			} else {
				w.outputs = []pipeline.PlacedEmitter{{Emitter: emitter{file: "x", err: c.err}, Where: "r.yaml:3:5"}}
			}
			_, err := w.build(t.TempDir())
			if !errors.Is(err, c.err) || errors.Is(err, pipeline.ErrRecipe) != c.recipe || errors.Is(err, pipeline.ErrSource) != c.source {
				t.Errorf("%s that fails with %v: %v", where, c.err, err)
			}
			if !strings.HasPrefix(err.Error(), "r.yaml:3:5: ") {
				t.Errorf("%s: no position in %v", where, err)
			}
		}
	}
	if pipeline.SourceFault(nil) != nil {
		t.Error("no error became one")
	}
	// Rows that cannot be made are the source's fault, and name the tensor.
	w := newWorld(t, true)
	w.rowErr = func(name string, row int64) error {
		if name == "c.wide" && row == 1 {
			return odd
		}
		return nil
	}
	out := t.TempDir()
	_, err := w.build(out)
	if !errors.Is(err, odd) || !errors.Is(err, pipeline.ErrSource) || !strings.Contains(err.Error(), "tensor c.wide, rows 1 to 1") {
		t.Errorf("%v", err)
	}
	if got := list(t, out); len(got) != 0 {
		t.Errorf("files %v", got)
	}
	// A full disk is nobody's.
	_, err = newWorld(t, true).build(t.TempDir(), func(o *pipeline.BuildOptions) {
		count := faulty.FailFrom(3, faulty.ErrDiskFull)
		o.Before = func(atomicfile.Step, string) error { return count.Next() }
	})
	if !errors.Is(err, syscall.ENOSPC) || errors.Is(err, pipeline.ErrSource) || errors.Is(err, pipeline.ErrRecipe) || !strings.Contains(err.Error(), "the disk is full") {
		t.Errorf("%v", err)
	}
}

func TestBuildWritesWhatWasPlanned(t *testing.T) {
	w := newWorld(t, true)
	e := emitter{file: "sub/out.bin", header: "a header"}
	w.outputs = []pipeline.PlacedEmitter{{Emitter: e}, {Emitter: emitter{file: "second.bin", header: "x"}}}
	for _, jobs := range []int{1, 2, 7} {
		for _, mem := range []int64{1 << 20, 1 << 30} {
			out := t.TempDir()
			res, err := w.build(out, func(o *pipeline.BuildOptions) { o.Jobs, o.Memory = jobs, mem })
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(read(t, out, "sub", "out.bin"), w.want(e)) {
				t.Errorf("jobs %d, memory %d: other bytes", jobs, mem)
			}
			if len(res.Outputs) != 2 || res.Outputs[0].Made != 4 || res.Outputs[0].Tensors != 4 {
				t.Errorf("%+v", res.Outputs)
			}
		}
	}
}

// TestStoreIsHeld: everything that a build asks of the store lies between hold
// and release, however it ends.
func TestStoreIsHeld(t *testing.T) {
	for _, fail := range []string{"", "file", "tensors", "new", "write", "commit", "record", "hold"} {
		w, s := newWorld(t, true), newStore()
		if fail != "" {
			s.fail[fail] = faulty.ErrInjected
		}
		out := filepath.Join(t.TempDir(), "new")
		_, err := w.build(out, func(o *pipeline.BuildOptions) { o.Store = s })
		if (err != nil) != (fail != "") || err != nil && !errors.Is(err, faulty.ErrInjected) {
			t.Errorf("%s fails: %v", fail, err)
		}
		calls := strings.Join(s.calls, " ")
		if strings.Contains(calls, "not held") || !strings.HasPrefix(calls, "hold") || s.held || fail != "hold" && !strings.HasSuffix(calls, " release") {
			t.Errorf("%s fails: calls %s", fail, calls)
		}
		if fail != "" {
			if got := list(t, out); len(got) != 0 {
				t.Errorf("%s fails: files %v", fail, got)
			}
			if _, err := os.Stat(out); err == nil {
				t.Errorf("%s fails: the folder that was made stayed", fail)
			}
		}
	}
}

// TestReadOnlyStore: whatever of keeping does not work, the build does.
func TestReadOnlyStore(t *testing.T) {
	for _, fail := range []string{"hold", "new", "commit", "record"} {
		w, s := newWorld(t, true), newStore()
		s.fail[fail] = fmt.Errorf("store x: %w", artifacts.ErrReadOnly)
		s.held = fail == "hold"
		out := t.TempDir()
		res, err := w.build(out, func(o *pipeline.BuildOptions) { o.Store = s })
		if err != nil {
			t.Errorf("%s: %v", fail, err)
			continue
		}
		if res.Manifest != nil || !strings.Contains(w.warnings(), "nothing of this build is kept") || len(res.Warnings) != 1 {
			t.Errorf("%s: manifest %v, warnings %q", fail, res.Manifest, res.Warnings)
		}
		if !bytes.Equal(read(t, out, "out.bin"), w.want(emitter{file: "out.bin", header: "head"})) {
			t.Errorf("%s: other bytes", fail)
		}
	}
}

// TestStoreSavesReads: a second build reads nothing, an output with another
// header takes the tensors, and tensors without keys are always made.
func TestStoreSavesReads(t *testing.T) {
	for _, keyed := range []bool{true, false} {
		w, s := newWorld(t, keyed), newStore()
		with := func(o *pipeline.BuildOptions) { o.Store = s }
		if _, err := w.build(t.TempDir(), with); err != nil {
			t.Fatal(err)
		}
		first := w.reads.Load()
		res, err := w.build(t.TempDir(), with)
		if err != nil {
			t.Fatal(err)
		}
		again := w.reads.Load() - first
		if keyed && (again != 0 || !res.Outputs[0].Cached) || !keyed && (again != first || res.Outputs[0].Cached) {
			t.Errorf("keyed %v: %d bytes read, then %d", keyed, first, again)
		}
		w.outputs = []pipeline.PlacedEmitter{{Emitter: emitter{file: "out.bin", header: "another"}}}
		if res, err = w.build(t.TempDir(), with); err != nil {
			t.Fatal(err)
		}
		// Tensors without bytes are not worth keeping.
		if made := res.Outputs[0].Made; keyed && made > 1 || !keyed && made != 4 {
			t.Errorf("keyed %v: %d tensors made", keyed, made)
		}
	}
}

// TestFetch drives a network source: it is asked for what the store does not
// have, verified before anything is published, and read again after repairs.
func TestFetch(t *testing.T) {
	all := int64(3000*100*4 + 400_000*2*4 + 4)
	repaired := fmt.Errorf("x: %w", pipeline.ErrRepaired)
	for _, c := range []struct {
		name   string
		finish []error
		builds int // of the output
		fails  bool
	}{
		{"sound", nil, 1, false},
		{"repaired once", []error{repaired}, 2, false},
		{"repaired thrice", []error{repaired, repaired, repaired}, 4, false},
		{"never right", slices.Repeat([]error{repaired}, 50), 4, true},
		{"broken", []error{faulty.ErrInjected}, 1, true},
	} {
		w := newWorld(t, true)
		f := &fetcher{finish: c.finish}
		w.fetch = f
		out := t.TempDir()
		_, err := w.build(out)
		if (err != nil) != c.fails || c.fails && !errors.Is(err, pipeline.ErrSource) {
			t.Errorf("%s: %v", c.name, err)
		}
		if got := w.reads.Load(); got != all*int64(c.builds) {
			t.Errorf("%s: %d bytes read, want %d times %d", c.name, got, c.builds, all)
		}
		if want := strings.TrimSpace(strings.Repeat(fmt.Sprint(all, " "), c.builds)); f.needed() != want {
			t.Errorf("%s: asked for %s bytes, want %s", c.name, f.needed(), want)
		}
		if files := list(t, out); c.fails == (len(files) > 0) {
			t.Errorf("%s: files %v", c.name, files)
		}
		if c.builds > 1 && !strings.Contains(w.warnings(), "fetched again") {
			t.Errorf("%s: warnings %q", c.name, w.warnings())
		}
	}
	// What the store has is not asked for.
	w, s := newWorld(t, true), newStore()
	f := &fetcher{}
	w.fetch = f
	with := func(o *pipeline.BuildOptions) { o.Store = s }
	if _, err := w.build(t.TempDir(), with); err != nil {
		t.Fatal(err)
	}
	w.add("e.new", 10, 10, true)
	if _, err := w.build(t.TempDir(), with); err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprint(all, " 400"); f.needed() != want {
		t.Errorf("asked for %s bytes, want %s", f.needed(), want)
	}
	// Need can fail.
	w = newWorld(t, true)
	w.fetch = &fetcher{needErr: faulty.ErrInjected}
	if _, err := w.build(t.TempDir()); !errors.Is(err, pipeline.ErrSource) || !errors.Is(err, faulty.ErrInjected) {
		t.Errorf("%v", err)
	}
}

// TestChangedSource: a local file that changes while it is read spoils the
// build, and nothing of it is published or kept.
func TestChangedSource(t *testing.T) {
	w, s := newWorld(t, true), newStore()
	w.check = func() error { return faulty.ErrInjected }
	out := t.TempDir()
	_, err := w.build(out, func(o *pipeline.BuildOptions) { o.Store = s })
	if !errors.Is(err, pipeline.ErrSource) || !errors.Is(err, faulty.ErrInjected) {
		t.Errorf("%v", err)
	}
	if got := list(t, out); len(got) != 0 || slices.Contains(s.calls, "commit") || slices.Contains(s.calls, "record") {
		t.Errorf("files %v, calls %v", got, s.calls)
	}
}

func TestNamesOfOutputs(t *testing.T) {
	dir := t.TempDir()
	input := filepath.Join(dir, "in", "weights")
	if err := os.MkdirAll(filepath.Dir(input), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(input, []byte("weights"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		out   string
		files []string
		want  error
	}{
		{"in", []string{"weights"}, pipeline.ErrSameFile},
		{"in", []string{"other", "WEIGHTS"}, pipeline.ErrSameFile},
		{"out", []string{"../in/weights"}, pipeline.ErrSameFile},
		{"out", []string{"a", "A"}, pipeline.ErrOutput},
		{"out", []string{"a/x", "a/../a/x"}, pipeline.ErrOutput},
		{".", []string{"r.yaml"}, pipeline.ErrSameFile},
		{".", []string{"r.lock"}, pipeline.ErrOutput},
		{".", []string{"in"}, pipeline.ErrOutput},
		{"in/weights", []string{"x"}, pipeline.ErrOutput},
		{".", []string{"in/weights/x"}, pipeline.ErrOutput},
		{"new/folder", []string{"a/x", "b/x"}, nil},
	} {
		w := newWorld(t, true)
		w.local = []string{input}
		for _, f := range c.files {
			w.outputs = append(w.outputs, pipeline.PlacedEmitter{Emitter: emitter{file: f, header: f}})
		}
		_, err := w.build(filepath.Join(dir, c.out), func(o *pipeline.BuildOptions) {
			o.Inputs = []string{filepath.Join(dir, "r.yaml")}
			o.LockPaths = []string{filepath.Join(dir, "r.lock")}
		})
		if !errors.Is(err, c.want) || c.want == nil && err != nil {
			t.Errorf("%v in %s: %v", c.files, c.out, err)
		}
		if c.want != nil && w.reads.Load() > 0 {
			t.Errorf("%v in %s: weights were read", c.files, c.out)
		}
	}
	if got := string(read(t, input)); got != "weights" {
		t.Errorf("the input is %q", got)
	}
}

func TestSpaceIsLookedAt(t *testing.T) {
	w, s := newWorld(t, true), newStore()
	s.free = 1000
	if _, err := w.build(t.TempDir(), func(o *pipeline.BuildOptions) { o.Store = s }); err != nil {
		t.Fatal(err)
	}
	if got := w.warnings(); !strings.Contains(got, "1000 are free in the store") {
		t.Errorf("warnings %q", got)
	}
	p, err := pipeline.NewPlan(t.Context(), w.project(), pipeline.PlanOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	w.closed++
	s.held = true
	fresh := newStore()
	fresh.held, fresh.free = true, 1000
	doc, err := p.Report(t.Context(), fresh, pipeline.EmitOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(doc.Space(filepath.Join(t.TempDir(), "not", "there", "yet"), fresh), "\n"); !strings.Contains(got, "in the store") || strings.Contains(got, "in folder") {
		t.Errorf("notes %q", got)
	}
	// A whole file that the store has takes no room there.
	if doc, err = p.Report(t.Context(), s, pipeline.EmitOptions{}); err != nil || len(doc.Space(t.TempDir(), s)) != 0 {
		t.Errorf("%v, notes %q", err, doc.Space(t.TempDir(), s))
	}
}

func TestCancel(t *testing.T) {
	stop := errors.New("enough")
	w := newWorld(t, true)
	ctx, cancel := context.WithCancelCause(t.Context())
	w.rowErr = func(string, int64) error { cancel(stop); return nil }
	out := t.TempDir()
	_, err := pipeline.Build(ctx, w.project(), pipeline.BuildOptions{OutDir: out})
	if !errors.Is(err, stop) || errors.Is(err, pipeline.ErrSource) || len(list(t, out)) != 0 {
		t.Errorf("%v, files %v", err, list(t, out))
	}
}

func TestLayoutsAreChecked(t *testing.T) {
	w := newWorld(t, true)
	l, err := emitter{file: "x", header: "head"}.Plan(t.Context(), &model.Model{Tensors: w.tensors})
	if err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*pipeline.Layout){
		"overlap":       func(l *pipeline.Layout) { l.Items[2].Offset = l.Items[0].Offset },
		"in the header": func(l *pipeline.Layout) { l.Items[0].Offset = 2 },
		"too short":     func(l *pipeline.Layout) { l.Size = l.Items[3].Offset },
		// A file that goes with another needs that one's digest first.
		"another file first": func(l *pipeline.Layout) {
			l.Header, l.Items, l.Size, l.Of = make([]byte, 64), nil, 64, &pipeline.Layout{File: "y"}
		},
		"no room for a digest":      func(l *pipeline.Layout) { l.Of, l.OfDigestAt = &pipeline.Layout{File: "y"}, int64(len(l.Header)) },
		"a digest before the start": func(l *pipeline.Layout) { l.Of, l.OfDigestAt = &pipeline.Layout{File: "y"}, -1 },
	} {
		bad := *l
		bad.Items = slices.Clone(l.Items)
		spoil(&bad)
		var buf bytes.Buffer
		if _, err := pipeline.Emit(t.Context(), &bad, nil, &buf, pipeline.EmitOptions{}); !errors.Is(err, pipeline.ErrLayout) || buf.Len() > 0 {
			t.Errorf("%s: %v, %d bytes written", name, err, buf.Len())
		}
	}
	if w.tensors[0].Type != tensor.F32 {
		t.Error("the tensors changed")
	}
}

func TestLockPath(t *testing.T) {
	for recipe, want := range map[string]string{
		"r.yaml": "r.lock", "a/b/r.YML": "a/b/r.lock", "r": "r.lock", "r.v2.yaml": "r.v2.lock", "r.json": "r.json.lock", "x.yaml/r": "x.yaml/r.lock",
	} {
		if got := pipeline.LockPath(recipe); got != want {
			t.Errorf("%s: %s, want %s", recipe, got, want)
		}
	}
}

// besideEmitter lays out a file and one that goes with it, in an order.
type besideEmitter struct{ first, second int }

func (e besideEmitter) Plan(context.Context, *model.Model) (*pipeline.Layout, error) {
	return nil, errors.New("a set")
}

func (e besideEmitter) PlanSet(ctx context.Context, m *model.Model) ([]*pipeline.Layout, error) {
	file, err := emitter{file: "x", header: "head"}.Plan(ctx, m)
	if err != nil {
		return nil, err
	}
	beside := *file
	beside.File, beside.Header = "x.beside", make([]byte, 40)
	beside.Items, beside.Size = nil, 40
	beside.Of, beside.OfDigestAt = file, 5
	set := []*pipeline.Layout{file, &beside}
	return []*pipeline.Layout{set[e.first], set[e.second]}, nil
}

// TestBeside: a file that goes with another one gets the digest of what was
// written, and the other one has to come first.
func TestBeside(t *testing.T) {
	w := newWorld(t, true)
	w.outputs = []pipeline.PlacedEmitter{{Emitter: besideEmitter{0, 1}, Where: "r.yaml:3:5"}}
	out := t.TempDir()
	res, err := w.build(out)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(out, "x.beside"))
	if err != nil {
		t.Fatal(err)
	}
	sum := res.Outputs[0].SHA256
	if want := slices.Concat(make([]byte, 5), sum[:], make([]byte, 3)); !bytes.Equal(got, want) {
		t.Errorf("%x, want %x", got, want)
	}
	w.outputs[0].Emitter = besideEmitter{1, 0}
	if _, err := w.build(t.TempDir()); !errors.Is(err, pipeline.ErrLayout) || !strings.Contains(err.Error(), "not written yet") {
		t.Errorf("in the wrong order: %v", err)
	}
}
