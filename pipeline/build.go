package pipeline

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"quern/artifacts"
	"quern/internal/atomicfile"
	"quern/internal/digest"
)

// BuildOptions say where a build goes and how much it may use. Only OutDir and
// the lock change what is written where; nothing here changes a byte of an
// output.
type BuildOptions struct {
	OutDir  string // "" means the working folder
	Store   Store  // nil keeps nothing
	Jobs    int
	Memory  int64
	NoCache bool // take nothing from the store
	// LockPaths are where the lock is looked for, and the first of them whose
	// folder may be written to gets the new one. Empty means no lock.
	LockPaths []string
	// Inputs are files that no output may replace besides those of sources:
	// the recipe.
	Inputs []string
	Locked bool
	Events Events
	// Send says how outputs with targets reach these.
	Send SendOptions
	// Unrecorded leaves out the digests of what is read and of single tensors,
	// for builds without store and lock: files of many gigabytes are then
	// hashed once, as they are written, and sources not at all.
	Unrecorded bool
	// HashFirst is the size of files without a known digest up to which they
	// are hashed before the build starts, so that the store is asked for their
	// tensors; larger ones are hashed while the output is written. 0 means
	// 256 MiB, a negative size none.
	HashFirst int64
	// Inspect gives warnings of a written file, nil for none.
	Inspect func(ctx context.Context, in GateInput) ([]string, error)
	// Measure finds the worst tensor of a written file, nil leaves it out.
	Measure func(ctx context.Context, in GateInput) (*WorstTensor, error)
	// MeasureLimit is the size of source data up to which Measure is called.
	MeasureLimit int64
	// Before is atomicfile.Options.Before for the output files and the lock.
	// Tests inject faults with it.
	Before func(atomicfile.Step, string) error
}

// defaultHashFirst is what hashes in about a second.
const defaultHashFirst = 256 << 20

func (b *build) hashFirst() int64 {
	if b.opt.HashFirst == 0 {
		return defaultHashFirst
	}
	return b.opt.HashFirst
}

// Build plans a project and writes its outputs. Until every output is complete,
// verified and past its gates, no file of an earlier build is touched.
func Build(ctx context.Context, prj *Project, opt BuildOptions) (*Result, error) {
	if opt.Events == nil {
		opt.Events = NoEvents{}
	}
	if opt.OutDir == "" {
		opt.OutDir = "."
	}
	b := &build{prj: prj, opt: opt}
	defer b.close()
	return b.run(ctx)
}

type build struct {
	prj     *Project
	opt     BuildOptions
	plan    *Plan
	lock    *Lock // under --locked
	lockAt  string
	outs    []*output
	sourceN atomic.Int64
	storeN  atomic.Int64
	hashed  int64
	said    map[string]bool
	res     *Result

	release   func()   // lets gc at the store again
	unkept    bool     // the store takes nothing
	streams   bool     // some output is nowhere on this machine, so that no build is kept
	folders   []string // made for outputs, outermost first
	published bool
}

func (b *build) close() {
	for _, o := range b.outs {
		o.abort()
		o.closeSend()
	}
	if !b.published {
		b.removeFolders()
	}
	if b.plan != nil {
		b.plan.Close()
	}
	if b.release != nil {
		b.release()
	}
}

// hold keeps gc away from the first look-up to the last key, so that what the
// store was found to have is there when it is read.
func (b *build) hold(ctx context.Context) error {
	if b.opt.Store == nil {
		return nil
	}
	release, err := b.opt.Store.Hold(ctx)
	if err != nil {
		return b.storeFault(err)
	}
	b.release = release
	return nil
}

// storeFault makes do without keeping anything when the store is read-only:
// what it has is of use all the same. Other faults stop the build.
func (b *build) storeFault(err error) error {
	if !errors.Is(err, artifacts.ErrReadOnly) {
		return fmt.Errorf("%w; --no-store builds without it, --store names another", err)
	}
	b.unkept = true
	b.warn(fmt.Sprintf("%v; nothing of this build is kept", err))
	return nil
}

// recording reports whether digests of what is read and of single tensors are
// wanted.
func (b *build) recording() bool { return !b.opt.Unrecorded }

// keeping reports whether results go into the store.
func (b *build) keeping() bool { return b.opt.Store != nil && !b.unkept }

func (b *build) run(ctx context.Context) (*Result, error) {
	b.res = &Result{Name: b.prj.Name, Warnings: []string{}, Gates: []GateResult{}}
	if b.opt.Locked {
		var err error
		if b.lock, b.lockAt, err = findLock(b.opt.LockPaths); err != nil {
			return nil, err
		}
		if sum := b.recipeDigest(); sum != b.lock.Recipe {
			return nil, fmt.Errorf("%w %s: the recipe has changed since (%s, locked to %s)", ErrLocked, b.lockAt, sum.Hex(), b.lock.Recipe.Hex())
		}
	}
	if err := b.hold(ctx); err != nil {
		return nil, err
	}
	if err := b.makePlan(ctx); err != nil {
		return nil, err
	}
	if err := b.prepare(); err != nil {
		return nil, err
	}
	if err := b.measureStages(ctx); err != nil {
		return nil, err
	}
	if err := b.emitAll(ctx); err != nil {
		return nil, err
	}
	if err := b.gates(ctx); err != nil {
		return b.res, err
	}
	return b.res, b.publish(ctx)
}

func (b *build) planOptions() PlanOptions {
	o := PlanOptions{WorkOptions: WorkOptions{Jobs: b.opt.Jobs, Memory: b.opt.Memory, Events: b.opt.Events}, NoCache: b.opt.NoCache}
	if b.keeping() {
		o.Store, o.held = b.opt.Store, true
	}
	return o
}

// makePlan opens and plans. Small local files whose digest is not known yet are
// hashed and everything is planned again, since keys need digests.
func (b *build) makePlan(ctx context.Context) error {
	var err error
	if b.plan, err = NewPlan(ctx, b.prj, b.planOptions()); err != nil {
		return err
	}
	var unhashed int64
	for _, s := range b.plan.Sources {
		if s.unhashed() {
			unhashed += s.bytes()
		}
	}
	if unhashed > 0 && b.recording() && (unhashed <= b.hashFirst() || b.lock != nil) {
		if err := b.hashSources(ctx); err != nil {
			return err
		}
		if err := b.replan(ctx); err != nil {
			return err
		}
	}
	b.tell()
	b.res.Products = b.plan.Products
	if b.lock != nil {
		return b.lock.checkSources(b.lockAt, b.sources())
	}
	return nil
}

// tell passes on what the plan has to say.
func (b *build) tell() {
	for _, n := range b.plan.Warnings() {
		b.warn(n)
	}
	for _, l := range b.plan.Layouts {
		for _, n := range l.Notes {
			b.note(n)
		}
	}
}

// replan opens everything again: digests are known now, or bytes were wrong.
func (b *build) replan(ctx context.Context) error {
	old := b.plan
	next, err := NewPlan(ctx, b.prj, b.planOptions())
	if err != nil {
		return err
	}
	b.addReads()
	b.plan = next
	return old.Close()
}

// addReads keeps the counts of a plan that is about to be closed.
func (b *build) addReads() {
	for _, s := range b.plan.Sources {
		if s.Read != nil {
			b.sourceN.Add(s.Read())
		}
	}
}

func (b *build) recipeDigest() digest.Digest { return digest.Of(b.prj.Recipe) }

func (b *build) hashSources(ctx context.Context) error {
	for _, s := range b.plan.Sources {
		if !s.unhashed() {
			continue
		}
		b.opt.Events.Event(Event{Kind: EventPhase, Message: fmt.Sprintf("hashing source %s", s.Name)})
		if err := s.Digest(ctx); err != nil {
			return fmt.Errorf("source %s: %w: %w", s.Name, ErrSource, err)
		}
		b.hashed += s.bytes()
	}
	return nil
}

func (b *build) warn(msg string) {
	if b.first(msg) {
		b.res.Warnings = append(b.res.Warnings, msg)
		warn(b.opt.Events, msg)
	}
}

func (b *build) note(msg string) {
	if b.first(msg) {
		b.opt.Events.Event(Event{Kind: EventNote, Message: msg})
	}
}

// first reports whether a message has not been shown yet.
func (b *build) first(msg string) bool {
	if b.said == nil {
		b.said = map[string]bool{}
	}
	old := b.said[msg]
	b.said[msg] = true
	return !old
}

func (b *build) sources() []SourceRecord { return sourceRecords(b.plan.Sources) }

func (b *build) measureStages(ctx context.Context) error {
	for i, st := range b.prj.Stages {
		m, ok := st.Stage.(Measurer)
		if !ok {
			continue
		}
		// What a stage drops is not needed otherwise, and fetching it only to
		// say how much was lost is not what the user asked for.
		if b.remote() {
			b.warn(fmt.Sprintf("%s: what it loses was not measured, which would fetch more than the build needs", st.Stage.Name()))
			continue
		}
		say, err := m.Measure(ctx, b.plan.Models[i])
		if err != nil {
			return fmt.Errorf("%s: %s: %w", st.Where, st.Stage.Name(), readFault(ctx, err))
		}
		for _, s := range say {
			b.warn(st.Stage.Name() + ": " + s)
		}
	}
	return nil
}

func (b *build) remote() bool {
	for _, s := range b.plan.Sources {
		if s.Fetch != nil {
			return true
		}
	}
	return false
}

// emitAll writes every output under a temporary name, hashing local sources
// beside it where their digests are still unknown, and verifies what was
// fetched.
func (b *build) emitAll(ctx context.Context) error {
	for _, o := range b.outs {
		if err := o.lookup(ctx); err != nil {
			return err
		}
	}
	for _, n := range b.space() {
		b.warn(n)
	}
	hashed := b.plan.hashed() || !b.recording()
	for attempt := 0; ; attempt++ {
		err := b.emitOnce(ctx)
		if err == nil {
			break
		}
		if !errors.Is(err, ErrRepaired) {
			return err
		}
		if attempt == maxRepairs {
			return SourceFault(err)
		}
		b.warn("bytes of a source were damaged on the way and have been fetched again; the outputs start over")
		if err := b.startOver(ctx); err != nil {
			return err
		}
	}
	if !hashed {
		// Now that the files are hashed the same plan has keys, under which
		// the next build finds the result.
		if err := b.rekey(ctx); err != nil {
			return err
		}
	}
	if b.lock != nil {
		return b.lock.checkSources(b.lockAt, b.sources())
	}
	return nil
}

func (b *build) emitOnce(ctx context.Context) error {
	for _, o := range b.outs {
		o.openSend(ctx)
	}
	if err := b.declare(ctx); err != nil {
		return err
	}
	stop := b.watch()
	defer stop()
	g, gctx := errgroup.WithContext(ctx)
	if !b.plan.hashed() && b.recording() {
		g.Go(func() error { return b.hashSources(gctx) })
	}
	g.Go(func() error {
		for _, o := range b.outs {
			o.abort()
			if err := o.emit(gctx, ctx); err != nil {
				return err
			}
		}
		return nil
	})
	err := g.Wait()
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if err != nil {
		return b.recheck(ctx, err)
	}
	if err := b.check(); err != nil {
		return err
	}
	return b.finish(ctx)
}

// check fails if a local file has changed since it was opened.
func (b *build) check() error {
	for _, s := range b.plan.Sources {
		if s.Check == nil {
			continue
		}
		if err := s.Check(); err != nil {
			return fmt.Errorf("source %s: %w: %w", s.Name, ErrSource, err)
		}
	}
	return nil
}

// rekey plans once more and takes the keys over. The layouts must be the same:
// the files were checked for changes.
func (b *build) rekey(ctx context.Context) error {
	old := b.plan.Layouts
	if err := b.replan(ctx); err != nil {
		return err
	}
	for i, l := range b.plan.Layouts {
		if l.Size != old[i].Size || digest.Of(l.Header) != digest.Of(old[i].Header) || len(l.Items) != len(old[i].Items) {
			return fmt.Errorf("%s: %w: the second plan differs from the first; a source has changed", l.File, ErrSource)
		}
		b.outs[i].layout = l
	}
	return nil
}
