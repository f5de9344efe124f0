package hub

import (
	"context"
	"fmt"
)

// Proved reports whether the bytes of a file are known to be those of its
// digest: the whole file is here and has been hashed, by Finish, by ReadFile or
// before. A file that was read in part never is.
func (s *Snapshot) Proved(path string) bool {
	s.mu.Lock()
	h := s.handles[path]
	s.mu.Unlock()
	if h == nil {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.remote == nil {
		return h.local != nil && h.local.proved && !h.local.expect.IsZero()
	}
	return h.remote.proved()
}

// Proved is Snapshot.Proved for a single file.
func (o *URLFile) Proved() bool { return o.f.proved() }

// Kept reports whether what is fetched stays in a spool, so that reading it
// twice fetches it once.
func (o *URLFile) Kept() bool { return o.f.spool != nil }

func (f *remote) proved() bool {
	switch {
	case f.digest.IsZero():
		return false
	case f.spool != nil:
		return f.spool.verified()
	}
	sum, ok := f.eng.mem.sum(f)
	return ok && fmt.Sprintf("%x", sum) == f.digest.Hex
}

// Recheck fetches ranges of a file again and compares, for a reader who finds
// that the bytes make no sense while only a part of the file is there and its
// digest proves nothing. Without ranges it is all that has been read so far. It
// reports whether anything differed: reading once more gives the new bytes
// then.
//
// Without a spool there is nothing to compare with. What was read so far is
// forgotten then, which counts as different; ranges are left alone.
func (s *Snapshot) Recheck(ctx context.Context, path string, ranges ...Range) (changed bool, err error) {
	h, err := s.handle(path)
	if err != nil {
		return false, err
	}
	h.mu.Lock()
	f, local := h.remote, h.local != nil
	if local {
		err = h.prove(ctx)
		changed = h.local == nil
	}
	h.mu.Unlock()
	if local || f == nil {
		return changed, err
	}
	return f.recheck(ctx, ranges)
}

// Recheck is Snapshot.Recheck for a single file.
func (o *URLFile) Recheck(ctx context.Context, ranges ...Range) (changed bool, err error) {
	return o.f.recheck(ctx, ranges)
}

func (f *remote) recheck(ctx context.Context, ranges []Range) (changed bool, err error) {
	f.finish.Lock()
	defer f.finish.Unlock()
	if f.spool == nil {
		if len(ranges) > 0 {
			return false, nil
		}
		f.eng.mem.forget(f)
		return true, nil
	}
	if f.spool.verified() {
		return false, nil
	}
	var doubtful spans
	for _, r := range ranges {
		doubtful = doubtful.add(span{r.Off, r.Off + r.Len}.clip(span{0, f.size}))
	}
	if len(ranges) == 0 {
		f.eng.mu.Lock()
		doubtful = append(doubtful, f.needs...)
		f.eng.mu.Unlock()
	}
	for _, x := range doubtful {
		for lo := x.lo; lo < x.hi; lo += repairStep {
			step := span{lo, min(lo+repairStep, x.hi)}
			if f.spool.held(spans{step}) < step.len() {
				continue // nobody can have read all of it
			}
			differs, err := f.replace(ctx, step)
			if err != nil {
				return changed, err
			}
			changed = changed || differs
		}
	}
	return changed, nil
}

// Missing counts the bytes of ranges of a file that would have to be fetched:
// those that neither a cache nor the spool has. It sends a request only when the
// file's size is not known.
func (s *Snapshot) Missing(ctx context.Context, path string, ranges []Range) (int64, error) {
	h, err := s.handle(path)
	if err != nil {
		return 0, err
	}
	if err := h.open(ctx); err != nil {
		return 0, err
	}
	h.mu.Lock()
	f := h.remote
	h.mu.Unlock()
	if f == nil {
		return 0, nil // a cached copy
	}
	return f.notHere(ranges), nil
}

// Missing is Snapshot.Missing for a single file.
func (o *URLFile) Missing(ranges []Range) int64 { return o.f.notHere(ranges) }

func (f *remote) notHere(ranges []Range) int64 {
	var all spans
	for _, r := range ranges {
		all = all.add(span{r.Off, r.Off + r.Len}.clip(span{0, f.size}))
	}
	n := all.total()
	if f.spool == nil {
		return n
	}
	return n - f.spool.held(all)
}
