package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"quern/formats/gguf"
	"quern/formats/repacked"
	"quern/internal/holes"
	"quern/model/punch"
	"quern/pipeline"
	"quern/tensor"
)

func punchCommand() *cli.Command {
	return &cli.Command{
		Name:      "punch",
		Usage:     "give back the bytes of a GGUF file that repack caches hold too",
		ArgsUsage: "FILE CACHE...",
		Description: "A device that computes on a cache needs the file's own matrices no more. Their bytes are given back to the file\n" +
			"system; the file keeps its length, its header and everything else, and says where the matrices are. Nothing is\n" +
			"touched before the caches are known to be of this very file, to give every byte back, and to be on the disk.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "restore", Usage: "bring the bytes back out of the caches; the file is what it was"},
			&cli.BoolFlag{Name: "zero", Usage: "write zeros where the file system has no holes: frees nothing here, but copies that skip zeros do not carry them"},
			&cli.BoolFlag{Name: "dry-run", Usage: "check everything and change nothing"},
			jsonFlag(),
		},
		Action: runPunch,
	}
}

// punchDoc is the document of quern punch --json.
type punchDoc struct {
	File string `json:"file"`
	// SHA256 is that of the file with nothing gone.
	SHA256   string        `json:"sha256"`
	Restored bool          `json:"restored"`
	DryRun   bool          `json:"dry_run"`
	Tensors  []punchedPart `json:"tensors"`
	// Bytes is what these tensors have in the file.
	Bytes int64 `json:"bytes"`
	// Before and After are the bytes that the file takes on the disk.
	Before int64 `json:"allocated_before"`
	After  int64 `json:"allocated_after"`
}

type punchedPart struct {
	Name   string `json:"name"`
	Layout string `json:"layout"`
	Offset int64  `json:"offset"`
	Bytes  int64  `json:"bytes"`
}

func runPunch(c *cli.Context) (err error) {
	args := c.Args().Slice()
	if len(args) < 2 {
		return usagef("punch: a GGUF file and its repack caches; quern punch --help")
	}
	if c.Bool("restore") && c.Bool("zero") {
		return usagef("punch: --zero does not go with --restore")
	}
	if _, _, n, ok := gguf.ParseSplitName(filepath.Base(args[0])); ok && n > 1 {
		return usagef("punch: %s is a shard; caches go with files in one piece", args[0])
	}
	f, closeAll, err := openPunch(c.Context, args[0], args[1:])
	defer func() { err = errors.Join(err, closeAll()) }()
	if err == nil {
		err = f.Verify(c.Context)
	}
	if err != nil {
		return punchFault(err)
	}
	doc := &punchDoc{File: args[0], SHA256: f.Caches[0].GGUF.String(), Restored: c.Bool("restore"), DryRun: c.Bool("dry-run"), Tensors: []punchedPart{}}
	pieces := f.Plan()
	if doc.Restored {
		pieces = f.Missing()
	} else if err := f.Check(c.Context, pieces); err != nil {
		return punchFault(err)
	}
	for _, p := range pieces {
		doc.Tensors = append(doc.Tensors, punchedPart{p.Tensor, p.Layout, p.Offset, p.Bytes})
		doc.Bytes += p.Bytes
	}
	if err := doc.change(c, f, args, pieces); err != nil {
		return err
	}
	if c.Bool("json") {
		return printJSON(c, doc)
	}
	return doc.print(c)
}

// change does what the document says, and measures it.
func (d *punchDoc) change(c *cli.Context, f *punch.File, args []string, pieces []punch.Piece) (err error) {
	for _, p := range args[1:] {
		if err := holes.SyncPath(p); err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
	}
	to, err := holes.Open(args[0])
	if err != nil {
		if errors.Is(err, holes.ErrLinked) || errors.Is(err, fs.ErrPermission) {
			return usageErr{err.Error()}
		}
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	if d.Before, err = to.Allocated(); err != nil {
		return err
	}
	d.After = d.Before
	if d.DryRun {
		return nil
	}
	if d.Restored {
		err = f.Restore(c.Context, to)
	} else {
		err = f.Apply(c.Context, to, pieces, c.Bool("zero"))
	}
	if errors.Is(err, holes.ErrUnsupported) {
		return fmt.Errorf("%w; nothing was changed, --zero writes zeros instead", err)
	}
	if err != nil {
		return err
	}
	// What stands there now is read again.
	if err := f.Verify(c.Context); err != nil {
		return punchFault(err)
	}
	d.After, err = to.Allocated()
	return err
}

func (d *punchDoc) print(c *cli.Context) error {
	w := c.App.Writer
	if len(d.Tensors) == 0 {
		what := "no tensor that the caches have covers a block of the file system"
		if d.Restored {
			what = "nothing was punched out"
		}
		_, err := fmt.Fprintf(w, "%s: %s\n", d.File, what)
		return err
	}
	for _, t := range d.Tensors {
		if _, err := fmt.Fprintf(w, "%-40s %14d bytes  %s\n", t.Name, t.Bytes, t.Layout); err != nil {
			return err
		}
	}
	verb := "given back"
	switch {
	case d.DryRun:
		verb = "would change"
	case d.Restored:
		verb = "brought back"
	}
	_, err := fmt.Fprintf(w, "%s: %d tensors, %d bytes %s; on the disk %d bytes, %d before\n", d.File, len(d.Tensors), d.Bytes, verb, d.After, d.Before)
	return err
}

// openPunch opens a file and its caches. closeAll is never nil.
func openPunch(ctx context.Context, file string, caches []string) (f *punch.File, closeAll func() error, err error) {
	var blobs []*tensor.FileBlob
	closeAll = func() error {
		var err error
		for _, b := range blobs {
			err = errors.Join(err, b.Close())
		}
		return err
	}
	open := func(path string) (*tensor.FileBlob, error) {
		b, err := tensor.OpenFile(path)
		if err != nil {
			return nil, pipeline.SourceFault(err)
		}
		blobs = append(blobs, b)
		return b, nil
	}
	b, err := open(file)
	if err != nil {
		return nil, closeAll, err
	}
	if f, err = punch.Open(ctx, filepath.Base(file), b); err != nil {
		return nil, closeAll, pipeline.SourceFault(err)
	}
	for _, p := range caches {
		b, err := open(p)
		if err != nil {
			return nil, closeAll, err
		}
		r, err := repacked.Open(ctx, filepath.Base(p), b, repacked.Options{})
		if err != nil {
			return nil, closeAll, pipeline.SourceFault(err)
		}
		if err := f.Add(r); err != nil {
			return nil, closeAll, err
		}
	}
	return f, closeAll, nil
}

// punchFault marks files that are not what they should be.
func punchFault(err error) error {
	for _, target := range []error{punch.ErrCache, punch.ErrLossy, repacked.ErrOther, gguf.ErrPunched} {
		if errors.Is(err, target) {
			return fmt.Errorf("%w: %w", errVerify, err)
		}
	}
	return err
}
