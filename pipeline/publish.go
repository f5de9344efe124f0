package pipeline

import (
	"context"
	"fmt"
	"path/filepath"

	"quern/internal/atomicfile"
)

// publish makes what was written final: the store's content, its record, the
// output files, the lock. A failure leaves earlier files as they were, except
// that a set of several outputs may be half new; each file is whole.
func (b *build) publish(ctx context.Context) error {
	lock := b.newLock()
	if b.lock != nil {
		if err := b.lock.checkOutputs(b.lockAt, lock.Outputs); err != nil {
			return err
		}
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	// The store first: when the files get their names everything that
	// describes them is there.
	for _, o := range b.outs {
		if o.keep == nil {
			continue
		}
		err := o.keep.Commit(o.written.Digest)
		o.keep = nil
		if err == nil {
			continue
		}
		if err := b.storeFault(err); err != nil {
			return err
		}
	}
	rec := b.record()
	if err := b.keep(ctx, rec); err != nil {
		return err
	}
	for i, o := range b.outs {
		if err := o.commit(); err != nil {
			return err
		}
		if o.send != nil {
			if err := o.send.Publish(ctx); err != nil {
				return err
			}
		}
		b.opt.Events.Event(Event{Kind: EventDone, Output: o.layout.File, Total: o.layout.Size})
		b.res.Outputs = append(b.res.Outputs, b.outputResult(o, rec.Outputs[i]))
	}
	b.finishStats()
	b.res.Sources = rec.Sources
	b.published = true
	return b.saveLock(lock)
}

// keep records the build in the store.
func (b *build) keep(ctx context.Context, rec *Record) error {
	if b.streams && b.keeping() {
		b.note("the store keeps nothing of a build with outputs that only go to targets")
	}
	if !b.keeping() || b.streams {
		return nil
	}
	m, err := b.opt.Store.Record(ctx, rec)
	if err != nil {
		return b.storeFault(err)
	}
	b.res.Manifest = &m
	return nil
}

func (b *build) newLock() *Lock {
	l := &Lock{Version: lockVersion, Recipe: b.recipeDigest(), Sources: b.sources()}
	for _, o := range b.outs {
		l.Outputs = append(l.Outputs, LockOutput{File: o.layout.File, Size: o.written.Size, SHA256: o.written.Digest, Tensors: o.written.Tensors})
	}
	return l
}

// saveLock writes the lock to the first of its places whose folder allows it.
func (b *build) saveLock(l *Lock) error {
	if b.lock != nil {
		b.res.Lock = b.lockAt
		return nil
	}
	for i, p := range b.opt.LockPaths {
		last := i == len(b.opt.LockPaths)-1
		if !folderWritable(filepath.Dir(p)) && !last {
			continue
		}
		err := writeLock(p, l, atomicfile.Options{Before: b.opt.Before})
		if err == nil {
			b.res.Lock = p
			return nil
		}
		if last || !atomicfile.IsReadOnly(err) {
			return fmt.Errorf("the outputs are there, the lock file is not: %w", writeFault(p, 0, err))
		}
	}
	return nil
}

func (b *build) record() *Record {
	r := &Record{Name: b.prj.Name, Recipe: b.prj.Recipe, Sources: b.sources(), Gates: b.res.Gates}
	for _, st := range b.prj.Stages {
		r.Steps = append(r.Steps, st.Record)
	}
	for _, o := range b.outs {
		key, keys := o.keys()
		out := OutputRecord{
			File: o.layout.File, Format: o.layout.Format, MediaType: o.layout.MediaType,
			Digest: o.written.Digest, Size: o.written.Size, Key: key,
		}
		for i, it := range o.layout.Items {
			out.Tensors = append(out.Tensors, OutputTensor{
				Name: it.Tensor.Name, Type: it.Tensor.Type, Shape: it.Tensor.Shape, From: it.From, Reason: it.Reason,
				Offset: it.Offset, Bytes: it.Tensor.Bytes(), SHA256: o.written.Tensors[i].SHA256, Key: keys[i],
			})
		}
		r.Outputs = append(r.Outputs, out)
	}
	return r
}

func (b *build) outputResult(o *output, rec OutputRecord) OutputResult {
	made := 0
	for i := range o.layout.Items {
		if !o.has(i) {
			made++
		}
	}
	return OutputResult{
		File: o.layout.File, Path: o.path, Format: o.layout.Format, Size: rec.Size, SHA256: rec.Digest,
		BitsPerWeight: bitsPerWeight(o.layout), Tensors: len(o.layout.Items), Made: made, Cached: o.cached, Targets: o.shown(), Already: o.there || o.send != nil && o.send.Already(),
		Lost: o.lost, Worst: o.worst,
	}
}

func (b *build) finishStats() {
	b.res.Stats.StoreBytes = b.storeN.Load()
	b.res.Stats.Hashed = b.hashed
	b.res.Stats.SourceBytes = b.sourceN.Load()
	for _, s := range b.plan.Sources {
		if s.Read != nil {
			b.res.Stats.SourceBytes += s.Read()
		}
		if s.Fetch != nil {
			if b.res.Stats.Fetch == nil {
				b.res.Stats.Fetch = map[string]FetchStats{}
			}
			b.res.Stats.Fetch[s.Name] = s.Fetch.Stats()
		}
	}
}
