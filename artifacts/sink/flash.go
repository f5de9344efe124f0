package sink

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"os"
	"strconv"
	"strings"

	"quern/internal/digest"
)

// Image says where in a flash image the file stands.
//
//	0          Offset                 Offset+size              Partition
//	+----------+----------------------+------------------------+
//	| 0xff ... | the file             | 0xff ...               |
//	+----------+----------------------+------------------------+
//
// 0xff is what erased flash holds, so that nothing needs to be written there. The
// image is the whole partition: whoever flashes it at the partition's address,
// by whatever tool, needs to know nothing else.
type Image struct {
	Offset    int64 // of the file in the image
	Partition int64 // the length of the image
	// Sector is what Partition and Offset are multiples of: flash is erased in
	// sectors. Map, if not 0, is the page size of the flash mapping, which Offset
	// is a multiple of too.
	Sector int64
	Map    int64
}

// defaultSector is the erase unit of nearly all serial flash chips.
const defaultSector = 4096

// parseFlash reads FILE?offset=..&partition-size=..&sector=..&map=..
func parseFlash(s string) (Target, error) {
	t := Target{Kind: Flash, Image: Image{Sector: defaultSector}}
	file, query, _ := strings.Cut(s, "?")
	if file == "" || strings.HasSuffix(file, "/") {
		return t, fmt.Errorf("flash:%s names no image file", s)
	}
	t.Path = file
	values, err := url.ParseQuery(query)
	if err != nil {
		return t, fmt.Errorf("flash:%s: %v", s, err)
	}
	for key, v := range values {
		var to *int64
		switch key {
		case "offset":
			to = &t.Image.Offset
		case "partition-size":
			to = &t.Image.Partition
		case "sector":
			to = &t.Image.Sector
		case "map":
			to = &t.Image.Map
		default:
			return t, fmt.Errorf("flash: unknown key %q; known are offset, partition-size, sector, map", key)
		}
		if len(v) != 1 {
			return t, fmt.Errorf("flash: %s is given %d times", key, len(v))
		}
		if *to, err = flashSize(v[0]); err != nil {
			return t, fmt.Errorf("flash: %s: %v", key, err)
		}
	}
	return t, t.Image.check()
}

// flashSize reads 4096, 0x1000, 4K, 4KiB, 2M, 2MiB.
func flashSize(s string) (int64, error) {
	digits, shift := s, 0
	for _, u := range []struct {
		name  string
		shift int
	}{{"KiB", 10}, {"MiB", 20}, {"K", 10}, {"M", 20}} {
		if d, ok := strings.CutSuffix(s, u.name); ok {
			digits, shift = d, u.shift
			break
		}
	}
	digits = strings.TrimSpace(digits)
	base := 10
	if d, ok := strings.CutPrefix(strings.ToLower(digits), "0x"); ok {
		digits, base = d, 16
	}
	n, err := strconv.ParseInt(digits, base, 64)
	if err != nil || n < 0 || n > 1<<40>>shift {
		return 0, fmt.Errorf("%q is no size such as 0x10000, 65536, 64K or 2MiB", s)
	}
	return n << shift, nil
}

func (m Image) check() error {
	power := func(n int64) bool { return n > 0 && n&(n-1) == 0 }
	switch {
	case m.Partition == 0:
		return fmt.Errorf("flash: partition-size is missing")
	case !power(m.Sector):
		return fmt.Errorf("flash: sector %d is no power of two", m.Sector)
	case m.Map != 0 && !power(m.Map):
		return fmt.Errorf("flash: map %d is no power of two", m.Map)
	case m.Partition%m.Sector != 0:
		return fmt.Errorf("flash: partition-size %d is no multiple of the sector, %d", m.Partition, m.Sector)
	case m.Offset%m.Sector != 0:
		return fmt.Errorf("flash: offset %d is no multiple of the sector, %d", m.Offset, m.Sector)
	case m.Map != 0 && m.Offset%m.Map != 0:
		return fmt.Errorf("flash: offset %d is no multiple of map, %d", m.Offset, m.Map)
	case m.Offset >= m.Partition:
		return fmt.Errorf("flash: offset %d lies beyond the partition of %d bytes", m.Offset, m.Partition)
	}
	return nil
}

// Check finds files that do not fit.
func (m Image) Check(size int64) error {
	if room := m.Partition - m.Offset; size > room {
		return fmt.Errorf("%w: %d bytes are %d more than the %d that the partition has from offset %d on", ErrTooLarge, size, size-room, room, m.Offset)
	}
	return nil
}

// flashSink writes an image around the file. Lengths and digests are those of
// the file in it.
type flashSink struct {
	fileSink
	image Image
	size  int64 // of the file being written
}

func newFlash(t Target, opt Options) *flashSink {
	return &flashSink{fileSink: *newFile(t, opt), image: t.Image}
}

func (s *flashSink) String() string         { return "flash:" + s.path }
func (s *flashSink) Check(size int64) error { s.size = size; return s.image.Check(size) }

// Stat is the length of the file in an image of the right length.
func (s *flashSink) Stat(ctx context.Context, name string) (int64, error) {
	n, err := s.fileSink.Stat(ctx, name)
	if err != nil {
		return 0, err
	}
	if name == s.Temp() {
		return min(max(n-s.image.Offset, 0), s.size), nil
	}
	if n != s.image.Partition {
		return 0, ErrNotExist // another image, to be replaced
	}
	return s.size, nil
}

func (s *flashSink) Free(ctx context.Context) (int64, error) {
	n, err := s.fileSink.Free(ctx)
	if err == nil {
		n -= s.image.Partition - s.size
	}
	return n, err
}

func (s *flashSink) Open(ctx context.Context, name string, off, size int64) (io.WriteCloser, error) {
	if off > 0 {
		w, err := s.fileSink.Open(ctx, name, s.image.Offset+off, s.image.Partition)
		if err != nil {
			return nil, err
		}
		return &flashWriter{s, w}, nil
	}
	w, err := s.fileSink.Open(ctx, name, 0, s.image.Partition)
	if err != nil {
		return nil, err
	}
	if err := fill(w, s.image.Offset); err != nil {
		return nil, err
	}
	return &flashWriter{s, w}, nil
}

type flashWriter struct {
	s *flashSink
	io.WriteCloser
}

func (w *flashWriter) Close() error {
	rest := w.s.image.Partition - w.s.n
	if w.s.n < w.s.image.Offset+w.s.size {
		return w.WriteCloser.Close() // broken off
	}
	if err := fill(w.WriteCloser, rest); err != nil {
		return err
	}
	return w.WriteCloser.Close()
}

// fill writes erased flash.
func fill(w io.Writer, n int64) error {
	b := make([]byte, 64<<10)
	for i := range b {
		b[i] = 0xff
	}
	for n > 0 {
		k, err := w.Write(b[:min(n, int64(len(b)))])
		if err != nil {
			return err
		}
		n -= int64(k)
	}
	return nil
}

// Sum is the digest of the file in the image, and none when anything around it is
// not erased flash.
func (s *flashSink) Sum(ctx context.Context, name string, n int64) (digest.Digest, error) {
	var r io.ReaderAt = s.f
	if name != s.Temp() {
		f, err := os.Open(s.path)
		if err != nil {
			return digest.Digest{}, ErrNotExist
		}
		defer f.Close()
		r = f
	} else if s.f == nil {
		return digest.Digest{}, ErrNotExist
	}
	for _, gap := range [][2]int64{{0, s.image.Offset}, {s.image.Offset + s.size, s.image.Partition}} {
		if n < s.size && gap[0] > 0 {
			continue // not written yet
		}
		if ok, err := erased(r, gap[0], gap[1]); err != nil || !ok {
			return digest.Digest{}, err
		}
	}
	return sumOf(ctx, r, s.image.Offset, n)
}

func erased(r io.ReaderAt, lo, hi int64) (bool, error) {
	b := make([]byte, 64<<10)
	for lo < hi {
		p := b[:min(hi-lo, int64(len(b)))]
		if k, err := r.ReadAt(p, lo); k < len(p) {
			return false, err
		}
		for _, x := range p {
			if x != 0xff {
				return false, nil
			}
		}
		lo += int64(len(p))
	}
	return true, nil
}
