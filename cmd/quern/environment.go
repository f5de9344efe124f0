package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"quern/artifacts"
	"quern/artifacts/local"
	"quern/hub"
	"quern/pipeline"
	"quern/stages/source"
)

// environment is what commands share: the store, the hub client and the flags
// that choose them.
type environment struct {
	c      *cli.Context
	events pipeline.Events
	store  *local.Store // nil with --no-store or when it cannot be opened
	pins   map[string]string
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

// openEnvironment opens the store, making it if it is not there.
func openEnvironment(c *cli.Context, events pipeline.Events) (*environment, error) {
	e := &environment{c: c, events: events}
	if c.Bool("no-store") {
		return e, nil
	}
	dir, err := storeFolder(c)
	if err != nil {
		return nil, err
	}
	st, err := local.Open(c.Context, dir, local.Options{})
	if err != nil {
		return nil, fmt.Errorf("store %s: %w", dir, err)
	}
	e.store = st
	return e, nil
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
	env := source.Env{Digests: &source.Digests{}}
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
	if e.store != nil {
		opt.SpoolDir = e.store.SpoolDir()
	}
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
