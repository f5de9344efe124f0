package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"time"

	"quern/artifacts/sink"
	"quern/internal/digest"
)

// SendOptions say how outputs reach their targets.
type SendOptions struct {
	Sinks sink.Options
	// Journals is the folder that keeps how far transfers got, so that a later
	// build goes on with them; "" keeps nothing.
	Journals string
	// Pause waits before another try; nil waits.
	Pause func(context.Context, time.Duration) error
}

// route is where an output goes besides, or instead of, a file of this machine.
type route struct {
	targets []sink.Target
	sinks   []sink.Sink
	send    *sink.Transfer
	start   *EmitMark // where the emission will begin, nil for the start
	at      int64     // of the emission, in the file
	local   int64     // how much of it the local file has
}

// streamed reports whether the output is nowhere on this machine.
func (o *output) streamed() bool { return o.path == "" }

// routes finds out where every output goes, and what cannot be.
func (b *build) routes() error {
	taken := map[string]string{}
	for i, l := range b.plan.Layouts {
		em := b.prj.Emitters[b.plan.emitters[i]]
		o := &output{b: b, layout: l}
		for _, t := range em.To {
			t = t.In(b.opt.OutDir)
			if !t.Folder && b.files(b.plan.emitters[i]) > 1 && t.Kind != sink.Stdout {
				return fmt.Errorf("%s: %w: %s is one file, and the output is several; end it with / to name a folder", em.Where, ErrRecipe, t)
			}
			t = t.At(path.Base(l.File))
			id := t.ID()
			if other, dup := taken[id]; dup {
				return fmt.Errorf("%s: %w: %s goes to %s, and so does %s", em.Where, ErrOutput, l.File, t, other)
			}
			taken[id] = l.File
			if t.Kind == sink.File && o.path == "" {
				o.path = t.Path // this one is written, and looked at, as outputs are
				continue
			}
			s, err := sink.Open(t, b.opt.Send.Sinks)
			if err != nil {
				return fmt.Errorf("%s: %w: %w", em.Where, ErrRecipe, err)
			}
			if c, ok := s.(sink.Limiter); ok {
				if err := c.Check(l.Size); err != nil {
					return fmt.Errorf("%s: %w: %w: %s does not fit %s: %w", em.Where, ErrRecipe, ErrTooLarge, l.File, t, errors.Join(err, s.Close()))
				}
			}
			o.targets, o.sinks = append(o.targets, t), append(o.sinks, s)
		}
		b.outs = append(b.outs, o)
		if len(em.To) == 0 {
			o.path = filepath.Join(b.opt.OutDir, filepath.FromSlash(l.File))
		}
		if !o.streamed() {
			continue
		}
		b.streams = true
		if err := b.seen(o, em); err != nil {
			return err
		}
	}
	return nil
}

// files counts the files of an emitter, those that go with another left out.
func (b *build) files(emitter int) int {
	n := 0
	for _, e := range b.plan.emitters {
		if e == emitter {
			n++
		}
	}
	return n
}

// seen refuses what has to look at a finished file that is nowhere here.
func (b *build) seen(o *output, em PlacedEmitter) error {
	const do = "give it a file or folder of this machine too, in its to:"
	if o.layout.Of != nil {
		return fmt.Errorf("%s: %w: %s is made of the finished %s, and that is sent away as it is made; %s", em.Where, ErrRecipe, o.layout.File, o.layout.Of.File, do)
	}
	for _, g := range b.prj.Gates {
		if g.Output == "" || g.Output == em.File || g.Output == o.layout.File {
			return fmt.Errorf("%s: %w: gate %s looks at the finished file, and %s is sent away as it is made; %s, or take the gate out", g.Where, ErrRecipe, g.Gate.Name(), o.layout.File, do)
		}
	}
	return nil
}

// openSend prepares the transfer of an output. What its targets have decides from
// where on it is made.
func (o *output) openSend(ctx context.Context) {
	if len(o.sinks) == 0 {
		return
	}
	if o.send == nil {
		opt := sink.TransferOptions{Size: o.layout.Size, Say: o.b.tellNow, Pause: o.b.opt.Send.Pause, Check: func(m sink.Mark) error { _, err := o.markOf(m); return err }}
		if o.cached {
			opt.Known = o.written.Digest
		}
		// With a file here too everything has to be made anyway.
		if o.streamed() && !o.layout.Key().IsZero() && o.b.opt.Send.Journals != "" && o.b.recording() {
			opt.Key = o.layout.Key().String()
			opt.Journal = sink.FileJournal(o.b.opt.Send.Journals, o.targets)
		}
		o.send = sink.NewTransfer(o.sinks, opt)
	}
	o.start = nil
	if o.cached {
		return
	}
	m, already := o.send.Start(ctx)
	if already && o.streamed() {
		// What is to be recorded of the tensors was kept by the process that sent.
		w := &Written{Digest: o.send.Sum(), Size: o.layout.Size}
		if json.Unmarshal(o.send.Final(), &w.Tensors) == nil && len(w.Tensors) == len(o.layout.Items) {
			o.written, o.there = w, true
			return
		}
		o.b.note(fmt.Sprintf("%s: what is known of the file that the targets have is damaged; it is sent again", o.layout.File))
		_ = o.send.Reset() // nothing has gone anywhere yet
		return
	}
	o.start, _ = o.markOf(m) // the start of the file where it cannot be read
}

// markOf reads a mark of the transfer; nil is the start.
func (o *output) markOf(m sink.Mark) (*EmitMark, error) {
	if m.Offset == 0 {
		return nil, nil
	}
	e := &EmitMark{}
	if err := json.Unmarshal(m.Aux, e); err != nil {
		return nil, err
	}
	at, err := e.Offset(o.layout)
	if err == nil && at != m.Offset {
		err = fmt.Errorf("%s: %w: a mark for offset %d at %d", o.layout.File, ErrLayout, at, m.Offset)
	}
	if err == nil && len(e.State) > 0 {
		_, err = digest.Resume(e.State)
	}
	if err != nil {
		return nil, err
	}
	return e, nil
}

// sendAll runs one emission, or several after breaks, into the targets. The local
// file, if there is one, takes every byte once.
func (o *output) sendAll(ctx context.Context, emit func(ctx context.Context, from *EmitMark) error) error {
	if len(o.sinks) == 0 {
		return emit(ctx, nil)
	}
	if _, already := o.send.Start(ctx); already && !o.streamed() {
		send := o.send
		o.send = nil
		defer func() { o.send = send }()
		return emit(ctx, nil) // for this machine alone
	}
	return o.send.Run(ctx, func(ctx context.Context, m sink.Mark) error {
		from, err := o.markOf(m)
		if err != nil {
			return err
		}
		o.at = m.Offset
		return emit(ctx, from)
	})
}

// resend makes the next emission send everything anew.
func (o *output) resend() error {
	o.at, o.local, o.start, o.there = 0, 0, nil, false
	if o.send == nil {
		return nil
	}
	if err := o.send.Reset(); err != nil {
		return SourceFault(err)
	}
	return nil
}

// closeSend ends the connections. What has been sent stays for a later build.
func (o *output) closeSend() {
	if o.send != nil {
		o.send.Close()
	} else {
		for _, s := range o.sinks {
			s.Close()
		}
	}
	o.send, o.sinks = nil, nil
}

// shown are the targets as messages show them.
func (o *output) shown() []string {
	var out []string
	for _, t := range o.targets {
		out = append(out, t.String())
	}
	return out
}

// tellNow passes a sentence on, also one that was said before.
func (b *build) tellNow(msg string) { b.opt.Events.Event(Event{Kind: EventNote, Message: msg}) }
