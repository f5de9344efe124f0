package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/urfave/cli/v2"

	"quern/artifacts"
	"quern/artifacts/local"
	"quern/artifacts/registry"
	"quern/pipeline"
	"quern/recipes"
)

// registryFlags are those of push or pull, and how both show themselves, find the
// store and reach a registry.
func registryFlags(own ...cli.Flag) []cli.Flag {
	return slices.Concat([]cli.Flag{jsonFlag(), progressFlag(), storeFlag()}, own, []cli.Flag{
		&cli.BoolFlag{Name: "plain-http", Usage: "use HTTP, not HTTPS; registries of this machine are reached so unless =false is given"},
		&cli.StringFlag{Name: "username", Aliases: []string{"u"}, Usage: "the `USER`; without it docker's configuration and its helpers are asked"},
		&cli.BoolFlag{Name: "password-stdin", Usage: "read the user's password or token from standard input"},
	})
}

// exchange is what push and pull have in common.
type exchange struct {
	c      *cli.Context
	rep    reporter
	client *registry.Client
	ref    registry.Ref
	store  *local.Store // nil with --no-store, and where none can be had and none is needed
	free   func()       // gives the store back to gc
}

// openExchange opens the store, keeps gc away from it until close, and makes the
// client.
func openExchange(c *cli.Context, ref registry.Ref, canDoWithout bool) (*exchange, error) {
	rep, err := newReporter(c)
	if err != nil {
		return nil, err
	}
	x := &exchange{c: c, rep: rep, ref: ref, free: func() {}}
	if err := x.open(canDoWithout); err != nil {
		x.close()
		return nil, err
	}
	return x, nil
}

func (x *exchange) open(canDoWithout bool) error {
	e, err := openEnvironment(x.c, x.rep, canDoWithout)
	if err != nil {
		return err
	}
	x.store = e.store
	if x.client, err = registryClient(x.c, x.rep, x.store, x.ref.String()); err != nil || x.store == nil {
		return err
	}
	free, err := x.store.Hold(x.c.Context)
	if err == nil {
		x.free = free
	}
	return err
}

func (x *exchange) close() {
	x.free()
	x.rep.Close()
}

// done ends what is shown of the way, and prints the result but for --json.
func (x *exchange) done(print func() error) error {
	x.rep.Event(pipeline.Event{Kind: pipeline.EventDone, Output: x.ref.String()})
	x.rep.Close()
	if x.c.Bool("json") {
		return nil
	}
	return print()
}

// registryClient makes the client that the flags describe. name is what progress
// is shown under.
func registryClient(c *cli.Context, rep reporter, s *local.Store, name string) (*registry.Client, error) {
	opt := registry.Options{UserAgent: "quern/" + version, Username: c.String("username")}
	if c.IsSet("plain-http") {
		plain := c.Bool("plain-http")
		opt.PlainHTTP = &plain
	}
	if c.Bool("password-stdin") != (opt.Username != "") {
		return nil, usagef("%s: --username and --password-stdin belong together", c.Command.Name)
	}
	if c.Bool("password-stdin") {
		b, err := io.ReadAll(io.LimitReader(c.App.Reader, 64<<10))
		if err != nil {
			return nil, err
		}
		opt.Password = string(bytes.TrimRight(b, "\r\n"))
		if opt.Password == "" {
			return nil, usagef("%s: no password came on standard input", c.Command.Name)
		}
	}
	if c.IsSet("chunk") {
		n, err := recipes.ParseSize(c.String("chunk"))
		if err != nil || n <= 0 {
			return nil, usagef("--chunk %s: a size such as 64MiB", c.String("chunk"))
		}
		opt.Chunk = n
	}
	if s != nil && !s.ReadOnly() {
		opt.Journal = registry.FileJournal(s.UploadDir())
	}
	opt.Say = func(m string) { rep.Event(pipeline.Event{Kind: pipeline.EventNote, Message: m}) }
	var begin sync.Once
	opt.Progress = func(done, total int64) {
		begin.Do(func() { rep.Event(pipeline.Event{Kind: pipeline.EventOutput, Output: name, Total: total}) })
		rep.Event(pipeline.Event{Kind: pipeline.EventProgress, Output: name, Done: done, Total: total})
	}
	return registry.New(opt), nil
}

// parseRef reads a reference of the command line.
func parseRef(s string) (registry.Ref, error) {
	r, err := registry.ParseRef(s)
	if err != nil {
		return r, usagef("%v", err)
	}
	return r, nil
}

// created is the moment that SOURCE_DATE_EPOCH gives, nil without it: nothing else
// dates what is packed.
func created() (*time.Time, error) {
	s := os.Getenv("SOURCE_DATE_EPOCH")
	if s == "" {
		return nil, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || n > 253402300799 {
		return nil, usagef("SOURCE_DATE_EPOCH %q: seconds since 1970", s)
	}
	t := time.Unix(n, 0).UTC()
	return &t, nil
}

// nameOfRef is the name that a store gives to what came from a registry.
func nameOfRef(r registry.Ref) (string, error) {
	name := r.String()
	if r.Tag != "" {
		r.Digest = artifacts.Digest{}
		name = r.String()
	}
	if err := artifacts.CheckName(name); err != nil {
		return "", usagef("%v; --as gives another", err)
	}
	return name, nil
}

// mountFrom finds repositories of a registry that have a blob, by the names that
// the store has given to what was pulled from there.
func mountFrom(ctx context.Context, s artifacts.ReadStore, to registry.Ref) (func(artifacts.Digest) []string, error) {
	names, err := s.Names(ctx)
	if err != nil {
		return nil, err
	}
	repos := map[artifacts.Digest][]string{}
	for _, n := range names {
		r, err := registry.ParseRef(n.Name)
		if err != nil || r.Host != to.Host || r.Repository == to.Repository {
			continue
		}
		blobs, err := artifacts.Closure(ctx, s, n.Descriptor)
		if err != nil {
			continue // damaged; store verify says so
		}
		for _, b := range blobs {
			if have := repos[b.Digest]; len(have) < 3 {
				repos[b.Digest] = append(have, r.Repository)
			}
		}
	}
	return func(d artifacts.Digest) []string { return repos[d] }, nil
}

// storedImage finds what the user means by NAME or @DIGEST.
func storedImage(ctx context.Context, s artifacts.ReadStore, what string) (artifacts.Descriptor, error) {
	d, err := s.Resolve(ctx, strings.TrimPrefix(what, "@"))
	if err != nil {
		return d, err
	}
	if !artifacts.IsManifest(d.MediaType) {
		return d, usagef("%s is a blob of type %s and no manifest; push the build that it belongs to", what, d.MediaType)
	}
	return d, nil
}

// plural is for messages.
func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
