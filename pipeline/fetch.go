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
	all := b.plan.needs(func(output, item int) bool { return b.outs[output].has(item) })
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

// startOver plans again after bytes of a source were replaced: headers may have
// been among them.
func (b *build) startOver(ctx context.Context) error {
	if err := b.replan(ctx); err != nil {
		return err
	}
	b.tell()
	for i, o := range b.outs {
		o.abort()
		*o = output{b: b, layout: b.plan.Layouts[i], path: o.path}
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
