package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"quern/pipeline"
)

func planCommand() *cli.Command {
	flags := []cli.Flag{
		&cli.StringFlag{Name: "out", Aliases: []string{"o"}, Value: ".", Usage: "the `FOLDER` that outputs would go to: its free space is looked at"},
		setFlag(), toFlag(), jsonFlag(), progressFlag(), storeFlag(),
		&cli.BoolFlag{Name: "no-store", Usage: "do not ask the store what it has"},
		&cli.BoolFlag{Name: "no-cache", Usage: "plan as if the store had nothing"}}
	return &cli.Command{
		Name:      "plan",
		Usage:     "show what a recipe would write, to the byte, without reading weights",
		ArgsUsage: "RECIPE",
		Description: "Prints every tensor of every output: shape, source type, target type and why, bytes and offset; then\n" +
			"the bytes to fetch, the memory the build would take and the exact size of each file. With --ram: what a device\n" +
			"with so much memory would hold of each file, and what it would read from flash.",
		Flags:  slices.Concat(flags, workFlags(), deviceFlags(), networkFlags(), headerFlags()),
		Action: runPlan,
	}
}

func runPlan(c *cli.Context) error {
	workers, mem, err := work(c)
	if err != nil {
		return err
	}
	spec, err := deviceSpec(c)
	if err != nil {
		return err
	}
	rep, err := newReporter(c)
	if err != nil {
		return err
	}
	defer rep.Close()
	e, err := openEnvironment(c, rep, true)
	if err != nil {
		return err
	}
	_, prj, err := project(c, e)
	if err != nil {
		return err
	}
	p, err := pipeline.NewPlan(c.Context, prj, pipeline.PlanOptions{
		WorkOptions: pipeline.WorkOptions{Jobs: workers, Memory: mem, Events: rep}, Store: e.buildStore(), NoCache: c.Bool("no-cache")})
	if err != nil {
		return err
	}
	defer p.Close()
	store := e.buildStore()
	if c.Bool("no-cache") {
		store = nil
	}
	doc, err := p.Report(c.Context, store, pipeline.EmitOptions{Jobs: workers, Memory: mem})
	if err != nil {
		return err
	}
	doc.Notes = append(doc.Notes, doc.Space(c.String("out"), e.buildStore())...)
	out := planDoc{PlanReport: doc}
	if spec != nil {
		if out.Devices, err = deviceAccounts(p, *spec); err != nil {
			return err
		}
		if len(out.Devices) == 0 {
			doc.Notes = append(doc.Notes, "--ram: no output is a GGUF file or a .cact archive, the formats that are accounted for")
		}
	}
	if c.Bool("json") {
		return printJSON(c, out)
	}
	if err := printPlan(c.App.Writer, doc); err != nil {
		return err
	}
	for _, d := range out.Devices {
		printDevice(c.App.Writer, *spec, d)
	}
	return nil
}

// planDoc is the document of quern plan --json.
type planDoc struct {
	*pipeline.PlanReport
	// Devices has an account of each file that the device of --ram can run.
	Devices []deviceDoc `json:"devices,omitempty"`
}

// printPlan writes a plan for people.
func printPlan(w io.Writer, doc *pipeline.PlanReport) error {
	for _, o := range doc.Outputs {
		fmt.Fprintf(w, "%s (%s)\n", o.File, o.Format)
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "  tensor\tshape\tfrom\tto\tbytes\toffset\twhy")
		for _, r := range o.Tensors {
			why := r.Reason
			if r.Kept {
				why += ", in the store"
			}
			fmt.Fprintf(t, "  %s\t%v\t%s\t%s\t%d\t%d\t%s\n", r.Name, r.Shape, r.From, r.Type, r.Bytes, r.Offset, why)
		}
		if err := t.Flush(); err != nil {
			return err
		}
		fmt.Fprintf(w, "  size %d bytes (%s), %s%d tensors", o.Size, bytesText(o.Size), perWeight(o.BitsPerWeight), len(o.Tensors))
		if len(o.Types) > 0 {
			fmt.Fprintf(w, "; types: %s", shares(o.Types))
		}
		fmt.Fprintln(w)
		for _, to := range o.To {
			fmt.Fprintf(w, "  goes to %s\n", to)
		}
		if o.Kept {
			fmt.Fprintf(w, "  the store has the whole file\n")
		}
	}
	for _, s := range doc.Sources {
		if s.Remote {
			fmt.Fprintf(w, "source %s: %d bytes to fetch (%s)\n", s.Name, s.ToFetch, bytesText(s.ToFetch))
		}
	}
	for _, p := range doc.Products {
		for _, line := range p.Lines {
			fmt.Fprintf(w, "%s: %s\n", p.Name, line)
		}
	}
	fmt.Fprintf(w, "peak memory about %s\n", bytesText(doc.PeakMemory))
	for _, n := range doc.Notes {
		fmt.Fprintf(w, "note: %s\n", n)
	}
	return nil
}

func shares(list []pipeline.TypeShare) string {
	parts := make([]string, len(list))
	for i, s := range list {
		parts[i] = fmt.Sprintf("%s %.1f %% of weights, %.1f %% of bytes", s.Type, 100*s.Weights, 100*s.Bytes)
	}
	return strings.Join(parts, "; ")
}

// perWeight says how many bits a weight takes, and nothing of a file without
// weights of its own.
func perWeight(bits float64) string {
	if bits == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f bits per weight, ", bits)
}
