// Command hubserver lends the test hub to other clients, and our client to
// their caches.
//
//	hubserver serve -root DIR     serve the ORG/NAME folders below DIR; print one
//	                              JSON line with the addresses; end with stdin
//	hubserver read REPO[@REV]     read every file of a repository the way quern
//	                              does, with HF_ENDPOINT and the other variables;
//	                              print one JSON object with the digests
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"

	"quern/hub"
	"quern/hub/hubtest"
	"quern/internal/digest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "hubserver:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	if len(args) == 0 {
		return errors.New("want serve or read")
	}
	switch args[0] {
	case "serve":
		return serve(ctx, args[1:], in, out)
	case "read":
		return read(ctx, args[1:], out)
	}
	return fmt.Errorf("%q: want serve or read", args[0])
}

// list is a flag that may be given several times.
type list []string

func (l *list) String() string     { return strings.Join(*l, ",") }
func (l *list) Set(s string) error { *l = append(*l, s); return nil }

func serve(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	fs := flag.NewFlagSet("serve", flag.ContinueOnError)
	root := fs.String("root", "", "folder of ORG/NAME folders")
	page := fs.Int("page-size", 3, "entries on a page of a tree")
	once := fs.Bool("signed-once", false, "signed addresses work once")
	noXet := fs.Bool("no-xet", false, "leave out the Xet headers")
	direct := fs.Bool("direct-git", false, "answer files in git without a redirect")
	cut := fs.Int64("cut", 0, "break off every other answer of the storage host after so many bytes")
	var gated, private, disabled, tokens list
	fs.Var(&gated, "gated", "repository that asks for accepted terms")
	fs.Var(&private, "private", "repository that hides")
	fs.Var(&disabled, "disabled", "repository that is switched off")
	fs.Var(&tokens, "token", "NAME or NAME=REPO,REPO: a known token and what it opens")
	if err := fs.Parse(args); err != nil {
		return err
	}
	repos, err := hubtest.LoadRepos(*root)
	if err != nil {
		return err
	}
	for _, r := range repos {
		for _, s := range []struct {
			ids list
			on  *bool
		}{{gated, &r.Gated}, {private, &r.Private}, {disabled, &r.Disabled}} {
			for _, id := range s.ids {
				*s.on = *s.on || id == r.ID
			}
		}
	}
	opt := hubtest.Options{PageSize: *page, NoXet: *noXet, DirectGit: *direct, Tokens: map[string][]string{}}
	if *once {
		opt.SignedUses = 1
	}
	for _, t := range tokens {
		name, ids, _ := strings.Cut(t, "=")
		opt.Tokens[name] = strings.Split(ids, ",")
	}
	h, err := hubtest.Start(opt, repos...)
	if err != nil {
		return err
	}
	defer h.Close()
	if *cut > 0 {
		for i := range 100 {
			h.Inject(hubtest.Fault{On: hubtest.CDN, Method: "GET", Skip: 2 * i, Cut: true, CutAfter: *cut})
		}
	}
	if err := json.NewEncoder(out).Encode(map[string]string{"endpoint": h.URL, "storage": h.CDNURL}); err != nil {
		return err
	}
	// The hub lives as long as whoever started it keeps our input open.
	done := make(chan struct{})
	go func() {
		io.Copy(io.Discard, in)
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
	report := map[string]any{"requests": len(h.Requests()), "violations": append([]string{}, h.Violations()...)}
	return json.NewEncoder(out).Encode(report)
}

func read(ctx context.Context, args []string, out io.Writer) error {
	fs := flag.NewFlagSet("read", flag.ContinueOnError)
	spool := fs.String("spool", "", "spool folder; empty reads into memory")
	if err := fs.Parse(args); err != nil {
		return err
	}
	ref, err := hub.ParseRef(fs.Arg(0))
	if err != nil {
		return err
	}
	opt, err := hub.OptionsFromEnv(os.Getenv)
	if err != nil {
		return err
	}
	opt.SpoolDir = *spool
	opt.Events = func(e hub.Event) { fmt.Fprintln(os.Stderr, e.Kind, e.What, e.Text) }
	c, err := hub.New(opt)
	if err != nil {
		return err
	}
	s, err := c.Snapshot(ctx, ref, hub.SnapshotOptions{})
	if err != nil {
		return err
	}
	defer s.Close()
	files := map[string]string{}
	for _, f := range s.Files() {
		b, err := s.Open(ctx, f.Path)
		if err != nil {
			return err
		}
		h := digest.New()
		buf := make([]byte, 1<<20)
		for off := int64(0); off < b.Size(); {
			p := buf[:min(int64(len(buf)), b.Size()-off)]
			if err := b.ReadAt(ctx, p, off); err != nil {
				return err
			}
			h.Write(p)
			off += int64(len(p))
		}
		files[f.Path] = digest.Sum(h).Hex()
	}
	if err := s.Finish(ctx); err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(map[string]any{"commit": s.Commit, "files": files, "stats": s.Stats()})
}
