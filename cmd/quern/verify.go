package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"quern/artifacts"
	"quern/internal/atomicfile"
	"quern/pipeline"
	"quern/recipes"
	"quern/stages/all"
	"quern/stages/gates"
	"quern/tensor"
	"quern/verify"
	"quern/verify/parquet"
)

func verifyCommand() *cli.Command {
	flags := []cli.Flag{
		&cli.StringFlag{Name: "against", Usage: "compare with a `SOURCE`: a model folder, a GGUF file, hf:ORG/NAME[@REVISION] or artifact:NAME"},
		&cli.StringFlag{Name: "recipe", Usage: "apply the steps of this `RECIPE` to the source first; the default is what the store knows of the file"},
		&cli.StringFlag{Name: "golden", Usage: "demand the bytes of another `FILE`, and say which tensor differs"},
		&cli.Float64Flag{Name: "min-snr", Usage: "fail when a tensor's signal-to-noise ratio is under this many `DECIBELS`"},
		&cli.StringFlag{Name: "html", Usage: "write the report as a page to `FILE`"},
		&cli.StringFlag{Name: "parquet", Usage: "write the report as a Parquet table to `FILE`"},
		&cli.BoolFlag{Name: "no-store", Usage: "do not ask the store what it knows of the file"},
		jsonFlag(), progressFlag(), storeFlag(),
	}
	return &cli.Command{
		Name:      "verify",
		Usage:     "check a file's structure and compare its tensors with their source",
		ArgsUsage: "FILE",
		Description: "Without --against: reads the file strictly, looks for values that are not finite, and compares with what\n" +
			"the store recorded when it was built. With --against: the largest and the RMS error, the signal-to-noise\n" +
			"ratio and the cosine of every tensor, after the declared transforms. The first shard of a split stands for all.",
		Flags:  slices.Concat(flags, workFlags(), networkFlags(), headerFlags()),
		Action: runVerify,
	}
}

func runVerify(c *cli.Context) error {
	file, err := oneArg(c, "a file")
	if err != nil {
		return err
	}
	if err := refuseOutputs(c, nil, "html", "parquet"); err != nil {
		return err
	}
	workers, mem, err := work(c)
	if err != nil {
		return err
	}
	rep, err := newReporter(c)
	if err != nil {
		return err
	}
	defer rep.Close()
	e, err := openEnvironment(c, rep, true)
	if err != nil {
		return err
	}
	h, err := headers(c)
	if err != nil {
		return err
	}
	v := &verifier{c: c, e: e, events: rep, opt: verify.Options{Jobs: workers, Memory: mem}, open: verify.OpenOptions{MaxHeader: h.Max}}
	report, err := v.run(c.Context, file)
	if report == nil {
		return err
	}
	if werr := v.write(report); werr != nil {
		return errors.Join(err, werr)
	}
	return err
}

type verifier struct {
	c      *cli.Context
	e      *environment
	events pipeline.Events
	opt    verify.Options
	open   verify.OpenOptions
	got    *subject
}

// run makes the report. It comes with an error when the file is not what it
// should be.
func (v *verifier) run(ctx context.Context, file string) (report *verify.Report, err error) {
	if v.got, err = openSubject(file); err != nil {
		return nil, fmt.Errorf("%w: %w", pipeline.ErrSource, err)
	}
	defer func() { err = errors.Join(err, v.got.close()) }()
	if err := v.got.read(ctx, v.open); err != nil {
		return nil, fmt.Errorf("%w: %w", errVerify, err)
	}
	v.opt.Progress = func(name string, done, total int64) {
		v.events.Event(pipeline.Event{Kind: pipeline.EventProgress, Output: filepath.Base(file), Tensor: name, Done: done, Total: total})
	}
	record, err := v.recorded(ctx)
	if err != nil {
		return nil, err
	}
	if v.c.String("against") != "" {
		report, err = v.against(ctx, record)
	} else {
		report, err = verify.Scan(ctx, v.got.Tensors, v.opt)
		err = pipeline.SourceFault(err)
	}
	if err != nil {
		return nil, punchFault(err)
	}
	report.File = file
	say, err := v.norms(ctx)
	if err != nil {
		return nil, err
	}
	report.Notes = append(report.Notes, say...)
	var faults []error
	if record != nil {
		report.Notes = append(report.Notes, "the store knows the file: it is output "+record.output.File+" of "+record.build.Name)
	}
	if g := v.c.String("golden"); g != "" {
		differs, err := v.got.golden(ctx, g, v.open)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", pipeline.ErrSource, err)
		}
		if differs != nil {
			faults = append(faults, differs)
		} else {
			report.Notes = append(report.Notes, "equal to "+g+", byte for byte")
		}
	}
	if report.Total.NaN+report.Total.Inf > 0 {
		faults = append(faults, fmt.Errorf("%d NaN and %d infinite values", report.Total.NaN, report.Total.Inf))
	}
	if w := report.Worst(); w != nil && v.c.IsSet("min-snr") && !(float64(w.SNRdB) >= v.c.Float64("min-snr")) {
		faults = append(faults, fmt.Errorf("tensor %s has an SNR of %.2f dB, %.2f under the limit", w.Name, float64(w.SNRdB), v.c.Float64("min-snr")-float64(w.SNRdB)))
	}
	if len(faults) > 0 {
		return report, fmt.Errorf("%s: %w: %w", file, errVerify, errors.Join(faults...))
	}
	return report, nil
}

// norms warns of norms that look shifted twice.
func (v *verifier) norms(ctx context.Context) ([]string, error) {
	if v.got.Meta == nil {
		return nil, nil
	}
	arch, err := v.got.Meta.Text("general.architecture")
	if err != nil {
		return nil, nil //nolint:nilerr // a later shard
	}
	say, err := verify.NormNotes(ctx, arch, v.got.Tensors)
	return say, pipeline.SourceFault(err)
}

// fileRecord is what the store knows of a file.
type fileRecord struct {
	build  *artifacts.Build
	output *artifacts.BuildOutput
}

// recorded looks for the build that made a file, by its digest, and by those of the
// other shards.
func (v *verifier) recorded(ctx context.Context) (*fileRecord, error) {
	if v.e.store == nil {
		return nil, nil
	}
	names, err := v.e.store.Names(ctx)
	if err != nil {
		return nil, err
	}
	for _, n := range names {
		b, err := artifacts.ReadBuild(ctx, v.e.store, n.Descriptor)
		if err != nil {
			continue // not a build, or damaged: quern store verify says so
		}
		first, err := v.outputOf(ctx, b, 0)
		for i := 1; i < len(v.got.files) && first != nil && err == nil; i++ {
			var shard *artifacts.BuildOutput
			if shard, err = v.outputOf(ctx, b, i); shard == nil {
				first = nil
			}
		}
		if err != nil {
			return nil, err
		}
		if first != nil {
			return &fileRecord{b, first}, nil
		}
	}
	return nil, nil
}

// outputOf finds a file among the outputs of a build, and gives nil if it is none.
func (v *verifier) outputOf(ctx context.Context, b *artifacts.Build, i int) (*artifacts.BuildOutput, error) {
	for k := range b.Outputs {
		o := &b.Outputs[k]
		if o.Size != v.got.files[i].Blob.Size() {
			continue
		}
		sum, err := v.got.sum(ctx, i)
		if err != nil {
			return nil, err
		}
		if o.Digest == sum {
			return o, nil
		}
	}
	return nil, nil
}

// against compares with a source, after the steps that were declared.
func (v *verifier) against(ctx context.Context, record *fileRecord) (*verify.Report, error) {
	src, err := modelSource(v.c.String("against"), "--against ")
	if err != nil {
		return nil, err
	}
	r, how, err := v.declared(record)
	if err != nil {
		return nil, err
	}
	r.Outputs, r.Gates = nil, nil
	env, err := v.e.sources()
	if err != nil {
		return nil, err
	}
	prj, err := all.Project(r, env)
	if err != nil {
		return nil, err
	}
	if record != nil && v.c.String("recipe") == "" && v.got.Format == verify.GGUF {
		withoutChoices(prj)
	}
	r.Sources = needed(prj, src, r.Sources)
	for _, s := range r.Sources[1:] {
		if s.Value == leftOut {
			return nil, usagef("the build %s read source %s, and the store does not keep where that is: name the recipe with --recipe, or compare with the source as it is with --no-store", r.Name, s.Name)
		}
	}
	for attempt := 0; ; attempt++ {
		report, err := v.compare(ctx, prj)
		if errors.Is(err, pipeline.ErrRepaired) && attempt < 3 {
			v.e.warn("bytes of the source were damaged on the way and have been fetched again; the comparison starts over")
			continue
		}
		if err != nil {
			return nil, err
		}
		report.Against = v.c.String("against")
		report.Notes = append([]string{how}, report.Notes...)
		return report, nil
	}
}

// needed cuts a project's steps before the first that loses anything, since
// what comes before is what to compare with, and gives the sources of the rest:
// the base, and the recipe's others if a step reads them.
func needed(prj *pipeline.Project, base recipes.Source, others []recipes.Source) []recipes.Source {
	out := []recipes.Source{base}
	for i, st := range prj.Stages {
		if _, ok := st.Stage.(pipeline.Lossy); ok {
			prj.Stages = prj.Stages[:i]
			break
		}
		if _, ok := st.Stage.(pipeline.SourceReader); ok && len(out) == 1 {
			for _, s := range others {
				if s.Name != base.Name {
					out = append(out, s)
				}
			}
		}
	}
	return out
}

// compare plans the steps and holds the tensors against what they give.
func (v *verifier) compare(ctx context.Context, prj *pipeline.Project) (*verify.Report, error) {
	plan, err := pipeline.NewPlan(ctx, prj, pipeline.PlanOptions{WorkOptions: pipeline.WorkOptions{Jobs: v.opt.Jobs, Memory: v.opt.Memory, Events: v.events}, Store: v.e.buildStore()})
	if err != nil {
		return nil, err
	}
	defer plan.Close()
	want, err := gates.Reference(ctx, v.got.Format, plan.Reference)
	if err != nil {
		return nil, pipeline.SourceFault(err)
	}
	if v.got.Format == verify.Repacked {
		// A cache holds some matrices of its file.
		has := map[string]bool{}
		for _, t := range v.got.Tensors {
			has[t.Name] = true
		}
		want = slices.DeleteFunc(slices.Clone(want), func(t *tensor.Tensor) bool { return !has[t.Name] })
	}
	var pruned []string
	if v.got.Meta != nil {
		if want, pruned, err = counterparts(ctx, v.got.File, want); err != nil {
			return nil, fmt.Errorf("%w: %w", errVerify, err)
		}
	}
	if f := plan.Sources[0].Fetch; f != nil {
		var need []tensor.Extent
		for _, t := range want {
			need = append(need, t.Origin...)
		}
		if err := f.Need(ctx, need); err != nil {
			return nil, fmt.Errorf("%w: %w", pipeline.ErrSource, err)
		}
	}
	report, err := verify.Compare(ctx, v.got.Tensors, want, v.opt)
	if errors.Is(err, verify.ErrMissing) {
		return nil, fmt.Errorf("%w: %w; were steps applied that are not known here? name the recipe with --recipe", errVerify, err)
	}
	if err != nil {
		return nil, pipeline.SourceFault(err)
	}
	if v.got.Meta != nil {
		say, err := gates.TokenizerNotes(ctx, pipeline.GateInput{Output: v.got.files[0].Name, Set: v.got.files, Base: plan.Models[0]})
		if err != nil {
			return nil, err
		}
		report.Notes = append(append(report.Notes, pruned...), say...)
	}
	if f := plan.Sources[0].Fetch; f != nil {
		if err := f.Finish(ctx); err != nil {
			return nil, fmt.Errorf("%w: %w", pipeline.ErrSource, err)
		}
	}
	for _, m := range plan.Models {
		for _, n := range m.Notes {
			if s := n.String(); !slices.Contains(report.Notes, s) {
				report.Notes = append(report.Notes, s)
			}
		}
	}
	return report, nil
}

// modelSource is the source that a command line names: a model folder, a GGUF
// file, hf:ORG/NAME[@REVISION] or artifact:NAME. what says in errors where the
// name stands.
func modelSource(s, what string) (recipes.Source, error) {
	src := recipes.Source{Name: recipes.BaseSource}
	switch {
	case strings.HasPrefix(s, "hf:"):
		src.Kind, src.Value = recipes.SourceHF, strings.TrimPrefix(s, "hf:")
	case strings.HasPrefix(s, "artifact:"):
		src.Kind, src.Value = recipes.SourceArtifact, strings.TrimPrefix(s, "artifact:")
	default:
		st, err := os.Stat(s)
		if errors.Is(err, fs.ErrNotExist) {
			return src, usagef("%s%s: no such file or folder", what, s)
		}
		if err != nil {
			return src, err
		}
		src.Kind, src.Value = recipes.SourceFile, absolute(s)
		if st.IsDir() {
			src.Kind = recipes.SourceDir
		}
	}
	return src, nil
}

// declared finds the steps that the file went through: of --recipe, or of the
// build that the store knows.
func (v *verifier) declared(record *fileRecord) (*recipes.Recipe, string, error) {
	if p := v.c.String("recipe"); p != "" {
		r, err := recipes.ReadFile(p, recipes.Options{})
		if err != nil {
			return nil, "", recipeError(err)
		}
		return r, "steps of " + p + " applied to the source", nil
	}
	if record != nil {
		r, err := recordedSteps(record.build)
		if err != nil {
			return nil, "", fmt.Errorf("the recipe that the store has for this file: %w", err)
		}
		return r, "steps of the build " + record.build.Name + " applied to the source", nil
	}
	return &recipes.Recipe{Version: 1, Name: "verify"}, "no steps are known: the source was compared as it is", nil
}

// leftOut stands for the path of a source in the steps of a recorded build. No
// name of an artifact or a repository has spaces.
const leftOut = "left out"

// recordedSteps reads the steps of a build. Its recipe names no local paths:
// its sources stand for those of the caller.
func recordedSteps(b *artifacts.Build) (*recipes.Recipe, error) {
	var doc struct {
		Sources map[string]map[string]string `json:"sources"`
		Steps   json.RawMessage              `json:"steps"`
		Outputs json.RawMessage              `json:"outputs"`
		Gates   json.RawMessage              `json:"gates"` // which may be all that names a source
	}
	if err := json.Unmarshal(b.Recipe, &doc); err != nil {
		return nil, err
	}
	for _, s := range doc.Sources {
		for kind, value := range s {
			if value == "" {
				s[kind] = leftOut
			}
		}
	}
	text, err := json.Marshal(map[string]any{
		"version": 1, "name": b.Name, "sources": doc.Sources, "steps": doc.Steps, "outputs": doc.Outputs, "gates": doc.Gates,
	})
	if err != nil {
		return nil, err
	}
	return recipes.Parse(b.Name, text, recipes.Options{})
}

// write prints the report and writes the files asked for.
func (v *verifier) write(report *verify.Report) error {
	for _, f := range []struct {
		flag string
		make func(*verify.Report) ([]byte, error)
	}{{"html", verify.HTML}, {"parquet", parquet.Encode}} {
		path := v.c.String(f.flag)
		if path == "" {
			continue
		}
		b, err := f.make(report)
		if err != nil {
			return fmt.Errorf("--%s: %w", f.flag, err)
		}
		if err := atomicfile.WriteFile(path, b, atomicfile.Options{}); err != nil {
			return err
		}
	}
	programOf(v.c).doc = report
	if v.c.Bool("json") {
		return nil
	}
	return verify.Table(v.c.App.Writer, report)
}
