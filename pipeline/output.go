package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"quern/internal/atomicfile"
	"quern/internal/digest"
	"quern/tensor"
)

// output is one file on its way: found in the store, or written under a
// temporary name that publish makes final.
type output struct {
	b      *build
	layout *Layout
	path   string // of the file on this machine, empty when there is none
	route

	kept    []Kept // by item; a zero Blob means it must be made
	doubted []bool // by item: kept has it under its doubted key
	bad     map[int]bool
	file    *atomicfile.File
	keep    BlobWriter
	written *Written
	cached  bool // the whole file came from the store
	same    bool // and stands at path already
	there   bool // the targets have the file already
	lost    *LostValues
	worst   *WorstTensor
}

// has reports whether the store has an item's bytes.
func (o *output) has(item int) bool {
	return o.cached || o.there || item < len(o.kept) && !o.kept[item].Blob.IsZero() && !o.bad[item]
}

// lookup asks the store for the file, else for its tensors.
func (o *output) lookup(ctx context.Context) error {
	st := o.b.opt.Store
	if st == nil || o.b.opt.NoCache {
		return nil
	}
	remote := o.b.remoteItems(o.layout)
	found, err := o.lookupFile(ctx, o.layout.Key())
	if err == nil && !found && remote != nil {
		if found, err = o.lookupFile(ctx, doubted(o.layout.Key())); found {
			o.doubted = remote
		}
	}
	if err != nil || found {
		return err
	}
	keys := make([]tensor.Key, len(o.layout.Items))
	for i, it := range o.layout.Items {
		keys[i] = it.Tensor.Key
	}
	if o.kept, err = o.lookupTensors(ctx, keys); err != nil || remote == nil {
		return err
	}
	for i := range keys {
		keys[i] = doubted(keys[i])
		if !remote[i] || !o.kept[i].Blob.IsZero() {
			keys[i] = tensor.Key{}
		}
	}
	more, err := o.lookupTensors(ctx, keys)
	if err != nil {
		return err
	}
	o.doubted = make([]bool, len(keys))
	for i, k := range more {
		if !k.Blob.IsZero() {
			o.kept[i], o.doubted[i] = k, true
		}
	}
	return nil
}

func (o *output) lookupFile(ctx context.Context, key tensor.Key) (bool, error) {
	if key.IsZero() {
		return false, nil
	}
	f, err := o.b.opt.Store.File(ctx, key)
	if err != nil {
		return false, fmt.Errorf("store: %w", err)
	}
	if f == nil || f.Size != o.layout.Size {
		return false, nil
	}
	o.cached = true
	o.written = &Written{Digest: f.Digest, Size: f.Size, Tensors: f.Tensors}
	return true, nil
}

func (o *output) lookupTensors(ctx context.Context, keys []tensor.Key) ([]Kept, error) {
	kept, err := o.b.opt.Store.Tensors(ctx, keys)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	for i, k := range kept {
		if !k.Blob.IsZero() && k.Bytes != o.layout.Items[i].Tensor.Bytes() {
			kept[i] = Kept{}
		}
	}
	return kept, nil
}

// keys gives the keys under which the finished file and its tensors are kept.
// What was made of bytes that nothing proves has a key of its own, and so has
// the file around it.
func (o *output) keys() (file tensor.Key, items []tensor.Key) {
	file = o.layout.Key()
	sure := true
	for i, it := range o.layout.Items {
		key := it.Tensor.Key
		bad := len(o.doubted) > 0 && o.doubted[i] && o.has(i)
		if bad || !o.has(i) && !o.b.proved(it.Tensor) {
			key, sure = doubted(key), false
		}
		items = append(items, key)
	}
	if !sure {
		file = doubted(file)
	}
	return file, items
}

// emit writes the file to its temporary names: one beside its final place, one
// in the store. ctx ends with this attempt, whole with the build: what is
// written has to outlive the attempt.
func (o *output) emit(ctx, whole context.Context) error {
	if o.there {
		return nil
	}
	if o.cached {
		err := o.copyCached(ctx, whole)
		if err == nil || !errors.Is(err, errStale) {
			return err
		}
		// The store's copy is damaged: make the file anew.
		o.b.warn(fmt.Sprintf("%s: the store's copy is damaged and is made again (%v)", o.layout.File, err))
		o.cached, o.same, o.written, o.doubted = false, false, nil, nil
		o.abort()
		if err := o.resend(); err != nil {
			return err
		}
	}
	for {
		err := o.emitOnce(ctx, whole)
		var stale *staleError
		if !errors.As(err, &stale) {
			return err
		}
		// Kept bytes that are not what they were: make this tensor instead.
		o.b.warn(fmt.Sprintf("%s: %v; it is made again", o.layout.File, err))
		if o.bad == nil {
			o.bad = map[int]bool{}
		}
		o.bad[stale.item] = true
		o.abort()
		if err := o.resend(); err != nil {
			return err
		}
	}
}

var errStale = errors.New("stored bytes are damaged")

// staleError says that the store's bytes of one item have another digest.
type staleError struct {
	item int
	name string
}

func (e *staleError) Error() string {
	return fmt.Sprintf("tensor %s: stored bytes are damaged", e.name)
}
func (e *staleError) Unwrap() error { return errStale }

func (o *output) create(ctx context.Context, keep bool) error {
	o.at, o.local = 0, 0
	if o.streamed() {
		return nil
	}
	f, err := atomicfile.Create(o.path, atomicfile.Options{Size: o.layout.Size, Before: o.b.opt.Before})
	if err != nil {
		return o.fault(err)
	}
	o.file = f
	if !keep || !o.b.keeping() || o.b.streams {
		return nil
	}
	w, err := o.b.opt.Store.NewBlob(ctx, o.layout.Size)
	if err != nil {
		return o.b.storeFault(err)
	}
	o.keep = w
	return nil
}

// fault explains an error of the output file.
func (o *output) fault(err error) error { return writeFault(o.layout.File, o.layout.Size, err) }

// Write appends to the unfinished file and to its copy in the store, and sends to
// the targets.
func (o *output) Write(p []byte) (int, error) {
	if o.send != nil {
		if n, err := o.send.Write(p); err != nil {
			return n, err
		}
	}
	fresh := p
	if known := o.local - o.at; known > 0 { // written before a connection broke
		fresh = p[min(known, int64(len(p))):]
	}
	o.at += int64(len(p))
	if o.file == nil || len(fresh) == 0 {
		return len(p), nil
	}
	o.local = o.at
	if _, err := o.file.Write(fresh); err != nil {
		return 0, o.fault(err)
	}
	if o.keep == nil {
		return len(p), nil
	}
	if _, err := o.keep.Write(fresh); err != nil {
		return 0, fmt.Errorf("%w; --no-store builds without it", err)
	}
	return len(p), nil
}

func (o *output) emitOnce(ctx, whole context.Context) error {
	if err := o.create(whole, true); err != nil {
		return err
	}
	r := &keptReader{o: o, open: map[digest.Digest]StoredBlob{}}
	defer r.close()
	l := o.layout
	if l.Of != nil {
		after, release, err := o.b.after(l)
		if err != nil {
			return fmt.Errorf("%s: %w", l.File, err)
		}
		defer release()
		l = after
	}
	var written *Written
	err := o.sendAll(ctx, func(ctx context.Context, from *EmitMark) (err error) {
		written, err = Emit(ctx, l, r.read, o, o.emitOptions(from))
		if err != nil || o.send == nil {
			return err
		}
		if err := o.damaged(written); err != nil {
			return err // before the targets compare digests
		}
		return o.send.SetFinal(written.Tensors)
	})
	if err != nil {
		return err
	}
	if written == nil {
		return fmt.Errorf("%s: %w: the targets have the file and nothing says what is in it; remove it there and build again", o.layout.File, ErrLayout)
	}
	if err := o.damaged(written); err != nil {
		return err
	}
	o.written, o.lost = written, lossOf(o.layout)
	return nil
}

func (o *output) emitOptions(from *EmitMark) EmitOptions {
	opt := EmitOptions{Jobs: o.b.opt.Jobs, Memory: o.b.opt.Memory, Events: o.b.opt.Events, FileSumOnly: !o.b.recording(), From: from}
	switch {
	case o.send != nil:
		opt.Sum, opt.Mark = o.send.Sum, o.send.Mark
	case o.keep != nil:
		opt.Sum = o.keep.Sum
	}
	return opt
}

// damaged finds tensors out of the store that are not what they were.
func (o *output) damaged(written *Written) error {
	for i, t := range written.Tensors {
		if o.has(i) && o.kept[i].SHA256 != t.SHA256 {
			return &staleError{i, t.Name}
		}
	}
	return nil
}

// after gives the layout of a file that goes with an output written already, to
// be released when it is written itself.
func (b *build) after(l *Layout) (*Layout, func() error, error) {
	for _, o := range b.outs {
		if o.layout != l.Of || o.written == nil {
			continue
		}
		blob, release, err := o.content()
		if err != nil {
			return nil, nil, err
		}
		if l, err = l.after(o.written.Digest, blob); err != nil {
			return nil, nil, errors.Join(err, release())
		}
		return l, release, nil
	}
	return nil, nil, fmt.Errorf("%w: %s, which it goes with, is not written yet", ErrLayout, l.Of.File)
}

// content gives the bytes of a written output, before or after it has its name.
func (o *output) content() (tensor.Blob, func() error, error) {
	if o.file != nil {
		return tensor.ReaderAtBlob(o.path, o.file, o.layout.Size), func() error { return nil }, nil
	}
	f, err := tensor.OpenFile(o.path)
	if err != nil {
		return nil, nil, err
	}
	return f, f.Close, nil
}

// keptReader reads items from the store where it has them.
type keptReader struct {
	o    *output
	mu   sync.Mutex
	open map[digest.Digest]StoredBlob
}

func (r *keptReader) read(ctx context.Context, item int, dst []byte, first, n int64) error {
	t := r.o.layout.Items[item].Tensor
	if !r.o.has(item) {
		return readRows(ctx, t, dst, first, n)
	}
	k := r.o.kept[item]
	blob, err := r.blob(ctx, k.Blob)
	if err != nil {
		return &staleError{item, t.Name}
	}
	if err := blob.ReadAt(ctx, dst, k.Offset+first*t.RowBytes()); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return &staleError{item, t.Name}
	}
	r.o.b.storeN.Add(int64(len(dst)))
	return nil
}

func (r *keptReader) blob(ctx context.Context, d digest.Digest) (StoredBlob, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if b, ok := r.open[d]; ok {
		return b, nil
	}
	b, err := r.o.b.opt.Store.OpenBlob(ctx, d)
	if err != nil {
		return nil, err
	}
	r.open[d] = b
	return b, nil
}

func (r *keptReader) close() {
	for _, b := range r.open {
		b.Close()
	}
}

// copyCached takes the whole file from the store, unless it stands there
// already. Either way every byte is hashed.
func (o *output) copyCached(ctx, whole context.Context) error {
	if !o.streamed() {
		sum, ok := sameFile(ctx, o.path, o.layout.Size)
		o.same = ok && sum == o.written.Digest
	}
	if o.same && len(o.sinks) == 0 {
		return nil
	}
	src, err := o.b.opt.Store.OpenBlob(ctx, o.written.Digest)
	if err != nil {
		return fmt.Errorf("%w: %w", errStale, err)
	}
	defer src.Close()
	if !o.same {
		if err := o.create(whole, false); err != nil {
			return err
		}
	}
	return o.sendAll(ctx, func(ctx context.Context, _ *EmitMark) error { return o.copyBlob(ctx, src) })
}

// copyBlob writes all of a stored blob.
func (o *output) copyBlob(ctx context.Context, src StoredBlob) error {
	h := digest.New()
	buf := make([]byte, 1<<20)
	for off := int64(0); off < o.layout.Size; {
		n := o.layout.Size - off
		if n > int64(len(buf)) {
			n = int64(len(buf))
		}
		if err := src.ReadAt(ctx, buf[:n], off); err != nil {
			if cause := context.Cause(ctx); cause != nil {
				return cause
			}
			return fmt.Errorf("%w: %w", errStale, err)
		}
		h.Write(buf[:n])
		if _, err := o.Write(buf[:n]); err != nil {
			return err
		}
		off += n
		o.b.storeN.Add(n)
		o.b.opt.Events.Event(Event{Kind: EventProgress, Output: o.layout.File, Done: off, Total: o.layout.Size})
	}
	if got := digest.Sum(h); got != o.written.Digest {
		return fmt.Errorf("%w: SHA-256 is %s, not %s", errStale, got.Hex(), o.written.Digest.Hex())
	}
	return nil
}

// sameFile hashes the file at path if it has the wanted size.
func sameFile(ctx context.Context, path string, size int64) (digest.Digest, bool) {
	st, err := os.Lstat(path)
	if err != nil || !st.Mode().IsRegular() || st.Size() != size {
		return digest.Digest{}, false
	}
	f, err := tensor.OpenFile(path)
	if err != nil {
		return digest.Digest{}, false
	}
	defer f.Close()
	sum, _, err := digest.OfReader(io.NewSectionReader(tensor.ContextReaderAt(ctx, f), 0, size))
	return sum, err == nil
}

func (o *output) abort() {
	if o.file != nil {
		o.file.Abort()
		o.file = nil
	}
	if o.keep != nil {
		o.keep.Abort()
		o.keep = nil
	}
}

// commit gives the file its final name.
func (o *output) commit() error {
	if o.file == nil {
		return nil
	}
	err := o.file.Commit()
	o.file = nil
	return o.fault(err)
}
