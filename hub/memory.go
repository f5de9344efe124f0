package hub

import (
	"hash"
	"slices"
	"sync"
)

// memory holds fetched bytes of all files of an engine when there is no
// spool, at most limit bytes but for what readers are waiting for.
type memory struct {
	mu    sync.Mutex
	limit int64
	used  int64
	tick  int64
	files map[*remote]*memFile
}

// memFile is what memory holds of one file.
type memFile struct {
	segs []*segment // sorted by offset, disjoint
	// A file that is read as a whole is hashed as its segments come by;
	// hashed is how far, from the start.
	h      hash.Hash
	hashed int64
}

// segment is a buffer that one job fills from its start.
type segment struct {
	span
	buf  []byte
	have int64 // bytes filled
	// left are declared bytes that nobody has read yet. A segment that was
	// declared goes when they are all read, others when room is needed.
	left     spans
	declared bool
	pinned   bool
	held     bool // a reader waits for it
	dead     bool // the job that filled it ended early
	use      int64
}

func newMemory(limit int64) *memory {
	return &memory{limit: limit, files: map[*remote]*memFile{}}
}

func (m *memory) file(f *remote) *memFile {
	mf := m.files[f]
	if mf == nil {
		mf = &memFile{}
		m.files[f] = mf
	}
	return mf
}

// hashWhole asks for the digest of the whole file as it comes by. It must be
// called before anything of the file is dropped.
func (m *memory) hashWhole(f *remote) {
	m.mu.Lock()
	defer m.mu.Unlock()
	mf := m.file(f)
	if mf.h == nil && !f.digest.IsZero() {
		mf.h = f.digest.hasher(f.size)
		mf.advance()
	}
}

// advance hashes what follows the hashed part without a gap.
func (mf *memFile) advance() {
	if mf.h == nil {
		return
	}
	for _, s := range mf.segs {
		if end := s.lo + s.have; s.lo <= mf.hashed && mf.hashed < end {
			mf.h.Write(s.buf[mf.hashed-s.lo : s.have])
			mf.hashed = end
		}
	}
}

// sum gives the digest of the file, or false when bytes were dropped before
// their turn to be hashed came.
func (m *memory) sum(f *remote) ([]byte, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	mf := m.file(f)
	if mf.h == nil || mf.hashed != f.size {
		return nil, false
	}
	return mf.h.Sum(nil), true
}

// room reports whether n more bytes fit, dropping segments that nobody has
// declared.
func (m *memory) room(n int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.evict(n, false)
}

// reserve makes the buffer for x. urgent takes the room even if declared
// bytes have to go, or the limit is passed, and holds the buffer until it is
// read.
func (m *memory) reserve(f *remote, x span, left spans, urgent, pinned bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.evict(x.len(), urgent)
	mf := m.file(f)
	m.tick++
	s := &segment{span: x, buf: make([]byte, x.len()), left: left, declared: len(left) > 0, pinned: pinned, held: urgent, use: m.tick}
	i, _ := slices.BinarySearchFunc(mf.segs, x.lo, func(s *segment, lo int64) int { return int(min(max(s.lo-lo, -1), 1)) })
	mf.segs = slices.Insert(mf.segs, i, s)
	m.used += x.len()
}

// claim declares bytes that memory has already, as the head of a file often is:
// no job brings them again, so they must stay until they are read.
func (m *memory) claim(f *remote, x span) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.file(f).segs {
		if part := x.clip(span{s.lo, s.lo + s.have}); part.lo < part.hi {
			s.left, s.declared = s.left.add(part), true
		}
	}
}

// evict makes room for n bytes: first undeclared segments, the longest unused
// first; for urgent readers then declared ones, those made last first, since
// they are needed last.
func (m *memory) evict(n int64, urgent bool) bool {
	for m.used+n > m.limit {
		var victim *segment
		var of *memFile
		for _, mf := range m.files {
			for _, s := range mf.segs {
				if s.pinned || s.held || !s.dead && s.have < s.len() || s.declared && !urgent {
					continue
				}
				if victim == nil || worse(s, victim) {
					victim, of = s, mf
				}
			}
		}
		if victim == nil {
			return false
		}
		m.free(of, victim)
	}
	return true
}

// worse reports whether a goes before b.
func worse(a, b *segment) bool {
	if a.declared != b.declared {
		return b.declared
	}
	if a.declared {
		return a.use > b.use
	}
	return a.use < b.use
}

func (m *memory) free(mf *memFile, s *segment) {
	m.used -= s.len()
	mf.segs = slices.DeleteFunc(mf.segs, func(o *segment) bool { return o == s })
}

// write fills the segment that holds off.
func (m *memory) write(f *remote, off int64, p []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	mf := m.file(f)
	for _, s := range mf.segs {
		if !s.dead && s.lo+s.have == off && off+int64(len(p)) <= s.hi {
			copy(s.buf[s.have:], p)
			s.have += int64(len(p))
			break
		}
	}
	mf.advance()
}

// hold keeps the segment with off until it is read: two readers in little
// room would otherwise take it from each other for ever.
func (m *memory) hold(f *remote, off int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.file(f).segs {
		if s.lo <= off && off < s.hi {
			s.held = true
			return
		}
	}
}

// end closes the segment that starts at lo: no more bytes will come.
func (m *memory) end(f *remote, x span) {
	m.mu.Lock()
	defer m.mu.Unlock()
	mf := m.file(f)
	for _, s := range mf.segs {
		if s.lo == x.lo && s.hi == x.hi && s.have < s.len() {
			s.dead = true
			if s.have == 0 {
				m.free(mf, s)
			}
			return
		}
	}
}

// missing returns the parts of x that no segment holds.
func (m *memory) missing(f *remote, x span) []span {
	m.mu.Lock()
	defer m.mu.Unlock()
	var have spans
	for _, s := range m.file(f).segs {
		have = have.add(span{s.lo, s.lo + s.have})
	}
	return have.missing(x)
}

// read copies the bytes from off on that are there; 0 when the first one is
// not. Declared bytes are given up once read.
func (m *memory) read(f *remote, p []byte, off int64) (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	mf := m.file(f)
	for _, s := range mf.segs {
		if s.lo > off || s.lo+s.have <= off {
			continue
		}
		n = copy(p, s.buf[off-s.lo:s.have])
		m.tick++
		s.use, s.held = m.tick, false
		if s.declared {
			s.left = s.left.remove(span{off, off + int64(n)})
			if len(s.left) == 0 && s.have == s.len() && !s.pinned {
				m.free(mf, s)
			}
		}
		return n
	}
	return 0
}

// forget drops everything of a file.
func (m *memory) forget(f *remote) {
	m.mu.Lock()
	defer m.mu.Unlock()
	mf := m.file(f)
	for _, s := range mf.segs {
		m.used -= s.len()
	}
	mf.segs, mf.hashed = nil, 0
	if mf.h != nil {
		mf.h = f.digest.hasher(f.size)
	}
}

// total is the number of bytes buffered.
func (m *memory) total() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used
}
