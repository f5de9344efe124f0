package cq

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
)

// Books are codebooks fitted to weights, as they are kept: levels for values of
// deviation 1, which ForGroup scales.
type Books struct {
	Format string `json:"format"` // BooksFormat
	Group  int    `json:"group"`  // of the rotations that the samples come from
	// Samples is how many coordinates the fits are of.
	Samples int    `json:"samples"`
	Books   []Book `json:"books"`
}

// Book is one of them.
type Book struct {
	Bits   string    `json:"bits"`
	Levels []float64 `json:"levels"`
	// RMS is the error of a coordinate with these levels, StandardRMS with the
	// standard ones.
	RMS         float64 `json:"rms"`
	StandardRMS float64 `json:"standard_rms"`
}

// BooksFormat names the form of what Encode writes.
const BooksFormat = "quern.cq-codebooks.v1"

// maxBooks bounds what is parsed.
const maxBooks = 1 << 16

// Encode writes the books as JSON, floats so that they read back the same.
func (b *Books) Encode() ([]byte, error) {
	b.Format = BooksFormat
	out, err := json.MarshalIndent(b, "", " ")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCodebook, err)
	}
	return append(out, '\n'), nil
}

// ParseBooks reads what Encode wrote and checks that each width comes once, with
// as many ascending levels as it has. Widths without a place in an archive, 1 and
// 1.58, are an error.
func ParseBooks(text []byte) (*Books, error) {
	bad := func(format string, args ...any) (*Books, error) {
		return nil, fmt.Errorf("%w: "+format, append([]any{ErrCodebook}, args...)...)
	}
	if len(text) > maxBooks {
		return bad("%d bytes, at most %d are read", len(text), maxBooks)
	}
	b := new(Books)
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(b); err != nil {
		return bad("%v", err)
	}
	if b.Format != BooksFormat {
		return bad("its format is %q, %q is read", b.Format, BooksFormat)
	}
	if err := CheckGroup(b.Group); err != nil {
		return nil, err
	}
	seen := map[Width]bool{}
	for _, x := range b.Books {
		w, err := ParseWidth(x.Bits)
		if err != nil || w == W1 || w == W158 || seen[w] {
			return bad("bits %q; 4, 3 and 2 are kept, each once", x.Bits)
		}
		seen[w] = true
		if len(x.Levels) != w.Levels() {
			return bad("%d levels of %s bits, want %d", len(x.Levels), w, w.Levels())
		}
		for i, v := range x.Levels {
			if math.IsNaN(v) || math.IsInf(v, 0) || i > 0 && v <= x.Levels[i-1] {
				return bad("levels of %s bits do not ascend at %d", w, i)
			}
		}
	}
	return b, nil
}
