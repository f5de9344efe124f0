package sink

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"slices"
	"sync"
	"time"

	"quern/internal/digest"
)

// Producer writes the bytes of a file, from a mark to the end, into the Transfer
// that called it. It may be called again, with another mark, after a break.
type Producer func(ctx context.Context, from Mark) error

// TransferOptions describe what is sent. Size must be set.
type TransferOptions struct {
	Size int64
	// Key names the bytes before they exist: equal keys promise equal bytes. It
	// is empty where nobody can promise.
	Key string
	// Known is the digest of the bytes, zero where it shows only at the end. A
	// target that has them already is left alone.
	Known digest.Digest
	// Journal keeps marks for a later process, nil keeps none.
	Journal Journal
	// Say takes sentences for the user, nil drops them.
	Say func(string)
	// Pause waits before another try; nil waits.
	Pause func(context.Context, time.Duration) error
	// Check looks at marks of a journal before they are used; one that fails makes
	// the journal worthless. nil takes all.
	Check func(Mark) error
	// Interval is the distance of marks in bytes; 0 means a 512th of Size, 64 KiB
	// to 16 MiB.
	Interval int64
	// Linger is how long bytes on their way have when a transfer breaks off; 0
	// means 300 ms.
	Linger time.Duration
}

// Transfer sends one file to several targets in one pass. Run sends, Publish
// gives the files their names; whatever happens between leaves what the targets
// had before as it was.
type Transfer struct {
	lanes []*lane
	opt   TransferOptions

	at      int64 // of the stream
	hash    hash.Hash
	marks   []Mark
	known   digest.Digest
	begun   bool            // the journal knows of this transfer
	looked  bool            // connect has just been done
	final   json.RawMessage // what the producer keeps with a finished file
	reached bool            // all targets have answered once
	saved   time.Time
	sum     digest.Digest // of the whole
	low     int64         // the highest offset that all lanes have confirmed
}

// NewTransfer prepares a transfer. Close it when done.
func NewTransfer(sinks []Sink, opt TransferOptions) *Transfer {
	t := &Transfer{opt: opt, known: opt.Known}
	var mu sync.Mutex // lanes speak at once
	t.opt.Say = func(m string) {
		if opt.Say != nil {
			mu.Lock()
			defer mu.Unlock()
			opt.Say(m)
		}
	}
	if t.opt.Pause == nil {
		t.opt.Pause = pause
	}
	if t.opt.Linger <= 0 {
		t.opt.Linger = 300 * time.Millisecond
	}
	if t.opt.Interval <= 0 {
		t.opt.Interval = min(max(opt.Size/512, 64<<10), 16<<20)
	}
	for _, s := range sinks {
		t.lanes = append(t.lanes, &lane{sink: s})
	}
	t.load()
	return t
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// maxTries bounds how often a transfer that gets no further is tried again.
const maxTries = 5

// delay is the wait before try number n, from 1.
func delay(n int) time.Duration { return time.Second << min(n-1, 3) }

// restart is the error of a pass that is to begin once more at once.
type restart struct{ why error }

func (r *restart) Error() string { return r.why.Error() }
func (r *restart) Unwrap() error { return r.why }

// Run sends the file to all targets, under temporary names, and returns when the
// digests there are those of what was sent. Errors of targets are ErrTarget;
// those of the producer come back as they are.
func (t *Transfer) Run(ctx context.Context, produce Producer) error {
	tries, restarts := 0, 0
	for {
		low := t.low
		err := t.once(ctx, produce)
		t.disconnect()
		if err == nil {
			return nil
		}
		t.save(true)
		for _, l := range t.active() {
			l.clean(ctx)
		}
		if cause := context.Cause(ctx); cause != nil {
			t.sayLeft()
			return cause
		}
		var again *restart
		switch {
		case errors.As(err, &again):
			// What was there is wrong once, and what arrives is so once. Redirects are
			// counted where they are met.
			if !errors.Is(again.why, errRedirected) {
				restarts++
			}
			if restarts > 2*len(t.lanes)+2 {
				return err
			}
			t.opt.Say(err.Error() + "; it is sent anew")
			continue
		case !IsPassing(err):
			if !errors.Is(err, ErrNoSpace) {
				t.sayLeft()
			}
			return err
		}
		if t.low > low {
			tries = 0
		}
		limit := maxTries
		if !t.reached {
			limit = 2 // nobody has answered yet: more likely a slip than a break
		}
		if tries++; tries > limit {
			t.sayLeft()
			return fmt.Errorf("%w (given up after %d tries)", err, tries)
		}
		t.opt.Say(fmt.Sprintf("%v; trying again in %v", err, delay(tries)))
		if err := t.opt.Pause(ctx, delay(tries)); err != nil {
			t.sayLeft()
			return err
		}
	}
}

// Start finds out what the targets have, before Run, and gives the mark that Run
// will begin with; already says that nothing needs to be produced. An error is
// Run's to report.
func (t *Transfer) Start(ctx context.Context) (m Mark, already bool) {
	if !t.looked {
		if err := t.connect(ctx); err != nil {
			return Mark{}, false
		}
	}
	t.looked = true
	if len(t.active()) == 0 {
		t.sum, t.at = t.known, t.opt.Size
		return Mark{}, true
	}
	m, err := t.rewind(t.lowest())
	if err != nil {
		return Mark{}, false
	}
	return m, false
}

// lowest is the offset from which on some lane needs bytes.
func (t *Transfer) lowest() int64 {
	from := t.opt.Size
	for _, l := range t.active() {
		from = min(from, l.from)
	}
	return from
}

// once is one pass over the file.
func (t *Transfer) once(ctx context.Context, produce Producer) error {
	if !t.looked {
		if err := t.connect(ctx); err != nil {
			return err
		}
	}
	t.looked, t.reached = false, true
	active := t.active()
	if len(active) == 0 {
		t.sum, t.at = t.known, t.opt.Size
		return nil
	}
	from := t.lowest()
	t.low = max(t.low, from)
	m, err := t.rewind(from)
	if err != nil {
		return err
	}
	for _, l := range active {
		l.ctx = ctx
	}
	if err := t.reach(); err != nil {
		return err
	}
	if err := produce(ctx, m); err != nil {
		return err
	}
	if t.at != t.opt.Size {
		return fmt.Errorf("%d bytes were produced, %d were promised", t.at, t.opt.Size)
	}
	t.sum = digest.Sum(t.hash)
	return t.each(active, func(l *lane) error { return l.finish(ctx, t) })
}

// active are the lanes that still need the file.
func (t *Transfer) active() []*lane {
	var out []*lane
	for _, l := range t.lanes {
		if !l.already {
			out = append(out, l)
		}
	}
	return out
}

// each calls f for all lanes at once and gives the error that weighs most: one
// that will not pass.
func (t *Transfer) each(lanes []*lane, f func(*lane) error) error {
	errs := make([]error, len(lanes))
	done := make(chan int)
	for i, l := range lanes {
		go func() {
			errs[i] = f(l)
			done <- i
		}()
	}
	for range lanes {
		<-done
	}
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	for _, err := range errs {
		var again *restart
		if !IsPassing(err) && !errors.As(err, &again) {
			return err
		}
	}
	if len(errs) > 0 {
		return errs[0]
	}
	return nil
}

// connect finds out what the targets have.
func (t *Transfer) connect(ctx context.Context) error {
	err := t.each(t.active(), func(l *lane) error { return l.look(ctx, t) })
	if err != nil && context.Cause(ctx) != nil {
		return context.Cause(ctx)
	}
	return err
}

// rewind goes back to the last mark at or before an offset.
func (t *Transfer) rewind(to int64) (Mark, error) {
	i := len(t.marks) - 1
	for i >= 0 && t.marks[i].Offset > to {
		i--
	}
	if i < 0 {
		t.hash, t.at = digest.New(), 0
		return Mark{}, nil
	}
	h, err := digest.Resume(t.marks[i].State)
	if err != nil {
		return Mark{}, err
	}
	t.hash, t.at = h, t.marks[i].Offset
	t.marks = t.marks[:i+1]
	return t.marks[i], nil
}

// Write sends the next bytes. Producers call it, from one goroutine.
func (t *Transfer) Write(p []byte) (int, error) {
	done := 0
	for done < len(p) {
		// Up to where the next lane joins.
		n := int64(len(p) - done)
		for _, l := range t.active() {
			if l.from > t.at {
				n = min(n, l.from-t.at)
			}
		}
		b := p[done : done+int(n)]
		t.hash.Write(b)
		for _, l := range t.active() {
			if l.from > t.at {
				continue
			}
			if err := l.pump.write(b); err != nil {
				l.failed = err
				return done, l.fault("write", err)
			}
			l.fed = t.at + n
		}
		t.at += n
		done += int(n)
		if err := t.reach(); err != nil {
			return done, err
		}
	}
	return done, nil
}

// reach lets the lanes in whose turn has come.
func (t *Transfer) reach() error {
	for _, l := range t.active() {
		if l.pump != nil || l.from != t.at {
			continue
		}
		if l.from > 0 && !l.want.IsZero() && digest.Sum(t.hash) != l.want {
			l.fresh = true
			return &restart{l.fault("compare", fmt.Errorf("the %d bytes that are there are others", l.from))}
		}
		if l.from == t.opt.Size && l.from > 0 {
			continue // all is there
		}
		if err := l.open(t.opt.Size); err != nil {
			return err
		}
	}
	return nil
}

// Sum is the digest of what was written; after Run that of the file.
func (t *Transfer) Sum() digest.Digest {
	if !t.sum.IsZero() || t.hash == nil {
		return t.sum
	}
	return digest.Sum(t.hash)
}

// Publish gives the files their names. It returns at the first target that
// fails; those before it have the file then.
func (t *Transfer) Publish(ctx context.Context) error {
	for _, l := range t.active() {
		if l.published {
			continue
		}
		if err := t.retry(ctx, func() error { return l.publish(ctx, t) }); err != nil {
			if cause := context.Cause(ctx); cause != nil {
				return cause
			}
			return err
		}
		l.published = true
	}
	t.finished()
	return nil
}

// retry calls f until it succeeds or fails for good.
func (t *Transfer) retry(ctx context.Context, f func() error) error {
	for n := 1; ; n++ {
		err := f()
		if err == nil || !IsPassing(err) || n > maxTries || context.Cause(ctx) != nil {
			return err
		}
		t.opt.Say(fmt.Sprintf("%v; trying again in %v", err, delay(n)))
		if err := t.opt.Pause(ctx, delay(n)); err != nil {
			return err
		}
	}
}

// Reset makes the next Run send everything anew: the bytes have turned out to be
// others. It is an error when some of them cannot be taken back.
func (t *Transfer) Reset() error {
	t.disconnect()
	t.marks, t.sum, t.known, t.low, t.looked, t.final = nil, digest.Digest{}, digest.Digest{}, 0, false, nil
	for _, l := range t.lanes {
		if l.stream() && l.fed > 0 {
			return l.fault("start over", errors.New("bytes that turned out to be wrong are gone already"))
		}
		l.fresh, l.already = true, false
	}
	return nil
}

// SetFinal gives what is to be kept with the journal of a finished file, Final what
// an earlier process kept of the same one.
func (t *Transfer) SetFinal(v any) error {
	b, err := json.Marshal(v)
	t.final = b
	return err
}

// Final is nil where nothing was kept.
func (t *Transfer) Final() json.RawMessage { return t.final }

// Already reports whether all targets had the file before.
func (t *Transfer) Already() bool { return len(t.active()) == 0 }

// disconnect ends all connections but those that cannot be made twice.
func (t *Transfer) disconnect() {
	for _, l := range t.lanes {
		if !l.stream() {
			l.abort(t.opt.Linger)
		}
	}
}

// Close ends the transfer. What was sent and not published stays for a later one.
func (t *Transfer) Close() error {
	var errs []error
	for _, l := range t.lanes {
		l.abort(t.opt.Linger)
		errs = append(errs, l.sink.Close())
	}
	return errors.Join(errs...)
}

// sayLeft tells where the unfinished files are.
func (t *Transfer) sayLeft() {
	for _, l := range t.active() {
		if l.stream() || l.published || l.fed == 0 && l.from == 0 || !l.keeps() {
			continue
		}
		if l.sink.Temp() == l.sink.Name() {
			t.opt.Say(fmt.Sprintf("%s is unfinished there; the same command goes on with it", l.sink))
			continue
		}
		t.opt.Say(fmt.Sprintf("%s: what was sent stays beside it as %s; the same command goes on from there", l.sink, l.sink.Temp()))
	}
}
