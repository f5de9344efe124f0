package pipeline_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"quern/artifacts"
	"quern/artifacts/mem"
	"quern/model"
	"quern/pipeline"
)

// gate asks functions.
type gate struct {
	check func(ctx context.Context, in pipeline.GateInput) ([]pipeline.GateResult, error)
	plan  func([]*pipeline.Source) error
}

func (gate) Name() string { return "fake" }

func (g gate) Check(ctx context.Context, in pipeline.GateInput) ([]pipeline.GateResult, error) {
	return g.check(ctx, in)
}

func (g gate) Plan(s []*pipeline.Source) error {
	if g.plan == nil {
		return nil
	}
	return g.plan(s)
}

func placed(check func(context.Context, pipeline.GateInput) ([]pipeline.GateResult, error)) []pipeline.PlacedGate {
	return []pipeline.PlacedGate{{Gate: gate{check: check}, Where: "r.yaml:9:5"}}
}

// pair is an emitter of two files.
type pair struct{ emitter }

func (p pair) PlanSet(ctx context.Context, in *model.Model) ([]*pipeline.Layout, error) {
	var out []*pipeline.Layout
	for _, part := range []string{"1", "2"} {
		e := p.emitter
		e.file += part
		l, err := e.Plan(ctx, in)
		if err != nil {
			return nil, err
		}
		out = append(out, l)
	}
	return out, nil
}

// TestGatesSeeWhatIsWritten: the bytes of the unfinished file, all files of an
// output together, and of the outputs only the one that a gate is for.
func TestGatesSeeWhatIsWritten(t *testing.T) {
	whole := map[string][]byte{}
	for _, header := range []string{"a", "b"} {
		whole[header] = newWorld(t, true).want(emitter{header: header})
	}
	for _, cached := range []bool{false, true} {
		w := newWorld(t, true)
		w.outputs = []pipeline.PlacedEmitter{{Emitter: emitter{file: "a.bin", header: "a"}, File: "a.bin"}, {Emitter: pair{emitter{file: "b", header: "b"}}, File: "b"}}
		var seen []string
		w.gates = placed(func(ctx context.Context, in pipeline.GateInput) ([]pipeline.GateResult, error) {
			var set []string
			for i, f := range in.Set {
				set = append(set, f.Name)
				b := make([]byte, f.Blob.Size())
				if err := f.Blob.ReadAt(ctx, b, 0); err != nil {
					return nil, err
				}
				if !bytes.Equal(b, whole[in.Output[:1]]) {
					t.Errorf("file %s is not what is written", f.Name)
				}
				if i == in.Part && (f.Name != in.Layout.File || f.Blob != in.File) {
					t.Errorf("part %d is %s, not %s", i, f.Name, in.Layout.File)
				}
			}
			if len(in.Sources) != 1 || in.Reference == nil || in.Jobs != 2 || in.Memory != 1<<20 || in.Events == nil || in.Memo == nil {
				t.Errorf("%+v", in)
			}
			seen = append(seen, fmt.Sprintf("%s%d%v", in.Output, in.Part, set))
			return []pipeline.GateResult{{Gate: "fake", Output: in.Output, Pass: true}}, nil
		})
		out := t.TempDir()
		if cached {
			// The same files stand there already.
			for _, e := range []emitter{{file: "a.bin", header: "a"}, {file: "b1", header: "b"}, {file: "b2", header: "b"}} {
				if err := os.WriteFile(filepath.Join(out, e.file), whole[e.header], 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
		st := newStore()
		opt := func(o *pipeline.BuildOptions) { o.Memory, o.Store = 1<<20, st }
		if _, err := w.build(out, opt); err != nil {
			t.Fatal(err)
		}
		seen = nil
		w.gates = append(w.gates, w.gates[0], w.gates[0])
		w.gates[1].Output, w.gates[2].Output = "b", "c"
		res, err := w.build(out, opt)
		if err != nil {
			t.Fatal(err)
		}
		want := []string{"a.bin0[a.bin]", "b0[b1 b2]", "b0[b1 b2]", "b1[b1 b2]", "b1[b1 b2]"}
		if !slices.Equal(seen, want) || len(res.Gates) != len(want) {
			t.Errorf("seen %v, want %v", seen, want)
		}
	}
}

// TestFailedGate: nothing is published, neither file nor record, and what an
// earlier build has published stays.
func TestFailedGate(t *testing.T) {
	w := newWorld(t, true)
	kept := mem.New()
	st := pipeline.Keep(kept, artifacts.Tool{Name: "quern", Version: "test"})
	opt := func(o *pipeline.BuildOptions) { o.Store, o.LockPaths = st, []string{filepath.Join(o.OutDir, "r.lock")} }
	out := t.TempDir()
	pass, calls := true, 0
	w.gates = placed(func(context.Context, pipeline.GateInput) ([]pipeline.GateResult, error) {
		calls++
		return []pipeline.GateResult{{Gate: "fake", Pass: true, Text: "fine"}, {Gate: "fake", Pass: pass, Text: "3 beyond the limit"}}, nil
	})
	if _, err := w.build(out, opt); err != nil {
		t.Fatal(err)
	}
	state := func() string {
		names, err := kept.Names(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(names, list(t, out), len(read(t, out, "out.bin")), string(read(t, out, "r.lock")))
	}
	before := state()
	pass = false
	w.outputs = []pipeline.PlacedEmitter{{Emitter: emitter{file: "out.bin", header: "another head"}}, {Emitter: emitter{file: "new.bin", header: "x"}}}
	res, err := w.build(out, opt)
	if !errors.Is(err, pipeline.ErrGate) || err.Error() != "gate failed; nothing was published:\nr.yaml:9:5: 3 beyond the limit\nr.yaml:9:5: 3 beyond the limit" {
		t.Errorf("error %v", err)
	}
	if res == nil || len(res.Gates) != 4 || len(res.Outputs) != 0 || calls != 3 {
		t.Errorf("%+v after %d calls", res, calls)
	}
	if after := state(); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
	// Not even a file that stood there is counted as its own.
	odd := errors.New("odd")
	w.gates = placed(func(context.Context, pipeline.GateInput) ([]pipeline.GateResult, error) { return nil, odd })
	if _, err := w.build(out, opt); !errors.Is(err, odd) || errors.Is(err, pipeline.ErrGate) || !strings.HasPrefix(err.Error(), "r.yaml:9:5: gate fake: ") {
		t.Errorf("error %v", err)
	}
	if after := state(); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
}

// TestPlanRunsNoGate: a plan asks gates what they can tell by the sources, and no
// more.
func TestPlanRunsNoGate(t *testing.T) {
	w := newWorld(t, true)
	planned := 0
	odd := errors.New("odd")
	var say error
	w.gates = []pipeline.PlacedGate{{Where: "r.yaml:9:5", Gate: gate{
		check: func(context.Context, pipeline.GateInput) ([]pipeline.GateResult, error) {
			t.Error("a gate was run")
			return nil, nil
		},
		plan: func(s []*pipeline.Source) error {
			if planned++; len(s) != 1 {
				t.Errorf("%d sources", len(s))
			}
			return say
		}}}}
	p, err := pipeline.NewPlan(t.Context(), w.project(), pipeline.PlanOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil || planned != 1 || w.reads.Load() != 0 {
		t.Errorf("planned %d times, %d bytes read, %v", planned, w.reads.Load(), err)
	}
	say = odd
	if _, err := pipeline.NewPlan(t.Context(), w.project(), pipeline.PlanOptions{}); !errors.Is(err, odd) || !errors.Is(err, pipeline.ErrRecipe) || !strings.HasPrefix(err.Error(), "r.yaml:9:5: gate fake: ") {
		t.Errorf("error %v", err)
	}
	// A build finds out before it writes.
	if _, err := w.build(t.TempDir()); !errors.Is(err, odd) || w.reads.Load() != 0 {
		t.Errorf("error %v, %d bytes read", err, w.reads.Load())
	}
}

// TestGatesStartOver: what gates read of a network source is verified too.
func TestGatesStartOver(t *testing.T) {
	w := newWorld(t, true)
	calls := 0
	w.gates = placed(func(context.Context, pipeline.GateInput) ([]pipeline.GateResult, error) {
		calls++
		return []pipeline.GateResult{{Pass: calls > 1, Text: "wrong"}}, nil
	})
	f := &fetcher{finish: []error{nil, pipeline.ErrRepaired}}
	w.fetch = f
	res, err := w.build(t.TempDir())
	if err != nil || calls != 2 || len(res.Gates) != 1 || !strings.Contains(w.warnings(), "the gates start over") {
		t.Errorf("%v, %d calls, %s", err, calls, w.warnings())
	}
	w.fetch = &fetcher{finish: []error{nil, pipeline.ErrRepaired, pipeline.ErrRepaired, pipeline.ErrRepaired, pipeline.ErrRepaired}}
	if _, err := w.build(t.TempDir()); !errors.Is(err, pipeline.ErrSource) {
		t.Errorf("damage that stays: %v", err)
	}
	// Without gates nothing is read behind the outputs.
	w.gates = nil
	f = &fetcher{}
	w.fetch = f
	if _, err := w.build(t.TempDir()); err != nil || f.finished != 1 {
		t.Errorf("%v, finished %d times", err, f.finished)
	}
}

// TestCancelledGate: a build that is stopped while a gate runs is stopped.
func TestCancelledGate(t *testing.T) {
	w := newWorld(t, true)
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stop")
	w.gates = placed(func(context.Context, pipeline.GateInput) ([]pipeline.GateResult, error) {
		cancel(stop)
		return []pipeline.GateResult{{Pass: true}}, nil
	})
	out := t.TempDir()
	if _, err := pipeline.Build(ctx, w.project(), pipeline.BuildOptions{OutDir: out}); !errors.Is(err, stop) {
		t.Errorf("error %v", err)
	}
	if left := list(t, out); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}

// TestMemo keeps results and no errors.
func TestMemo(t *testing.T) {
	m := &pipeline.Memo{}
	calls := 0
	fail := errors.New("fail")
	get := func(key string, err error) (any, error) {
		return m.Do(key, func() (any, error) { calls++; return calls, err })
	}
	if _, err := get("a", fail); err != fail {
		t.Error(err)
	}
	for range 2 {
		if v, err := get("a", nil); v != 2 || err != nil {
			t.Errorf("%v, %v", v, err)
		}
	}
	if v, err := get("b", nil); v != 3 || err != nil {
		t.Errorf("%v, %v", v, err)
	}
	m = nil
	if v, err := get("a", nil); v != 4 || err != nil {
		t.Errorf("%v, %v", v, err)
	}
}

// TestGatesAreKept: the store's record of a build holds what its outputs were
// held to and how that was measured; JSON's numbers are enough for all values.
func TestGatesAreKept(t *testing.T) {
	w := newWorld(t, true)
	kept := mem.New()
	w.gates = placed(func(_ context.Context, in pipeline.GateInput) ([]pipeline.GateResult, error) {
		return []pipeline.GateResult{
			{Gate: "fake", Output: in.Output, What: "a<b", Value: 4.5, Limit: 5, Pass: true, Settings: map[string]any{"text_sha256": "sha256:00"}, Text: "fine"},
			{Gate: "fake", Output: in.Output, What: "ratio", Value: math.Inf(1), Limit: 18, Pass: true},
		}, nil
	})
	res, err := w.build(t.TempDir(), func(o *pipeline.BuildOptions) {
		o.Store = pipeline.Keep(kept, artifacts.Tool{Name: "quern", Version: "test"})
	})
	if err != nil {
		t.Fatal(err)
	}
	d, err := kept.Resolve(t.Context(), res.Manifest.String())
	if err != nil {
		t.Fatal(err)
	}
	b, err := artifacts.ReadBuild(t.Context(), kept, d)
	if err != nil {
		t.Fatal(err)
	}
	if len(b.Gates) != len(res.Gates) || len(b.Gates) < 2 {
		t.Fatalf("%d results are kept of %d", len(b.Gates), len(res.Gates))
	}
	for i, want := range []string{`"what":"a<b","pass":true,"settings":{"text_sha256":"sha256:00"},"text":"fine","value":4.5,"limit":5}`, `"value":null,"limit":18}`} {
		if !strings.HasSuffix(string(b.Gates[i]), want) {
			t.Errorf("result %d is %s, want %s at its end", i, b.Gates[i], want)
		}
	}
	b.Gates[0] = json.RawMessage("{")
	if _, err := b.Marshal(); !errors.Is(err, artifacts.ErrManifest) {
		t.Errorf("a result that is no JSON: %v", err)
	}
}
