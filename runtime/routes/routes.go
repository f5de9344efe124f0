// Package routes records which experts a model's routers choose, as a trace (see
// formats/trace).
package routes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"quern/formats/trace"
	infer "quern/runtime"
	"quern/tokenizer"
)

// ErrAhead marks guesses for layers further on than a model has.
var ErrAhead = errors.New("guesses too far ahead")

// ErrText marks a text of no tokens.
var ErrText = errors.New("no text")

// Recorder is an infer.Router that writes a trace. A session shows it layers of a
// batch of tokens one after another; a trace has tokens one after another, so a
// batch is kept until its last layer.
type Recorder struct {
	w      io.Writer
	out    *trace.Writer
	scores bool
	ahead  int

	experts, used int
	layers        []int
	batch         []layer
	at            int // the layer of the batch that comes next
}

// layer is what a batch did in one layer.
type layer struct {
	scores        []float32
	chosen, guess []int
}

// Options say what a trace holds beside the choices.
type Options struct {
	// Scores writes the scores of all experts, which a bias needs.
	Scores bool
	// Ahead writes a guess for the layer that many further, which reading ahead
	// needs; 0 writes none.
	Ahead int
}

// New makes a recorder that writes to w.
func New(w io.Writer, opt Options) *Recorder {
	return &Recorder{w: w, scores: opt.Scores, ahead: opt.Ahead}
}

// Ahead is how far guesses are wanted.
func (r *Recorder) Ahead() int { return r.ahead }

// Route takes the choices of one layer. The first batch shows which layers there
// are.
func (r *Recorder) Route(x infer.Routing) error {
	if r.out == nil {
		if n := len(r.layers); n > 0 && r.layers[0] == x.Layer {
			if err := r.start(); err != nil {
				return err
			}
		} else {
			if n > 0 && r.layers[n-1] >= x.Layer || n > 0 && (r.experts != x.Experts || r.used != x.Used) {
				return fmt.Errorf("%w: layer %d with %d of %d experts after layer %d", trace.ErrFormat, x.Layer, x.Used, x.Experts, r.layers[n-1])
			}
			r.layers = append(r.layers, x.Layer)
			r.batch = append(r.batch, layer{})
			r.experts, r.used = x.Experts, x.Used
			r.keep(&r.batch[n], x)
			return nil
		}
	}
	if r.at == len(r.layers) {
		if err := r.write(); err != nil {
			return err
		}
	}
	if x.Layer != r.layers[r.at] || x.Experts != r.experts || x.Used != r.used || r.at > 0 && len(x.Chosen) != len(r.batch[0].chosen) {
		return fmt.Errorf("%w: layer %d with %d choices where layer %d comes next", trace.ErrFormat, x.Layer, len(x.Chosen), r.layers[r.at])
	}
	r.keep(&r.batch[r.at], x)
	r.at++
	return nil
}

// start writes the header, once all layers are known. They are a batch.
func (r *Recorder) start() (err error) {
	r.at = len(r.layers)
	if r.ahead >= r.at {
		return fmt.Errorf("%w: %d layers, and the model has %d with experts", ErrAhead, r.ahead, r.at)
	}
	h := trace.Header{Experts: r.experts, Used: r.used, Layers: r.layers, Scores: r.scores, Ahead: r.ahead}
	r.out, err = trace.NewWriter(r.w, h)
	return err
}

func (r *Recorder) keep(l *layer, x infer.Routing) {
	l.chosen = append(l.chosen[:0], x.Chosen...)
	l.guess = append(l.guess[:0], x.Guess...)
	if r.scores {
		l.scores = append(l.scores[:0], x.Scores...)
	}
}

// write writes a whole batch, token by token.
func (r *Recorder) write() error {
	for t := range len(r.batch[0].chosen) / r.used {
		for _, l := range r.batch {
			row := trace.Row{Chosen: l.chosen[t*r.used:][:r.used]}
			if len(l.guess) > 0 {
				row.Ahead = l.guess[t*r.used:][:r.used]
			}
			if r.scores {
				row.Scores = l.scores[t*r.experts:][:r.experts]
			}
			if err := r.out.Write(row); err != nil {
				return err
			}
		}
	}
	r.at = 0
	return nil
}

// Flush writes what is left. A batch that an error cut short is dropped.
func (r *Recorder) Flush() error {
	if r.out == nil {
		if len(r.layers) == 0 {
			return fmt.Errorf("%w: no token was seen", trace.ErrFormat)
		}
		if err := r.start(); err != nil {
			return err
		}
	}
	if r.at == len(r.layers) {
		if err := r.write(); err != nil {
			return err
		}
	}
	return r.out.Flush()
}

// Text runs a model over a text, in pieces of the context's length, each with a
// BOS before it where the vocabulary has one, and gives the number of tokens.
// progress, if not nil, is told after each piece.
func Text(ctx context.Context, m infer.Model, text string, r *Recorder, opt infer.SessionOptions, progress func(done, total int)) (int, error) {
	tok, err := m.Tokenizer()
	if err != nil {
		return 0, err
	}
	ids, err := tok.Encode(text, tokenizer.EncodeOptions{})
	if err != nil {
		return 0, err
	}
	if len(ids) == 0 {
		return 0, fmt.Errorf("%w: not one token is in it", ErrText)
	}
	opt.Routes = r
	s, err := m.NewSession(opt)
	if err != nil {
		return 0, err
	}
	n := 0
	for piece := range slices.Chunk(ids, room(s.Room(), tok)) {
		if tok.AddsBOS() && tok.BOS() >= 0 {
			piece = append([]int32{tok.BOS()}, piece...)
		}
		if err := s.Rewind(0); err != nil {
			return n, err
		}
		if err := s.Eval(ctx, piece, nil, func(int, []float32) error { return nil }); err != nil {
			return n, err
		}
		n += len(piece)
		if progress != nil {
			progress(n, len(ids))
		}
	}
	return n, r.Flush()
}

// room leaves a place for BOS.
func room(n int, tok infer.Tokenizer) int {
	if tok.AddsBOS() && tok.BOS() >= 0 {
		n--
	}
	return max(n, 1)
}
