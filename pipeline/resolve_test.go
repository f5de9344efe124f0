package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"quern/internal/digest"
	"quern/internal/faulty"
	"quern/model"
	"quern/pipeline"
	"quern/tensor"
)

// maker is a Resolver whose product is text; user is a stage that wants it.
type maker struct {
	key  string // empty for none
	text string
	made *int
	err  error
}

func (m maker) Name() string { return "maker" }

func (m maker) Plan(_ context.Context, in *model.Model) (*model.Model, error) { return in, nil }

func (m maker) Resolves() bool { return true }

func (m maker) Resolve(context.Context, *model.Model, []*pipeline.Source) (*pipeline.Product, error) {
	p := &pipeline.Product{Format: "text", MediaType: "text/plain", File: "product.txt", Make: func(context.Context, pipeline.WorkOptions) ([]byte, error) {
		*m.made++
		return []byte(m.text), m.err
	}}
	if m.key != "" {
		p.Key = tensor.Derive("maker", m.key)
	}
	return p, nil
}

type user struct{ got *[]string }

func (u user) Name() string { return "user" }

func (u user) Plan(context.Context, *model.Model) (*model.Model, error) {
	return nil, errors.New("planned without sources")
}

func (u user) PlanWith(ctx context.Context, in *model.Model, sources []*pipeline.Source) (*model.Model, error) {
	src, err := pipeline.FindText(sources, "thing")
	if err != nil {
		return nil, err
	}
	b, err := src.ReadAll(ctx)
	*u.got = append(*u.got, src.FileName()+" "+string(b))
	return in, err
}

func TestProducts(t *testing.T) {
	s := newStore()
	made := 0
	var got []string
	build := func(m maker, change func(*pipeline.BuildOptions)) error {
		w := newWorld(t, true)
		m.made = &made
		w.stages = []pipeline.PlacedStage{
			{Stage: m, Where: "r.yaml:1:1", ID: "thing", Record: pipeline.StepRecord{Stage: "maker", Version: "1"}},
			{Stage: user{&got}, Where: "r.yaml:2:1", Record: pipeline.StepRecord{Stage: "user", Version: "1"}},
		}
		_, err := w.build(t.TempDir(), func(o *pipeline.BuildOptions) {
			o.Store = s
			if change != nil {
				change(o)
			}
		})
		return err
	}
	for i, c := range []struct {
		m      maker
		change func(*pipeline.BuildOptions)
		made   int
		got    string
	}{
		{maker{key: "a", text: "one"}, nil, 1, "product.txt one"},
		{maker{key: "a", text: "not asked"}, nil, 1, "product.txt one"}, // the store has it
		{maker{key: "a", text: "one"}, func(o *pipeline.BuildOptions) { o.NoCache = true }, 2, "product.txt one"},
		{maker{key: "b", text: "two"}, nil, 3, "product.txt two"},
		{maker{text: "three"}, nil, 4, "product.txt three"}, // nothing to find it by
		{maker{text: "three"}, nil, 5, "product.txt three"},
		{maker{key: "c", text: "four"}, func(o *pipeline.BuildOptions) { o.Store = nil }, 6, "product.txt four"},
	} {
		got = nil
		if err := build(c.m, c.change); err != nil {
			t.Fatalf("build %d: %v", i, err)
		}
		if made != c.made || len(got) == 0 || got[len(got)-1] != c.got {
			t.Errorf("build %d: made %d times so far, the stage got %q", i, made, got)
		}
	}
	if err := build(maker{key: "d", err: faulty.ErrInjected}, nil); !errors.Is(err, faulty.ErrInjected) || !strings.Contains(fmt.Sprint(err), "r.yaml:1:1") {
		t.Errorf("a product that cannot be made: %v", err)
	}
	if strings.Contains(strings.Join(s.calls, " "), "not held") {
		t.Errorf("the store was used without hold: %v", s.calls)
	}
}

// TestProductNobodyReads: what no stage reads is not made.
func TestProductNobodyReads(t *testing.T) {
	w, made := newWorld(t, true), 0
	w.stages = []pipeline.PlacedStage{{Stage: maker{key: "a", made: &made}, ID: "thing", Record: pipeline.StepRecord{Stage: "maker", Version: "1"}}}
	if _, err := w.build(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	if made != 0 {
		t.Errorf("made %d times", made)
	}
}

// TestProductNotKept: a store that takes nothing costs the product its place
// there, not the build.
func TestProductNotKept(t *testing.T) {
	for _, fail := range []string{"new", "write", "commit", "record"} {
		w, s, made := newWorld(t, true), newStore(), 0
		var got []string
		s.fail[fail] = faulty.ErrInjected
		w.stages = []pipeline.PlacedStage{
			{Stage: maker{key: "a", text: "x", made: &made}, ID: "thing", Record: pipeline.StepRecord{Stage: "maker", Version: "1"}},
			{Stage: user{&got}, Record: pipeline.StepRecord{Stage: "user", Version: "1"}},
		}
		said := ""
		p, err := pipeline.NewPlan(t.Context(), w.project(), pipeline.PlanOptions{Store: s, WorkOptions: pipeline.WorkOptions{
			Events: pipeline.EventFunc(func(e pipeline.Event) { said += e.Message })}})
		if err != nil {
			t.Errorf("%s: %v", fail, err)
			continue
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		if made != 1 || len(got) != 1 || !strings.Contains(said, "not kept") {
			t.Errorf("%s: made %d times, used %q, said %q", fail, made, got, said)
		}
	}
}

// TestUnrecorded: with digests of nothing but the outputs these are right, and
// sources are not hashed.
func TestUnrecorded(t *testing.T) {
	e := emitter{file: "out.bin", header: "head"}
	for _, unrecorded := range []bool{false, true} {
		w := newWorld(t, true)
		prj := w.project()
		open, hashed := prj.Open, 0
		prj.Open = func(ctx context.Context) ([]*pipeline.Source, error) {
			list, err := open(ctx)
			list[0].Files[0].SHA256 = ""
			list[0].Digest = func(context.Context) error { hashed++; return nil }
			return list, err
		}
		out := t.TempDir()
		res, err := pipeline.Build(t.Context(), prj, pipeline.BuildOptions{OutDir: out, Unrecorded: unrecorded})
		if err != nil {
			t.Fatal(err)
		}
		if got := digest.Of(read(t, out, "out.bin")); res.Outputs[0].SHA256 != got || got != digest.Of(w.want(e)) {
			t.Errorf("unrecorded %t: reported %s, wrote %s", unrecorded, res.Outputs[0].SHA256, got)
		}
		if (hashed > 0) == unrecorded {
			t.Errorf("unrecorded %t: sources hashed %d times", unrecorded, hashed)
		}
	}
}

// besides is a maker with a file beside its product.
type besides struct {
	maker
	told error
}

func (m besides) Resolve(context.Context, *model.Model, []*pipeline.Source) (*pipeline.Product, error) {
	return &pipeline.Product{Format: "text", MediaType: "text/plain", File: "product.txt", Key: tensor.Derive("maker", m.key),
		Beside: []pipeline.ProductFile{{Format: "table", MediaType: "text/csv", File: "table.csv"}},
		MakeAll: func(context.Context, pipeline.WorkOptions) ([][]byte, error) {
			*m.made++
			if m.text == "" {
				return [][]byte{nil}, nil
			}
			return [][]byte{[]byte(m.text), []byte("a," + m.text)}, m.err
		},
		Tell: func(files [][]byte) ([]string, any, error) {
			return []string{"the table says " + string(files[1])}, map[string]int{"files": len(files)}, m.told
		}}, nil
}

// TestProductsBeside: what is made with a product is kept with it, and told of each
// time.
func TestProductsBeside(t *testing.T) {
	s := newStore()
	made := 0
	var got []string
	build := func(m besides) (*pipeline.Result, error) {
		w := newWorld(t, true)
		m.made = &made
		w.stages = []pipeline.PlacedStage{
			{Stage: m, Where: "r.yaml:1:1", ID: "thing", Record: pipeline.StepRecord{Stage: "maker", Version: "1"}},
			{Stage: user{&got}, Where: "r.yaml:2:1", Record: pipeline.StepRecord{Stage: "user", Version: "1"}},
		}
		return w.build(t.TempDir(), func(o *pipeline.BuildOptions) { o.Store = s })
	}
	for range 2 {
		res, err := build(besides{maker: maker{key: "a", text: "one"}})
		if err != nil {
			t.Fatal(err)
		}
		if made != 1 || len(res.Products) != 1 {
			t.Fatalf("made %d times, %d products", made, len(res.Products))
		}
		p := res.Products[0]
		if p.Name != "thing" || p.Step != "maker" || len(p.Files) != 2 || p.Files[1].Path != "table.csv" || p.Files[1].Size != 5 ||
			p.Files[1].SHA256 != digest.Of([]byte("a,one")).Hex() || len(p.Lines) != 1 || p.Lines[0] != "the table says a,one" || p.Report == nil {
			t.Errorf("%+v", p)
		}
		if got[len(got)-1] != "product.txt one" {
			t.Errorf("the stage got %q", got)
		}
	}
	if _, err := build(besides{maker: maker{key: "b"}}); err == nil || !strings.Contains(err.Error(), "1 files were made where 2 are to be") {
		t.Errorf("a file too few: %v", err)
	}
	broken := errors.New("broken")
	if _, err := build(besides{maker: maker{key: "a", text: "one"}, told: broken}); !errors.Is(err, broken) {
		t.Errorf("telling fails: %v", err)
	}
}
