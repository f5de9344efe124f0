package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/urfave/cli/v2"

	"quern/artifacts/local"
	"quern/hub"
	"quern/internal/atomicfile"
)

// program is one call of quern.
type program struct {
	args        []string
	in          io.Reader
	out, errOut io.Writer // what is printed for people goes through clean
	raw, rawErr io.Writer // JSON and bars do not

	doc any // what --json prints; it belongs to the command until finish

	mu        sync.Mutex
	json      bool // --json was given
	jsonLines bool // --progress json was given
	done      bool // the end has been reported
	code      int

	hooks hooks
}

// hooks let tests put faults under a command.
type hooks struct {
	before func(atomicfile.Step, string) error // of every file written
	store  local.Options
	event  func() // at every event of a build
	clock  hub.Clock
}

const programKey = "program"

func newProgram(args []string, in io.Reader, out, errOut io.Writer) *program {
	return &program{args: args, in: in, out: &clean{w: out}, errOut: &clean{w: errOut}, raw: out, rawErr: errOut}
}

func programOf(c *cli.Context) *program { return c.App.Metadata[programKey].(*program) }

func (p *program) run(ctx context.Context) int {
	app := newApp(p)
	line := splitLine(app, p.args)
	p.mu.Lock()
	p.json, p.jsonLines = line.has("json", "true"), line.has("progress", "json")
	p.mu.Unlock()
	var err error
	if line.hungry != "" {
		command := strings.Join(line.path[1:], " ")
		err = usagef("%s: flag %s needs a value; quern %s --help", command, line.hungry, command)
	} else {
		err = app.RunContext(ctx, line.args())
	}
	if cause := context.Cause(ctx); cause != nil && err != nil {
		err = cause
	}
	return p.finish(err)
}

// failure is what --json prints of a command that failed before it had anything
// else to print.
type failure struct {
	Error    string `json:"error"`
	ExitCode int    `json:"exit_code"`
}

// finish prints the JSON document and the error, if there are, and gives the
// exit code. Of finish and abandon only the first call counts.
func (p *program) finish(err error) int { return p.end(err, p.doc) }

// abandon is finish while the command still runs: what it has found out so far
// is its own.
func (p *program) abandon(err error) int { return p.end(err, nil) }

func (p *program) end(err error, doc any) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done {
		return p.code
	}
	p.done = true
	if p.json {
		if werr := p.writeDoc(doc, err); werr != nil {
			err = errors.Join(err, werr)
		}
	}
	p.code = exitCode(err)
	if err == nil {
		return p.code
	}
	if p.jsonLines {
		_ = json.NewEncoder(p.rawErr).Encode(struct {
			Kind string `json:"kind"`
			failure
		}{"error", failure{err.Error(), p.code}})
		return p.code
	}
	fmt.Fprintf(p.errOut, "quern: %v\n", err)
	return p.code
}

// writeDoc prints the one document of --json. A failed command's has the
// members error and exit_code beside those that it has got to.
func (p *program) writeDoc(doc any, err error) error {
	if doc == nil && err == nil {
		return nil // help was asked for
	}
	var b []byte
	var merr error
	if doc != nil {
		if b, merr = encodeJSON(doc); merr != nil {
			b = nil
			err = errors.Join(err, merr)
		}
	}
	if err != nil {
		f, ferr := encodeJSON(failure{err.Error(), exitCode(err)})
		if ferr != nil {
			return ferr
		}
		b = joinObjects(b, f)
	}
	if _, werr := p.raw.Write(b); werr != nil {
		return werr
	}
	return merr
}

func encodeJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return b.Bytes(), err
}

// joinObjects appends the members of one indented object to those of another.
func joinObjects(a, b []byte) []byte {
	head, ok := bytes.CutSuffix(a, []byte("\n}\n"))
	if !ok {
		return b // nothing, or {}
	}
	return append(append(bytes.Clone(head), ','), bytes.TrimPrefix(b, []byte("{"))...)
}

// printJSON sets the document of --json. It is printed when the command ends.
func printJSON(c *cli.Context, doc any) error {
	programOf(c).doc = doc
	return nil
}

// clean replaces control characters, which names in files of strangers may hold
// and which could command a terminal.
type clean struct {
	w    io.Writer
	lead bool // the last byte was the first of a C1 control in UTF-8
}

func (c *clean) Write(p []byte) (int, error) {
	b := make([]byte, 0, len(p)+1)
	for _, x := range p {
		switch {
		case c.lead && x >= 0x80 && x < 0xa0:
			b = fmt.Appendf(b, "\\x%02x", x)
			c.lead = false
			continue
		case c.lead:
			b = append(b, 0xc2)
			c.lead = false
		}
		switch {
		case x == 0xc2:
			c.lead = true
		case x == '\n' || x == '\t' || x >= ' ' && x != 0x7f:
			b = append(b, x)
		default:
			b = fmt.Appendf(b, "\\x%02x", x)
		}
	}
	if _, err := c.w.Write(b); err != nil {
		return 0, err
	}
	return len(p), nil
}
