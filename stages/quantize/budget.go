package quantize

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"golang.org/x/sync/errgroup"

	"quern/formats/gguf"
	"quern/model"
	"quern/pipeline"
	"quern/recipes"
	"quern/tensor"
	"quern/tensor/quant"
)

// ErrBudget marks a budget that even the smallest of the types goes over.
var ErrBudget = errors.New("over the budget")

// budgetVersion is part of the key of every choice. It changes when the choices
// do.
const budgetVersion = "budget.v1"

// ladder are the types that a budget chooses from where the recipe names none;
// the first three need importance weights.
var ladder = []tensor.Type{tensor.IQ2_XXS, tensor.IQ2_S, tensor.IQ3_XXS, tensor.Q2_K, tensor.Q3_K, tensor.IQ4_XS, tensor.Q4_K, tensor.Q5_K, tensor.Q6_K, tensor.Q8_0}

// budgeted reports whether the types come from a budget.
func (s *Stage) budgeted() bool { return s.p.Budget > 0 || s.p.BitsPerWeight > 0 }

// choice is what a budget came to: the side product of the step.
type choice struct {
	Types map[string]string `json:"types"`
	// Error is the sum over the chosen tensors of the squared error relative
	// to the tensor's own squares.
	Error float64 `json:"relative_error"`
	Bytes int64   `json:"bytes"`
}

const choiceFile = "types.json"

// Resolves reports whether there is a budget, which types are chosen for.
func (s *Stage) Resolves() bool { return s.budgeted() }

// Resolve plans the choice of types by measured error.
func (s *Stage) Resolve(ctx context.Context, in *model.Model, sources []*pipeline.Source) (*pipeline.Product, error) {
	in, im, err := s.prepared(ctx, in, sources)
	if err != nil {
		return nil, err
	}
	keys := make([]tensor.Key, len(in.Tensors), len(in.Tensors)+1)
	whole := true
	for i, t := range in.Tensors {
		keys[i] = t.Key
		whole = whole && !t.Key.IsZero()
	}
	if im != nil {
		keys = append(keys, im.key())
	}
	key := tensor.Key{}
	if whole {
		key = tensor.Derive(budgetVersion, s.key(), keys...)
	}
	return &pipeline.Product{
		Format: "types", MediaType: "application/vnd.quern.types.v1+json", File: choiceFile, Key: key,
		Make: func(ctx context.Context, opt pipeline.WorkOptions) ([]byte, error) { return s.spend(ctx, in, im, opt) },
	}, nil
}

// chosen reads the choice that Resolve has made.
func chosen(ctx context.Context, sources []*pipeline.Source) (*choice, error) {
	for _, src := range slices.Backward(sources) {
		if src.Kind != pipeline.ProductKind || src.FileName() != choiceFile {
			continue
		}
		b, err := src.ReadAll(ctx)
		if err != nil {
			return nil, err
		}
		var c choice
		return &c, json.Unmarshal(b, &c)
	}
	return nil, errors.New("the budget's choice of types is missing")
}

// option is one type that a tensor may get.
type option struct {
	t     tensor.Type
	bytes int64
	err   float64
}

// candidate is a tensor whose type the budget decides, with the options that are
// worth their bytes: rising in bytes, falling in error, each step worse value
// than the one before.
type candidate struct {
	t       *tensor.Tensor
	options []option
	at      int
}

// spend measures every candidate type of every tensor and buys, step by step, what
// lowers the error most for its bytes.
func (s *Stage) spend(ctx context.Context, in *model.Model, im *importance, opt pipeline.WorkOptions) ([]byte, error) {
	order := s.visitOrder(in)
	picks, err := s.assign(in, order, im != nil)
	if err != nil {
		return nil, err
	}
	types := s.candidates(im != nil)
	var fixed, weights int64
	var list []*candidate
	specs := make([]gguf.TensorSpec, len(order))
	for k, i := range order {
		t := in.Tensors[i]
		n, err := t.Shape.Values()
		if err != nil {
			return nil, err
		}
		weights += n
		specs[k] = gguf.TensorSpec{Name: t.Name, Type: t.Type, Shape: dropOnes(t.Shape)}
		if picks[k].to == tensor.Invalid || picks[k].fixed {
			if picks[k].to != tensor.Invalid {
				specs[k].Type = picks[k].to
			}
			b, err := tensor.Bytes(specs[k].Type, t.Shape)
			if err != nil {
				return nil, fmt.Errorf("tensor %s: %w", t.Name, err)
			}
			fixed += padded(b)
			continue
		}
		list = append(list, &candidate{t: t})
	}
	if err := s.measure(ctx, list, types, im, opt); err != nil {
		return nil, err
	}
	budget, err := s.allowance(in, specs, weights)
	if err != nil {
		return nil, err
	}
	used := fixed
	for _, c := range list {
		used += c.options[0].bytes
	}
	if used > budget {
		return nil, fmt.Errorf("%w: the tensors take %d bytes in their smallest types, and %d are allowed; give more, or smaller types", ErrBudget, used, budget)
	}
	used = buy(list, used, budget)
	out := choice{Types: map[string]string{}, Bytes: used}
	for _, c := range list {
		out.Types[c.t.Name] = c.options[c.at].t.String()
		out.Error += c.options[c.at].err
	}
	return json.Marshal(out)
}

// padded is what a tensor takes in the file.
func padded(n int64) int64 {
	return (n + gguf.DefaultAlignment - 1) / gguf.DefaultAlignment * gguf.DefaultAlignment
}

// allowance is the budget in bytes of tensors, header left out.
func (s *Stage) allowance(in *model.Model, specs []gguf.TensorSpec, weights int64) (int64, error) {
	if s.p.Budget == 0 {
		b := s.p.BitsPerWeight * float64(weights) / 8
		return int64(b), nil
	}
	meta, _, err := s.metadata(in, s.ft)
	if err != nil {
		return 0, err
	}
	l, err := gguf.NewLayout(meta, specs, gguf.LayoutOptions{})
	if err != nil {
		return 0, err
	}
	// Keys of an importance matrix come on top; they are short.
	const more = 1 << 10
	return s.p.Budget - int64(len(l.Header)) - more, nil
}

// candidates are the types to choose from, smallest first.
func (s *Stage) candidates(imatrix bool) []tensor.Type {
	if s.types != nil {
		return s.types
	}
	var out []tensor.Type
	for _, t := range ladder {
		if imatrix || !s.needsImatrix("blk.0.ffn_up.weight", t) {
			out = append(out, t)
		}
	}
	return out
}

// buy takes, as long as the budget lasts, the step with the largest fall in
// error for its bytes; of equal ones the first in file order. A step that no
// longer fits ends its tensor's climb, and smaller ones go on.
func buy(list []*candidate, used, budget int64) int64 {
	type step struct {
		c    *candidate
		n    int // to options[n]
		gain float64
	}
	var steps []step
	for _, c := range list {
		for n := 1; n < len(c.options); n++ {
			a, b := c.options[n-1], c.options[n]
			steps = append(steps, step{c, n, (a.err - b.err) / float64(b.bytes-a.bytes)})
		}
	}
	slices.SortStableFunc(steps, func(a, b step) int { return cmp.Compare(b.gain, a.gain) })
	for _, st := range steps {
		if st.c.at != st.n-1 {
			continue
		}
		if more := st.c.options[st.n].bytes - st.c.options[st.n-1].bytes; used+more <= budget {
			used += more
			st.c.at = st.n
		}
	}
	return used
}

// hull leaves the options that are worth their bytes.
func hull(options []option) []option {
	slices.SortStableFunc(options, func(a, b option) int { return cmp.Or(cmp.Compare(a.bytes, b.bytes), cmp.Compare(a.err, b.err)) })
	var out []option
	for _, o := range options {
		if n := len(out); n > 0 && (o.bytes == out[n-1].bytes || o.err >= out[n-1].err) {
			continue
		}
		for len(out) >= 2 {
			a, b := out[len(out)-2], out[len(out)-1]
			if float64((a.err-b.err)*float64(o.bytes-a.bytes)) >= float64((a.err-o.err)*float64(b.bytes-a.bytes)) {
				break
			}
			out = out[:len(out)-1]
		}
		out = append(out, o)
	}
	return out
}

// measure fills in every candidate's options, one tensor a worker.
func (s *Stage) measure(ctx context.Context, list []*candidate, types []tensor.Type, im *importance, opt pipeline.WorkOptions) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(max(opt.Jobs, 1))
	for i, c := range list {
		opt.Events.Event(pipeline.Event{Kind: pipeline.EventProgress, Output: "types for the budget", Tensor: c.t.Name, Done: int64(i), Total: int64(len(list))})
		g.Go(func() error {
			sample, err := readSample(ctx, c.t, im.weightsOf(c.t.Name))
			if err != nil {
				return fmt.Errorf("tensor %s: %w", c.t.Name, err)
			}
			seen := map[tensor.Type]bool{}
			for _, want := range types {
				to, _, err := s.fit(c.t, want, "")
				if err != nil {
					return err
				}
				if seen[to] || s.needsImatrix(c.t.Name, to) && im.weightsOf(c.t.Name) == nil {
					continue
				}
				seen[to] = true
				o := option{t: to}
				if o.bytes, err = tensor.Bytes(to, c.t.Shape); err != nil {
					return err
				}
				o.bytes = padded(o.bytes)
				if o.err, err = sample.error(to); err != nil {
					return fmt.Errorf("tensor %s: %w", c.t.Name, err)
				}
				c.options = append(c.options, o)
			}
			if c.options = hull(c.options); len(c.options) == 0 {
				return fmt.Errorf("tensor %s: %w: every one of %v needs one", c.t.Name, ErrImatrix, types)
			}
			return nil
		})
	}
	return g.Wait()
}

// sampleValues is how many values of a tensor are measured: whole rows, evenly
// spread.
const sampleValues = 1 << 19

// sample is some rows of a tensor and the weights of each.
type sample struct {
	row     int
	x       []float32
	weights [][]float32 // by row; nil without an importance matrix
}

func readSample(ctx context.Context, t *tensor.Tensor, weights []float32) (*sample, error) {
	row, rows := t.Shape.RowLen(), t.Rows()
	take := min(rows, max(1, sampleValues/max(row, 1)))
	s := &sample{row: int(row), x: make([]float32, take*row)}
	d, err := quant.DecoderFor(t.Type)
	if err != nil {
		return nil, err
	}
	buf := make([]byte, t.RowBytes())
	perSet := rows
	if weights != nil {
		perSet = rows / (int64(len(weights)) / row)
	}
	for k := range take {
		r := k * rows / take
		if err := t.ReadRows(ctx, buf, r, 1); err != nil {
			return nil, err
		}
		d.Decode(s.x[k*row:(k+1)*row], buf)
		if weights != nil {
			at := r / perSet * row
			s.weights = append(s.weights, weights[at:at+row])
		}
	}
	return s, nil
}

// error is the squared error of a type over the sample, weighted by importance,
// relative to the squares of the values.
func (s *sample) error(to tensor.Type) (float64, error) {
	c, err := quant.For(to)
	if err != nil {
		return 0, err
	}
	size, err := tensor.RowBytes(to, int64(s.row))
	if err != nil {
		return 0, err
	}
	b, y := make([]byte, size), make([]float32, s.row)
	var noise, signal float64
	for k := 0; k*s.row < len(s.x); k++ {
		x := s.x[k*s.row : (k+1)*s.row]
		var w []float32
		if s.weights != nil {
			w = s.weights[k]
		}
		c.EncodeRow(b, x, w)
		c.Decode(y, b)
		for i, v := range x {
			f := 1.0
			if w != nil {
				f = float64(w[i])
			}
			e := float64(v) - float64(y[i])
			noise += float64(f * float64(e*e))
			signal += float64(f * float64(float64(v)*float64(v)))
		}
	}
	if signal == 0 {
		return 0, nil
	}
	if r := noise / signal; !math.IsNaN(r) && !math.IsInf(r, 0) {
		return r, nil
	}
	return 0, fmt.Errorf("%s: the error is not finite", to)
}

// apply puts the choice in place of the preset's types.
func (c *choice) apply(in *model.Model, order []int, picks []pick) error {
	for k, i := range order {
		name := in.Tensors[i].Name
		text, ok := c.Types[name]
		if !ok || picks[k].to == tensor.Invalid || picks[k].fixed {
			continue
		}
		t, err := tensor.ParseType(text)
		if err != nil {
			return fmt.Errorf("tensor %s: %w", name, err)
		}
		picks[k] = pick{to: t, why: "budget"}
	}
	return nil
}

// key says what the choice depends on besides the model and the matrix.
func (s *Stage) key() string {
	p := s.p
	p.TypePos, p.ImatrixPos, p.Rules = recipes.Pos{}, recipes.Pos{}, slices.Clone(p.Rules)
	for i := range p.Rules {
		p.Rules[i].Pos = recipes.Pos{}
	}
	b, err := json.Marshal(p)
	if err != nil {
		return strconv.Quote(err.Error()) // a struct of texts and numbers always marshals
	}
	return string(b)
}

// newBudget checks the parameters of a budget.
func (s *Stage) newBudget() error {
	for _, text := range s.p.Types {
		t, err := tensor.ParseType(text)
		if err != nil {
			return fmt.Errorf("types: %w", err)
		}
		if _, ok := ftypeOfType(t); !ok {
			return fmt.Errorf("types: %s: llama.cpp has no file of that type", t)
		}
		s.types = append(s.types, t)
	}
	// Until types are chosen every tensor stands for this one; rules,
	// output-type and embedding-type decide before it.
	s.pure = true
	var err error
	s.ft, err = presetByName("Q8_0")
	return err
}

// commonType is the file type whose tensor type most of the weights have.
func commonType(in *model.Model, order []int, picks []pick) ftype {
	sums := map[tensor.Type]int64{}
	for k, i := range order {
		if n, err := in.Tensors[i].Shape.Values(); err == nil && picks[k].to != tensor.Invalid {
			sums[picks[k].to] += n
		}
	}
	best, most := ftypes[0], int64(0)
	for _, f := range ftypes {
		if n := sums[f.def]; n > most {
			if g, ok := ftypeOfType(f.def); ok {
				best, most = g, n
			}
		}
	}
	return best
}
