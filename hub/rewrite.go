package hub

import (
	"os"

	"quern/internal/digest"
)

// rewrite replaces bytes whose old ones were wrong. The extents that reach
// beyond them are journaled anew in parts.
func (e *entry) rewrite(off int64, p []byte) error {
	x := span{off, off + int64(len(p))}
	e.mu.Lock()
	touched := e.m.touching(x)
	e.mu.Unlock()
	recs := []record{{kind: recordDrop, span: x}}
	for _, r := range touched {
		for _, rest := range (spans{x}).missing(r.span) {
			b := make([]byte, rest.len())
			if err := e.readAt(b, rest.lo); err != nil {
				return err
			}
			recs = append(recs, record{kind: recordExtent, span: rest, sum: digest.Of(b)})
		}
	}
	if _, err := e.data().WriteAt(p, off); err != nil {
		return spoolError(e.dir, err)
	}
	for lo := 0; lo < len(p); lo += maxExtent {
		part := p[lo:min(lo+maxExtent, len(p))]
		at := off + int64(lo)
		recs = append(recs, record{kind: recordExtent, span: span{at, at + int64(len(part))}, sum: digest.Of(part)})
	}
	if err := e.append(recs...); err != nil {
		return spoolError(e.dir, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.trusted = e.trusted.add(x)
	return nil
}

// setAside keeps the data under a name ending in ".bad" and empties the entry.
func (e *entry) setAside() (string, error) {
	kept := e.dir + badSuffix
	if err := e.drop(span{0, e.size}); err != nil {
		return "", err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	// The open file keeps its bytes under the new name; later writes of this
	// entry go to a new one.
	if err := e.data().Close(); err != nil {
		return "", spoolError(e.dir, err)
	}
	if err := os.Rename(e.dataPath(), kept); err != nil {
		return "", spoolError(e.dir, err)
	}
	data, err := e.hooks.openData(e.dataPath())
	if err != nil {
		return "", spoolError(e.dir, err)
	}
	e.file.Store(&openFile{data})
	return kept, nil
}
