package hub

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
)

const (
	hashBuffer = 1 << 20
	// repairStep is the unit in which a damaged file is fetched again and
	// compared.
	repairStep = 4 << 20
)

// hashFile hashes size bytes; the hash of a shorter file simply differs.
func hashFile(ctx context.Context, r io.ReaderAt, size int64, d Digest) (string, error) {
	h := d.hasher(size)
	buf := make([]byte, min(size, hashBuffer))
	for off := int64(0); off < size; {
		if err := context.Cause(ctx); err != nil {
			return "", err
		}
		n, err := readFullAt(r, buf[:min(int64(len(buf)), size-off)], off)
		h.Write(buf[:n])
		off += int64(n)
		if errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
		if err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil)), nil
}

// readProved returns the whole file after checking its digest; a mismatch is
// fetched again once.
func (f *remote) readProved(ctx context.Context) ([]byte, error) {
	for try := 0; ; try++ {
		var b bytes.Buffer
		piece := make([]byte, min(f.size, hashBuffer))
		for off := int64(0); off < f.size; {
			p := piece[:min(int64(len(piece)), f.size-off)]
			if err := f.ReadAt(ctx, p, off); err != nil {
				return nil, err
			}
			b.Write(p)
			off += int64(len(p))
		}
		found := ""
		if !f.digest.IsZero() {
			found = f.digest.sum(b.Bytes())
		}
		if found == f.digest.Hex {
			if f.spool == nil {
				f.eng.mem.forget(f)
			} else if !f.digest.IsZero() && !f.spool.verified() {
				if err := f.spool.markVerified(); err != nil {
					return nil, err
				}
			}
			return b.Bytes(), nil
		}
		if try > 0 {
			return nil, f.evidence(fmt.Sprintf("%s:%s", f.digest.Algorithm, found), f.digest.String())
		}
		f.eng.c.event(Event{Kind: EventRefetch, What: f.what, Text: fmt.Sprintf("expected %s, found %s; fetching it again", f.digest, found)})
		f.loc.forgetAddress()
		if f.spool == nil {
			f.eng.mem.forget(f)
		} else if err := f.spool.drop(span{0, f.size}); err != nil {
			return nil, err
		}
	}
}

// Finish checks the files that are there as a whole against their digests, and
// the ranges whose digests are known. Damage is looked for by fetching again
// range by range and comparing, and replaced; then the error is ErrRepaired,
// and what was made of the bytes must be made again. Damage that stays is
// ErrDigest, and the spool keeps the bytes in a file ending in ".bad".
func (s *Snapshot) Finish(ctx context.Context) error {
	if err := s.save(); err != nil {
		return err
	}
	var repaired error
	for _, h := range s.all() {
		err := h.verify(ctx)
		switch {
		case errors.Is(err, ErrRepaired):
			if repaired == nil {
				repaired = err
			}
		case err != nil:
			return err
		}
	}
	return repaired
}

func (h *handle) verify(ctx context.Context) error {
	h.mu.Lock()
	var err error
	if h.local != nil && len(h.local.used) > 0 {
		err = h.prove(ctx)
	}
	f, dirty := h.remote, h.dirty
	h.dirty = false
	h.mu.Unlock()
	if err != nil {
		return err
	}
	if f != nil {
		if err := f.verify(ctx); err != nil {
			return err
		}
	}
	if dirty {
		return &Error{Kind: ErrRepaired, What: h.what, Hint: "the cached copy was damaged; read it again from the server"}
	}
	return nil
}

// verify checks what is there of a remote file.
func (f *remote) verify(ctx context.Context) error {
	f.finish.Lock()
	defer f.finish.Unlock()
	if err := f.failure(); err != nil {
		return err
	}
	err := f.verifyRanges(ctx)
	if err != nil && !errors.Is(err, ErrRepaired) {
		return err
	}
	if werr := f.verifyWhole(ctx); werr != nil {
		return werr
	}
	f.eng.mu.Lock()
	dirty := f.dirty
	f.dirty = false
	f.eng.mu.Unlock()
	if dirty && err == nil {
		err = &Error{Kind: ErrRepaired, What: f.what, Hint: "the file changed on the server while it was read; read it again"}
	}
	return err
}

func (f *remote) verifyWhole(ctx context.Context) error {
	if f.digest.IsZero() {
		return nil
	}
	if f.spool == nil {
		sum, ok := f.eng.mem.sum(f)
		if found := fmt.Sprintf("%x", sum); ok && found != f.digest.Hex {
			return f.evidence(fmt.Sprintf("%s:%s", f.digest.Algorithm, found), f.digest.String())
		}
		return nil
	}
	if f.spool.verified() {
		return nil
	}
	if err := f.complete(ctx); err != nil {
		return err
	}
	if f.spool.held(spans{{0, f.size}}) < f.size {
		return nil
	}
	miss, err := f.spool.missing(ctx, span{0, f.size})
	if err != nil || len(miss) > 0 {
		return err
	}
	found, err := hashFile(ctx, f.spool.data(), f.size, f.digest)
	if err != nil {
		return spoolError(f.spool.dir, err)
	}
	if found == f.digest.Hex {
		return f.spool.markVerified()
	}
	f.eng.c.event(Event{Kind: EventRepair, What: f.what, Text: fmt.Sprintf("expected %s, found %s; comparing with the server", f.digest, found)})
	return f.repairWhole(ctx, found)
}

// complete waits for the rest of a file that is fetched as a whole.
func (f *remote) complete(ctx context.Context) error {
	f.eng.mu.Lock()
	whole := f.whole
	f.eng.mu.Unlock()
	if !whole {
		return nil
	}
	miss, err := f.spool.missing(ctx, span{0, f.size})
	if err != nil {
		return err
	}
	var buf []byte
	for _, x := range miss {
		for lo := x.lo; lo < x.hi; lo += hashBuffer {
			n := min(hashBuffer, x.hi-lo)
			if int64(cap(buf)) < n {
				buf = make([]byte, n)
			}
			if err := f.ReadAt(ctx, buf[:n], lo); err != nil {
				return err
			}
		}
	}
	return nil
}

// repairWhole fetches the file again step by step. Which of two differing
// steps is right only the digest of the whole tells, so it is taken after
// each replacement, up to a limit.
func (f *remote) repairWhole(ctx context.Context, found string) error {
	const maxTries = 16
	f.loc.forgetAddress()
	tries := 0
	for lo := int64(0); lo < f.size; lo += repairStep {
		x := span{lo, min(lo+repairStep, f.size)}
		differs, err := f.replace(ctx, x)
		if err != nil {
			return err
		}
		if !differs {
			continue
		}
		if tries++; tries <= maxTries {
			if found, err = hashFile(ctx, f.spool.data(), f.size, f.digest); err != nil {
				return spoolError(f.spool.dir, err)
			}
			if found == f.digest.Hex {
				return f.repaired()
			}
		}
	}
	var err error
	if found, err = hashFile(ctx, f.spool.data(), f.size, f.digest); err != nil {
		return spoolError(f.spool.dir, err)
	}
	if found == f.digest.Hex {
		return f.repaired()
	}
	return f.evidence(fmt.Sprintf("%s:%s", f.digest.Algorithm, found), f.digest.String())
}

func (f *remote) repaired() error {
	if err := f.spool.markVerified(); err != nil {
		return err
	}
	return &Error{Kind: ErrRepaired, What: f.what, Hint: "read the file again: the spool now has the right bytes"}
}

// replace fetches x again and puts it in the spool if it differs.
func (f *remote) replace(ctx context.Context, x span) (differs bool, err error) {
	fresh := make([]byte, 0, x.len())
	err = f.loc.fetch(ctx, x.lo, x.hi, func(_ int64, p []byte) error {
		fresh = append(fresh, p...)
		return nil
	})
	if err != nil {
		return false, err
	}
	old := make([]byte, x.len())
	if err := f.spool.readAt(old, x.lo); err != nil {
		return false, err
	}
	if bytes.Equal(old, fresh) {
		return false, nil
	}
	first := 0
	for old[first] == fresh[first] {
		first++
	}
	f.eng.c.event(Event{Kind: EventRepair, What: f.what, Text: fmt.Sprintf("bytes %d to %d differ, the first at %d; replaced", x.lo, x.hi-1, x.lo+int64(first))})
	// Extents that touch x are dropped whole, so their other bytes must be
	// written again too.
	return true, f.spool.rewrite(x.lo, fresh)
}

// verifyRanges checks the ranges whose digests the caller gave.
func (f *remote) verifyRanges(ctx context.Context) error {
	if f.spool == nil {
		return nil
	}
	var repaired error
	for _, r := range f.expect {
		x := span{r.Off, r.Off + r.Len}
		if r.Off < 0 || r.Len <= 0 || r.Len > f.size-r.Off {
			return fmt.Errorf("%s: %w: expected digest of %d bytes at offset %d of %d", f.what, ErrRange, r.Len, r.Off, f.size)
		}
		if f.spool.held(spans{x}) < x.len() {
			continue
		}
		miss, err := f.spool.missing(ctx, x)
		if err != nil {
			return err
		}
		if len(miss) > 0 {
			continue
		}
		found, err := f.sumRange(ctx, x)
		if err != nil {
			return err
		}
		if found == r.SHA256 {
			continue
		}
		f.eng.c.event(Event{Kind: EventRepair, What: f.what, Text: fmt.Sprintf("bytes %d to %d: expected sha256:%s, found %s; fetching them again", x.lo, x.hi-1, clean(r.SHA256), found)})
		f.loc.forgetAddress()
		for lo := x.lo; lo < x.hi; lo += repairStep {
			if _, err := f.replace(ctx, span{lo, min(lo+repairStep, x.hi)}); err != nil {
				return err
			}
		}
		if found, err = f.sumRange(ctx, x); err != nil {
			return err
		}
		if found != r.SHA256 {
			return f.evidence(fmt.Sprintf("sha256:%s in bytes %d to %d", found, x.lo, x.hi-1), "sha256:"+clean(r.SHA256))
		}
		repaired = &Error{Kind: ErrRepaired, What: f.what, Hint: "read the file again: the spool now has the right bytes"}
	}
	return repaired
}

func (f *remote) sumRange(ctx context.Context, x span) (string, error) {
	sum, err := hashFile(ctx, io.NewSectionReader(f.spool.data(), x.lo, x.len()), x.len(), Digest{Algorithm: SHA256})
	if err != nil {
		return "", spoolError(f.spool.dir, err)
	}
	return sum, nil
}

// evidence reports bytes that are wrong twice over, and keeps them beside the
// entry, which is emptied.
func (f *remote) evidence(found, expected string) error {
	e := &Error{Kind: ErrDigest, What: f.what, URL: redact(f.loc.start), Err: fmt.Errorf("expected %s, found %s", expected, found),
		Hint: "the server's file is not what its listing says; try later, or another endpoint"}
	if f.spool == nil {
		return e
	}
	kept, err := f.spool.setAside()
	if err != nil {
		return errors.Join(e, err)
	}
	e.Err = fmt.Errorf("expected %s, found %s; the bytes are kept as %s", expected, found, kept)
	return e
}
