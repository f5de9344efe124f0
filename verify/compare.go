// Package verify compares the tensors of a file with those that they were made
// from and reports, tensor by tensor, how far they are apart. It returns
// findings and never prints.
package verify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"quern/internal/ordered"
	"quern/tensor"
	"quern/tensor/quant"
)

// ErrMissing marks tensors that one side has and the other has not.
var ErrMissing = errors.New("tensors do not correspond")

// Options bound a comparison. They never change its result.
type Options struct {
	Jobs   int
	Memory int64
	// Progress is called after each piece with the values compared so far.
	Progress func(tensor string, done, total int64)
}

// Row is the comparison of one tensor.
type Row struct {
	Name   string       `json:"name"`
	Type   string       `json:"type"`
	From   string       `json:"from"`
	Shape  tensor.Shape `json:"shape"`
	Values int64        `json:"values"`
	Bytes  int64        `json:"bytes"`
	// MaxAbs is the largest absolute error and MaxAt the index of its value
	// in row-major order.
	MaxAbs float64 `json:"max_abs"`
	MaxAt  int64   `json:"max_at"`
	RMS    float64 `json:"rms"`
	// SNRdB is 10 log10 of the reference's energy over the error's: infinite
	// when they are equal, which JSON shows as null.
	SNRdB  Decibel `json:"snr_db"`
	Cosine float64 `json:"cosine"`
	NaN    int64   `json:"nan"` // in the file
	Inf    int64   `json:"inf"`
	// Flushed counts blocks that are all zero in the file and not in the
	// reference.
	Flushed int64 `json:"blocks_flushed"`
	Equal   bool  `json:"equal"` // every value is the same
	// Identical tells whether the stored bytes are the same too, in the same type.
	Identical bool `json:"identical"`
}

// MarshalJSON writes null for numbers that JSON does not have: a source that is
// not finite leaves no others.
func (r Row) MarshalJSON() ([]byte, error) {
	type plain Row
	return json.Marshal(struct {
		plain
		MaxAbs finite `json:"max_abs"`
		RMS    finite `json:"rms"`
		Cosine finite `json:"cosine"`
	}{plain(r), finite(r.MaxAbs), finite(r.RMS), finite(r.Cosine)})
}

// finite is a number that JSON shows as null unless it is finite.
type finite float64

func (f finite) MarshalJSON() ([]byte, error) {
	if v := float64(f); math.IsInf(v, 0) || math.IsNaN(v) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(f))
}

// Decibel is a ratio that may be infinite.
type Decibel float64

// MarshalJSON writes infinite ratios as null.
func (d Decibel) MarshalJSON() ([]byte, error) {
	if math.IsInf(float64(d), 0) || math.IsNaN(float64(d)) {
		return []byte("null"), nil
	}
	return fmt.Appendf(nil, "%.4f", float64(d)), nil
}

// Report is a comparison of two lists of tensors.
type Report struct {
	File    string `json:"file"`
	Against string `json:"against"`
	Rows    []Row  `json:"tensors"`
	// Notes say which declared transforms were applied, and what was left
	// aside.
	Notes []string `json:"notes,omitempty"`
	Total Row      `json:"total"`
}

// Worst is the row with the lowest signal-to-noise ratio, or nil when every
// tensor is equal. A ratio that is no number is the lowest of all.
func (r *Report) Worst() *Row {
	var worst *Row
	for i := range r.Rows {
		row := &r.Rows[i]
		if row.Equal {
			continue
		}
		if worst == nil || row.SNRdB < worst.SNRdB || row.SNRdB != row.SNRdB && worst.SNRdB == worst.SNRdB {
			worst = row
		}
	}
	return worst
}

// sums are what a piece adds to its tensor.
type sums struct {
	ref2, err2, got2, dot float64
	max                   float64
	maxAt                 int64
	nan, inf, flushed     int64
	differs, bytesDiffer  bool
}

func (s *sums) add(o sums) {
	s.ref2 += o.ref2
	s.err2 += o.err2
	s.got2 += o.got2
	s.dot += o.dot
	if o.max > s.max {
		s.max, s.maxAt = o.max, o.maxAt
	}
	s.nan += o.nan
	s.inf += o.inf
	s.flushed += o.flushed
	s.differs = s.differs || o.differs
	s.bytesDiffer = s.bytesDiffer || o.bytesDiffer
}

// Compare holds got against want, tensor by tensor in the order of got. Names
// and shapes must correspond; types need not. Pieces are summed in one order,
// so the result does not depend on the number of workers.
func Compare(ctx context.Context, got, want []*tensor.Tensor, opt Options) (*Report, error) {
	pairs, err := match(got, want)
	if err != nil {
		return nil, err
	}
	var work []piece
	var total int64
	for i, p := range pairs {
		row := p.got.Shape.RowLen()
		step := int64(1)
		if row > 0 && row < pieceValues {
			step = pieceValues / row
		}
		for first := int64(0); first < p.got.Rows(); first += step {
			n := step
			if n > p.got.Rows()-first {
				n = p.got.Rows() - first
			}
			work = append(work, piece{pair: i, first: first, n: n})
			total += n * row
		}
	}
	results := make([]sums, len(work))
	cost := func(i int) int64 { return pairs[work[i].pair].cost(work[i].n) }
	rep := &Report{Rows: make([]Row, len(pairs))}
	acc := make([]sums, len(pairs))
	var done int64
	err = ordered.Run(ctx, ordered.Options{Jobs: opt.Jobs, Budget: opt.Memory}, len(work), cost,
		func(ctx context.Context, i int, buf []byte) ([]byte, error) {
			var err error
			results[i], err = pairs[work[i].pair].compare(ctx, work[i], buf)
			return nil, err
		},
		func(i int, _ []byte) error {
			p := pairs[work[i].pair]
			acc[work[i].pair].add(results[i])
			done += work[i].n * p.got.Shape.RowLen()
			if opt.Progress != nil {
				opt.Progress(p.got.Name, done, total)
			}
			return nil
		})
	if err != nil {
		return nil, err
	}
	var all sums
	for i, p := range pairs {
		rep.Rows[i] = p.row(acc[i])
		all.add(acc[i])
		rep.Total.Values += rep.Rows[i].Values
		rep.Total.Bytes += rep.Rows[i].Bytes
	}
	values, bytes := rep.Total.Values, rep.Total.Bytes
	rep.Total = finish(all, values)
	rep.Total.Name, rep.Total.Bytes = "total", bytes
	return rep, nil
}

// pieceValues is the number of values compared at a time.
const pieceValues = 1 << 16

type pair struct {
	got, want   *tensor.Tensor
	gotD, wantD quant.Decoder
}

type piece struct {
	pair     int
	first, n int64
}

func match(got, want []*tensor.Tensor) ([]pair, error) {
	byName := make(map[string]*tensor.Tensor, len(want))
	for _, t := range want {
		byName[t.Name] = t
	}
	pairs := make([]pair, 0, len(got))
	for _, g := range got {
		w, ok := byName[g.Name]
		if !ok {
			return nil, fmt.Errorf("%w: tensor %s of the file has no counterpart in the source", ErrMissing, g.Name)
		}
		delete(byName, g.Name)
		if !squeeze(g.Shape).Equal(squeeze(w.Shape)) {
			return nil, fmt.Errorf("%w: tensor %s is %v in the file and %v in the source", ErrMissing, g.Name, g.Shape, w.Shape)
		}
		p := pair{got: g, want: w}
		var err error
		if p.gotD, err = decoderFor(g.Type); err != nil {
			return nil, fmt.Errorf("tensor %s: %w", g.Name, err)
		}
		if p.wantD, err = decoderFor(w.Type); err != nil {
			return nil, fmt.Errorf("tensor %s: %w", g.Name, err)
		}
		pairs = append(pairs, p)
	}
	for _, w := range want {
		if byName[w.Name] != nil {
			return nil, fmt.Errorf("%w: tensor %s of the source is not in the file", ErrMissing, w.Name)
		}
	}
	return pairs, nil
}

// squeeze leaves out outer axes of 1, which some writers drop.
func squeeze(s tensor.Shape) tensor.Shape {
	for len(s) > 1 && s[0] == 1 {
		s = s[1:]
	}
	return s
}

func (p pair) cost(rows int64) int64 {
	g, w := rows*p.got.RowBytes(), rows*p.want.RowBytes()
	return g + w
}

func (p pair) compare(ctx context.Context, w piece, buf []byte) (sums, error) {
	var s sums
	row := p.got.Shape.RowLen()
	n := w.n * row
	gb := buf[:w.n*p.got.RowBytes()]
	wb := buf[len(gb) : int64(len(gb))+w.n*p.want.RowBytes()]
	if err := p.got.ReadRows(ctx, gb, w.first, w.n); err != nil {
		return s, fmt.Errorf("file: %w", err)
	}
	if err := p.want.ReadRows(ctx, wb, w.first, w.n); err != nil {
		return s, fmt.Errorf("source: %w", err)
	}
	vals := make([]float32, 2*n)
	g, r := vals[:n], vals[n:]
	p.gotD.Decode(g, gb)
	p.wantD.Decode(r, wb)
	// Integers beyond 2^24 round in float32, so their bytes count.
	s.bytesDiffer = p.got.Type != p.want.Type || !bytes.Equal(gb, wb)
	s.differs = isInteger(p.got.Type) && s.bytesDiffer
	base := w.first * row
	block := p.got.Type.BlockValues()
	for b := int64(0); b < n; b += block {
		end := b + block
		if end > n {
			end = n
		}
		zero, refZero := true, true
		for i := b; i < end; i++ {
			gv, rv := float64(g[i]), float64(r[i])
			zero = zero && gv == 0
			refZero = refZero && rv == 0
			switch {
			case gv != gv:
				s.nan++
				s.differs = true
				continue
			case math.IsInf(gv, 0):
				s.inf++
				s.differs = s.differs || gv != rv
				continue
			}
			d := gv - rv
			if d != 0 {
				s.differs = true
				if a := math.Abs(d); a > s.max {
					s.max, s.maxAt = a, base+i
				}
			}
			s.err2 += float64(d * d)
			s.ref2 += float64(rv * rv)
			s.got2 += float64(gv * gv)
			s.dot += float64(gv * rv)
		}
		if block > 1 && zero && !refZero {
			s.flushed++
		}
	}
	return s, nil
}

func (p pair) row(s sums) Row {
	n, _ := p.got.Shape.Values()
	r := finish(s, n)
	r.Name, r.Shape = p.got.Name, p.got.Shape
	r.Type, r.Bytes = storedAs(p.got)
	r.From, _ = storedAs(p.want)
	return r
}

func finish(s sums, values int64) Row {
	r := Row{Values: values, MaxAbs: s.max, MaxAt: s.maxAt, NaN: s.nan, Inf: s.inf, Flushed: s.flushed, Equal: !s.differs, Identical: !s.bytesDiffer}
	if values > 0 {
		r.RMS = math.Sqrt(s.err2 / float64(values))
	}
	switch {
	case s.err2 == 0:
		r.SNRdB = Decibel(math.Inf(1))
	case s.ref2 == 0:
		r.SNRdB = Decibel(math.Inf(-1))
	default:
		r.SNRdB = Decibel(10 * math.Log10(s.ref2/s.err2))
	}
	r.Cosine = 1
	if s.ref2 > 0 && s.got2 > 0 {
		r.Cosine = s.dot / math.Sqrt(float64(s.ref2*s.got2))
		if r.Cosine > 1 {
			r.Cosine = 1 // rounding
		}
	} else if s.ref2 != s.got2 {
		r.Cosine = 0
	}
	return r
}
