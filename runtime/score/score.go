// Package score measures how well a model foretells a text: perplexity exactly
// as llama-perplexity of llama.cpp v0.5.0 counts it, bits per byte, and the
// divergence of one model from another.
//
// The text is cut into chunks of Context tokens; what is left over is not used.
// Each chunk starts afresh, its first token replaced by BOS where the vocabulary
// adds one. The first half of a chunk only prepares: the logits after position
// Context/2 are the first to count, for the token behind, and those after the last
// but one are the last.
package score

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"quern/internal/digest"
	infer "quern/runtime"
	"quern/runtime/num"
	"quern/tokenizer"
)

// ErrShort marks a text of fewer than two chunks.
var ErrShort = errors.New("the text is too short")

// ErrOutside marks a text that a pruned head can say nothing of.
var ErrOutside = errors.New("the text is outside the head")

// ErrNotComparable marks scores that were not made of the same tokens in the
// same way.
var ErrNotComparable = errors.New("not comparable")

// DefaultContext is the length of a chunk in tokens where none is asked for.
const DefaultContext = 512

// Options steer a measurement. The zero value is right for most.
type Options struct {
	// Context is the length of a chunk in tokens, 0 for DefaultContext.
	Context int
	// Chunks is the most that are used, 0 for all.
	Chunks int
	// Jobs, Act and Order are those of infer.SessionOptions.
	Jobs  int
	Act   infer.Act
	Order infer.Order
	// Ready is called before the first chunk, when all texts have been cut: what
	// that took is not needed any more. It may be nil.
	Ready func()
	// Progress is told after each chunk how many are done and the perplexity so
	// far; it may be nil.
	Progress func(done, total int, perplexity float64)
}

// Settings are what two scores must share to be compared, all but Tokenizer,
// which says where the tokens came from.
type Settings struct {
	// Context is the window, in tokens; the next one starts Stride tokens behind,
	// and its logits from position First on are scored.
	Context int `json:"context"`
	Stride  int `json:"stride"`
	First   int `json:"first_scored"`
	Chunks  int `json:"chunks"`
	// Tokens is the number of tokens of the whole text. It differs when the
	// tokenizers do.
	Tokens int `json:"tokens"`
	// BOS says that the first token of each chunk is replaced by BOS.
	BOS bool   `json:"bos"`
	Act string `json:"act"`
	// Order is the order of operations, where there is a choice.
	Order string `json:"order,omitempty"`
	// Text is the SHA-256 of the text's bytes as they were given, Pieces that of how
	// it was cut: of each token's length in bytes and of these. Ids do not count, so
	// that a vocabulary that was pruned to those in use compares.
	Text   digest.Digest `json:"text_sha256"`
	Pieces digest.Digest `json:"pieces_sha256"`
	// Tokenizer is the SHA-256 of the vocabulary, where the model has one that knows
	// it.
	Tokenizer digest.Digest `json:"tokenizer_sha256,omitzero"`
	// Bytes is the length of the text that the scored tokens stand for.
	Bytes int64 `json:"bytes"`
}

// Comparable gives ErrNotComparable with what differs, or nil.
func (s Settings) Comparable(o Settings) error {
	for _, d := range []struct {
		what string
		a, b any
	}{{"context", s.Context, o.Context}, {"stride", s.Stride, o.Stride}, {"first position scored", s.First, o.First}, {"text", s.Text, o.Text},
		{"chunks", s.Chunks, o.Chunks}, {"tokens of the text", s.Tokens, o.Tokens}, {"BOS in each chunk", s.BOS, o.BOS}, {"arithmetic", s.Act, o.Act}, {"order of operations", s.Order, o.Order},
		{"bytes scored", s.Bytes, o.Bytes}, {"cut of the text into tokens", s.Pieces, o.Pieces}} {
		if d.a != d.b {
			return fmt.Errorf("%w: %s is %v here and %v there", ErrNotComparable, d.what, d.a, d.b)
		}
	}
	return nil
}

// Perplexity is the result of a measurement.
type Perplexity struct {
	Settings
	// Scored is the number of tokens that count.
	Scored int `json:"scored"`
	// Outside is how many tokens a pruned head cannot say. Their probability is 0,
	// so they do not count, and Bytes leaves them out.
	Outside int `json:"outside,omitempty"`
	// MeanNLL is the mean of -ln p over them, SumNLL the sum.
	MeanNLL float64 `json:"mean_nll"`
	SumNLL  float64 `json:"sum_nll"`
	// Perplexity is e^MeanNLL, Error its standard error.
	Perplexity float64 `json:"perplexity"`
	Error      float64 `json:"standard_error"`
	// BitsPerByte is SumNLL in bits over the bytes of the scored tokens' text.
	BitsPerByte float64 `json:"bits_per_byte"`
}

// text is a tokenized text and how it is cut.
type text struct {
	Settings
	tokens []int32
	bos    int32
}

// tokenize reads a file as llama.cpp's tools do: one newline at its end does not
// count, and special tokens in it are plain text.
func tokenize(tok infer.Tokenizer, file []byte, opt Options) (*text, error) {
	t := &text{Settings: Settings{Context: opt.Context, Act: opt.Act.String(), BOS: tok.AddsBOS()}, bos: tok.BOS()}
	if opt.Act == infer.Q8 {
		t.Order = opt.Order.String()
	}
	if t.Context == 0 {
		t.Context = DefaultContext
	}
	if t.Context < 4 {
		return nil, fmt.Errorf("a context of %d tokens leaves nothing to score: want 4 or more", t.Context)
	}
	var err error
	if t.tokens, err = tok.Encode(string(bytes.TrimSuffix(file, []byte("\n"))), tokenizer.EncodeOptions{Special: true}); err != nil {
		return nil, err
	}
	t.Tokens = len(t.tokens)
	t.Stride, t.First = t.Context, t.Context/2
	t.Text, t.Pieces = digest.Of(file), pieces(tok, t.tokens)
	if v, ok := tok.(*tokenizer.Tokenizer); ok {
		t.Tokenizer = v.Digest()
	}
	if t.Tokens < 2*t.Context {
		return nil, fmt.Errorf("%w: %d tokens, a context of %d needs %d; give more text or a smaller context", ErrShort, t.Tokens, t.Context, 2*t.Context)
	}
	t.Chunks = t.Tokens / t.Context
	if opt.Chunks > 0 {
		t.Chunks = min(t.Chunks, opt.Chunks)
	}
	first := t.Context / 2
	for c := range t.Chunks {
		for _, id := range t.tokens[c*t.Context+first+1 : (c+1)*t.Context] {
			t.Bytes += int64(len(tok.Piece(id, true)))
		}
	}
	return t, nil
}

// pieces is the digest of how a text was cut.
func pieces(tok infer.Tokenizer, ids []int32) digest.Digest {
	h := digest.New()
	var n [8]byte
	for _, id := range ids {
		p := tok.Piece(id, true)
		binary.LittleEndian.PutUint64(n[:], uint64(len(p)))
		h.Write(n[:])
		io.WriteString(h, p)
	}
	return digest.Sum(h)
}

// chunk gives the tokens of chunk c as the model sees them.
func (t *text) chunk(c int) []int32 {
	out := append([]int32(nil), t.tokens[c*t.Context:(c+1)*t.Context]...)
	if t.BOS {
		out[0] = t.bos
	}
	return out
}

// scored lists the positions of a chunk whose logits count.
func (t *text) scored() []int {
	var out []int
	for i := t.Context / 2; i < t.Context-1; i++ {
		out = append(out, i)
	}
	return out
}

// Measure scores a model on the content of a text file.
//
// Errors wrap ErrShort, ErrOutside, infer.ErrNoTokenizer or those of the tokenizer and the
// session.
func Measure(ctx context.Context, m infer.Model, file []byte, opt Options) (*Perplexity, error) {
	tok, err := m.Tokenizer()
	if err != nil {
		return nil, err
	}
	t, err := tokenize(tok, file, opt)
	if err != nil {
		return nil, err
	}
	s, err := m.NewSession(infer.SessionOptions{Context: t.Context, Jobs: opt.Jobs, Act: opt.Act, Order: opt.Order})
	if err != nil {
		return nil, err
	}
	if opt.Ready != nil {
		opt.Ready()
	}
	p := &Perplexity{Settings: t.Settings}
	var squares float64
	nll := newNLL(opt)
	list := make([][]float64, together(s, t.Context))
	for c := 0; c < t.Chunks; c += len(list) {
		list = list[:min(len(list), t.Chunks-c)]
		for i := range list {
			list[i] = list[i][:0]
		}
		err := t.eval(ctx, s, c, len(list), func(chunk, i int, logits []float32) error {
			next := t.tokens[chunk*t.Context+i+1]
			if isGone(logits[next]) {
				p.Outside++
				p.Bytes -= int64(len(tok.Piece(next, true)))
				return nil
			}
			list[chunk-c] = append(list[chunk-c], nll.of(logits, next))
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("%s of %d: %w", chunks(c, len(list)), t.Chunks, err)
		}
		for i, values := range list {
			for _, v := range values {
				p.SumNLL += v
				squares += float64(v * v)
				p.Scored++
			}
			if opt.Progress != nil {
				opt.Progress(c+i+1, t.Chunks, num.Exp64(p.SumNLL/float64(p.Scored)))
			}
		}
	}
	if p.Scored == 0 {
		return nil, fmt.Errorf("%w: none of its %d scored tokens has a row in the pruned head", ErrOutside, p.Outside)
	}
	n := float64(p.Scored)
	p.MeanNLL = p.SumNLL / n
	p.Perplexity = num.Exp64(p.MeanNLL)
	if v := squares/n - float64(p.MeanNLL*p.MeanNLL); v > 0 && p.Scored > 1 {
		p.Error = float64(math.Sqrt(v/(n-1)) * p.Perplexity)
	}
	if p.Bytes > 0 {
		p.BitsPerByte = p.SumNLL / float64(math.Ln2*float64(p.Bytes))
	}
	return p, nil
}
