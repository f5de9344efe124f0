package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"quern/pipeline"
)

// progressFlag chooses how progress is shown; it never goes to stdout.
func progressFlag() cli.Flag {
	return &cli.StringFlag{Name: "progress", Value: "auto", Usage: "how progress is shown on stderr: auto, bar, plain, json or none"}
}

// reporter shows events until it is closed.
type reporter interface {
	pipeline.Events
	Close()
}

func newReporter(c *cli.Context) (reporter, error) {
	p := programOf(c)
	kind := c.String("progress")
	if kind == "auto" {
		kind = "plain"
		if f, ok := p.rawErr.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
			kind = "bar"
		}
	}
	switch kind {
	case "bar":
		return &bar{w: p.rawErr, text: p.errOut}, nil
	case "plain":
		return &plain{w: p.errOut, now: time.Now, last: time.Now()}, nil
	case "json":
		return &jsonLines{enc: json.NewEncoder(p.rawErr)}, nil
	case "none":
		return quiet{}, nil
	}
	return nil, usagef("--progress %q: auto, bar, plain, json or none", kind)
}

// watched calls a hook of the tests at every event.
type watched struct {
	reporter
	f func()
}

func (w watched) Event(e pipeline.Event) {
	w.f()
	w.reporter.Event(e)
}

type quiet struct{ pipeline.NoEvents }

func (quiet) Close() {}

// jsonLines writes every event as a line of JSON.
type jsonLines struct {
	mu  sync.Mutex
	enc *json.Encoder
}

func (j *jsonLines) Event(e pipeline.Event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	_ = j.enc.Encode(e)
}

func (j *jsonLines) Close() {}

// plain writes a line for what happened, and now and then one for how far it
// got.
type plain struct {
	mu   sync.Mutex
	w    io.Writer
	now  func() time.Time
	last time.Time
	// from is where the output's bytes began to flow, since when.
	from  int64
	since time.Time
}

// plainInterval is the time between progress lines of one output.
const plainInterval = 5 * time.Second

func (p *plain) Event(e pipeline.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e.Kind {
	case pipeline.EventWarning:
		fmt.Fprintf(p.w, "warning: %s\n", e.Message)
	case pipeline.EventNote, pipeline.EventPhase:
		fmt.Fprintln(p.w, e.Message)
	case pipeline.EventOutput:
		p.last, p.since = p.now(), time.Time{}
		fmt.Fprintf(p.w, "writing %s, %s\n", e.Output, bytesText(e.Total))
	case pipeline.EventDone:
		fmt.Fprintf(p.w, "finished %s\n", e.Output)
	case pipeline.EventProgress, pipeline.EventFetch:
		if e.Kind == pipeline.EventProgress && p.since.IsZero() {
			p.from, p.since = e.Done, p.now()
		}
		if p.now().Sub(p.last) < plainInterval || e.Total <= 0 {
			return
		}
		p.last = p.now()
		verb := "written"
		if e.Kind == pipeline.EventFetch {
			verb = "fetched"
		}
		fmt.Fprintf(p.w, "%s %s of %s (%d %%)%s\n", verb, bytesText(e.Done), bytesText(e.Total), 100*e.Done/e.Total, p.rate(e))
	}
}

// rate says how fast an output goes, and how long the rest takes at that.
func (p *plain) rate(e pipeline.Event) string {
	took := p.now().Sub(p.since)
	if e.Kind != pipeline.EventProgress || took < time.Second || e.Done <= p.from {
		return ""
	}
	perSecond := float64(e.Done-p.from) / took.Seconds()
	left := time.Duration(float64(e.Total-e.Done) / perSecond * float64(time.Second))
	return fmt.Sprintf(", %s/s, %v left", bytesText(int64(perSecond)), left.Round(time.Second))
}

func (p *plain) Close() {}

// bar shows one live bar for the output being written.
type bar struct {
	mu   sync.Mutex
	w    io.Writer // for the bar
	text io.Writer // for lines
	bar  *progressbar.ProgressBar
	name string // of the output
}

func (b *bar) Event(e pipeline.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e.Kind {
	case pipeline.EventWarning, pipeline.EventNote, pipeline.EventPhase:
		if b.bar != nil {
			_ = b.bar.Clear()
		}
		if e.Kind == pipeline.EventWarning {
			fmt.Fprint(b.text, "warning: ")
		}
		fmt.Fprintln(b.text, e.Message)
	case pipeline.EventOutput:
		b.finish()
		b.name = e.Output
		b.bar = progressbar.NewOptions64(e.Total,
			progressbar.OptionSetWriter(b.w), progressbar.OptionShowBytes(true), progressbar.OptionUseIECUnits(true),
			progressbar.OptionSetDescription(e.Output), progressbar.OptionThrottle(100*time.Millisecond),
			progressbar.OptionFullWidth(), progressbar.OptionClearOnFinish())
	case pipeline.EventProgress:
		if b.bar != nil {
			_ = b.bar.Set64(e.Done)
		}
	case pipeline.EventFetch:
		if b.bar != nil && e.Done < e.Total {
			b.bar.Describe(fmt.Sprintf("%s, fetched %s of %s", b.name, bytesText(e.Done), bytesText(e.Total)))
		} else if b.bar != nil {
			b.bar.Describe(b.name)
		}
	case pipeline.EventDone:
		b.finish()
	}
}

func (b *bar) finish() {
	if b.bar != nil {
		_ = b.bar.Finish()
		b.bar = nil
	}
}

func (b *bar) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.bar != nil {
		_ = b.bar.Clear()
		b.bar = nil
	}
}

// bytesText writes a size as people read it, in binary units.
func bytesText(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	v, e := float64(n), -1
	for v >= unit && e < 4 {
		v /= unit
		e++
	}
	return fmt.Sprintf("%.2f %ciB", v, "KMGTP"[e])
}
