package main

import (
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"quern/artifacts/sink"
	"quern/pipeline"
	"quern/recipes"
)

// toFlag sends the outputs of a recipe elsewhere.
func toFlag() cli.Flag {
	return &cli.StringSliceFlag{Name: "to", Usage: "send the outputs to `TARGET` in place of the folder and of the recipe's targets; may be repeated"}
}

// sendFlags say how targets are reached.
func sendFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "ssh", Usage: "the ssh `COMMAND` for ssh: targets, ssh by default", EnvVars: []string{"QUERN_SSH"}},
		&cli.StringFlag{Name: "adb", Usage: "the adb `COMMAND` for adb: targets, adb by default", EnvVars: []string{"QUERN_ADB"}},
	}
}

// putToken is the variable with the bearer token for HTTP targets.
const putToken = "QUERN_PUT_TOKEN"

// targetsOf reads --to. Relative paths start at the working folder.
func targetsOf(c *cli.Context) ([]sink.Target, error) {
	var out []sink.Target
	for _, s := range c.StringSlice("to") {
		t, err := here(s)
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}

// here reads a target of the command line.
func here(s string) (sink.Target, error) {
	t, err := sink.Parse(s)
	if err != nil {
		return t, err
	}
	dir, err := os.Getwd()
	if err != nil {
		dir = "."
	}
	return t.In(dir), nil
}

// onlySent reports whether every output goes to targets and none stays here.
func onlySent(r *recipes.Recipe, to []sink.Target) bool {
	for _, o := range r.Outputs {
		list := to
		if len(list) == 0 {
			for _, s := range o.To {
				if t, err := sink.Parse(s); err == nil {
					list = append(list, t)
				}
			}
		}
		if len(list) == 0 || slices.ContainsFunc(list, func(t sink.Target) bool { return t.Kind == sink.File }) {
			return false
		}
	}
	return len(r.Outputs) > 0
}

func sendsToStdout(prj *pipeline.Project) bool {
	return slices.ContainsFunc(prj.Emitters, func(e pipeline.PlacedEmitter) bool { return toStdout(e.To) })
}

func toStdout(to []sink.Target) bool {
	return slices.ContainsFunc(to, func(t sink.Target) bool { return t.Kind == sink.Stdout })
}

// send says how a build's outputs reach their targets.
func (e *environment) send(prj *pipeline.Project) (pipeline.SendOptions, error) {
	var all []sink.Target
	for _, em := range prj.Emitters {
		all = append(all, em.To...)
	}
	opt, err := sinkOptions(e.c, all)
	return pipeline.SendOptions{Sinks: opt, Journals: e.journals()}, err
}

// sinkOptions are those of the command line and its variables.
func sinkOptions(c *cli.Context, to []sink.Target) (sink.Options, error) {
	p := programOf(c)
	opt := sink.Options{
		SSH: strings.Fields(c.String("ssh")), ADB: strings.Fields(c.String("adb")), Token: os.Getenv(putToken),
		Stdout: p.raw, UserAgent: "quern/" + version, Before: p.hooks.before,
	}
	if !toStdout(to) {
		return opt, nil
	}
	if c.Bool("json") {
		return opt, usagef("--json and the output would both go to standard output; leave one of them out")
	}
	// A reader that goes away is an error of its own and not a sudden end.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	return opt, nil
}

// journals is where it is noted how far transfers got, or "" where nothing can be.
func (e *environment) journals() string {
	if e.store != nil && !e.store.ReadOnly() {
		return e.store.SendDir()
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "quern", "quern", "sends")
}
