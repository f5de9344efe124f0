package pipeline

import (
	"context"
	"fmt"

	"quern/internal/digest"
	"quern/model"
	"quern/tensor"
)

// Resolver is a Stage with a side product that takes data to make: an
// importance matrix out of a run of the model, the types that a budget allows,
// token lists. The product is small, made while the build is planned, and kept
// in the store. Stages behind it find it among the sources that PlanWith gets,
// under the step's id; so does the stage itself if it is a SourceReader.
type Resolver interface {
	Stage
	// Resolves reports whether the stage has a product with its parameters.
	Resolves() bool
	// Resolve says what the product is made of and how.
	Resolve(ctx context.Context, in *model.Model, sources []*Source) (*Product, error)
}

// Product is a side product before it is made.
type Product struct {
	// Format and MediaType describe it in manifests, File is its name there.
	Format, MediaType, File string
	// Key derives from all that the bytes depend on; zero when some of that has
	// no key. A product without a key is made anew by every build.
	Key tensor.Key
	// Make makes the bytes. They must not depend on opt.
	Make func(ctx context.Context, opt WorkOptions) ([]byte, error)
	// Beside are files that are made with the product and kept with it, for
	// people. With them MakeAll takes the place of Make: it gives the product and
	// then those, in order.
	Beside  []ProductFile
	MakeAll func(ctx context.Context, opt WorkOptions) ([][]byte, error)
	// Tell, if set, says from the bytes of all files what users should know: as
	// sentences, and as a value for JSON.
	Tell func(files [][]byte) (lines []string, report any, err error)
}

// ProductFile describes a file of a product.
type ProductFile struct{ Format, MediaType, File string }

// files are the product's and those beside it, with their keys.
func (p *Product) files() ([]ProductFile, []tensor.Key) {
	list := append([]ProductFile{{p.Format, p.MediaType, p.File}}, p.Beside...)
	keys := make([]tensor.Key, len(list))
	keys[0] = p.Key
	for i, f := range p.Beside {
		if !p.Key.IsZero() {
			keys[i+1] = tensor.Derive("beside", f.File, p.Key)
		}
	}
	return list, keys
}

func (p *Product) makeAll(ctx context.Context, opt WorkOptions) ([][]byte, error) {
	if p.MakeAll != nil {
		out, err := p.MakeAll(ctx, opt)
		if err == nil && len(out) != 1+len(p.Beside) {
			err = fmt.Errorf("%d files were made where %d are to be", len(out), 1+len(p.Beside))
		}
		return out, err
	}
	b, err := p.Make(ctx, opt)
	return [][]byte{b}, err
}

// ProductReport is what a plan and a build say of a product.
type ProductReport struct {
	// Name is the step's id. The store knows the files as those of the build
	// RECIPE.NAME.
	Name   string       `json:"name"`
	Step   string       `json:"step"`
	Files  []SourceFile `json:"files"`
	Lines  []string     `json:"lines,omitempty"`
	Report any          `json:"report,omitempty"`
}

// WorkOptions bound what is done while planning. They change no result.
type WorkOptions struct {
	Jobs   int
	Memory int64
	Events Events
}

// PlanOptions say what side products may cost and where they are kept.
type PlanOptions struct {
	WorkOptions
	Store   Store // nil keeps nothing
	NoCache bool  // take nothing from the store

	held bool // nothing is removed from the store meanwhile
}

// ProductKind is the Kind of a Source that a step made.
const ProductKind = "step"

// made is a product that this process has made or found already. Plans are made
// anew when digests become known, the product stays.
type made struct {
	key   tensor.Key
	files [][]byte
}

// resolves reports whether the project has a product that anything reads: a
// Resolver that reads sources itself or has a reader behind it.
func (p *Project) resolves(stage int) bool {
	if r, ok := p.Stages[stage].Stage.(Resolver); !ok || !r.Resolves() {
		return false
	}
	for _, st := range p.Stages[stage:] {
		if _, ok := st.Stage.(SourceReader); ok {
			return true
		}
	}
	return false
}

func (p *Project) resolvesAny() bool {
	for i := range p.Stages {
		if p.resolves(i) {
			return true
		}
	}
	return false
}

// productName is what stages behind a step call its product.
func (st PlacedStage) productName(i int) string {
	if st.ID != "" {
		return st.ID
	}
	return fmt.Sprintf("step-%d", i+1)
}

// resolve makes or finds the product of a stage and puts it beside the sources.
func (p *Plan) resolve(ctx context.Context, i int, in *model.Model, sources []*Source) ([]*Source, error) {
	st := p.Project.Stages[i]
	prod, err := st.Stage.(Resolver).Resolve(ctx, in, sources)
	if err != nil {
		return nil, err
	}
	name := st.productName(i)
	files, err := p.product(ctx, i, name, prod)
	if err != nil {
		return nil, err
	}
	report := ProductReport{Name: name, Step: st.Stage.Name()}
	list, _ := prod.files()
	for k, f := range list {
		report.Files = append(report.Files, SourceFile{Path: f.File, Size: int64(len(files[k])), SHA256: digest.Of(files[k]).Hex()})
	}
	if prod.Tell != nil {
		if report.Lines, report.Report, err = prod.Tell(files); err != nil {
			return nil, err
		}
	}
	p.Products = append(p.Products, report)
	out := append([]*Source(nil), sources...)
	return append(out, &Source{Name: name, Kind: ProductKind, Content: tensor.BytesBlob(name, files[0]), Files: report.Files[:1:1]}), nil
}

// product looks in this process, then in the store, then makes it.
func (p *Plan) product(ctx context.Context, i int, name string, prod *Product) ([][]byte, error) {
	if m, ok := p.Project.products[i]; ok && (m.key == prod.Key || m.key.IsZero()) {
		return m.files, nil
	}
	keep := func(files [][]byte) [][]byte {
		if p.Project.products == nil {
			p.Project.products = map[int]made{}
		}
		p.Project.products[i] = made{prod.Key, files}
		return files
	}
	if files, err := p.storedFiles(ctx, prod); err != nil {
		return nil, err
	} else if files != nil {
		return keep(files), nil
	}
	opt := p.opt.WorkOptions
	if opt.Events == nil {
		opt.Events = NoEvents{}
	}
	opt.Events.Event(Event{Kind: EventPhase, Message: "making " + name})
	files, err := prod.makeAll(ctx, opt)
	if err != nil {
		return nil, err
	}
	if err := p.keepProduct(ctx, i, name, prod, files); err != nil {
		// What was computed is good all the same.
		opt.Events.Event(Event{Kind: EventWarning, Message: fmt.Sprintf("%s is not kept: %v", name, err)})
	}
	return keep(files), nil
}

// storedFiles finds all files of a product in the store, or nil.
func (p *Plan) storedFiles(ctx context.Context, prod *Product) ([][]byte, error) {
	_, keys := prod.files()
	var out [][]byte
	for _, key := range keys {
		b, err := p.storedProduct(ctx, key)
		if b == nil || err != nil {
			return nil, err
		}
		out = append(out, b)
	}
	return out, nil
}

// maxProduct bounds what is read of a product from the store.
const maxProduct = 1 << 30

func (p *Plan) storedProduct(ctx context.Context, key tensor.Key) ([]byte, error) {
	if p.opt.Store == nil || p.opt.NoCache || key.IsZero() {
		return nil, nil
	}
	f, err := p.opt.Store.File(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	if f == nil || f.Size > maxProduct {
		return nil, nil
	}
	blob, err := p.opt.Store.OpenBlob(ctx, f.Digest)
	if err != nil {
		return nil, nil // damaged: made again
	}
	defer blob.Close()
	if blob.Size() != f.Size {
		return nil, nil
	}
	b := make([]byte, f.Size)
	if err := blob.ReadAt(ctx, b, 0); err != nil || digest.Of(b) != f.Digest {
		return nil, context.Cause(ctx)
	}
	return b, nil
}

// keepProduct records a product as a build of its own, named after recipe and
// step.
func (p *Plan) keepProduct(ctx context.Context, i int, name string, prod *Product, files [][]byte) error {
	if p.opt.Store == nil || prod.Key.IsZero() {
		return nil
	}
	if !p.opt.held {
		release, err := p.opt.Store.Hold(ctx)
		if err != nil {
			return err
		}
		defer release()
	}
	r := &Record{Name: p.Project.Name + "." + name, Recipe: p.Project.Recipe, Sources: sourceRecords(p.Sources)}
	for _, st := range p.Project.Stages[:i+1] {
		r.Steps = append(r.Steps, st.Record)
	}
	list, keys := prod.files()
	for k, f := range list {
		sum, err := p.keepBlob(ctx, files[k])
		if err != nil {
			return err
		}
		r.Outputs = append(r.Outputs, OutputRecord{File: f.File, Format: f.Format, MediaType: f.MediaType, Digest: sum, Size: int64(len(files[k])), Key: keys[k]})
	}
	_, err := p.opt.Store.Record(ctx, r)
	return err
}

func (p *Plan) keepBlob(ctx context.Context, b []byte) (digest.Digest, error) {
	w, err := p.opt.Store.NewBlob(ctx, int64(len(b)))
	if err != nil {
		return digest.Digest{}, err
	}
	defer w.Abort()
	if _, err := w.Write(b); err != nil {
		return digest.Digest{}, err
	}
	sum := digest.Of(b)
	return sum, w.Commit(sum)
}

func sourceRecords(list []*Source) []SourceRecord {
	out := make([]SourceRecord, 0, len(list))
	for _, s := range list {
		out = append(out, SourceRecord{Name: s.Name, Kind: s.Kind, Ref: s.Ref, Commit: s.Commit, Files: s.Files})
	}
	return out
}

// rekeyed opens the sources anew once their files are hashed, so that products
// have keys and are found in the store.
func (p *Plan) rekeyed(ctx context.Context) error {
	if p.opt.Store == nil || !p.Project.resolvesAny() || p.hashed() {
		return nil
	}
	for _, s := range p.Sources {
		if !s.unhashed() {
			continue
		}
		if err := s.Digest(ctx); err != nil {
			return fmt.Errorf("source %s: %w: %w", s.Name, ErrSource, err)
		}
	}
	if err := p.Close(); err != nil {
		return err
	}
	p.Sources = nil
	sources, err := p.Project.Open(ctx)
	p.Sources = sources
	return err
}
