package storetest

import (
	"context"
	"errors"
	"fmt"
	"io"

	"quern/artifacts"
	"quern/internal/faulty"
)

// ErrDamage is the error of blobs that cannot be read.
var ErrDamage = errors.New("injected read error")

// Damage says what is wrong with a blob. One field is set.
type Damage struct {
	Do       bool  // makes Flip count, as bit 0 is one too
	Flip     int64 // this bit is inverted
	Short    int64 // only so many bytes are there
	LieShort int64 // the same, but the size says otherwise
	Trailing int64 // so many bytes follow, which the size does not count
	Break    int64 // reading fails from this byte on
	Missing  bool
}

// Wrap is a store in which some blobs are damaged.
func Wrap(s artifacts.ReadStore, damage map[artifacts.Digest]Damage) artifacts.ReadStore {
	return &damaged{s, damage}
}

type damaged struct {
	artifacts.ReadStore
	damage map[artifacts.Digest]Damage
}

func (w *damaged) Open(ctx context.Context, d artifacts.Digest) (artifacts.Blob, error) {
	g, ok := w.damage[d]
	if ok && g.Missing {
		return nil, fmt.Errorf("blob %s: %w", d, artifacts.ErrNotFound)
	}
	b, err := w.ReadStore.Open(ctx, d)
	if err != nil || !ok {
		return b, err
	}
	out := &damagedBlob{Blob: b, r: b, size: b.Size()}
	switch {
	case g.Do:
		out.r = faulty.FlipAt(b, g.Flip)
	case g.Short > 0:
		out.r, out.size = io.NewSectionReader(b, 0, g.Short), g.Short
	case g.LieShort > 0:
		out.r = io.NewSectionReader(b, 0, g.LieShort)
	case g.Trailing > 0:
		out.r = trailing{b, b.Size(), g.Trailing}
	case g.Break > 0:
		out.r = faulty.BreakAt(b, g.Break, ErrDamage)
	}
	return out, nil
}

func (w *damaged) Stat(ctx context.Context, d artifacts.Digest) (artifacts.Info, error) {
	in, err := w.ReadStore.Stat(ctx, d)
	g := w.damage[d]
	if err == nil && g.Missing {
		return artifacts.Info{}, fmt.Errorf("blob %s: %w", d, artifacts.ErrNotFound)
	}
	if g.Short > 0 {
		in.Size = g.Short
	}
	return in, err
}

func (w *damaged) List(ctx context.Context) ([]artifacts.Info, error) {
	l, err := w.ReadStore.List(ctx)
	var out []artifacts.Info
	for _, in := range l {
		g := w.damage[in.Digest]
		if g.Missing {
			continue
		}
		if g.Short > 0 {
			in.Size = g.Short
		}
		out = append(out, in)
	}
	return out, err
}

type damagedBlob struct {
	artifacts.Blob
	r    io.ReaderAt
	size int64
}

func (b *damagedBlob) ReadAt(p []byte, off int64) (int, error) { return b.r.ReadAt(p, off) }

func (b *damagedBlob) Size() int64 { return b.size }

// trailing has more bytes than its size says.
type trailing struct {
	r       io.ReaderAt
	size, n int64
}

func (t trailing) ReadAt(p []byte, off int64) (int, error) {
	if off < t.size {
		return t.r.ReadAt(p, off)
	}
	n := min(int64(len(p)), t.size+t.n-off)
	if n <= 0 {
		return 0, io.EOF
	}
	clear(p[:n])
	return int(n), nil
}
