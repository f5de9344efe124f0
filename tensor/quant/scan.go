package quant

import (
	"encoding/binary"
	"math"

	"quern/tensor"
)

// Count says how often something was found and where first.
type Count struct {
	N     int64
	First int64   // index of the first find, when N > 0
	Value float64 // its value
}

func (c *Count) add(n, first int64, v float64) {
	if c.N == 0 || first < c.First {
		c.First, c.Value = first, v
	}
	c.N += n
}

func (c *Count) merge(o Count) {
	if o.N > 0 {
		c.add(o.N, o.First, o.Value)
	}
}

// Loss counts the values of a tensor that a type cannot hold. The zero Loss
// is empty.
type Loss struct {
	NaN      Count
	Inf      Count // infinite in the source
	Overflow Count // finite, but infinite after rounding to the type
	Flush    Count // not zero, but zero after rounding to the type
	// BadBlock counts blocks whose scale is infinite or not a number. First
	// is the index of the block's first value, Value the one of greatest
	// magnitude among those that the block was made of, 0 for a copied block.
	BadBlock Count
}

// Merge adds what another worker found. The order of merges does not matter
// when both count indices from the same start.
func (l *Loss) Merge(o Loss) {
	l.NaN.merge(o.NaN)
	l.Inf.merge(o.Inf)
	l.Overflow.merge(o.Overflow)
	l.Flush.merge(o.Flush)
	l.BadBlock.merge(o.BadBlock)
}

// Finite reports whether nothing infinite or undefined was read or made.
// Flushed values are finite.
func (l *Loss) Finite() bool {
	return l.NaN.N == 0 && l.Inf.N == 0 && l.Overflow.N == 0 && l.BadBlock.N == 0
}

// limits are the magnitudes, as float32 bits, from which on a value overflows
// and up to which it is flushed. A zero flush finds nothing.
type limits struct{ over, flush uint32 }

const infBits = 0x7f800000

func limitsOf(t tensor.Type) limits {
	switch t {
	case tensor.F16:
		return limits{over: 0x477ff000, flush: 0x33000000} // 65520, 2^-25
	case tensor.BF16:
		return limits{over: 0x7f7f8000, flush: 0x00008000} // halfway to 2^128, 2^-134
	}
	return limits{over: infBits}
}

// Scan counts what cannot be stored of src in type to, adding to l. base is
// the index of src[0]. For F16 and BF16 it finds NaN, Inf, overflow and flush,
// for other types NaN and Inf.
func Scan(l *Loss, to tensor.Type, base int64, src []float32) {
	lim := limitsOf(to)
	// Pieces of bounded size keep the counters of the kernels in 32 bits and
	// the search for a first index short.
	const piece = 1 << 16
	for ; len(src) > piece; base, src = base+piece, src[piece:] {
		lim.scan(l, base, src[:piece])
	}
	lim.scan(l, base, src)
}

func (lim limits) scan(l *Loss, base int64, src []float32) {
	n := scanCounts(src, lim)
	if n == (counts{}) {
		return
	}
	for class, c := range [...]*Count{&l.NaN, &l.Inf, &l.Overflow, &l.Flush} {
		if n[class] == 0 {
			continue
		}
		if c.N > 0 && c.First <= base {
			c.N += int64(n[class])
			continue
		}
		for i, v := range src {
			if lim.classify(v) == class {
				c.add(int64(n[class]), base+int64(i), float64(v))
				break
			}
		}
	}
}

// counts holds the number of values of each class.
type counts [4]uint32

const (
	classNaN = iota
	classInf
	classOverflow
	classFlush
	classGood
)

func (lim limits) classify(v float32) int {
	a := math.Float32bits(v) & 0x7fffffff
	switch {
	case a > infBits:
		return classNaN
	case a == infBits:
		return classInf
	case a >= lim.over:
		return classOverflow
	case a != 0 && a <= lim.flush:
		return classFlush
	}
	return classGood
}

func scanCountsScalar(src []float32, lim limits) counts {
	var n [5]uint32
	for _, v := range src {
		a := math.Float32bits(v) & 0x7fffffff
		if a >= lim.over || a-1 < lim.flush {
			n[lim.classify(v)]++
		}
	}
	return counts(n[:4])
}

// ScanF64 counts what cannot be stored in float32 of little-endian float64
// values, adding to l: NaN, Inf, finite values that round to Inf and values
// that round to zero. base is the index of the first value.
func ScanF64(l *Loss, base int64, src []byte) {
	const (
		inf   = 0x7ff << 52
		over  = 0x47effffff0000000 // halfway from the largest float32 to 2^128
		flush = 0x3690000000000000 // 2^-150, half the least subnormal
	)
	for i := 0; i+8 <= len(src); i += 8 {
		b := binary.LittleEndian.Uint64(src[i:])
		a := b &^ (1 << 63)
		if a > flush && a < over || a == 0 {
			continue
		}
		c := &l.Flush
		switch {
		case a > inf:
			c = &l.NaN
		case a == inf:
			c = &l.Inf
		case a >= over:
			c = &l.Overflow
		}
		c.add(1, base+int64(i/8), math.Float64frombits(b))
	}
}
