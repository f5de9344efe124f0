// Package wav reads sounds out of WAV files: integer samples of 8, 16, 24 and 32
// bits and floats of 32 and 64, of any number of channels. All numbers are
// little-endian.
//
//	0       4      8
//	+-------+------+-------+----------------+-----+---------------+
//	| RIFF  | size | WAVE  | chunk          | ... | chunk         |
//	+-------+------+-------+----------------+-----+---------------+
//
//	a chunk        name[4]  size u32  data, padded to an even size
//	chunk "fmt "   u16 tag: 1 integers, 3 floats, 0xFFFE says it at +24
//	               u16 channels, u32 samples a second, u32 bytes a second,
//	               u16 bytes of a frame, u16 bits of a sample
//	chunk "data"   frames of a sample for each channel
package wav

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

var (
	// ErrNotWAV marks a file of another format.
	ErrNotWAV = errors.New("not a WAV file")
	// ErrFormat marks a WAV file that is broken or of a kind that is not read.
	ErrFormat = errors.New("bad WAV file")
)

// Sound is what a file holds, its channels averaged.
type Sound struct {
	Rate    int       // samples a second
	Samples []float32 // from -1 to 1
}

var le = binary.LittleEndian

const (
	tagInt    = 1
	tagFloat  = 3
	tagExtend = 0xFFFE
	// unknown is the size that programs write which do not know it yet: the rest of
	// the file.
	unknown = math.MaxUint32
)

// format is the chunk "fmt ".
type format struct {
	tag      uint16
	channels int
	rate     uint32
	width    int // bytes of a sample
}

// Parse reads a whole file. name is used in messages.
func Parse(name string, b []byte) (*Sound, error) {
	bad := func(off int, format string, args ...any) error {
		return fmt.Errorf("%s: %w: offset %d: "+format, append([]any{name, ErrFormat, off}, args...)...)
	}
	if len(b) < 12 || string(b[:4]) != "RIFF" || string(b[8:12]) != "WAVE" {
		return nil, fmt.Errorf("%s: %w", name, ErrNotWAV)
	}
	var f *format
	for at := 12; at+8 <= len(b); {
		kind, size := string(b[at:at+4]), le.Uint32(b[at+4:])
		data := b[at+8:]
		if kind == "data" && size == unknown {
			size = uint32(min(uint64(len(data)), unknown))
		}
		if uint64(size) > uint64(len(data)) {
			return nil, bad(at+4, "a chunk %q of %d bytes, %d are left", kind, size, len(data))
		}
		data = data[:size]
		switch kind {
		case "fmt ":
			x, err := parseFormat(data)
			if err != nil {
				return nil, bad(at+8, "%w", err)
			}
			f = x
		case "data":
			if f == nil {
				return nil, bad(at, "sound before its format")
			}
			return f.sound(data)
		}
		at += 8 + int(size) + int(size&1)
	}
	return nil, bad(len(b), "no chunk with sound")
}

func parseFormat(b []byte) (*format, error) {
	if len(b) < 16 {
		return nil, fmt.Errorf("a format of %d bytes, 16 are wanted", len(b))
	}
	f := &format{tag: le.Uint16(b), channels: int(le.Uint16(b[2:])), rate: le.Uint32(b[4:])}
	if f.tag == tagExtend {
		if len(b) < 26 {
			return nil, fmt.Errorf("an extended format of %d bytes, 26 are wanted", len(b))
		}
		f.tag = le.Uint16(b[24:])
	}
	frame := int(le.Uint16(b[12:]))
	switch {
	case f.channels == 0 || f.rate == 0 || f.rate > 1<<24:
		return nil, fmt.Errorf("%d channels, %d samples a second", f.channels, f.rate)
	case frame == 0 || frame%f.channels != 0:
		return nil, fmt.Errorf("frames of %d bytes for %d channels", frame, f.channels)
	}
	f.width = frame / f.channels
	if f.tag == tagInt && f.width <= 4 || f.tag == tagFloat && (f.width == 4 || f.width == 8) {
		return f, nil
	}
	return nil, fmt.Errorf("kind %d with samples of %d bytes; integers of 1 to 4 and floats of 4 and 8 are read", f.tag, f.width)
}

// sound averages the channels in float32, in their order, and brings integers to the
// range from -1 to 1.
func (f *format) sound(data []byte) (*Sound, error) {
	frame := f.width * f.channels
	s := &Sound{Rate: int(f.rate), Samples: make([]float32, len(data)/frame)}
	var offset, scale float32 = 0, 1
	if f.tag == tagInt {
		scale = float32(uint64(1) << (8*f.width - 1))
		if f.width == 1 {
			offset = 128
		}
	}
	for i := range s.Samples {
		var sum float32
		for c := range f.channels {
			sum += f.value(data[i*frame+c*f.width:])
		}
		s.Samples[i] = (sum/float32(f.channels) - offset) / scale
	}
	return s, nil
}

// value reads one sample.
func (f *format) value(b []byte) float32 {
	switch {
	case f.tag == tagFloat && f.width == 4:
		return math.Float32frombits(le.Uint32(b))
	case f.tag == tagFloat:
		return float32(math.Float64frombits(le.Uint64(b)))
	case f.width == 1:
		return float32(b[0])
	case f.width == 2:
		return float32(int16(le.Uint16(b)))
	case f.width == 3:
		return float32(int32(uint32(b[0])<<8|uint32(b[1])<<16|uint32(b[2])<<24) >> 8)
	}
	return float32(int32(le.Uint32(b)))
}
