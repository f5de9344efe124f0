package sink

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// process is a client program that this package runs: ssh or adb. Nothing else is
// ever run, and nothing of a recipe becomes a word of its command line but the
// host and one script, whose paths are quoted.
type process struct {
	cmd    *exec.Cmd
	stderr *tail
	what   string
	fault  func(text string, err error) error

	once sync.Once
	err  error
}

// grace is how long a client may take to end after it was broken off.
const grace = 2 * time.Second

func start(ctx context.Context, argv []string, fault func(string, error) error, pipes func(*process) error) (*process, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.WaitDelay = grace
	p := &process{cmd: cmd, stderr: &tail{}, what: argv[0], fault: fault}
	cmd.Stderr = p.stderr
	if err := pipes(p); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		if errors.Is(err, exec.ErrNotFound) {
			return nil, fmt.Errorf("%s is not installed, or not where programs are looked for (PATH)", argv[0])
		}
		return nil, fmt.Errorf("%s cannot be run: %w", argv[0], err)
	}
	return p, nil
}

// wait gives the client's end as an error of the target.
func (p *process) wait(ctx context.Context) error {
	p.once.Do(func() {
		err := p.cmd.Wait()
		if cause := context.Cause(ctx); cause != nil {
			p.err = cause
			return
		}
		if err != nil {
			p.err = p.fault(p.stderr.String(), err)
		}
	})
	return p.err
}

// output runs a client to its end and gives what it prints.
func output(ctx context.Context, argv []string, fault func(string, error) error) ([]byte, error) {
	var out bytes.Buffer
	p, err := start(ctx, argv, fault, func(p *process) error {
		p.cmd.Stdout = &limited{w: &out, n: 1 << 20}
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = p.wait(ctx)
	return out.Bytes(), err
}

// processWriter writes to a client's standard input.
type processWriter struct {
	*process
	ctx context.Context
	in  io.WriteCloser
}

func startWriter(ctx context.Context, argv []string, fault func(string, error) error) (*processWriter, error) {
	w := &processWriter{ctx: ctx}
	var err error
	w.process, err = start(ctx, argv, fault, func(p *process) (err error) {
		p.cmd.Stdout = p.stderr // what a command says, wherever it says it
		w.in, err = p.cmd.StdinPipe()
		return err
	})
	return w, err
}

func (w *processWriter) Write(p []byte) (int, error) {
	n, err := w.in.Write(p)
	if err != nil {
		err = Passing(err)
	}
	return n, err
}

func (w *processWriter) Close() error {
	w.in.Close() // the client's end says whether everything was taken
	return w.wait(w.ctx)
}

// processReader reads a client's standard output.
type processReader struct {
	*process
	ctx context.Context
	io.Reader
}

func startReader(ctx context.Context, argv []string, fault func(string, error) error) (*processReader, error) {
	r := &processReader{ctx: ctx}
	var err error
	r.process, err = start(ctx, argv, fault, func(p *process) (err error) {
		r.Reader, err = p.cmd.StdoutPipe()
		return err
	})
	return r, err
}

func (r *processReader) Close() error { return r.wait(r.ctx) }

// tail keeps the end of what a program says.
type tail struct {
	mu sync.Mutex
	b  []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	if len(t.b) > 2048 {
		t.b = append(t.b[:0], t.b[len(t.b)-2048:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(strings.ToValidUTF8(string(t.b), "?"))
}

// limited drops what is more than n bytes.
type limited struct {
	w io.Writer
	n int
}

func (l *limited) Write(p []byte) (int, error) {
	k := min(len(p), l.n)
	l.n -= k
	if _, err := l.w.Write(p[:k]); err != nil {
		return 0, err
	}
	return len(p), nil
}
