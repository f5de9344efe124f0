package main

import (
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"quern/artifacts"
	"quern/artifacts/local"
	"quern/hub"
	"quern/pipeline"
)

func storeCommand() *cli.Command {
	sub := func(name, usage, args string, action func(*storeContext) error, flags ...cli.Flag) *cli.Command {
		return &cli.Command{
			Name: name, Usage: usage, ArgsUsage: args,
			Flags: append([]cli.Flag{jsonFlag(), progressFlag(), storeFlag()}, flags...),
			Action: func(c *cli.Context) error {
				s, err := openStore(c)
				if err != nil {
					return err
				}
				defer s.rep.Close()
				return action(s)
			},
		}
	}
	return &cli.Command{
		Name:        "store",
		Usage:       "look after the store of built artifacts",
		Description: "The store is an OCI image layout: any OCI tool reads it.",
		Subcommands: []*cli.Command{
			sub("ls", "list names, or what the spool of downloads holds", "", storeList,
				&cli.BoolFlag{Name: "spool", Usage: "list unfinished and kept downloads instead"}),
			sub("show", "show a build: outputs, tensors, provenance", "NAME|DIGEST", storeShow),
			sub("tag", "give a build another name", "NAME|DIGEST NEWNAME", storeTag),
			sub("untag", "forget a name; gc removes what nothing names", "NAME", storeUntag),
			sub("verify", "read every blob again and list all damage", "", storeVerify, workFlags()[0]),
			sub("gc", "remove what no name reaches", "", storeGC,
				&cli.BoolFlag{Name: "dry-run", Aliases: []string{"n"}, Usage: "only say what would go"},
				&cli.DurationFlag{Name: "grace", Value: local.DefaultGrace, Usage: "keep what is younger"}),
			sub("export", "put the files of a build into a folder, or the whole build as an OCI layout", "NAME|DIGEST", storeExport,
				&cli.StringFlag{Name: "out", Aliases: []string{"o"}, Value: ".", Usage: "`FOLDER` for the files"},
				&cli.StringFlag{Name: "method", Usage: "auto (reflink or copy), link, reflink or copy"},
				&cli.BoolFlag{Name: "replace", Usage: "replace files that are there"},
				&cli.StringFlag{Name: "layout", Usage: "write an OCI layout into `FOLDER` instead"},
				&cli.StringFlag{Name: "tar", Usage: "write an OCI layout as tar `FILE` instead"}),
		},
	}
}

type storeContext struct {
	*cli.Context
	s   *local.Store
	rep reporter
}

func openStore(c *cli.Context) (*storeContext, error) {
	rep, err := newReporter(c)
	if err != nil {
		return nil, err
	}
	e, err := openEnvironment(c, rep, false)
	if err != nil {
		return nil, err
	}
	return &storeContext{c, e.store, rep}, nil
}

// args demands a number of arguments.
func (s *storeContext) args(n int, what string) ([]string, error) {
	if s.NArg() != n {
		return nil, usagef("store %s: %s; %d arguments given", s.Command.Name, what, s.NArg())
	}
	return s.Args().Slice(), nil
}

func storeList(s *storeContext) error {
	if _, err := s.args(0, "no arguments are taken"); err != nil {
		return err
	}
	if s.Bool("spool") {
		return spoolList(s)
	}
	u, err := s.s.Usage(s.Context.Context)
	if err != nil {
		return err
	}
	if s.Bool("json") {
		return printJSON(s.Context, u)
	}
	t := tabwriter.NewWriter(s.App.Writer, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "name\tdigest\tbytes\tof its own")
	for _, n := range u.Names {
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\n", n.Name, n.Digest, n.Bytes, n.Unique)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(s.App.Writer, "%d blobs, %s; %s without a name\n", u.Blobs, bytesText(u.Bytes), bytesText(u.Loose))
	return nil
}

func storeShow(s *storeContext) error {
	a, err := s.args(1, "name one build")
	if err != nil {
		return err
	}
	d, err := s.s.Resolve(s.Context.Context, a[0])
	if err != nil {
		return err
	}
	b, err := artifacts.ReadBuild(s.Context.Context, s.s, d)
	if errors.Is(err, artifacts.ErrNoBuild) && artifacts.IsManifest(d.MediaType) {
		return showForeign(s, d)
	}
	if err != nil {
		return err
	}
	if s.Bool("json") {
		return printJSON(s.Context, struct {
			Manifest artifacts.Digest `json:"manifest"`
			*artifacts.Build
		}{d.Digest, b})
	}
	return printStored(s, d, b)
}

// printStored shows a build of the store for people.
func printStored(s *storeContext, d artifacts.Descriptor, b *artifacts.Build) error {
	w := s.App.Writer
	fmt.Fprintf(w, "%s  %s\nbuilt by %s %s\n", b.Name, d.Digest, b.Tool.Name, b.Tool.Version)
	for _, src := range b.Sources {
		fmt.Fprintf(w, "source %s: %s %s %s\n", src.Name, src.Kind, src.Ref, src.Commit)
		for _, f := range src.Files {
			sum := f.Digest.String()
			if f.Digest.IsZero() {
				sum = "git:" + f.Git
			}
			fmt.Fprintf(w, "  %s  %d  %s\n", sum, f.Size, f.Path)
		}
	}
	for _, st := range b.Steps {
		fmt.Fprintf(w, "step %s\n", st.Params)
	}
	for _, o := range b.Outputs {
		fmt.Fprintf(w, "output %s: %s, %d bytes, %s\n", o.File, o.Format, o.Size, o.Digest)
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, x := range o.Tensors {
			fmt.Fprintf(t, "  %s\t%s\t%v\t%d\t%d\t%s\n", x.Name, x.Type, x.Shape, x.Offset, x.Bytes, x.Digest.Hex()[:16])
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	return nil
}

func storeTag(s *storeContext) error {
	a, err := s.args(2, "name a build and its new name")
	if err != nil {
		return err
	}
	if err := artifacts.CheckName(a[1]); err != nil {
		return usagef("%v", err)
	}
	d, err := s.s.Resolve(s.Context.Context, a[0])
	if err != nil {
		return err
	}
	if err := s.s.Tag(s.Context.Context, a[1], d); err != nil {
		return err
	}
	if s.Bool("json") {
		return printJSON(s.Context, struct {
			Name   string           `json:"name"`
			Digest artifacts.Digest `json:"digest"`
			Size   int64            `json:"size"`
		}{a[1], d.Digest, d.Size})
	}
	_, err = fmt.Fprintf(s.App.Writer, "%s is %s\n", a[1], d.Digest)
	return err
}

func storeUntag(s *storeContext) error {
	a, err := s.args(1, "name what to forget")
	if err != nil {
		return err
	}
	if err := s.s.Untag(s.Context.Context, a[0]); err != nil {
		return err
	}
	if s.Bool("json") {
		return printJSON(s.Context, map[string]string{"untagged": a[0]})
	}
	_, err = fmt.Fprintf(s.App.Writer, "%s is forgotten\n", a[0])
	return err
}

func storeVerify(s *storeContext) error {
	if _, err := s.args(0, "no arguments are taken"); err != nil {
		return err
	}
	workers, err := jobs(s.Context)
	if err != nil {
		return err
	}
	found, err := s.s.Verify(s.Context.Context, artifacts.VerifyOptions{Jobs: workers, Progress: func(done, total int64) {
		s.rep.Event(pipeline.Event{Kind: pipeline.EventProgress, Output: "store", Done: done, Total: total})
	}})
	if err != nil {
		return err
	}
	if s.Bool("json") {
		if found == nil {
			found = []artifacts.Finding{}
		}
		err := printJSON(s.Context, struct {
			Findings []artifacts.Finding `json:"findings"`
		}{found})
		if err != nil {
			return err
		}
	} else {
		for _, f := range found {
			fmt.Fprintln(s.App.Writer, f)
		}
		if len(found) == 0 {
			fmt.Fprintln(s.App.Writer, "nothing is damaged")
		}
	}
	if len(found) > 0 {
		return fmt.Errorf("%w: %d findings; delete what is damaged with its name and build again", errVerify, len(found))
	}
	return nil
}

func storeGC(s *storeContext) error {
	if _, err := s.args(0, "no arguments are taken"); err != nil {
		return err
	}
	grace := s.Duration("grace")
	if grace == 0 {
		grace = -1 // none, where zero would mean the default
	}
	plan, err := s.s.PlanGC(s.Context.Context, local.GCOptions{Grace: grace, Wait: 10 * time.Second})
	if err != nil {
		return err
	}
	var res *local.GCResult
	if !s.Bool("dry-run") {
		if res, err = s.s.ExecuteGC(s.Context.Context, plan); err != nil {
			return err
		}
	}
	// Downloads have records and locks of their own, which the hub client
	// keeps.
	spool, err := hub.CleanSpool(s.Context.Context, s.s.SpoolDir(), hub.CleanOptions{OlderThan: grace, DryRun: s.Bool("dry-run")})
	if err != nil {
		return err
	}
	if s.Bool("json") {
		return printJSON(s.Context, struct {
			Plan   *local.GCPlan   `json:"plan"`
			Result *local.GCResult `json:"result,omitempty"`
			Spool  []spoolEntry    `json:"spool"` // downloads that went, or would go
		}{plan, res, spoolEntries(spool.Removed)})
	}
	w := s.App.Writer
	for _, e := range spool.Removed {
		fmt.Fprintf(w, "download of %s  %d bytes\n", e.What, e.Have)
	}
	for _, r := range plan.Remove {
		fmt.Fprintf(w, "%s  %d bytes, %s old: %s\n", r.Path, r.Size, r.Age, r.Reason)
	}
	if res == nil {
		fmt.Fprintf(w, "%d files, %s would go; %d files, %s are too young\n", len(plan.Remove), bytesText(plan.Bytes), plan.Kept, bytesText(plan.KeptBytes))
		return nil
	}
	fmt.Fprintf(w, "%d files, %s removed; %d came into use; %d files, %s are too young\n", res.Removed, bytesText(res.Bytes), res.Skipped, plan.Kept, bytesText(plan.KeptBytes))
	return nil
}

func storeExport(s *storeContext) error {
	a, err := s.args(1, "name one build")
	if err != nil {
		return err
	}
	ctx := s.Context.Context
	opt := local.ExportOptions{Method: local.ExportMethod(s.String("method")), Replace: s.Bool("replace")}
	switch opt.Method {
	case "auto":
		opt.Method = local.ExportAuto
	case local.ExportAuto, local.ExportLink, local.ExportReflink, local.ExportCopy:
	default:
		return usagef("--method %q: auto, link, reflink or copy", s.String("method"))
	}
	if s.IsSet("layout") && s.IsSet("tar") {
		return usagef("store export: --layout or --tar, not both")
	}
	d, named, outputs, err := exportable(s, a[0])
	if err != nil {
		return err
	}
	name := named
	if artifacts.CheckName(a[0]) == nil && !strings.HasPrefix(a[0], "sha256:") {
		name = a[0]
	}
	type exported struct {
		Path   string `json:"path"`
		Bytes  int64  `json:"bytes,omitempty"`
		Method string `json:"method"`
	}
	var doc struct {
		Files []exported `json:"files"`
	}
	doc.Files = []exported{}
	// What was exported before a fault stays, and the document says so.
	programOf(s.Context).doc = &doc
	put := func(x exported, err error) error {
		if errors.Is(err, artifacts.ErrExists) {
			return fmt.Errorf("%w; --replace replaces it", err)
		}
		if err != nil {
			return err
		}
		doc.Files = append(doc.Files, x)
		if s.Bool("json") {
			return nil
		}
		_, err = fmt.Fprintf(s.App.Writer, "%s (%s)\n", x.Path, x.Method)
		return err
	}
	switch {
	case s.IsSet("layout"):
		err := s.s.ExportLayout(ctx, name, d, s.String("layout"), opt)
		return put(exported{Path: s.String("layout"), Method: "layout"}, err)
	case s.IsSet("tar"):
		err := s.s.ExportTar(ctx, name, d, s.String("tar"), opt)
		return put(exported{Path: s.String("tar"), Method: "tar"}, err)
	default:
		dir, err := newFolder(s.Context, s.s, s.String("out"), opt.Replace)
		if err != nil {
			return err
		}
		for _, o := range outputs {
			f := &pulledFile{File: o.Path, Size: o.Size, SHA256: o.Digest}
			if err := dir.parent(f); err != nil {
				return err
			}
			path := dir.path(f.File)
			m, err := s.s.Export(ctx, o.Descriptor, path, opt)
			if err := put(exported{path, o.Size, string(m)}, err); err != nil {
				return err
			}
		}
		return nil
	}
}
