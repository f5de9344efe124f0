package gates

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"quern/formats/safetensors"
	"quern/internal/digest"
	"quern/pipeline"
	"quern/recipes"
	infer "quern/runtime"
	"quern/tensor"
	"quern/tensor/quant"
)

// Logits is the gate that demands golden logits.
type Logits struct{ p recipes.LogitsGate }

// NewLogits makes the gate.
func NewLogits(p recipes.LogitsGate) *Logits { return &Logits{p} }

// Name is the gate's name.
func (g *Logits) Name() string { return "logits" }

// Plan looks for the file.
func (g *Logits) Plan(sources []*pipeline.Source) error {
	if g.p.File == "" {
		return nil
	}
	_, err := pipeline.FindText(sources, g.p.File)
	return err
}

// Check evaluates the ids and compares each row of logits.
func (g *Logits) Check(ctx context.Context, in pipeline.GateInput) ([]pipeline.GateResult, error) {
	var golden *goldenLogits
	ids := g.p.IDs
	if g.p.File != "" && in.Part == 0 {
		s, err := pipeline.FindText(in.Sources, g.p.File)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", pipeline.ErrRecipe, err)
		}
		if golden, err = openLogits(ctx, s, ids); err != nil {
			return nil, pipeline.SourceFault(fmt.Errorf("source %s: %w", g.p.File, err))
		}
		ids = golden.ids
	}
	return runFile(ctx, in, g.Name(), func(m infer.Model) ([]pipeline.GateResult, error) {
		so := infer.SessionOptions{Context: len(ids), Jobs: in.Jobs}
		var err error
		if so.Act, err = act(g.p.Act); err != nil {
			return nil, err
		}
		s, err := m.NewSession(so)
		if err != nil {
			return nil, err
		}
		want := make([]int, len(ids))
		for i := range want {
			want[i] = i
		}
		if golden == nil {
			return g.sum(ctx, in, s, ids, want)
		}
		if v := m.Info().Vocab; v != golden.vocab {
			return []pipeline.GateResult{{Gate: g.Name(), Output: in.Output, What: "logits of a token", Value: float64(v), Limit: float64(golden.vocab),
				Text: fmt.Sprintf("logits of %s are %d for a token, the golden ones %d", in.Output, v, golden.vocab)}}, nil
		}
		c := &closeness{golden: golden}
		if err := s.Eval(ctx, ids, want, func(i int, logits []float32) error { return c.row(ctx, i, logits) }); err != nil {
			return nil, err
		}
		limit := 0.0
		if g.p.MaxAbs != nil {
			limit = *g.p.MaxAbs
		}
		b := bound{value: c.worst, limit: limit}
		where := ""
		if c.worst != 0 {
			where = fmt.Sprintf(" (%g for id %d after token %d, golden is %g)", c.got, c.id, c.token, c.want)
		}
		return []pipeline.GateResult{{Gate: g.Name(), Output: in.Output, What: "largest difference of a logit", Value: b.value, Limit: b.limit, Pass: b.pass(),
			Text: fmt.Sprintf("logits of %s differ from the golden ones by %.4g at most%s%s", in.Output, c.worst, where, b.words())}}, nil
	})
}

// sum compares by digest.
func (g *Logits) sum(ctx context.Context, in pipeline.GateInput, s infer.Session, ids []int32, want []int) ([]pipeline.GateResult, error) {
	h := digest.New()
	var buf []byte
	err := s.Eval(ctx, ids, want, func(_ int, logits []float32) error {
		buf = infer.AppendLogits(buf[:0], logits)
		h.Write(buf)
		return nil
	})
	if err != nil {
		return nil, err
	}
	got := hex.EncodeToString(h.Sum(nil))
	res := pipeline.GateResult{Gate: g.Name(), Output: in.Output, What: "logits with the golden digest", Limit: 1, Pass: got == g.p.SHA256}
	if res.Pass {
		res.Value = 1
		res.Text = fmt.Sprintf("logits of %s have the golden SHA-256 %s", in.Output, got)
	} else {
		res.Text = fmt.Sprintf("logits of %s have SHA-256 %s, the golden is %s", in.Output, got, g.p.SHA256)
	}
	return []pipeline.GateResult{res}, nil
}

// goldenLogits are logits of a file, a row a token.
type goldenLogits struct {
	ids   []int32
	vocab int
	t     *tensor.Tensor
	dec   quant.Decoder
}

// openLogits opens what quern logits -o wrote. ids are those of the recipe, or
// empty for those of the file.
func openLogits(ctx context.Context, s *pipeline.Source, ids []int32) (*goldenLogits, error) {
	f, err := safetensors.Open(ctx, s.FileName(), s.Content, safetensors.Options{})
	if err != nil {
		return nil, err
	}
	g := &goldenLogits{t: f.Tensor("logits")}
	if g.t == nil {
		return nil, errors.New("no tensor is called logits")
	}
	if !g.t.Type.IsFloat() || len(g.t.Shape) != 2 {
		return nil, fmt.Errorf("tensor logits is %s %v; it must be a matrix of floats, a row a token", g.t.Type, g.t.Shape)
	}
	if g.dec, err = quant.DecoderFor(g.t.Type); err != nil {
		return nil, fmt.Errorf("tensor logits: %w", err)
	}
	for _, kv := range f.Metadata {
		if kv.Key == "tokens" {
			if g.ids, err = parseIDs(kv.Value); err != nil {
				return nil, err
			}
		}
	}
	switch {
	case len(ids) == 0 && g.ids == nil:
		return nil, errors.New("its metadata has no tokens; the gate needs ids")
	case len(ids) > 0 && g.ids != nil && !slices.Equal(ids, g.ids):
		return nil, fmt.Errorf("its logits are for %d other ids than the gate's %d", len(g.ids), len(ids))
	case g.ids == nil:
		g.ids = ids
	}
	if n := g.t.Shape.Rows(); n != int64(len(g.ids)) {
		return nil, fmt.Errorf("tensor logits has %d rows for %d ids", n, len(g.ids))
	}
	g.vocab = int(g.t.Shape.RowLen())
	return g, nil
}

func parseIDs(text string) ([]int32, error) {
	words := strings.Split(text, ",")
	ids := make([]int32, len(words))
	for i, w := range words {
		n, err := strconv.ParseInt(strings.TrimSpace(w), 10, 32)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("tokens of its metadata: %q is no token id", w)
		}
		ids[i] = int32(n)
	}
	return ids, nil
}

// closeness finds the largest difference.
type closeness struct {
	golden    *goldenLogits
	packed    []byte
	row32     []float32
	worst     float64
	got, want float32
	token, id int
}

// row compares the logits after token i. Equal ones, infinite ones included, do
// not differ; NaN differs from all.
func (c *closeness) row(ctx context.Context, i int, logits []float32) error {
	g := c.golden
	if c.packed == nil {
		c.packed, c.row32 = make([]byte, g.t.RowBytes()), make([]float32, g.vocab)
	}
	if err := g.t.ReadRows(ctx, c.packed, int64(i), 1); err != nil {
		return pipeline.SourceFault(err)
	}
	g.dec.Decode(c.row32, c.packed)
	for id, want := range c.row32 {
		got := logits[id]
		if got == want {
			continue
		}
		d := math.Abs(float64(got) - float64(want))
		if d != d {
			d = math.Inf(1)
		}
		if d > c.worst {
			c.worst, c.got, c.want, c.token, c.id = d, got, want, i, id
		}
	}
	return nil
}
