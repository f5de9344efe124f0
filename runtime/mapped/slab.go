package mapped

import (
	"runtime"

	mmap "github.com/edsrzf/mmap-go"
)

// A Slab is memory that grows and is given back as a whole. It comes from the system, not
// from Go's heap, so that the collector, which lets garbage pile up to a share of the
// heap and then looks through it, need not know. Only pages that were touched take memory.
//
// A slice of it must not be used once nothing refers to the Slab any more: then its memory
// is unmapped.
type Slab struct {
	free []byte
	// blocks are shared with the cleanup, which must not refer to the Slab itself.
	blocks *[]mmap.MMap
}

// blockBytes is what is asked of the system at once.
const blockBytes = 1 << 20

// NewSlab makes an empty slab.
func NewSlab() *Slab {
	s := &Slab{blocks: new([]mmap.MMap)}
	runtime.AddCleanup(s, func(blocks *[]mmap.MMap) {
		for i := range *blocks {
			// Nothing can be done about a block that stays.
			_ = (*blocks)[i].Unmap()
		}
	}, s.blocks)
	return s
}

// Bytes gives n bytes of zeros, at an address that is a multiple of 64. Where the system
// has no such memory to give they are of Go's heap, and lie as they come.
func (s *Slab) Bytes(n int) []byte {
	if n <= 0 {
		return nil
	}
	padded := (n + 63) &^ 63
	if padded > len(s.free) {
		if padded > blockBytes/4 {
			if b, err := mmap.MapRegion(nil, padded, mmap.COPY, mmap.ANON, 0); err == nil {
				*s.blocks = append(*s.blocks, b)
				return b[:n:n]
			}
			return make([]byte, n)
		}
		b, err := mmap.MapRegion(nil, blockBytes, mmap.COPY, mmap.ANON, 0)
		if err != nil {
			return make([]byte, n)
		}
		*s.blocks = append(*s.blocks, b)
		s.free = b
	}
	b := s.free[:n:n]
	s.free = s.free[padded:]
	return b
}
