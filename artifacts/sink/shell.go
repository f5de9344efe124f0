package sink

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"
	"sync"

	"quern/internal/digest"
)

// runner runs command lines of a POSIX shell on the other side. Both streams of
// the command come back as one, as some devices have it.
type runner interface {
	// run gives what a command prints.
	run(ctx context.Context, script string) ([]byte, error)
	// put starts a command that reads what is written; Close waits for its end and
	// fails if it did.
	put(ctx context.Context, script string) (io.WriteCloser, error)
	// get starts a command and reads what it prints, byte by byte the same.
	get(ctx context.Context, script string) (io.ReadCloser, error)
}

// shellSink is a target behind a shell. The scripts use what toybox, busybox and
// GNU have in common, and fall back where one of them lacks it.
type shellSink struct {
	r     runner
	shown string
	dir   string
	name  string

	mu     sync.Mutex
	tool   string // what computes SHA-256 there, "" while unknown
	noTool bool
}

func newShellSink(r runner, t Target) *shellSink {
	return &shellSink{r: r, shown: t.String(), dir: path.Dir(t.Path), name: path.Base(t.Path)}
}

func (s *shellSink) String() string { return s.shown }
func (s *shellSink) Name() string   { return s.name }
func (s *shellSink) Temp() string   { return s.name + TempSuffix }
func (s *shellSink) Close() error   { return nil }

// quoteWord makes one word of a shell of any text.
func quoteWord(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// at is the quoted path of a file. It never looks like an option.
func (s *shellSink) at(name string) string {
	p := path.Join(s.dir, name)
	if !strings.HasPrefix(p, "/") {
		p = "./" + p
	}
	return quoteWord(p)
}

// folder is the quoted path of the folder.
func (s *shellSink) folder() string { return s.at("") }

// Exit codes of our own scripts.
const (
	exitNone   = 44 // no such file
	exitFolder = 45
)

// mark starts the last line that a script prints: its exit code. Shells without a
// way to report one are common on devices.
const mark = "quern-exit:"

// do runs a script and gives what it printed.
func (s *shellSink) do(ctx context.Context, script string) (string, error) {
	out, err := s.r.run(ctx, "("+script+") 2>&1; q=$?; echo; echo "+mark+"$q")
	if cause := context.Cause(ctx); cause != nil {
		return "", cause
	}
	text := strings.ReplaceAll(string(bytes.ToValidUTF8(out, []byte("?"))), "\r\n", "\n")
	i := strings.LastIndex(text, mark)
	if i < 0 {
		if err == nil {
			err = Passing(fmt.Errorf("the connection ended early%s", said(text)))
		}
		return "", err
	}
	code, cerr := strconv.Atoi(strings.TrimSpace(text[i+len(mark):]))
	if cerr != nil {
		return "", Passing(fmt.Errorf("the connection ended early%s", said(text)))
	}
	text = strings.TrimSpace(text[:i])
	switch code {
	case 0:
		return text, nil
	case exitNone:
		return "", ErrNotExist
	case exitFolder:
		return "", ErrFolder
	}
	return "", remoteFault(fmt.Errorf("the other side: exit code %d%s", code, said(text)))
}

// said appends what was printed to a message, shortened.
func said(text string) string {
	text = strings.TrimSpace(text)
	if text == "" {
		return ""
	}
	if len(text) > 300 {
		text = text[:300] + "..."
	}
	return ": " + strings.ReplaceAll(text, "\n", "; ")
}

// remoteFault finds out what a message of the other side means.
func remoteFault(err error) error {
	switch text := err.Error(); {
	case strings.Contains(text, "No space left"), strings.Contains(text, "quota exceeded"):
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	case strings.Contains(text, "Permission denied"), strings.Contains(text, "Read-only file system"), strings.Contains(text, "Operation not permitted"):
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return err
}

// sizeOf defines a function that prints a file's length.
const sizeOf = `z() { stat -L -c %s "$1" 2>/dev/null || wc -c < "$1"; }; `

// Stat is part of Sink.
func (s *shellSink) Stat(ctx context.Context, name string) (int64, error) {
	p := s.at(name)
	out, err := s.do(ctx, fmt.Sprintf("%s[ -d %s ] && exit %d; [ -e %s ] || exit %d; z %s", sizeOf, p, exitFolder, p, exitNone, p))
	if errors.Is(err, ErrFolder) {
		return 0, fmt.Errorf("%w: end the target with / to put the file into it", ErrFolder)
	}
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(lastField(out), 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("the length of %s is unclear%s", name, said(out))
	}
	return n, nil
}

func lastField(s string) string {
	f := strings.Fields(s)
	if len(f) == 0 {
		return ""
	}
	return f[len(f)-1]
}

// Free is part of Sink: df of the folder, or of the nearest one above it that
// exists.
func (s *shellSink) Free(ctx context.Context) (int64, error) {
	out, err := s.do(ctx, fmt.Sprintf(`d=%s; while [ ! -d "$d" ] && [ "$d" != / ] && [ "$d" != . ]; do d=$(dirname "$d"); done; df -Pk "$d" 2>/dev/null || df -k "$d" 2>/dev/null || df "$d"`, s.folder()))
	if err != nil && (IsPassing(err) || ctx.Err() != nil) {
		return 0, err
	}
	if n, ok := parseDF(out); ok && err == nil {
		return n, nil
	}
	return 0, errors.ErrUnsupported
}

// parseDF finds the free bytes in what df printed: the column under Avail or
// Available, in KiB.
func parseDF(out string) (int64, bool) {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	for i, line := range lines {
		col := -1
		for k, f := range strings.Fields(line) {
			if strings.HasPrefix(f, "Avail") {
				col = k
			}
		}
		if col < 0 || !strings.Contains(line, "1024-blocks") && !strings.Contains(line, "1K-blocks") && !strings.Contains(line, "1k-blocks") {
			continue
		}
		fields := strings.Fields(strings.Join(lines[i+1:], " ")) // long names of devices wrap
		if col >= len(fields) {
			return 0, false
		}
		n, err := strconv.ParseInt(fields[col], 10, 64)
		if err != nil || n < 0 || n > 1<<52 {
			return 0, false
		}
		return n << 10, true
	}
	return 0, false
}

// Open is part of Sink.
func (s *shellSink) Open(ctx context.Context, name string, off, _ int64) (io.WriteCloser, error) {
	p := s.at(name)
	if off == 0 {
		if _, err := s.do(ctx, fmt.Sprintf("mkdir -p %s && : > %s", s.folder(), p)); err != nil {
			return nil, err
		}
	} else if n, err := s.Stat(ctx, name); err != nil {
		return nil, err
	} else if n != off {
		// What an earlier connection still had in its pipes has come in since.
		return nil, Passing(fmt.Errorf("%s has %d bytes, not the %d that it had", name, n, off))
	}
	w, err := s.r.put(ctx, "cat >> "+p)
	if err != nil {
		return nil, err
	}
	return &shellWriter{s: s, ctx: ctx, name: name, w: w, at: off}, nil
}

// shellWriter explains why a connection ended.
type shellWriter struct {
	s    *shellSink
	ctx  context.Context
	name string
	w    io.WriteCloser
	at   int64
}

func (w *shellWriter) Write(p []byte) (int, error) {
	n, err := w.w.Write(p)
	w.at += int64(n)
	return n, err
}

func (w *shellWriter) Close() error {
	err := w.w.Close()
	if cause := context.Cause(w.ctx); cause != nil {
		return cause
	}
	if err == nil {
		return nil
	}
	err = remoteFault(err)
	if IsPassing(err) && !errors.Is(err, ErrNoSpace) {
		// A full disk looks like a break where nobody can say why.
		if free, ferr := w.s.Free(w.ctx); ferr == nil && free < 1<<20 {
			return fmt.Errorf("%w: %d bytes are free: %s", ErrNoSpace, free, err.Error())
		}
	}
	return err
}

// abcSum is the SHA-256 of "abc\n".
const abcSum = "edeaaff3f1774ad2888673770c6d64097e391bc362d7d6fb34982ddf0efd18cb"

// tools compute SHA-256 on one device or the other.
var tools = []string{"sha256sum", "toybox sha256sum", "busybox sha256sum", "shasum -a 256", "openssl dgst -sha256 -r", "sha256 -q"}

// findTool asks the other side once which tool it has, and tries it.
func (s *shellSink) findTool(ctx context.Context) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tool != "" || s.noTool {
		return s.tool, nil
	}
	script := ""
	for _, t := range tools {
		script += fmt.Sprintf(`case "$(echo abc | %s 2>/dev/null)" in *%s*) echo "tool: %s"; exit 0;; esac; `, t, abcSum, t)
	}
	out, err := s.do(ctx, script+"echo none")
	if err != nil {
		return "", err
	}
	if i := strings.LastIndex(out, "tool: "); i >= 0 {
		for _, t := range tools {
			if strings.TrimSpace(out[i+len("tool: "):]) == t {
				s.tool = t
			}
		}
	}
	s.noTool = s.tool == ""
	return s.tool, nil
}

// Sum is part of Sink. Where the other side cannot compute it, what it has is read
// back.
func (s *shellSink) Sum(ctx context.Context, name string, n int64) (digest.Digest, error) {
	tool, err := s.findTool(ctx)
	if err != nil {
		return digest.Digest{}, err
	}
	p := s.at(name)
	read := fmt.Sprintf(`{ if [ "$(z %s)" -eq %d ]; then cat %s; else head -c %d %s; fi; }`, p, n, p, n, p)
	if tool == "" {
		return s.readBack(ctx, sizeOf+read, n)
	}
	out, err := s.do(ctx, fmt.Sprintf("%s[ -f %s ] || exit %d; %s | %s", sizeOf, p, exitNone, read, tool))
	if err != nil {
		return digest.Digest{}, err
	}
	for _, f := range strings.Fields(out) {
		if d, err := digest.ParseHex(strings.TrimPrefix(strings.ToLower(f), `\`)); err == nil {
			return d, nil
		}
	}
	return digest.Digest{}, fmt.Errorf("%s printed no SHA-256%s", tool, said(out))
}

func (s *shellSink) readBack(ctx context.Context, script string, n int64) (digest.Digest, error) {
	r, err := s.r.get(ctx, script)
	if err != nil {
		return digest.Digest{}, err
	}
	h := digest.New()
	got, err := io.Copy(h, io.LimitReader(r, n))
	if cerr := r.Close(); err == nil && got < n {
		err = cerr
	}
	if cause := context.Cause(ctx); cause != nil {
		return digest.Digest{}, cause
	}
	if err == nil && got != n {
		err = fmt.Errorf("%d of %d bytes came back", got, n)
	}
	if err != nil {
		return digest.Digest{}, Passing(fmt.Errorf("read back: %w", err))
	}
	return digest.Sum(h), nil
}

// Rename is part of Sink. The bytes are on the disk before they get their name.
func (s *shellSink) Rename(ctx context.Context, from, to string) error {
	a, b := s.at(from), s.at(to)
	_, err := s.do(ctx, fmt.Sprintf("[ -d %s ] && exit %d; [ -e %s ] || exit %d; sync %s 2>/dev/null || sync; mv -f %s %s", b, exitFolder, a, exitNone, a, a, b))
	return err
}

// Remove is part of Sink.
func (s *shellSink) Remove(ctx context.Context, name string) error {
	_, err := s.do(ctx, "rm -f "+s.at(name))
	return err
}
