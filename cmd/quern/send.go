package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"quern/artifacts/sink"
	"quern/internal/digest"
	"quern/pipeline"
	"quern/tensor"
)

func sendCommand() *cli.Command {
	return &cli.Command{
		Name:      "send",
		Usage:     "send a finished file to a device, a machine, a server or a flash image",
		ArgsUsage: "FILE TARGET...",
		Description: "A TARGET is a path, adb:[SERIAL:]/PATH, ssh:[USER@]HOST[:PORT]:PATH, http(s)://..., flash:IMAGE?offset=..&partition-size=.. or -.\n" +
			"One that ends with / is a folder. The file goes there under a temporary name, its SHA-256 is computed there and compared, and\n" +
			"only then it gets its name. After a break the same command goes on where it stopped. A target that has the file is left alone.",
		Flags:  slices.Concat([]cli.Flag{jsonFlag(), progressFlag()}, sendFlags()),
		Action: runSend,
	}
}

// sent is the document of send --json.
type sent struct {
	File    string        `json:"file"`
	Size    int64         `json:"size"`
	SHA256  digest.Digest `json:"sha256"`
	Targets []string      `json:"targets"`
	// Already says that all targets had the file.
	Already bool    `json:"already_there"`
	Seconds float64 `json:"seconds"`
}

func runSend(c *cli.Context) error {
	if c.NArg() < 2 {
		return usagef("send: a file and where it goes; quern send --help")
	}
	rep, err := newReporter(c)
	if err != nil {
		return err
	}
	defer rep.Close()
	f, err := openToSend(c.Args().First())
	if err != nil {
		return err
	}
	defer f.Close()
	var to []sink.Target
	for _, s := range c.Args().Slice()[1:] {
		t, err := here(s)
		if err != nil {
			return err
		}
		to = append(to, t.At(filepath.Base(f.path)))
	}
	opt, err := sinkOptions(c, to)
	if err != nil {
		return err
	}
	if err := f.distinct(to); err != nil {
		return err
	}
	doc, err := f.send(c.Context, rep, to, opt)
	rep.Close()
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return printJSON(c, doc)
	}
	w := c.App.Writer
	if toStdout(to) {
		w = c.App.ErrWriter
	}
	verb := "sent to"
	if doc.Already {
		verb = "was at"
	}
	for _, t := range doc.Targets {
		fmt.Fprintf(w, "%-8s %s\n", verb, t)
	}
	fmt.Fprintf(w, "size     %d bytes (%s)%s\nsha256   %s\n", doc.Size, bytesText(doc.Size), doc.speed(), doc.SHA256.Hex())
	return nil
}

func (d *sent) speed() string {
	if d.Already || d.Seconds < 0.1 {
		return ""
	}
	return fmt.Sprintf(", %.1f s, %s/s", d.Seconds, bytesText(int64(float64(d.Size)/d.Seconds)))
}

// fileToSend is an open file that must stay as it is.
type fileToSend struct {
	*os.File
	path string
	was  os.FileInfo
}

func openToSend(path string) (*fileToSend, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, pipeline.SourceFault(err)
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = usagef("%s is no regular file; send one file at a time", path)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &fileToSend{f, path, st}, nil
}

// distinct refuses targets that are the file itself, or one another.
func (f *fileToSend) distinct(to []sink.Target) error {
	abs, err := filepath.Abs(f.path)
	if err != nil {
		abs = f.path
	}
	seen := map[string]bool{}
	for _, t := range to {
		if seen[t.ID()] {
			return usagef("%s is given twice", t)
		}
		seen[t.ID()] = true
		if t.Kind != sink.File && t.Kind != sink.Flash {
			continue
		}
		st, err := os.Stat(t.Path)
		if strings.EqualFold(filepath.Clean(t.Path), abs) || err == nil && os.SameFile(st, f.was) {
			return fmt.Errorf("%w: %s is the file itself", pipeline.ErrSameFile, t)
		}
	}
	return nil
}

// same fails if the file has changed since it was opened.
func (f *fileToSend) same() error {
	st, err := os.Stat(f.path)
	if err == nil && (st.Size() != f.was.Size() || !st.ModTime().Equal(f.was.ModTime()) || !os.SameFile(st, f.was)) {
		err = fmt.Errorf("%s has changed while it was sent", f.path)
	}
	return pipeline.SourceFault(err)
}

func (f *fileToSend) send(ctx context.Context, rep reporter, to []sink.Target, opt sink.Options) (*sent, error) {
	name, size := filepath.Base(f.path), f.was.Size()
	rep.Event(pipeline.Event{Kind: pipeline.EventPhase, Message: "hashing " + name})
	sum, err := f.sum(ctx, size)
	if err != nil {
		return nil, err
	}
	doc := &sent{File: f.path, Size: size, SHA256: sum}
	var sinks []sink.Sink
	for _, t := range to {
		s, err := sink.Open(t, opt)
		if err != nil {
			return nil, err
		}
		sinks = append(sinks, s)
		doc.Targets = append(doc.Targets, t.String())
	}
	tr := sink.NewTransfer(sinks, sink.TransferOptions{Size: size, Known: sum, Say: func(m string) {
		rep.Event(pipeline.Event{Kind: pipeline.EventNote, Message: m})
	}})
	defer tr.Close()
	start := time.Now()
	err = tr.Run(ctx, func(ctx context.Context, m sink.Mark) error {
		rep.Event(pipeline.Event{Kind: pipeline.EventOutput, Output: name, Total: size})
		buf := make([]byte, 1<<20)
		for at := m.Offset; at < size; {
			if cause := context.Cause(ctx); cause != nil {
				return cause
			}
			b := buf[:min(size-at, int64(len(buf)))]
			if k, err := f.ReadAt(b, at); k < len(b) {
				return pipeline.SourceFault(fmt.Errorf("%s: at offset %d: %w", f.path, at, err))
			}
			if _, err := tr.Write(b); err != nil {
				return err
			}
			at += int64(len(b))
			rep.Event(pipeline.Event{Kind: pipeline.EventProgress, Output: name, Done: at, Total: size})
			if err := tr.Mark(func() (any, error) { return nil, nil }); err != nil {
				return err
			}
		}
		if err := f.same(); err != nil {
			return err
		}
		if got := tr.Sum(); got != sum {
			return pipeline.SourceFault(fmt.Errorf("%s has changed while it was sent: SHA-256 %s, before %s", f.path, got.Hex(), sum.Hex()))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if err := tr.Publish(ctx); err != nil {
		return nil, err
	}
	doc.Already, doc.Seconds = tr.Already(), time.Since(start).Seconds()
	rep.Event(pipeline.Event{Kind: pipeline.EventDone, Output: name, Total: size})
	return doc, nil
}

// sum hashes the file first, so that a target that has it gets nothing.
func (f *fileToSend) sum(ctx context.Context, size int64) (digest.Digest, error) {
	r := tensor.ContextReaderAt(ctx, tensor.ReaderAtBlob(f.path, f.File, size))
	sum, _, err := digest.OfReader(io.NewSectionReader(r, 0, size))
	if cause := context.Cause(ctx); cause != nil {
		return digest.Digest{}, cause
	}
	return sum, pipeline.SourceFault(err)
}
