package main

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"quern/pipeline"
	"quern/recipes/builtin"
	"quern/stages/gates"
)

func buildCommand() *cli.Command {
	flags := []cli.Flag{
		&cli.StringFlag{Name: "out", Aliases: []string{"o"}, Value: ".", Usage: "the `FOLDER` that outputs go to; it is made if need be"},
		setFlag(),
		&cli.BoolFlag{Name: "locked", Usage: "refuse anything that differs from the recipe's lock file"},
		&cli.BoolFlag{Name: "no-cache", Usage: "take nothing from the store; results are kept all the same"},
		&cli.BoolFlag{Name: "no-store", Usage: "neither take from the store nor keep anything"},
		&cli.StringFlag{Name: "measure", Value: "auto", Usage: "find the worst tensor of each file: auto (small ones), always or never"},
		jsonFlag(), progressFlag(), storeFlag(),
	}
	flags = append(flags, toFlag())
	return &cli.Command{
		Name:      "build",
		Usage:     "build the outputs of a recipe",
		ArgsUsage: "RECIPE",
		Description: "RECIPE is a file, or builtin: and the name of one that quern recipes lists.\n\n" +
			"Plans the recipe, writes its outputs and keeps them in the store. A lock file beside the recipe\n" +
			"(or in the output folder, where the recipe's folder is read-only) says what was read and written. Outputs with targets,\n" +
			"in the recipe's to: or by --to, are sent there as they are made.",
		Flags:  slices.Concat(flags, sendFlags(), workFlags(), networkFlags(), headerFlags()),
		Action: runBuild,
	}
}

// measureLimit is the size of a file up to which --measure auto looks for its
// worst tensor; larger ones would take noticeably longer to build.
const measureLimit = 64 << 20

func runBuild(c *cli.Context) error {
	ctx := c.Context
	workers, mem, err := work(c)
	if err != nil {
		return err
	}
	limit := int64(measureLimit)
	switch c.String("measure") {
	case "auto":
	case "always":
		limit = 1 << 62
	case "never":
		limit = -1
	default:
		return usagef("--measure %q: auto, always or never", c.String("measure"))
	}
	if c.NArg() != 1 {
		_, err := oneArg(c, "a recipe")
		return err
	}
	rep, err := newReporter(c)
	if err != nil {
		return err
	}
	defer rep.Close()
	if f := programOf(c).hooks.event; f != nil {
		rep = watched{rep, f}
	}
	recipePath := c.Args().First()
	out := c.String("out")
	lockFile := pipeline.LockPath(recipePath)
	inputs, lockPaths := []string{recipePath}, []string{lockFile, filepath.Join(out, filepath.Base(lockFile))}
	if name, ok := builtin.Cut(recipePath); ok {
		inputs, lockPaths = nil, []string{filepath.Join(out, pipeline.LockPath(name+".yaml"))}
	}
	e, err := openEnvironment(c, rep, true)
	if err != nil {
		return err
	}
	if c.Bool("locked") {
		if err := e.pin(lockPaths); err != nil {
			return err
		}
	}
	r, prj, err := project(c, e)
	if err != nil {
		return err
	}
	if len(r.Outputs) == 0 {
		return usagef("%s: the recipe has no outputs", r.File)
	}
	ways, err := e.send(prj)
	if err != nil {
		return err
	}
	opt := pipeline.BuildOptions{Send: ways,
		OutDir: out, Store: e.buildStore(), Jobs: workers, Memory: mem, NoCache: c.Bool("no-cache"),
		LockPaths: lockPaths, Inputs: inputs, Before: programOf(c).hooks.before, Locked: c.Bool("locked"), Events: rep,
		Inspect: gates.Notes, Measure: gates.Worst, MeasureLimit: limit,
	}
	res, err := pipeline.Build(ctx, prj, opt)
	rep.Close()
	if res != nil {
		programOf(c).doc = res
	}
	if err != nil || c.Bool("json") {
		return err
	}
	w := c.App.Writer
	if sendsToStdout(prj) {
		w = c.App.ErrWriter // the other one is the output's
	}
	return printBuild(w, res)
}

// printBuild writes the summary of a build.
func printBuild(w io.Writer, res *pipeline.Result) error {
	var b strings.Builder
	for _, o := range res.Outputs {
		if o.Path != "" {
			fmt.Fprintf(&b, "%s\n", o.Path)
		} else {
			fmt.Fprintf(&b, "%s\n", o.File)
		}
		for _, t := range o.Targets {
			verb := "sent to"
			if o.Already {
				verb = "was at"
			}
			fmt.Fprintf(&b, "  %-8s %s\n", verb, t)
		}
		fmt.Fprintf(&b, "  size     %d bytes (%s), %s%d tensors\n", o.Size, bytesText(o.Size), perWeight(o.BitsPerWeight), o.Tensors)
		fmt.Fprintf(&b, "  sha256   %s\n", o.SHA256.Hex())
		switch {
		case o.Cached:
			b.WriteString("  made     nothing: the store had the file\n")
		case o.Made < o.Tensors:
			fmt.Fprintf(&b, "  made     %d tensors, %d were in the store\n", o.Made, o.Tensors-o.Made)
		}
		if o.Lost != nil {
			fmt.Fprintf(&b, "  lost     %d values flushed to zero by casts\n", o.Lost.Flushed)
		}
		if o.Worst != nil {
			fmt.Fprintf(&b, "  worst    %s (%s), SNR %.1f dB\n", o.Worst.Name, o.Worst.Type, o.Worst.SNRdB)
		}
	}
	for _, p := range res.Products {
		for _, line := range p.Lines {
			fmt.Fprintf(&b, "%s: %s\n", p.Name, line)
		}
	}
	for _, g := range res.Gates {
		fmt.Fprintf(&b, "gate %s\n", g.Text)
	}
	for _, s := range res.Sources {
		f, ok := res.Stats.Fetch[s.Name]
		if !ok {
			continue
		}
		fmt.Fprintf(&b, "source %s: %d bytes needed, %d fetched in %d requests, %d from caches\n", s.Name, f.Needed, f.Fetched, f.Requests, f.Cached)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
