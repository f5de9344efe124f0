package pipeline

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"quern/tensor"
)

// maxRepairs bounds how often a build starts over after bytes of a source were
// replaced. Whatever was replaced is proved by then, so that each time is
// another file's.
const maxRepairs = 3

// watchInterval is the time between two reports of what has been fetched.
const watchInterval = 500 * time.Millisecond

// needs groups what the network sources must deliver.
func (b *build) needs() map[string][]tensor.Extent {
	all := b.plan.needs(func(output, item int) bool { return b.outs[output].has(item) },
		func(output int) *EmitMark { return b.outs[output].start })
	for name := range all {
		if b.fetcher(name) == nil {
			delete(all, name)
		}
	}
	return all
}

func (b *build) fetcher(name string) Fetcher {
	for _, s := range b.plan.Sources {
		if s.Name == name {
			return s.Fetch
		}
	}
	return nil
}

// declare tells the network sources what will be read, in recipe order.
func (b *build) declare(ctx context.Context) error {
	needs := b.needs()
	for _, s := range b.plan.Sources {
		ranges, ok := needs[s.Name]
		if !ok {
			continue
		}
		if err := s.Fetch.Need(ctx, ranges); err != nil {
			return fmt.Errorf("source %s: %w: %w", s.Name, ErrSource, err)
		}
	}
	return nil
}

// finish verifies what was fetched, of all sources before any says ErrRepaired:
// starting over once is enough then.
func (b *build) finish(ctx context.Context) error {
	var repaired error
	for _, s := range b.plan.Sources {
		if s.Fetch == nil {
			continue
		}
		switch err := s.Fetch.Finish(ctx); {
		case errors.Is(err, ErrRepaired):
			repaired = errors.Join(repaired, fmt.Errorf("source %s: %w", s.Name, err))
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return fmt.Errorf("source %s: %w: %w", s.Name, ErrSource, err)
		}
	}
	return repaired
}

// recheck looks, after rows of a tensor could not be made, whether its bytes were
// damaged on the way: it gives ErrRepaired if others have come now, else err.
func (b *build) recheck(ctx context.Context, err error) error {
	var re *rowsError
	if !errors.As(err, &re) {
		return err
	}
	for _, s := range b.plan.Sources {
		if s.Fetch == nil {
			continue
		}
		var of []tensor.Extent
		for _, e := range re.t.Origin {
			if e.Source == s.Name {
				of = append(of, e)
			}
		}
		if len(of) == 0 {
			continue
		}
		if replaced, rerr := s.Fetch.Recheck(ctx, of); rerr == nil && replaced {
			return fmt.Errorf("source %s: %w: %w", s.Name, ErrRepaired, err)
		}
	}
	return err
}

// doubted is the key of something that was made of bytes which nothing proves:
// of a file that was read in part. Only builds that read from the network look
// for it, so that a proved file never gives way to it.
func doubted(key tensor.Key) tensor.Key {
	if key.IsZero() {
		return key
	}
	return tensor.Derive("doubted", "", key)
}

// remoteItems marks the items of a layout that come from the network; nil when
// there is none.
func (b *build) remoteItems(l *Layout) []bool {
	var out []bool
	for i, it := range l.Items {
		for _, e := range it.Tensor.Origin {
			if b.fetcher(e.Source) == nil {
				continue
			}
			if out == nil {
				out = make([]bool, len(l.Items))
			}
			out[i] = true
			break
		}
	}
	return out
}

// proved reports whether the files that a tensor comes from have the digests
// that its key was derived from.
func (b *build) proved(t *tensor.Tensor) bool {
	for _, e := range t.Origin {
		if f := b.fetcher(e.Source); f != nil && !f.Proved(e.File) {
			return false
		}
	}
	return true
}

// startOver plans again after bytes of a source were replaced: headers may have
// been among them.
func (b *build) startOver(ctx context.Context) error {
	if err := b.replan(ctx); err != nil {
		return err
	}
	b.tell()
	for i, o := range b.outs {
		o.abort()
		if err := o.resend(); err != nil {
			return err
		}
		*o = output{b: b, layout: b.plan.Layouts[i], path: o.path, route: o.route}
		if err := o.lookup(ctx); err != nil {
			return err
		}
	}
	return nil
}

// fetched sums over the network sources what the build needs and what of it is
// here.
func (b *build) fetched() (done, total int64, any bool) {
	for _, s := range b.plan.Sources {
		if s.Fetch == nil {
			continue
		}
		any = true
		st := s.Fetch.Stats()
		have := st.Fetched + st.Cached
		if have > st.Needed {
			have = st.Needed // some bytes come along that nobody asked for
		}
		done += have
		total += st.Needed
	}
	return done, total, any
}

// watch reports now and then how much has been fetched, and once more when the
// function that it returns is called.
func (b *build) watch() (stop func()) {
	if _, _, any := b.fetched(); !any {
		return func() {}
	}
	last := int64(-1)
	report := func() {
		if done, total, _ := b.fetched(); done != last {
			last = done
			b.opt.Events.Event(Event{Kind: EventFetch, Done: done, Total: total})
		}
	}
	quit := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		t := time.NewTicker(watchInterval)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				report()
			case <-quit:
				report()
				return
			}
		}
	})
	return func() {
		close(quit)
		wg.Wait()
	}
}
