package sink

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// adbRunner runs commands through the adb client: exec-out and exec-in, which
// pass bytes through no terminal. exec-in ends when the client has handed its
// bytes over, not when the device has written them.
type adbRunner struct {
	client []string
	t      Target
	s      *shellSink
}

func newADB(t Target, opt Options) (Sink, error) {
	client := opt.ADB
	if len(client) == 0 {
		client = []string{"adb"}
	}
	r := &adbRunner{client: client, t: t}
	r.s = newShellSink(r, t)
	settle := opt.Settle
	if settle <= 0 {
		settle = 5 * time.Second
	}
	return &adbSink{r.s, settle}, nil
}

// adbSink waits for what is still on its way.
type adbSink struct {
	*shellSink
	settle time.Duration
}

func (s *adbSink) Open(ctx context.Context, name string, off, size int64) (io.WriteCloser, error) {
	w, err := s.shellSink.Open(ctx, name, off, size)
	if err != nil {
		return nil, err
	}
	sw := w.(*shellWriter)
	sw.w = &adbWriter{WriteCloser: sw.w, sw: sw, settle: s.settle}
	return sw, nil
}

// adbWriter closes when the device has what was sent, or gets no more of it.
type adbWriter struct {
	io.WriteCloser
	sw     *shellWriter
	settle time.Duration
}

// settleEvery is the time between two looks at how far a device has got.
const settleEvery = 100 * time.Millisecond

func (w *adbWriter) Close() error {
	if err := w.WriteCloser.Close(); err != nil {
		return err
	}
	ctx := w.sw.ctx
	last, still := int64(-1), time.Now()
	for {
		n, err := w.sw.s.Stat(ctx, w.sw.name)
		if err != nil {
			return err
		}
		if n >= w.sw.at {
			return nil
		}
		if n != last {
			last, still = n, time.Now()
		} else if time.Since(still) > w.settle {
			return Passing(fmt.Errorf("%d of %d bytes have arrived", n, w.sw.at))
		}
		if err := pause(ctx, settleEvery); err != nil {
			return err
		}
	}
}

func (r *adbRunner) argv(service, script string) []string {
	argv := append([]string{}, r.client...)
	if r.t.Host != "" {
		argv = append(argv, "-s", r.t.Host)
	}
	return append(argv, service, script)
}

// fault says what the client's message means.
func (r *adbRunner) fault(text string, err error) error {
	why := fmt.Errorf("adb: %w%s", err, said(text))
	switch {
	case strings.Contains(text, "unauthorized"):
		return fmt.Errorf("%w: %w; allow this computer on the device's screen", ErrRefused, why)
	case strings.Contains(text, "more than one device"):
		return fmt.Errorf("%w: %w; name one as adb:SERIAL:%s (adb devices lists them)", ErrRefused, why, r.t.Path)
	case strings.Contains(text, "unknown command"), strings.Contains(text, "not supported"):
		return fmt.Errorf("%w: %w; a newer adb client is needed", ErrRefused, why)
	}
	return Passing(why)
}

func (r *adbRunner) run(ctx context.Context, script string) ([]byte, error) {
	out, err := output(ctx, r.argv("exec-out", script), r.fault)
	if err == nil && strings.HasPrefix(string(out), "error: ") {
		return nil, r.fault(string(out), errors.New("failed"))
	}
	return out, err
}

func (r *adbRunner) put(ctx context.Context, script string) (io.WriteCloser, error) {
	return startWriter(ctx, r.argv("exec-in", script), r.fault)
}

func (r *adbRunner) get(ctx context.Context, script string) (io.ReadCloser, error) {
	return startReader(ctx, r.argv("exec-out", script), r.fault)
}
