package hub

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// recover handles the failures after which a file goes on in another way:
// from the start, or as a whole. It returns nil when the readers should look
// again. It is called with e.mu held.
func (e *engine) recover(j *job, err error) error {
	f := j.f
	switch {
	case err == nil:
		return nil
	case context.Cause(e.ctx) != nil:
		return about(f.what, context.Cause(e.ctx))
	case errors.Is(err, errRestart):
		return nil
	case errors.Is(err, errTag):
		return e.restart(j)
	case errors.Is(err, errIgnored):
		return e.takeWhole(f)
	}
	return err
}

// restart drops everything of a file that changed on the server and begins
// anew, once. A second change, or bytes that were given out and cannot be
// taken back, end the file for good.
func (e *engine) restart(j *job) error {
	f := j.f
	if j.gen != f.gen || f.failed != nil {
		return f.failed
	}
	f.genMu.Lock()
	defer f.genMu.Unlock()
	why := errTag
	again := f.gen == 0
	if !again {
		why = errors.New("its ETag changed a second time")
	}
	if f.handed && f.spool == nil {
		again = false
	}
	f.dirty = f.dirty || f.handed
	f.gen++
	f.handed = false
	e.unqueue(f)
	f.loc.forgetTags()
	if f.spool == nil {
		e.mem.forget(f)
	} else if err := f.spool.drop(span{0, f.size}); err != nil {
		return err
	}
	if !again {
		f.failed = &Error{Kind: ErrChanged, What: f.what, URL: redact(f.loc.start), Err: why, Hint: "run again; if it repeats, the server serves different files under one name"}
		return f.failed
	}
	e.c.event(Event{Kind: EventRefetch, What: f.what, Text: "the file's ETag changed between two parts; fetching it again"})
	f.planned, f.gapUsed = nil, 0
	for _, x := range f.asked {
		e.pending = append(e.pending, need{f, x})
	}
	return nil
}

// takeWhole switches a file to one request without Range, where the bytes can
// be kept.
func (e *engine) takeWhole(f *remote) error {
	if e.mem != nil && f.size > e.mem.limit {
		return &Error{Kind: ErrNoRange, What: f.what, URL: redact(f.loc.start),
			Err: fmt.Errorf("the file's %d bytes are more than the %d of memory for buffers", f.size, e.mem.limit), Hint: "set a spool folder"}
	}
	if !f.noRange {
		f.noRange = true
		e.c.event(Event{Kind: EventWarning, What: f.what, Text: "the server does not serve ranges; fetching the whole file"})
	}
	e.unqueue(f)
	e.enqueueWhole(f)
	return nil
}

// enqueueWhole makes the job for a file that comes in one piece, unless there
// is one.
func (e *engine) enqueueWhole(f *remote) {
	if slices.ContainsFunc(f.jobs, func(j *job) bool { return j.whole }) {
		return
	}
	j := e.enqueue(f, span{0, f.size}, true)
	j.whole = true
}
