package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"quern/artifacts"
	"quern/artifacts/local"
	"quern/hub"
	"quern/internal/atomicfile"
	"quern/pipeline"
	"quern/stages/source"
)

// environment is what commands share: the store, the hub client and the flags
// that choose them.
type environment struct {
	c      *cli.Context
	events pipeline.Events
	store  *local.Store // nil with --no-store or when there can be none
	pins   map[string]string
	// streams says that no output stays on this machine: then downloads are not
	// kept either.
	streams bool
}

// warn says what the user should know.
func (e *environment) warn(format string, args ...any) {
	e.events.Event(pipeline.Event{Kind: pipeline.EventWarning, Message: fmt.Sprintf(format, args...)})
}

// storeFolder is where the store is: the flag or its environment variable,
// else the user's cache folder.
func storeFolder(c *cli.Context) (string, error) {
	if s := c.String("store"); s != "" {
		return s, nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no folder for the store: %w; give one with --store", err)
	}
	return filepath.Join(dir, "quern"), nil
}

// openEnvironment opens the store, making it if it is not there. A command that
// can do without does so where nobody has chosen a store and there is no place
// for one.
func openEnvironment(c *cli.Context, events pipeline.Events, canDoWithout bool) (*environment, error) {
	e := &environment{c: c, events: events}
	if c.Bool("no-store") {
		return e, nil
	}
	canDoWithout = canDoWithout && c.String("store") == ""
	dir, err := storeFolder(c)
	if err != nil && canDoWithout {
		e.warn("%v; nothing is kept", err)
		return e, nil
	}
	if err != nil {
		return nil, err
	}
	p := programOf(c)
	opt := p.hooks.store
	if opt.Before == nil {
		opt.Before = p.hooks.before
	}
	e.store, err = local.Open(c.Context, dir, opt)
	if err != nil && canDoWithout && atomicfile.IsReadOnly(err) {
		e.warn("%v; nothing is kept", err)
		return e, nil
	}
	switch {
	case atomicfile.IsDiskFull(err):
		return nil, fmt.Errorf("%w: the disk is full; make room, choose another store with --store, or do without with --no-store", err)
	case atomicfile.IsReadOnly(err):
		return nil, fmt.Errorf("%w; choose another with --store, or do without with --no-store", err)
	}
	return e, err
}

// spool is where downloads are kept, or "" where nothing can be.
func (e *environment) spool() string {
	if e.store == nil || e.streams {
		return ""
	}
	if !e.store.ReadOnly() {
		f, err := atomicfile.CreateIn(e.store.SpoolDir(), atomicfile.Options{Before: programOf(e.c).hooks.before})
		if err == nil {
			f.Abort()
			return e.store.SpoolDir()
		}
		if !atomicfile.IsReadOnly(err) {
			return e.store.SpoolDir() // whoever writes there says what is wrong
		}
	}
	return ""
}

// buildStore is the store as builds use it.
func (e *environment) buildStore() pipeline.Store {
	if e.store == nil {
		return nil
	}
	return pipeline.Keep(e.store, artifacts.Tool{Name: "quern", Version: version})
}

// pin takes the commits of a lock file, so that branches mean what they meant.
func (e *environment) pin(paths []string) error {
	for _, p := range paths {
		l, err := pipeline.ReadLock(p)
		if isNotExist(err) {
			continue
		}
		if err != nil {
			return err
		}
		e.pins = map[string]string{}
		for _, s := range l.Sources {
			if s.Commit != "" {
				e.pins[s.Name] = s.Commit
			}
		}
		return nil
	}
	return nil // the build says that there is none
}

// sources is how recipes reach their sources.
func (e *environment) sources() (source.Env, error) {
	h, err := headers(e.c)
	if err != nil {
		return source.Env{}, err
	}
	env := source.Env{Digests: &source.Digests{}, Headers: h}
	if e.store != nil {
		env.Digests.Keeper = e.store
		env.Artifacts = source.FromStore(e.store)
	}
	opt, err := hub.OptionsFromEnv(os.Getenv)
	if err != nil {
		return env, usagef("%v", err)
	}
	if v := e.c.String("endpoint"); v != "" {
		opt.Endpoint = v
	}
	opt.Offline = opt.Offline || e.c.Bool("offline")
	opt.UserAgent = "quern/" + version
	opt.SpoolDir, opt.Clock = e.spool(), programOf(e.c).hooks.clock
	opt.Events = func(ev hub.Event) {
		kind := pipeline.EventNote
		if ev.Kind == hub.EventWarning || ev.Kind == hub.EventRepair {
			kind = pipeline.EventWarning
		}
		e.events.Event(pipeline.Event{Kind: kind, Message: ev.What + ": " + ev.Text})
	}
	client, err := hub.New(opt)
	if err != nil {
		return env, usagef("%v", err)
	}
	env.Hub = source.FromHub(client, e.pins)
	return env, nil
}
