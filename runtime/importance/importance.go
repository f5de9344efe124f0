// Package importance computes importance matrices: sums of squares of what
// enters each weight over a calibration text, as llama-imatrix of llama.cpp
// v0.5.0 does, and writes them in its GGUF format (see formats/imatrix).
//
// The text is cut into chunks as for perplexity; every token of a chunk counts.
// Weights of layers are covered, and the output head on demand. Each routed expert
// has sums of its own, over the tokens that were sent to it.
package importance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"quern/formats/gguf"
	infer "quern/runtime"
	"quern/tensor"
	"quern/tokenizer"
)

var (
	// ErrShort marks a text of fewer than two chunks.
	ErrShort = errors.New("the text is too short")
	// ErrNotFinite marks activations that overflowed.
	ErrNotFinite = errors.New("activations are not finite")
)

// DefaultContext is the length of a chunk in tokens where none is asked for.
const DefaultContext = 512

// Options steer the computation. The zero value is right for most.
type Options struct {
	// Context is the length of a chunk in tokens, 0 for DefaultContext.
	Context int
	// Chunks is the most that are used, 0 for all.
	Chunks int
	// Output covers output.weight too.
	Output bool
	// ParseSpecial takes the texts of special tokens in the text for these.
	ParseSpecial bool
	// Dataset is the text's name in the file.
	Dataset string
	// Jobs and Act are those of infer.SessionOptions.
	Jobs int
	Act  infer.Act
	// Progress is told after each chunk how many are done; it may be nil.
	Progress func(done, total int)
}

// Matrix holds the sums.
type Matrix struct {
	// Entries are in byte-wise order of their names.
	Entries []*Entry
	Dataset string
	// Chunks is the number of chunks that went in, ChunkSize their length.
	Chunks, ChunkSize int
}

// Entry is what is known of one tensor: Sums (parts, columns) and Counts (parts),
// the rows that went into them. A stack of experts has a part for each.
type Entry struct {
	Name   string
	Sums   []float32
	Counts []int64
}

// Compute runs a model over the content of a text file.
func Compute(ctx context.Context, m infer.Model, file []byte, opt Options) (*Matrix, error) {
	tok, err := m.Tokenizer()
	if err != nil {
		return nil, err
	}
	if opt.Context == 0 {
		opt.Context = DefaultContext
	}
	if opt.Context < 1 {
		return nil, fmt.Errorf("a context of %d tokens", opt.Context)
	}
	tokens, err := tok.Encode(string(bytes.TrimSuffix(file, []byte("\n"))), tokenizer.EncodeOptions{Special: true, Parse: opt.ParseSpecial})
	if err != nil {
		return nil, err
	}
	if len(tokens) < 2*opt.Context {
		return nil, fmt.Errorf("%w: %d tokens, a context of %d needs %d; give more text or a smaller context", ErrShort, len(tokens), opt.Context, 2*opt.Context)
	}
	out := &Matrix{Chunks: len(tokens) / opt.Context, ChunkSize: opt.Context, Dataset: opt.Dataset}
	if opt.Chunks > 0 {
		out.Chunks = min(out.Chunks, opt.Chunks)
	}
	c := &collector{output: opt.Output, entries: map[string]*Entry{}}
	s, err := m.NewSession(infer.SessionOptions{Context: opt.Context, Jobs: opt.Jobs, Act: opt.Act, Observe: c})
	if err != nil {
		return nil, err
	}
	var want []int
	if opt.Output {
		for i := range opt.Context {
			want = append(want, i)
		}
	}
	for i := range out.Chunks {
		if err := s.Rewind(0); err != nil {
			return nil, err
		}
		chunk := slices.Clone(tokens[i*opt.Context:][:opt.Context])
		if tok.AddsBOS() {
			chunk[0] = tok.BOS()
		}
		if err := s.Eval(ctx, chunk, want, func(int, []float32) error { return nil }); err != nil {
			return nil, fmt.Errorf("chunk %d of %d: %w", i+1, out.Chunks, err)
		}
		if opt.Progress != nil {
			opt.Progress(i+1, out.Chunks)
		}
	}
	for _, e := range c.entries {
		out.Entries = append(out.Entries, e)
	}
	slices.SortFunc(out.Entries, func(a, b *Entry) int { return strings.Compare(a.Name, b.Name) })
	return out, out.check()
}

// collector adds up what a session shows it.
type collector struct {
	output  bool
	entries map[string]*Entry
}

// Observe adds rows, one after another, in float32.
func (c *collector) Observe(name string, part, parts int, x []float32, n int) {
	if !strings.HasPrefix(name, "blk.") && !(c.output && name == "output.weight") {
		return
	}
	e := c.entries[name]
	if e == nil {
		e = &Entry{Name: name, Sums: make([]float32, parts*n), Counts: make([]int64, parts)}
		c.entries[name] = e
	}
	sums := e.Sums[part*n:][:n]
	for ; len(x) >= n; x = x[n:] {
		for j, v := range x[:n] {
			sums[j] += float32(v * v)
		}
		e.Counts[part]++
	}
}

// check finds sums that are not finite.
func (m *Matrix) check() error {
	for _, e := range m.Entries {
		for i, v := range e.Sums {
			if v-v != 0 {
				return fmt.Errorf("%w: column %d of what enters %s sums up to %v", ErrNotFinite, i%(len(e.Sums)/len(e.Counts)), e.Name, v)
			}
		}
	}
	return nil
}

// Unseen lists the stacked tensors of which some experts were sent no token, and
// how many.
func (m *Matrix) Unseen() map[string]int {
	out := map[string]int{}
	for _, e := range m.Entries {
		for _, n := range e.Counts {
			if n == 0 {
				out[e.Name]++
			}
		}
	}
	return out
}

// Write writes the matrix as a GGUF file.
func (m *Matrix) Write(ctx context.Context, w io.Writer) error {
	meta := gguf.NewMetadata()
	meta.Set("general.type", gguf.Scalar("imatrix"))
	meta.Set("imatrix.datasets", gguf.List([]string{m.Dataset}))
	meta.Set("imatrix.chunk_count", gguf.Scalar(uint32(m.Chunks)))
	meta.Set("imatrix.chunk_size", gguf.Scalar(uint32(m.ChunkSize)))
	var tensors []*tensor.Tensor
	add := func(name string, parts int, values []float32) {
		b := make([]byte, 0, 4*len(values))
		for _, v := range values {
			bits := math.Float32bits(v)
			b = append(b, byte(bits), byte(bits>>8), byte(bits>>16), byte(bits>>24))
		}
		t := &tensor.Tensor{Name: name, Type: tensor.F32, Shape: tensor.Shape{int64(parts), int64(len(values) / parts)}}
		t.Src = &tensor.Section{Blob: tensor.BytesBlob(name, b), RowBytes: t.RowBytes()}
		tensors = append(tensors, t)
	}
	for _, e := range m.Entries {
		counts := make([]float32, len(e.Counts))
		for i, n := range e.Counts {
			counts[i] = float32(n)
		}
		add(e.Name+".in_sum2", len(counts), e.Sums)
		add(e.Name+".counts", len(counts), counts)
	}
	specs := make([]gguf.TensorSpec, len(tensors))
	for i, t := range tensors {
		specs[i] = gguf.TensorSpec{Name: t.Name, Type: t.Type, Shape: t.Shape}
	}
	l, err := gguf.NewLayout(meta, specs, gguf.LayoutOptions{Dims: gguf.DropOnes})
	if err != nil {
		return err
	}
	return l.WriteTo(ctx, w, tensors)
}
