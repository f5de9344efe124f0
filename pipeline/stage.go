package pipeline

import (
	"context"
	"fmt"
	"slices"

	"quern/internal/digest"
	"quern/model"
	"quern/tensor"
)

// Stage turns one model into the next without reading weights: it returns a
// model whose tensors know how to make their rows from those of the input.
//
// A stage promises that tensors with equal derivation keys have equal bytes, so
// it derives the key of each tensor that it changes from its own name and
// version, its parameters and the keys of the tensors below.
type Stage interface {
	// Name is the step's name in recipes.
	Name() string
	Plan(ctx context.Context, in *model.Model) (*model.Model, error)
}

// SourceReader is a Stage that reads plain files besides its model: the recipe's
// sources that it names. A plan calls PlanWith in place of Plan.
type SourceReader interface {
	Stage
	// PlanWith is Plan with the opened sources at hand. What a source says goes
	// into the keys of the tensors that it has changed.
	PlanWith(ctx context.Context, in *model.Model, sources []*Source) (*model.Model, error)
}

// Starter is a first Stage that says which source the steps start from.
type Starter interface {
	Stage
	// Start is the name of the source; empty for the one that there is anyway.
	Start() string
}

// Measurer is a Stage that can say, by reading weights, what it has lost. It is
// asked once before an output is written.
type Measurer interface {
	Stage
	// Measure returns sentences for the user.
	Measure(ctx context.Context, in *model.Model) ([]string, error)
}

// Emitter lays out one output file.
type Emitter interface {
	Plan(ctx context.Context, in *model.Model) (*Layout, error)
}

// SetEmitter is an Emitter of a set of files, such as the shards of a split
// model. A plan calls PlanSet in place of Plan.
type SetEmitter interface {
	Emitter
	PlanSet(ctx context.Context, in *model.Model) ([]*Layout, error)
}

// SourceEmitter is an Emitter that reads plain files besides its model, such as a
// tokenizer. A plan calls PlanWith in place of Plan.
type SourceEmitter interface {
	Emitter
	PlanWith(ctx context.Context, in *model.Model, sources []*Source) (*Layout, error)
}

// Layout is an output file planned to the last byte, without its data.
type Layout struct {
	File      string // relative path
	Format    string // gguf, kmcu, cact
	MediaType string
	// Version names the emitter's code; it is part of the output's key and
	// changes whenever the same model would give other bytes.
	Version string
	Header  []byte
	Items   []Item
	// Size is the size of the file. Bytes that neither the header nor an item
	// covers are zero.
	Size  int64
	Notes []string
	// MaxSize is a limit such as a flash partition, 0 for none.
	MaxSize int64
	// Model is the model as it is written, for those who compare.
	Model *model.Model
	// Of, for a file that repeats tensors of another one in another form, is the
	// layout of that file, which stands before it in the plan. Such a file holds
	// nothing of its own to measure: gates look at the other one. When that is
	// written, Header has the SHA-256 of it at OfDigestAt, and OfRows gives the
	// sources of the rows of Items anew, which read the file as written and make
	// nothing twice; nil leaves the items as they are.
	Of         *Layout
	OfDigestAt int64
	OfRows     func(written tensor.Blob) ([]tensor.Source, error)
}

// Item is one tensor of a Layout.
type Item struct {
	Tensor *tensor.Tensor
	Offset int64 // from the start of the file
	// From is the type of the source tensor, Reason says why it became
	// Tensor.Type.
	From   tensor.Type
	Reason string
	// Aside marks what holds no weights of its own: the norms of the tensor
	// before it, or a tokenizer.
	Aside bool
}

// check makes sure that items follow each other inside the file, which the
// writer relies on.
func (l *Layout) check() error {
	at := int64(len(l.Header))
	for _, it := range l.Items {
		if err := it.Tensor.Validate(); err != nil {
			return fmt.Errorf("%s: %w", l.File, err)
		}
		if it.Offset < at {
			return fmt.Errorf("%s: tensor %s: %w: offset %d lies before %d, the end of what precedes it",
				l.File, it.Tensor.Name, ErrLayout, it.Offset, at)
		}
		at = it.Offset + it.Tensor.Bytes()
	}
	if l.Of != nil && (l.OfDigestAt < 0 || l.OfDigestAt > int64(len(l.Header))-int64(len(digest.Digest{}))) {
		return fmt.Errorf("%s: %w: a digest at %d does not fit into the header of %d bytes", l.File, ErrLayout, l.OfDigestAt, len(l.Header))
	}
	if at > l.Size {
		return fmt.Errorf("%s: %w: planned size %d is under the end of the data %d", l.File, ErrLayout, l.Size, at)
	}
	return nil
}

// Key is the derivation key of the whole file; zero when any tensor has none.
func (l *Layout) Key() tensor.Key {
	keys := make([]tensor.Key, 0, len(l.Items))
	for _, it := range l.Items {
		keys = append(keys, it.Tensor.Key)
	}
	head := digest.Of(l.Header)
	params := fmt.Sprintf("%s header %s size %d", l.Format, head, l.Size)
	for _, it := range l.Items {
		params += fmt.Sprintf(" %d", it.Offset)
	}
	if l.Of != nil {
		params += fmt.Sprintf(" digest at %d", l.OfDigestAt)
		keys = append(keys, l.Of.Key())
	}
	return tensor.Derive("emit/"+l.Version, params, keys...)
}

// after gives the layout of a file that goes with another one, which is written
// now.
func (l *Layout) after(sum digest.Digest, written tensor.Blob) (*Layout, error) {
	c := *l
	c.Of, c.Header = nil, slices.Clone(l.Header)
	copy(c.Header[l.OfDigestAt:], sum[:])
	if l.OfRows == nil {
		return &c, nil
	}
	rows, err := l.OfRows(written)
	if err != nil {
		return nil, err
	}
	if len(rows) != len(l.Items) {
		return nil, fmt.Errorf("%w: rows of %d tensors for %d", ErrLayout, len(rows), len(l.Items))
	}
	c.Items = slices.Clone(l.Items)
	for i := range c.Items {
		c.Items[i].Tensor = c.Items[i].Tensor.With(func(t *tensor.Tensor) { t.Src = rows[i] })
	}
	return &c, nil
}
