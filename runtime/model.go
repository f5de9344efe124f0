// Package infer runs language models: it reads a written file and says what it
// computes, the same on every machine, to the last bit.
//
// This package holds what the kinds of models have in common and what commands
// and gates need of them. The models themselves are in the packages below:
// transformer for decoders in GGUF, KMCU and Hugging Face form. Package load
// opens whatever a file turns out to be.
package infer

import (
	"context"
	"errors"
	"fmt"

	"quern/tokenizer"
)

var (
	// ErrUnsupported marks a model, or a wish about one, that cannot be run.
	ErrUnsupported = errors.New("not supported by the runtime")
	// ErrModel marks a model whose tensors or settings do not fit each other.
	ErrModel = errors.New("bad model")
	// ErrToken marks a token id that the vocabulary does not have.
	ErrToken = errors.New("no such token")
	// ErrContext marks a text that is longer than the session has room for.
	ErrContext = errors.New("no room left in the context")
	// ErrNoTokenizer marks a file that holds no tokenizer.
	ErrNoTokenizer = errors.New("the file holds no tokenizer")
)

// Model is a language model that can be run. It is safe for use by several
// goroutines; each needs a Session of its own.
type Model interface {
	Info() Info
	// Tokenizer is that of the file, or nil with the reason why there is none,
	// which wraps ErrNoTokenizer when the file just does not hold one.
	Tokenizer() (Tokenizer, error)
	// NewSession starts an empty text.
	NewSession(opt SessionOptions) (Session, error)
	// Close releases the file. No session may be used after it.
	Close() error
}

// WithTokenizer is a model with the tokenizer of another file, for one that holds
// none. Whether its ids mean the same is up to the caller.
func WithTokenizer(m Model, t Tokenizer) Model { return borrower{m, t} }

type borrower struct {
	Model
	t Tokenizer
}

func (b borrower) Tokenizer() (Tokenizer, error) { return b.t, nil }

// Unwrap is the model that borrows, for what only its own kind can do.
func (b borrower) Unwrap() Model { return b.Model }

// Info is what a model says of itself.
type Info struct {
	// Architecture is the family's name, such as llama.
	Architecture string
	// Vocab is the number of token ids, and of logits in a row.
	Vocab int
	// Context is the longest text that the model was made for, in tokens; 0 when
	// the file does not say.
	Context int
	// Params counts the values of all weights, Bytes what they take in the file.
	Params, Bytes int64
}

// Tokenizer is what running a model needs of its tokenizer.
// *tokenizer.Tokenizer is one.
type Tokenizer interface {
	Encode(text string, opt tokenizer.EncodeOptions) ([]int32, error)
	Decode(ids []int32, opt tokenizer.DecodeOptions) string
	// Piece gives the bytes that one id stands for.
	Piece(id int32, special bool) string
	// IsEnd reports whether an id ends an answer.
	IsEnd(id int32) bool
	// BOS is -1 when there is none.
	BOS() int32
	// AddsBOS reports whether a text starts with BOS.
	AddsBOS() bool
}

var _ Tokenizer = (*tokenizer.Tokenizer)(nil)

// Act says what activations are when they meet a weight.
type Act int

const (
	// Exact keeps them as float32, with weights as stored.
	Exact Act = iota
	// Q8 rounds them to 8 bits in blocks where the weight's type has an integer
	// kernel, as ggml's CPU kernels do.
	Q8
)

// String gives the word that the command line uses.
func (a Act) String() string {
	switch a {
	case Exact:
		return "exact"
	case Q8:
		return "q8"
	}
	return fmt.Sprintf("Act(%d)", int(a))
}

// ParseAct reads such a word.
func ParseAct(s string) (Act, error) {
	for _, a := range []Act{Exact, Q8} {
		if s == a.String() {
			return a, nil
		}
	}
	return Exact, fmt.Errorf("%q is no kind of arithmetic: exact or q8", s)
}

// Order says which order of operations a session with Q8 follows.
type Order int

const (
	// OrderQuern is quern's own, the faster one.
	OrderQuern Order = iota
	// OrderGGML is that of llama.cpp's CPU backend on x86 with AVX2, FMA and F16C, to the
	// last bit where the model's operations are known to it.
	OrderGGML
)

// String gives the word that the command line uses.
func (o Order) String() string {
	switch o {
	case OrderQuern:
		return "quern"
	case OrderGGML:
		return "ggml"
	}
	return fmt.Sprintf("Order(%d)", int(o))
}

// ParseOrder reads such a word.
func ParseOrder(s string) (Order, error) {
	for _, o := range []Order{OrderQuern, OrderGGML} {
		if s == o.String() {
			return o, nil
		}
	}
	return OrderQuern, fmt.Errorf("%q is no order of operations: ggml or quern", s)
}

// ordered is a model that can follow llama.cpp's order.
type ordered interface{ FollowsGGML() bool }

// ScoreOrder is the order that scores of models, which are compared, are made in unless another is asked for: llama.cpp's where
// all of them have it and activations are 8 bits, so that perplexities are those that llama-perplexity prints.
func ScoreOrder(act Act, models ...Model) Order {
	for _, m := range models {
		if act != Q8 || !followsGGML(m) {
			return OrderQuern
		}
	}
	return OrderGGML
}

func followsGGML(m Model) bool {
	for {
		if o, ok := m.(ordered); ok {
			return o.FollowsGGML()
		}
		u, ok := m.(interface{ Unwrap() Model })
		if !ok {
			return false
		}
		m = u.Unwrap()
	}
}

// SessionOptions change a session. The zero value is right for most.
type SessionOptions struct {
	// Context is the number of tokens that fit; 0 takes that of the model, or
	// 2048 when it has none.
	Context int
	// Jobs is the number of goroutines that compute, 0 for one a processor.
	// Results do not depend on it.
	Jobs int
	// Act is the arithmetic; a model that cannot do it gives ErrUnsupported.
	Act Act
	// Order is the order of operations; OrderGGML needs Q8.
	Order Order
	// Observe is shown what enters the weights, for importance matrices; nil
	// for nobody. A model that cannot show it gives ErrUnsupported.
	Observe Observer
	// Routes is shown which experts tokens go to; nil for nobody. A model without
	// routed experts gives ErrUnsupported.
	Routes Router
}

// Observer sees the rows of activations that enter a matrix, before any
// rounding. Calls come one after another, in the order of the model and of the
// text, so that sums made of them do not depend on jobs.
type Observer interface {
	// Observe gets the rows that enter matrix number part of the parts that a
	// tensor stacks: an expert, or the only one. x holds them one after another, n
	// values each, and must not be kept. Experts that no token of a batch was sent
	// to are not shown.
	Observe(tensor string, part, parts int, x []float32, n int)
}

// Router sees the choices of experts, layer by layer for a batch of tokens.
type Router interface {
	// Ahead is how many layers with experts further a guess is wanted for: what the
	// router there would choose of this layer's input. 0 wants none.
	Ahead() int
	// Route gets the choices of one layer. What it holds must not be kept.
	Route(r Routing) error
}

// Routing is what a router chose for the tokens of a batch.
type Routing struct {
	// Layer is the number of the layer in the model.
	Layer int
	// Experts is how many there are, Used how many each token goes to.
	Experts, Used int
	// Scores (tokens, Experts) are what they were chosen by.
	Scores []float32
	// Chosen (tokens, Used) has the best first.
	Chosen []int
	// Guess (tokens, Used) is for the layer Router.Ahead further, nil where there is
	// no such layer or none is wanted.
	Guess []int
}

// Session is one text under way: the tokens seen so far and what the model
// remembers of them. It is for one goroutine.
type Session interface {
	// Eval appends tokens and computes logits. want lists, in ascending order,
	// the indices into tokens after which logits are wanted; each is called for
	// them in that order with Info.Vocab logits that it may change and must not keep. Ids that
	// the model can never give have -Inf. An error of each ends the
	// evaluation and is returned.
	//
	// With OrderQuern the logits are the same however a text is cut into calls. After an
	// error Len is what it was before the call.
	Eval(ctx context.Context, tokens []int32, want []int, each func(i int, logits []float32) error) error
	// Len is the number of tokens seen, Room the number that still fit.
	Len() int
	Room() int
	// Rewind forgets all but the first n tokens; n is at most Len.
	Rewind(n int) error
}

// SideBySide is a Session whose results depend on which texts go through the model together, as
// llama.cpp's do.
type SideBySide interface {
	Session
	// Together is how many texts of n tokens llama-perplexity takes at once; 1 where it makes
	// no difference.
	Together(n int) int
	// EvalTogether evaluates texts of one length, each from an empty context, and shows the logits after the tokens that want
	// lists of every text, of each text in that order. The session's own text is empty after it.
	EvalTogether(ctx context.Context, texts [][]int32, want []int, each func(text, i int, logits []float32) error) error
}

// CheckEval tells whether a call of Eval can be: ids in the vocabulary, room for
// them, and want in range and ascending.
func CheckEval(s Session, vocab int, tokens []int32, want []int) error {
	if room := s.Room(); len(tokens) > room {
		return fmt.Errorf("%w: %d tokens after %d, %d more fit; ask for a larger context", ErrContext, len(tokens), s.Len(), room)
	}
	for i, id := range tokens {
		if id < 0 || int(id) >= vocab {
			return fmt.Errorf("%w: id %d at place %d, the model has %d", ErrToken, id, s.Len()+i, vocab)
		}
	}
	last := -1
	for _, i := range want {
		if i <= last || i >= len(tokens) {
			return fmt.Errorf("logits wanted after token %d of %d, behind those after %d: want ascending indices of tokens", i, len(tokens), last)
		}
		last = i
	}
	return nil
}

// Last evaluates tokens and gives a copy of the logits after the last one, in
// buf if it has room. tokens must not be empty.
func Last(ctx context.Context, s Session, tokens []int32, buf []float32) ([]float32, error) {
	if len(tokens) == 0 {
		return nil, errors.New("no tokens to evaluate")
	}
	err := s.Eval(ctx, tokens, []int{len(tokens) - 1}, func(_ int, logits []float32) error {
		buf = append(buf[:0], logits...)
		return nil
	})
	return buf, err
}
