package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"quern/tensor"
)

// gates holds every output against the recipe's gates. Those that run the model
// may read more of a source than was needed to write; if some of that turns out
// to be damaged the gates start over.
func (b *build) gates(ctx context.Context) error {
	for attempt := 0; ; attempt++ {
		b.res.Gates = []GateResult{}
		failed, err := b.gatesOnce(ctx)
		if err != nil {
			return err
		}
		if len(b.prj.Gates) > 0 {
			err = b.finish(ctx)
		}
		if errors.Is(err, ErrRepaired) && attempt < maxRepairs {
			b.warn("bytes of a source were damaged on the way and have been fetched again; the gates start over")
			continue
		}
		if err != nil {
			return SourceFault(err)
		}
		if len(failed) > 0 {
			return fmt.Errorf("%w; nothing was published:\n%s", ErrGate, strings.Join(failed, "\n"))
		}
		return nil
	}
}

// gatesOnce gives a line for each result that did not pass.
func (b *build) gatesOnce(ctx context.Context) (failed []string, err error) {
	blobs, release, err := b.openWritten()
	defer func() { err = errors.Join(err, release()) }()
	if err != nil {
		return nil, err
	}
	memo := &Memo{}
	for i, o := range b.outs {
		if o.layout.Of != nil || o.streamed() {
			continue
		}
		in := b.gateInput(i, blobs)
		in.Memo = memo
		for _, g := range b.prj.Gates {
			if g.Output != "" && g.Output != in.Output {
				continue
			}
			b.opt.Events.Event(Event{Kind: EventPhase, Message: fmt.Sprintf("gate %s: %s", g.Gate.Name(), o.layout.File)})
			res, err := g.Gate.Check(ctx, in)
			if cause := context.Cause(ctx); cause != nil {
				return nil, cause
			}
			if err != nil {
				return nil, fmt.Errorf("%s: gate %s: %w", g.Where, g.Gate.Name(), err)
			}
			for _, r := range res {
				b.res.Gates = append(b.res.Gates, r)
				if !r.Pass {
					failed = append(failed, fmt.Sprintf("%s: %s", g.Where, r.Text))
				}
			}
		}
		if b.opt.Inspect != nil && !o.cached {
			say, err := b.opt.Inspect(ctx, in)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", o.layout.File, err)
			}
			for _, s := range say {
				b.warn(s)
			}
		}
		if b.opt.Measure != nil && !o.cached && o.layout.Size <= b.opt.MeasureLimit && !b.remote() {
			w, err := b.opt.Measure(ctx, in)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", o.layout.File, err)
			}
			o.worst = w
		}
	}
	return failed, nil
}

// gateInput is what gates see of an output.
func (b *build) gateInput(i int, blobs []tensor.Blob) GateInput {
	in := GateInput{Layout: b.outs[i].layout, File: blobs[i], Output: b.prj.Emitters[b.plan.emitters[i]].File,
		Base: b.plan.Models[0], Reference: b.plan.Reference, Sources: b.plan.Sources, Jobs: b.opt.Jobs, Memory: b.opt.Memory, Events: b.opt.Events}
	if in.Output == "" {
		in.Output = in.Layout.File
	}
	first := slices.Index(b.plan.emitters, b.plan.emitters[i])
	in.Part = i - first
	for k := first; k < len(b.outs) && b.plan.emitters[k] == b.plan.emitters[i]; k++ {
		if b.outs[k].layout.Of != nil {
			continue
		}
		in.Set = append(in.Set, WrittenFile{Name: b.outs[k].layout.File, Blob: blobs[k]})
	}
	return in
}

// openWritten gives the bytes of all outputs as written, before or after they
// have their names.
func (b *build) openWritten() (blobs []tensor.Blob, release func() error, err error) {
	var opened []*tensor.FileBlob
	release = func() error {
		var errs []error
		for _, f := range opened {
			errs = append(errs, f.Close())
		}
		return errors.Join(errs...)
	}
	for _, o := range b.outs {
		if o.streamed() {
			blobs = append(blobs, nil)
			continue
		}
		if o.file != nil {
			blobs = append(blobs, tensor.ReaderAtBlob(o.path, o.file, o.layout.Size))
			continue
		}
		f, err := tensor.OpenFile(o.path)
		if err != nil {
			return nil, release, err
		}
		opened = append(opened, f)
		blobs = append(blobs, f)
	}
	return blobs, release, nil
}
