package pipeline_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"quern/artifacts/sink"
	"quern/artifacts/sink/sinktest"
	"quern/internal/digest"
	"quern/pipeline"
	"quern/tensor"
)

// device is an HTTP server that outputs are sent to.
type device struct {
	*sinktest.Server
	url string
}

func newDevice(t *testing.T) *device {
	t.Helper()
	d := &device{Server: &sinktest.Server{DAV: true, Parts: true, Digests: true}}
	d.url = d.Start(t)
	return d
}

// sendTo gives the world's outputs targets.
func (w *world) sendTo(t *testing.T, emitters []emitter, targets ...string) {
	t.Helper()
	w.outputs = nil
	for _, e := range emitters {
		p := pipeline.PlacedEmitter{Emitter: e, Where: "r.yaml:5:3", File: e.file}
		for _, s := range targets {
			tg, err := sink.Parse(s)
			if err != nil {
				t.Fatal(err)
			}
			p.To = append(p.To, tg)
		}
		w.outputs = append(w.outputs, p)
	}
}

var outBin = emitter{file: "sub/out.bin", header: "head"}

func journals(dir string) func(*pipeline.BuildOptions) {
	return func(o *pipeline.BuildOptions) {
		o.Send = pipeline.SendOptions{Journals: dir, Sinks: sink.Options{Chunk: 100_000}, Pause: func(context.Context, time.Duration) error { return nil }}
	}
}

func (w *world) notes() string {
	w.saidMu.Lock()
	defer w.saidMu.Unlock()
	var out []string
	for _, e := range w.said {
		if e.Kind == pipeline.EventNote {
			out = append(out, e.Message)
		}
	}
	return strings.Join(out, "\n")
}

// TestSend: a build whose output only goes away leaves nothing here, neither a
// file nor anything in the store, and the target has the bytes.
func TestSend(t *testing.T) {
	for _, jobs := range []int{1, 3} {
		w, d, st := newWorld(t, true), newDevice(t), newStore()
		out := t.TempDir()
		w.sendTo(t, []emitter{outBin}, d.url+"/llm/")
		lock := filepath.Join(t.TempDir(), "r.lock")
		res, err := w.build(out, func(o *pipeline.BuildOptions) { o.Store, o.Jobs, o.LockPaths = st, jobs, []string{lock} })
		if err != nil {
			t.Fatal(err)
		}
		want := w.want(outBin)
		if b, _ := d.File("/llm/out.bin"); !bytes.Equal(b, want) {
			t.Errorf("the target has %d bytes, not the %d planned", len(b), len(want))
		}
		if paths := d.Paths(); len(paths) != 1 {
			t.Errorf("the target has %q", paths)
		}
		if left := list(t, out); len(left) != 0 {
			t.Errorf("left here: %q", left)
		}
		if slices.Contains(st.calls, "new") || slices.Contains(st.calls, "record") {
			t.Errorf("the store was asked to keep: %q", st.calls)
		}
		o := res.Outputs[0]
		if o.SHA256 != digest.Of(want) || o.Path != "" || !slices.Equal(o.Targets, []string{d.url + "/llm/out.bin"}) || o.Made != len(w.tensors) {
			t.Errorf("%+v", o)
		}
		l := string(read(t, lock))
		if strings.Contains(l, "127.0.0.1") || !strings.Contains(l, digest.Of(want).Hex()) {
			t.Errorf("the lock: %s", l)
		}
	}
}

// TestSendAndKeep: with a path among its targets an output is written, gated and
// kept as ever, and sent in the same pass.
func TestSendAndKeep(t *testing.T) {
	w, d, st := newWorld(t, true), newDevice(t), newStore()
	out := t.TempDir()
	d.BreakAt, d.Breaks = 500_000, 2
	w.sendTo(t, []emitter{outBin}, "here/", d.url+"/llm/")
	seen := false
	w.gates = []pipeline.PlacedGate{{Where: "r.yaml:9:3", Gate: gateFunc(func(in pipeline.GateInput) []pipeline.GateResult {
		_, there := d.File("/llm/out.bin")
		seen = in.File.Size() == in.Layout.Size && !there
		return nil
	})}}
	res, err := w.build(out, func(o *pipeline.BuildOptions) { o.Store = st }, journals(""))
	if err != nil {
		t.Fatal(err)
	}
	want := w.want(outBin)
	b, _ := d.File("/llm/out.bin")
	if !bytes.Equal(b, want) || !bytes.Equal(read(t, out, "here", "out.bin"), want) {
		t.Error("the target or the file differs")
	}
	if !seen {
		t.Error("the gate did not look, or the target had the file before its turn")
	}
	if res.Manifest == nil || res.Outputs[0].Path != filepath.Join(out, "here", "out.bin") {
		t.Errorf("%+v", res)
	}
	// Again: out of the store, and the target has it.
	w.reads.Store(0)
	res, err = w.build(out, func(o *pipeline.BuildOptions) { o.Store = st })
	if err != nil || w.reads.Load() != 0 || !res.Outputs[0].Already {
		t.Errorf("%v; %d bytes read, %+v", err, w.reads.Load(), res.Outputs[0])
	}
	// Again, the file here gone and the target's too.
	if err := os.Remove(filepath.Join(out, "here", "out.bin")); err != nil {
		t.Fatal(err)
	}
	d.Put("/llm/out.bin", []byte("old"))
	if _, err = w.build(out, func(o *pipeline.BuildOptions) { o.Store = st }); err != nil || w.reads.Load() != 0 {
		t.Errorf("%v; %d bytes read", err, w.reads.Load())
	}
	if b, _ := d.File("/llm/out.bin"); !bytes.Equal(b, want) || !bytes.Equal(read(t, out, "here", "out.bin"), want) {
		t.Error("the target or the file differs")
	}
}

// TestSendGoesOn interrupts a build in the middle of every tensor and lets another
// one finish it: it makes only what was missing, asks its source for no more, and
// records the same.
func TestSendGoesOn(t *testing.T) {
	whole, all := newWorld(t, true), &fetcher{}
	whole.fetch = all
	whole.sendTo(t, []emitter{outBin}, newDevice(t).url+"/x.bin")
	first, err := whole.build(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	want := whole.want(outBin)
	for _, stop := range []int64{1, 100_000, 900_000, int64(len(want)) - 2_000_000, int64(len(want)) - 100} {
		w, d := newWorld(t, true), newDevice(t)
		dir, cause := t.TempDir(), errors.New("Ctrl-C")
		w.sendTo(t, []emitter{outBin}, d.url+"/x.bin")
		w.fetch = &fetcher{}
		lock := filepath.Join(t.TempDir(), "r.lock")
		ctx, cancel := context.WithCancelCause(t.Context())
		opt := pipeline.BuildOptions{OutDir: t.TempDir(), Jobs: 1, Memory: 1 << 20, LockPaths: []string{lock}, Events: pipeline.EventFunc(func(e pipeline.Event) {
			if e.Kind == pipeline.EventProgress && e.Done >= stop {
				cancel(cause)
			}
			w.saidMu.Lock()
			w.said = append(w.said, e)
			w.saidMu.Unlock()
		})}
		journals(dir)(&opt)
		if _, err := pipeline.Build(ctx, w.project(), opt); !errors.Is(err, cause) {
			t.Fatalf("stop at %d: %v", stop, err)
		}
		part, kept := d.File("/x.bin.quern-part")
		if _, there := d.File("/x.bin"); there {
			t.Errorf("stop at %d: the file has its name", stop)
		}
		if kept && !strings.Contains(w.notes(), "the same command goes on from there") {
			t.Errorf("stop at %d: it does not say what stays: %s", stop, w.notes())
		}
		w.reads.Store(0)
		fetch := &fetcher{}
		w.fetch = fetch
		res, err := w.build(opt.OutDir, journals(dir), func(o *pipeline.BuildOptions) { o.LockPaths = []string{lock} })
		if err != nil {
			t.Fatalf("stop at %d: %v", stop, err)
		}
		if b, _ := d.File("/x.bin"); !bytes.Equal(b, want) {
			t.Errorf("stop at %d: the target has other bytes", stop)
		}
		if res.Outputs[0].SHA256 != first.Outputs[0].SHA256 {
			t.Errorf("stop at %d: another digest", stop)
		}
		l, err := pipeline.ReadLock(lock)
		if err != nil {
			t.Fatal(err)
		}
		for i, x := range l.Outputs[0].Tensors {
			if sum := digest.Of(bytesOf(w.tensors[i].Name, w.tensors[i].Bytes())); x.SHA256 != sum {
				t.Errorf("stop at %d: tensor %s has another digest in the lock", stop, x.Name)
			}
		}
		// What was sent up to a mark is neither made nor fetched again.
		if most := int64(len(want)) - int64(len(part)) + 1<<20 + 128<<10; w.reads.Load() > most {
			t.Errorf("stop at %d: %d bytes there and %d made again, of %d", stop, len(part), w.reads.Load(), len(want))
		}
		if need := fetch.needed(); len(part) > 2<<20 && need == all.needed() {
			t.Errorf("stop at %d: all was declared to the source: %s", stop, need)
		}
		// And once more: there is nothing to do.
		w.reads.Store(0)
		res, err = w.build(opt.OutDir, journals(dir))
		if err != nil || !res.Outputs[0].Already || w.reads.Load() != 0 {
			t.Errorf("stop at %d: a third build: %v, %d bytes read", stop, err, w.reads.Load())
		}
	}
}

// TestSendWithoutKeys: sources without digests promise nothing, so that all is
// made again and compared with what is there.
func TestSendWithoutKeys(t *testing.T) {
	w, d := newWorld(t, false), newDevice(t)
	want := w.want(outBin)
	d.Put("/x.bin.quern-part", want[:1_000_000])
	w.sendTo(t, []emitter{outBin}, d.url+"/x.bin")
	if _, err := w.build(t.TempDir(), journals(t.TempDir())); err != nil {
		t.Fatal(err)
	}
	if b, _ := d.File("/x.bin"); !bytes.Equal(b, want) {
		t.Error("the target has other bytes")
	}
}

func TestSendRefuses(t *testing.T) {
	d := newDevice(t)
	gate := []pipeline.PlacedGate{{Where: "r.yaml:9:3", Gate: gateFunc(func(pipeline.GateInput) []pipeline.GateResult { return nil })}}
	for _, c := range []struct {
		name    string
		change  func(w *world, out string)
		target  string
		two     bool
		want    error
		message string
	}{
		{"gates", func(w *world, _ string) { w.gates = gate }, d.url + "/x", false, pipeline.ErrRecipe, "gate fake looks at the finished file"},
		{"two outputs, one file", func(*world, string) {}, d.url + "/x", true, pipeline.ErrOutput, "and so does"},
		{"a partition", func(*world, string) {}, "flash:x.img?partition-size=1M", false, pipeline.ErrTooLarge, "more than the 1048576"},
		{"an input", func(w *world, out string) { w.local = []string{filepath.Join(out, "weights")} }, "weights", false, pipeline.ErrSameFile, "weights"},
		{"an input as a flash image", func(w *world, out string) { w.local = []string{filepath.Join(out, "weights")} }, "flash:weights?partition-size=16M", false, pipeline.ErrSameFile, "weights"},
	} {
		w := newWorld(t, true)
		out := t.TempDir()
		outs := []emitter{outBin}
		if c.two {
			outs = append(outs, emitter{file: "b.bin", header: "b"})
		}
		w.sendTo(t, outs, c.target)
		c.change(w, out)
		_, err := w.build(out)
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.message) {
			t.Errorf("%s: %v", c.name, err)
		}
		if w.reads.Load() != 0 || len(d.Paths()) != 0 {
			t.Errorf("%s: something was done first", c.name)
		}
	}
}

// TestSendSourceRepaired: when bytes of the source turn out to have been wrong all
// is sent anew, and standard output, which cannot be taken back, is an error.
func TestSendSourceRepaired(t *testing.T) {
	for _, target := range []string{"", "-"} {
		w, d := newWorld(t, true), newDevice(t)
		w.fetch = &fetcher{finish: []error{pipeline.ErrRepaired}}
		var flip atomic.Bool
		w.outputs = nil
		if target == "" {
			target = d.url + "/x"
		}
		w.sendTo(t, []emitter{outBin}, target)
		src := w.tensors[0].Src
		w.tensors[0].Src = tensor.SourceFunc(func(ctx context.Context, dst []byte, first, n int64) error {
			err := src.ReadRows(ctx, dst, first, n)
			if flip.CompareAndSwap(false, true) {
				dst[0] ^= 1
			}
			return err
		})
		var out bytes.Buffer
		_, err := w.build(t.TempDir(), func(o *pipeline.BuildOptions) { o.Send.Sinks.Stdout = &out })
		if target == "-" {
			if !errors.Is(err, pipeline.ErrSource) || !strings.Contains(err.Error(), "gone already") {
				t.Errorf("%v", err)
			}
			continue
		}
		if b, _ := d.File("/x"); err != nil || !bytes.Equal(b, w.want(outBin)) {
			t.Errorf("%v; %d bytes", err, len(b))
		}
	}
}

// TestTargetFails: the error is the target's, and an output with no way out leaves
// nothing.
func TestTargetFails(t *testing.T) {
	w, d := newWorld(t, true), newDevice(t)
	d.Quota = 1000
	w.sendTo(t, []emitter{outBin}, d.url+"/x")
	_, err := w.build(t.TempDir())
	if !errors.Is(err, sink.ErrTarget) || !errors.Is(err, sink.ErrNoSpace) || w.reads.Load() > 0 {
		t.Errorf("%v after %d bytes", err, w.reads.Load())
	}
}

// gateFunc is a gate called fake.
type gateFunc func(in pipeline.GateInput) []pipeline.GateResult

func (f gateFunc) Name() string { return "fake" }
func (f gateFunc) Check(_ context.Context, in pipeline.GateInput) ([]pipeline.GateResult, error) {
	return f(in), nil
}
