package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"quern/pipeline"
)

// TestFetchProgress: every reporter but the silent one tells how much of a
// download is here.
func TestFetchProgress(t *testing.T) {
	fetch := pipeline.Event{Kind: pipeline.EventFetch, Done: 3 << 20, Total: 12 << 20}
	var out bytes.Buffer
	now := time.Unix(0, 0)
	p := &plain{w: &out, now: func() time.Time { return now }, last: now}
	p.Event(fetch)
	if out.Len() != 0 {
		t.Errorf("a line at once: %q", out.String())
	}
	now = now.Add(plainInterval)
	p.Event(fetch)
	if got := out.String(); got != "fetched 3.00 MiB of 12.00 MiB (25 %)\n" {
		t.Errorf("plain: %q", got)
	}
	out.Reset()
	b := &bar{w: &out, text: &out}
	b.Event(fetch) // before an output has started there is no bar
	b.Event(pipeline.Event{Kind: pipeline.EventOutput, Output: "a.gguf", Total: 100})
	b.Event(fetch)
	if b.bar.String() == "" || !strings.Contains(out.String(), "fetched 3.00 MiB of 12.00 MiB") {
		t.Errorf("bar: %q", out.String())
	}
	fetch.Done = fetch.Total
	b.Event(fetch)
	b.Event(pipeline.Event{Kind: pipeline.EventDone, Output: "a.gguf", Total: 100})
	b.Close()
}
