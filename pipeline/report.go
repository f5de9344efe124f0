package pipeline

import (
	"context"
	"fmt"
	"path"
	"runtime"
	"slices"

	"quern/artifacts/sink"
	"quern/tensor"
)

// PlanReport is a plan as users see it. Its JSON is the document of quern plan
// --json.
type PlanReport struct {
	Name    string       `json:"name"`
	Outputs []PlanOutput `json:"outputs"`
	Sources []PlanSource `json:"sources"`
	// Products are the side products of steps, such as token lists.
	Products []ProductReport `json:"products,omitempty"`
	// PeakMemory is an upper estimate of the resident size of the build.
	PeakMemory int64    `json:"peak_memory"`
	Notes      []string `json:"notes"`
}

// PlanOutput is one file of a PlanReport.
type PlanOutput struct {
	File          string      `json:"file"`
	Format        string      `json:"format"`
	Size          int64       `json:"size"`
	HeaderBytes   int64       `json:"header_bytes"`
	BitsPerWeight float64     `json:"bits_per_weight"`
	Types         []TypeShare `json:"types"`
	Kept          bool        `json:"in_store"`
	// To are the targets that the file is sent to, none for the output folder.
	To      []string     `json:"to,omitempty"`
	Tensors []PlanTensor `json:"tensors"`

	streamed bool // no file of this machine is among To
}

// TypeShare says how much of a file is of a type, as fractions.
type TypeShare struct {
	Type    string  `json:"type"`
	Weights float64 `json:"weights"`
	Bytes   float64 `json:"bytes"`
}

// PlanTensor is one tensor of a PlanOutput.
type PlanTensor struct {
	Name   string       `json:"name"`
	Shape  tensor.Shape `json:"shape"`
	From   string       `json:"from"`
	Type   string       `json:"type"`
	Reason string       `json:"reason"`
	Bytes  int64        `json:"bytes"`
	Offset int64        `json:"offset"`
	Kept   bool         `json:"in_store"`
}

// PlanSource is one source of a PlanReport.
type PlanSource struct {
	SourceRecord
	Remote bool `json:"remote"`
	// ToFetch are the distinct bytes of weights that the build will fetch: what
	// the store has, what caches have and what was fetched before left out.
	ToFetch int64 `json:"bytes_to_fetch"`
}

// baseMemory is what the program needs without any rows: code, heap and the
// like.
const baseMemory = 48 << 20

// Report describes a plan. store, when not nil, is asked what need not be made.
func (p *Plan) Report(ctx context.Context, store Store, opt EmitOptions) (*PlanReport, error) {
	doc := &PlanReport{Name: p.Project.Name, Notes: p.Notes(), Products: p.Products}
	if doc.Notes == nil {
		doc.Notes = []string{}
	}
	kept := make([]*output, len(p.Layouts))
	var header int64
	for i, l := range p.Layouts {
		o := &output{b: &build{plan: p, opt: BuildOptions{Store: store}}, layout: l}
		if err := o.lookup(ctx); err != nil {
			return nil, err
		}
		kept[i] = o
		header += int64(len(l.Header))
		out := PlanOutput{
			File: l.File, Format: l.Format, Size: l.Size, HeaderBytes: int64(len(l.Header)),
			BitsPerWeight: bitsPerWeight(l), Types: typeShares(l), Kept: o.cached,
		}
		for _, t := range p.Project.Emitters[p.emitters[i]].To {
			t = t.At(path.Base(l.File))
			out.To = append(out.To, t.String())
			out.streamed = (out.streamed || len(out.To) == 1) && t.Kind != sink.File
		}
		for k, it := range l.Items {
			out.Tensors = append(out.Tensors, PlanTensor{
				Name: it.Tensor.Name, Shape: it.Tensor.Shape, From: it.From.String(), Type: it.Tensor.Type.String(),
				Reason: it.Reason, Bytes: it.Tensor.Bytes(), Offset: it.Offset, Kept: o.has(k),
			})
		}
		doc.Outputs = append(doc.Outputs, out)
	}
	needs := p.needs(func(o, i int) bool { return kept[o].has(i) }, nil)
	for _, s := range p.Sources {
		src := PlanSource{SourceRecord: SourceRecord{Name: s.Name, Kind: s.Kind, Ref: s.Ref, Commit: s.Commit, Files: s.Files}}
		if s.Fetch != nil {
			src.Remote = true
			var err error
			if src.ToFetch, err = s.Fetch.Missing(ctx, needs[s.Name]); err != nil {
				return nil, fmt.Errorf("source %s: %w: %w", s.Name, ErrSource, err)
			}
		}
		doc.Sources = append(doc.Sources, src)
	}
	jobs := opt.Jobs
	if jobs <= 0 {
		jobs = runtime.GOMAXPROCS(0)
	}
	// Each worker holds a source row block, its float form and the encoder's
	// scratch beside the rows that wait to be written.
	doc.PeakMemory = baseMemory + 4*header + rowsInFlight(p.Layouts, opt) + int64(jobs)*4*maxPiece
	return doc, nil
}

// rowsInFlight is the most that finished rows can take: the budget, or all
// there is.
func rowsInFlight(ls []*Layout, opt EmitOptions) int64 {
	var most int64
	for _, l := range ls {
		var n int64
		for _, it := range l.Items {
			n += it.Tensor.Bytes()
		}
		if n > most {
			most = n
		}
	}
	// One piece after the other is admitted until the window is full.
	if window := int64(64 * maxPiece); most > window {
		most = window
	}
	if opt.Memory > 0 && most > opt.Memory {
		most = opt.Memory
	}
	return most
}

// typeShares sums weights and bytes by type, the largest share first.
func typeShares(l *Layout) []TypeShare {
	type sum struct{ values, bytes int64 }
	by := map[tensor.Type]*sum{}
	var all sum
	for _, it := range l.Items {
		n, err := it.Tensor.Shape.Values()
		if err != nil {
			continue
		}
		s := by[it.Tensor.Type]
		if s == nil {
			s = &sum{}
			by[it.Tensor.Type] = s
		}
		if it.Aside {
			n = 0
		}
		s.values += n
		s.bytes += it.Tensor.Bytes()
		all.values += n
		all.bytes += it.Tensor.Bytes()
	}
	var out []TypeShare
	for _, t := range tensor.Types() {
		if s := by[t]; s != nil && all.bytes > 0 && all.values > 0 {
			out = append(out, TypeShare{t.String(), float64(s.values) / float64(all.values), float64(s.bytes) / float64(all.bytes)})
		}
	}
	slices.SortStableFunc(out, func(a, b TypeShare) int {
		switch {
		case a.Weights > b.Weights:
			return -1
		case a.Weights < b.Weights:
			return 1
		}
		return 0
	})
	return out
}
