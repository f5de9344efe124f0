package count

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"quern/internal/inflate"
	"quern/tokenizer"
)

// Options bound a count. They do not change its result.
type Options struct {
	// Jobs is how many goroutines count, all processors if 0.
	Jobs int
	// Block is how much text is read at once, 1 MiB if 0.
	Block int
	// MaxPiece is the longest text without a place to cut it, 64 MiB if 0; a
	// longer one is an error.
	MaxPiece int
	// Progress, if set, is told how many bytes of text have been counted. It is
	// called by several goroutines.
	Progress func(bytes int64)
}

// piece is some text on its way to a worker.
type piece struct {
	text  []byte
	start bool // of a file
	file  string
}

// Count counts the corpora, one after the other.
func Count(ctx context.Context, c *tokenizer.Counter, vocab int, corpora []Corpus, opt Options) (*Counts, error) {
	if opt.Jobs <= 0 {
		opt.Jobs = runtime.GOMAXPROCS(0)
	}
	if opt.Block <= 0 {
		opt.Block = 1 << 20
	}
	if opt.MaxPiece <= 0 {
		opt.MaxPiece = 64 << 20
	}
	out := &Counts{Vocab: vocab}
	var done atomic.Int64
	for i := range corpora {
		t, err := countOne(ctx, c, vocab, &corpora[i], opt, &done)
		if err != nil {
			return nil, fmt.Errorf("corpus %s: %w", corpora[i].Name, err)
		}
		out.Corpora = append(out.Corpora, *t)
	}
	return out, nil
}

func countOne(ctx context.Context, c *tokenizer.Counter, vocab int, corpus *Corpus, opt Options, done *atomic.Int64) (*Tokens, error) {
	t := &Tokens{Name: corpus.Name, Language: corpus.Language, Weight: corpus.weight(), Cover: corpus.Cover,
		Files: len(corpus.Files), IDs: make([]uint64, vocab)}
	g, ctx := errgroup.WithContext(ctx)
	// Files are read beside one another, so that one that decompresses slowly
	// keeps no worker waiting.
	pieces := make(chan piece, opt.Jobs)
	pool := &sync.Pool{New: func() any { return new([]byte) }}
	var readers sync.WaitGroup
	var next atomic.Int64
	for range min(opt.Jobs, max(len(corpus.Files), 1)) {
		readers.Add(1)
		g.Go(func() error {
			defer readers.Done()
			r := &reader{c: c, opt: &opt, pieces: pieces, pool: pool}
			for {
				i := int(next.Add(1)) - 1
				if i >= len(corpus.Files) {
					return nil
				}
				if err := r.file(ctx, &corpus.Files[i]); err != nil {
					return fmt.Errorf("%s: %w", corpus.Files[i].Name, err)
				}
			}
		})
	}
	g.Go(func() error {
		readers.Wait()
		close(pieces)
		return nil
	})
	var mu sync.Mutex
	for range opt.Jobs {
		g.Go(func() error {
			tally := c.NewTally()
			var n int64
			for p := range pieces {
				if err := context.Cause(ctx); err != nil {
					return err
				}
				if err := tally.Add(p.text, p.start); err != nil {
					return fmt.Errorf("%s: %w: %w", p.file, ErrCorpus, err)
				}
				n += int64(len(p.text))
				if total := done.Add(int64(len(p.text))); opt.Progress != nil {
					opt.Progress(total)
				}
				text := p.text[:0]
				pool.Put(&text)
			}
			ids, err := tally.Counts()
			if err != nil {
				return fmt.Errorf("%w: %w", ErrCorpus, err)
			}
			mu.Lock()
			defer mu.Unlock()
			t.Bytes += n
			for id, k := range ids {
				t.IDs[id] += k
				t.Total += k
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	if t.Total == 0 {
		return nil, fmt.Errorf("%w: no text in it", ErrCorpus)
	}
	return t, nil
}

// reader cuts files into pieces.
type reader struct {
	c      *tokenizer.Counter
	opt    *Options
	pieces chan<- piece
	pool   *sync.Pool
	buf    []byte
}

func (r *reader) file(ctx context.Context, f *File) error {
	src, err := f.Open(ctx)
	if err != nil {
		return err
	}
	defer src.Close()
	text, release, err := inflate.NewReader(src)
	if err != nil {
		return corpusFault(err)
	}
	defer release()
	held, start := 0, true // bytes of buf that are not sent yet
	for more := r.opt.Block; ; {
		if len(r.buf) < held+more {
			r.buf = append(r.buf[:held], make([]byte, more)...)
		}
		n, end, err := fill(ctx, text, r.buf[held:held+more])
		if err != nil {
			return err
		}
		held += n
		cut := held
		if !end {
			cut = r.c.Cut(r.buf[:held])
		}
		if cut > 0 {
			if err := r.send(ctx, piece{r.buf[:cut], start, f.Name}); err != nil {
				return err
			}
			start = false
			held = copy(r.buf, r.buf[cut:held])
			more = r.opt.Block
		} else {
			more = max(held, r.opt.Block)
		}
		if end {
			return nil
		}
		if held >= r.opt.MaxPiece {
			return fmt.Errorf("%w: %d bytes without a place where the tokenizer surely cuts; break the text into lines", ErrCorpus, held)
		}
	}
}

// send copies a piece and hands it on.
func (r *reader) send(ctx context.Context, p piece) error {
	b := r.pool.Get().(*[]byte)
	p.text = append((*b)[:0], p.text...)
	select {
	case r.pieces <- p:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
