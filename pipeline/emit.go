package pipeline

import (
	"context"
	"fmt"
	"hash"
	"io"

	"quern/internal/digest"
	"quern/internal/ordered"
	"quern/tensor"
)

// EmitOptions bound an emission. They never change a byte of it.
type EmitOptions struct {
	Jobs   int   // workers; 0 means one a CPU
	Memory int64 // bytes for rows in flight; 0 means ordered.DefaultBudget
	Events Events
	// FileSumOnly leaves out the digests of single tensors, for files that
	// nothing records. A file of many gigabytes is then hashed once, not twice.
	FileSumOnly bool
	// Sum gives the digest of what w has received, when w computes it anyway;
	// nil makes Emit hash the file itself.
	Sum func() digest.Digest
	// From begins at a mark: what is before it has been written by an earlier
	// emission of the same layout. It goes with Sum.
	From *EmitMark
	// Mark, if set, is called between pieces; where it calls its argument it gets
	// an EmitMark for this place.
	Mark func(func() (any, error)) error
}

// EmitMark is a place between two pieces from where an emission can go on, in
// another process too.
type EmitMark struct {
	Item int   `json:"item"` // that was being written
	Row  int64 `json:"row"`  // its first row to come
	// State is that of the item's SHA-256, empty under FileSumOnly.
	State []byte `json:"state,omitempty"`
	// Tensors are the records of the items before.
	Tensors []TensorRecord `json:"tensors"`
}

// Offset is where in the file the mark stands, or an error where it does not
// belong to the layout.
func (m *EmitMark) Offset(l *Layout) (int64, error) {
	if m.Item < 0 || m.Item >= len(l.Items) || len(m.Tensors) != m.Item {
		return 0, fmt.Errorf("%s: %w: a mark at item %d", l.File, ErrLayout, m.Item)
	}
	it := l.Items[m.Item]
	if m.Row < 0 || m.Row > it.Tensor.Rows() {
		return 0, fmt.Errorf("%s: %w: a mark at row %d of tensor %s", l.File, ErrLayout, m.Row, it.Tensor.Name)
	}
	for i, t := range m.Tensors {
		if t.Name != l.Items[i].Tensor.Name {
			return 0, fmt.Errorf("%s: %w: a mark with tensor %s", l.File, ErrLayout, t.Name)
		}
	}
	return it.Offset + m.Row*it.Tensor.RowBytes(), nil
}

// Written says what an emission wrote.
type Written struct {
	Digest  digest.Digest
	Size    int64
	Tensors []TensorRecord
}

// TensorRecord is one tensor of a written file. The digest is zero under
// EmitOptions.FileSumOnly.
type TensorRecord struct {
	Name   string        `json:"name"`
	SHA256 digest.Digest `json:"sha256"`
}

// A piece is the unit of work: some rows of one item.
type piece struct {
	item     int
	first, n int64
}

// maxPiece keeps a piece's float32 form inside a core's caches, minPiece keeps
// the cost of handing it over small beside the work.
const (
	maxPiece = 1 << 20
	minPiece = 64 << 10
)

// pieces cuts every item into runs of rows of about the same size. The cut
// depends on the budget, the bytes do not.
func pieces(l *Layout, opt EmitOptions) []piece {
	target := opt.Memory / 64
	if target > maxPiece || target <= 0 {
		target = maxPiece
	}
	if target < minPiece {
		target = minPiece
	}
	var out []piece
	begin, row := 0, int64(0)
	if opt.From != nil {
		begin, row = opt.From.Item, opt.From.Row
	}
	for i, it := range l.Items {
		if i < begin {
			continue
		}
		t := it.Tensor
		per := t.RowBytes()
		if f := t.Shape.RowLen() * 4; f > per {
			per = f // the float32 row that most views go through
		}
		n := int64(1)
		if per > 0 && per < target {
			n = target / per
		}
		first := int64(0)
		if i == begin {
			first = row
		}
		for ; first < t.Rows(); first += n {
			if n > t.Rows()-first {
				n = t.Rows() - first
			}
			out = append(out, piece{i, first, n})
		}
	}
	return out
}

// readRows makes rows of a tensor out of its source.
func readRows(ctx context.Context, t *tensor.Tensor, dst []byte, first, n int64) error {
	if err := t.ReadRows(ctx, dst, first, n); err != nil {
		return &rowsError{t, readFault(ctx, err)}
	}
	return nil
}

// rowsError remembers whose rows could not be made.
type rowsError struct {
	t   *tensor.Tensor
	err error
}

func (e *rowsError) Error() string { return e.err.Error() }
func (e *rowsError) Unwrap() error { return e.err }

// RowReader produces rows of an item: from the tensor itself, or from a store
// that has them already.
type RowReader func(ctx context.Context, item int, dst []byte, first, n int64) error

// Emit writes a planned file to w in order: header, tensors, zeros between them.
// Rows are made in parallel and written by the calling goroutine alone.
func Emit(ctx context.Context, l *Layout, read RowReader, w io.Writer, opt EmitOptions) (*Written, error) {
	if err := l.check(); err != nil {
		return nil, err
	}
	if l.Of != nil {
		return nil, fmt.Errorf("%s: %w: it is written after %s, with the digest of that", l.File, ErrLayout, l.Of.File)
	}
	if opt.Events == nil {
		opt.Events = NoEvents{}
	}
	if read == nil {
		read = func(ctx context.Context, i int, dst []byte, first, n int64) error {
			return readRows(ctx, l.Items[i].Tensor, dst, first, n)
		}
	}
	e := &emission{layout: l, w: w, opt: opt, item: -1,
		out: &Written{Tensors: make([]TensorRecord, 0, len(l.Items))}}
	if opt.Sum == nil {
		e.all = digest.New()
	}
	opt.Events.Event(Event{Kind: EventOutput, Output: l.File, Total: l.Size})
	if err := e.begin(); err != nil {
		return nil, err
	}
	ps := pieces(l, opt)
	cost := func(i int) int64 { return ps[i].n * l.Items[ps[i].item].Tensor.RowBytes() }
	work := func(ctx context.Context, i int, buf []byte) ([]byte, error) {
		p := ps[i]
		if err := read(ctx, p.item, buf, p.first, p.n); err != nil {
			return nil, fmt.Errorf("%s: tensor %s, rows %d to %d: %w", l.File, l.Items[p.item].Tensor.Name, p.first, p.first+p.n-1, err)
		}
		return buf, nil
	}
	emit := func(i int, b []byte) error { return e.piece(ps[i], b) }
	err := ordered.Run(ctx, ordered.Options{Jobs: opt.Jobs, Budget: opt.Memory}, len(ps), cost, work, emit)
	if err != nil {
		return nil, err
	}
	return e.finish()
}

// emission is the writing side: one goroutine, strictly in file order.
type emission struct {
	layout *Layout
	w      io.Writer
	all    hash.Hash // of the whole file, nil when w has it
	one    hash.Hash
	item   int // the item being written, -1 before the first
	at     int64
	opt    EmitOptions
	out    *Written
}

// begin writes the header, or takes up where a mark stands.
func (e *emission) begin() error {
	m := e.opt.From
	if m == nil {
		return e.write(e.layout.Header)
	}
	at, err := m.Offset(e.layout)
	if err != nil {
		return err
	}
	if !e.opt.FileSumOnly {
		if e.one, err = digest.Resume(m.State); err != nil {
			return fmt.Errorf("%s: %w: mark: %w", e.layout.File, ErrLayout, err)
		}
	}
	e.at, e.item = at, m.Item
	e.out.Tensors = append(e.out.Tensors, m.Tensors...)
	return nil
}

// mark describes the place between two pieces.
func (e *emission) mark(p piece) (any, error) {
	m := &EmitMark{Item: p.item, Row: p.first + p.n, Tensors: e.out.Tensors}
	var err error
	if e.one != nil {
		m.State, err = digest.State(e.one)
	}
	return m, err
}

var zeros [64 << 10]byte

func (e *emission) write(b []byte) error {
	if e.all != nil {
		e.all.Write(b)
	}
	n, err := e.w.Write(b)
	e.at += int64(n)
	if err != nil {
		return fmt.Errorf("%s: at offset %d: %w", e.layout.File, e.at, err)
	}
	return nil
}

func (e *emission) padTo(off int64) error {
	for e.at < off {
		n := off - e.at
		if n > int64(len(zeros)) {
			n = int64(len(zeros))
		}
		if err := e.write(zeros[:n]); err != nil {
			return err
		}
	}
	return nil
}

func (e *emission) piece(p piece, b []byte) error {
	// Items without rows have no piece: they are opened and closed on the way.
	for e.item < p.item {
		e.closeItem()
		if err := e.openItem(); err != nil {
			return err
		}
	}
	if e.one != nil {
		e.one.Write(b)
	}
	if err := e.write(b); err != nil {
		return err
	}
	e.opt.Events.Event(Event{Kind: EventProgress, Output: e.layout.File, Done: e.at, Total: e.layout.Size})
	if e.opt.Mark != nil {
		return e.opt.Mark(func() (any, error) { return e.mark(p) })
	}
	return nil
}

func (e *emission) openItem() error {
	e.item++
	it := e.layout.Items[e.item]
	if !e.opt.FileSumOnly {
		e.one = digest.New()
	}
	e.opt.Events.Event(Event{Kind: EventTensor, Output: e.layout.File, Tensor: it.Tensor.Name, Done: int64(e.item), Total: int64(len(e.layout.Items))})
	return e.padTo(it.Offset)
}

func (e *emission) closeItem() {
	if e.item < 0 {
		return
	}
	r := TensorRecord{Name: e.layout.Items[e.item].Tensor.Name}
	if e.one != nil {
		r.SHA256 = digest.Sum(e.one)
	}
	e.out.Tensors = append(e.out.Tensors, r)
}

func (e *emission) finish() (*Written, error) {
	for e.item < len(e.layout.Items)-1 {
		e.closeItem()
		if err := e.openItem(); err != nil {
			return nil, err
		}
	}
	e.closeItem()
	if err := e.padTo(e.layout.Size); err != nil {
		return nil, err
	}
	if e.at != e.layout.Size {
		return nil, fmt.Errorf("%s: %w: wrote %d bytes, planned %d", e.layout.File, ErrLayout, e.at, e.layout.Size)
	}
	e.out.Size = e.at
	if e.all == nil {
		e.out.Digest = e.opt.Sum()
	} else {
		e.out.Digest = digest.Sum(e.all)
	}
	return e.out, nil
}

// fetchNeeds lists, in the order of writing, the ranges of source files that an
// output reads. from is the mark that it begins with, nil for the start.
func fetchNeeds(l *Layout, skip func(item int) bool, from *EmitMark) []tensor.Extent {
	var out []tensor.Extent
	for i, it := range l.Items {
		switch {
		case skip != nil && skip(i), from != nil && i < from.Item:
		case from != nil && i == from.Item:
			out = append(out, restOf(it.Tensor.Origin, from.Row, it.Tensor.Rows())...)
		default:
			out = append(out, it.Tensor.Origin...)
		}
	}
	return out
}

// restOf leaves out what the first rows of a tensor were made of, as far as its
// extents follow each other as its rows do. Where they do not, some bytes are
// fetched that nobody asks for, and others when they are asked for.
func restOf(ext []tensor.Extent, row, rows int64) []tensor.Extent {
	var all int64
	for _, e := range ext {
		all += e.Bytes
	}
	if rows <= 0 || row >= rows {
		return nil
	}
	skip := all / rows * row
	var out []tensor.Extent
	for _, e := range ext {
		if skip >= e.Bytes {
			skip -= e.Bytes
			continue
		}
		e.Offset += skip
		e.Bytes -= skip
		skip = 0
		out = append(out, e)
	}
	return out
}
