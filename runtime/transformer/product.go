package transformer

import (
	"context"

	infer "quern/runtime"
	"quern/runtime/num"
	"quern/runtime/parallel"
	"quern/tensor/dot"
	"quern/tensor/ggmldot"
)

// team runs pieces of work on a number of goroutines. Which of them does a piece
// makes no difference to the result.
//
// What it runs is kept in it, and called by a function that is made once: no phase of
// a token leaves garbage.
type team struct {
	*parallel.Team
	scratch []scratch // one a worker
	now     pieces
	rowsNow rowPieces
	call    func(i, worker int) error
}

// pieces are work that is shared by pieces, in any order.
type pieces interface {
	piece(i int, s *scratch) error
}

// byRow is work that is shared by rows of activations, in any order.
type byRow interface {
	row(t int) error
}

// rowPieces makes pieces of count rows.
type rowPieces struct {
	byRow
	count int
}

func (r *rowPieces) piece(i int, _ *scratch) error {
	for t := i * rowsTogether; t < min((i+1)*rowsTogether, r.count); t++ {
		if err := r.row(t); err != nil {
			return err
		}
	}
	return nil
}

type pieceFunc func(i int, s *scratch) error

func (f pieceFunc) piece(i int, s *scratch) error { return f(i, s) }

type rowFunc func(t int) error

func (f rowFunc) row(t int) error { return f(t) }

func newTeam(jobs int) *team {
	p := parallel.NewTeam(jobs)
	t := &team{Team: p, scratch: make([]scratch, p.Jobs())}
	t.call = func(i, worker int) error { return t.now.piece(i, &t.scratch[worker]) }
	return t
}

// pieces does pieces 0 to n-1, and gives the error of the lowest that failed. A piece
// must not have the team do anything itself.
func (t *team) pieces(ctx context.Context, n int, work pieces) error {
	t.now = work
	return t.Each(ctx, n, t.call)
}

// byRow does n rows.
func (t *team) byRow(ctx context.Context, n int, work byRow) error {
	t.rowsNow = rowPieces{work, n}
	return t.pieces(ctx, (n+rowsTogether-1)/rowsTogether, &t.rowsNow)
}

// each is pieces of a function, for work that is rare.
func (t *team) each(ctx context.Context, n int, f func(i int, s *scratch) error) error {
	return t.pieces(ctx, n, pieceFunc(f))
}

// rowsTogether is how many rows of activations a worker takes at once.
const rowsTogether = 8

// rows is byRow of a function, for work that is rare.
func (t *team) rows(ctx context.Context, n int, f func(row int) error) error {
	return t.byRow(ctx, n, rowFunc(f))
}

// activations are rows that enter matrices: rows of n values one after another.
type activations struct {
	x    []float32
	rows int
	n    int
}

// row is row i.
func (a activations) row(i int) []float32 { return a.x[i*a.n:][:a.n] }

// product is one matrix multiplication: dst[c*rows+r] is row r of the part with
// row c of the activations, plus the bias.
type product struct {
	dst  []float32
	m    *matrix
	part int
	bias []float32
	in   activations
	// packed are the activations in 8 bits, nil to multiply in float32.
	packed *dot.Batch
	// columns are the activations as ggml multiplies them, those of one operation in a batch; none to multiply otherwise.
	columns []*ggmldot.Batch
}

// pieceValues is how many weights are taken at once: what a second-level cache
// holds in float32, with room for activations.
const pieceValues = 32 << 10

// pieceBytes is the least that a worker takes of a matrix which a single row of
// activations meets. Less would be asked for early by one worker and used by
// another.
const pieceBytes = 32 << 10

// piece is the number of rows that one of so many workers takes at once, a multiple
// of 8 and of the rows that a layout groups.
func (p *product) piece(jobs int) int {
	group := 8
	if p.m.layout != nil {
		group = max(group, int(p.m.layout.GroupRows()))
	}
	n := pieceValues / p.m.cols
	if p.in.rows == 1 && (p.packed != nil || p.columns != nil) {
		n = max(p.m.rows/(4*jobs), pieceBytes/int(p.m.t.RowBytes()))
	}
	return max(n/group, 1) * group
}

// rows multiplies rows first to first+n-1 of the matrix.
func (p *product) rows(ctx context.Context, first, n int, s *scratch) error {
	switch {
	case p.columns != nil:
		return p.ggmlRows(ctx, first, n, s)
	case p.packed != nil:
		b, err := p.m.stored(ctx, p.part, first, n, s)
		if err != nil {
			return err
		}
		return p.m.q8.Mul(p.dst[first:], p.m.rows, b, p.packed, &s.dot)
	}
	w, err := p.m.decode(ctx, p.part, first, n, s)
	if err != nil {
		return err
	}
	num.Dots(p.dst[first:], p.m.rows, w, num.Matrix{Data: p.in.x, Rows: p.in.rows, Stride: p.in.n}, p.m.cols)
	return nil
}

// multiply computes products, sharing the rows of all of them among the workers.
func (s *session) multiply(ctx context.Context, list ...product) error {
	w := &s.products
	w.list = append(w.list[:0], list...)
	if err := s.ops.prepare(ctx, s, w.list); err != nil {
		return err
	}
	w.ctx, w.jobs = ctx, s.team.Jobs()
	total := 0
	for i := range w.list {
		p := &w.list[i]
		total += (p.m.rows + p.piece(w.jobs) - 1) / p.piece(w.jobs)
	}
	return s.team.pieces(ctx, total, w)
}

// products are what multiply computes.
type products struct {
	ctx  context.Context
	jobs int
	list []product
}

// piece multiplies the i-th piece of the rows of all matrices.
func (w *products) piece(i int, sc *scratch) error {
	for j := range w.list {
		p := &w.list[j]
		piece := p.piece(w.jobs)
		if n := (p.m.rows + piece - 1) / piece; i >= n {
			i -= n
			continue
		}
		first := i * piece
		n := min(piece, p.m.rows-first)
		if err := p.rows(w.ctx, first, n, sc); err != nil {
			return err
		}
		if p.bias != nil {
			for c := range p.in.rows {
				num.Add(p.dst[c*p.m.rows+first:][:n], p.bias[first:])
			}
		}
		return nil
	}
	return nil
}

// prepareQuern rounds activations to what the kernels of package dot take.
func prepareQuern(ctx context.Context, s *session, list []product) error {
	for i := range list {
		if err := s.rounded(ctx, list, i); err != nil {
			return err
		}
	}
	return nil
}

// rounded rounds the activations of product i of a list, or takes what one before it has of them.
func (s *session) rounded(ctx context.Context, list []product, i int) (err error) {
	p := &list[i]
	if s.act != infer.Q8 {
		return nil
	}
	if p.m.rounded {
		p.in = s.round(i, p.in)
	}
	if p.m.q8 == nil {
		return nil
	}
	for _, before := range list[:i] {
		if b := before.packed; b != nil && b.Format() == p.m.q8.Format() && b.Width() == p.m.q8.Width() && &before.in.x[0] == &p.in.x[0] {
			p.packed = b
			return nil
		}
	}
	p.packed, err = s.pack(ctx, i, p)
	return err
}

// batchKey tells the memory of packed activations apart. place keeps those of one
// call of multiply from sharing it.
type batchKey struct {
	place, width int
	format       dot.Format
}

// packedBatch is the memory of a key.
type packedBatch struct {
	key   batchKey
	batch *dot.Batch
}

// batchOf finds the memory of a key, of which a model has a few, or nil.
func (s *session) batchOf(key batchKey) *dot.Batch {
	for i := range s.packed {
		if s.packed[i].key == key {
			return s.packed[i].batch
		}
	}
	return nil
}

// pack rounds the activations of a product to 8 bits.
func (s *session) pack(ctx context.Context, place int, p *product) (*dot.Batch, error) {
	key := batchKey{place, p.m.q8.Width(), p.m.q8.Format()}
	b := s.batchOf(key)
	if b == nil {
		var err error
		if b, err = dot.NewBatch(key.format, key.width, max(s.batch, p.in.rows)); err != nil {
			return nil, err
		}
		s.packed = append(s.packed, packedBatch{key, b})
	}
	if err := b.Reset(p.in.rows); err != nil {
		return nil, err
	}
	in := p.in
	if in.n < key.width {
		padded := activations{grow(&s.buf.padded, in.rows*key.width), in.rows, key.width}
		for t := range in.rows {
			clear(padded.row(t)[copy(padded.row(t), in.row(t)):])
		}
		in = padded
	}
	s.tasks.pack = packTask{b, in}
	return b, s.team.byRow(ctx, in.rows, &s.tasks.pack)
}

// round gives activations as they are after rounding to 8 bits.
func (s *session) round(place int, in activations) activations {
	for len(s.buf.rounded) <= place {
		s.buf.rounded = append(s.buf.rounded, nil)
	}
	out := activations{grow(&s.buf.rounded[place], in.rows*in.n), in.rows, in.n}
	for t := range in.rows {
		dot.RoundQ8_0(out.row(t), in.row(t))
	}
	return out
}

// observe shows what enters a matrix.
func (s *session) observe(m *matrix, part int, in activations) {
	if s.observer != nil && in.rows > 0 {
		s.observer.Observe(m.name, part, m.parts, in.x[:in.rows*in.n], in.n)
	}
}

var _ infer.Session = (*session)(nil)
