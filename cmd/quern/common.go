package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"

	"github.com/urfave/cli/v2"

	"quern/pipeline"
	"quern/recipes"
	"quern/stages/all"
)

func jsonFlag() cli.Flag {
	return &cli.BoolFlag{Name: "json", Usage: "print one JSON document on stdout and nothing else there"}
}

func setFlag() cli.Flag {
	return &cli.StringSliceFlag{Name: "set", Usage: "override a value of the recipe, `KEY=VALUE` with a dotted key; may be repeated"}
}

func workFlags() []cli.Flag {
	return []cli.Flag{
		&cli.IntFlag{Name: "jobs", Aliases: []string{"j"}, Usage: "workers; 0 means one a CPU"},
		&cli.StringFlag{Name: "memory", Value: "512MiB", Usage: "memory for rows in flight, at least 16MiB"},
	}
}

func networkFlags() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "offline", Usage: "send no request; use what is cached (also HF_HUB_OFFLINE=1)"},
		&cli.StringFlag{Name: "endpoint", Usage: "the hub's `URL` (also HF_ENDPOINT)"},
	}
}

func storeFlag() cli.Flag {
	return &cli.StringFlag{Name: "store", Usage: "the store's `FOLDER` (also QUERN_STORE); the default is quern in the user's cache folder", EnvVars: []string{"QUERN_STORE"}}
}

// minMemory is the least that rows in flight get.
const minMemory = 16 << 20

// memory reads --memory and tells the runtime to keep to it, with an allowance
// for what is not rows: headers, tokenizers, code.
func memory(c *cli.Context) (int64, error) {
	n, err := recipes.ParseSize(c.String("memory"))
	if err != nil {
		return 0, usagef("--memory: %v", err)
	}
	if n < minMemory {
		return 0, usagef("--memory %s: at least 16MiB", c.String("memory"))
	}
	debug.SetMemoryLimit(n + 64<<20)
	return n, nil
}

func jobs(c *cli.Context) (int, error) {
	n := c.Int("jobs")
	if n < 0 {
		return 0, usagef("--jobs %d: a number of workers, or 0 for one a CPU", n)
	}
	if n == 0 {
		n = runtime.GOMAXPROCS(0)
	}
	return n, nil
}

// oneArg takes the only argument of a command. Flags that stand behind it are a
// common slip, since the flag package stops at the first argument.
func oneArg(c *cli.Context, what string) (string, error) {
	switch c.NArg() {
	case 0:
		return "", usagef("%s: %s is missing; quern %s --help", c.Command.Name, what, c.Command.Name)
	case 1:
		return c.Args().First(), nil
	}
	return "", usagef("%s: one %s, not %d arguments (%q)", c.Command.Name, what, c.NArg(), c.Args().Slice())
}

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// project reads a recipe and makes it concrete.
func project(c *cli.Context, e *environment) (*recipes.Recipe, *pipeline.Project, error) {
	path, err := oneArg(c, "a recipe")
	if err != nil {
		return nil, nil, err
	}
	r, err := recipes.ReadFile(path, recipes.Options{Set: c.StringSlice("set")})
	if err != nil {
		if isNotExist(err) {
			return nil, nil, usagef("%v", err)
		}
		return nil, nil, err
	}
	env, err := e.sources()
	if err != nil {
		return nil, nil, err
	}
	p, err := all.Project(r, env)
	if err != nil {
		return nil, nil, err
	}
	return r, p, nil
}

func warnf(c *cli.Context, format string, args ...any) {
	fmt.Fprintf(c.App.ErrWriter, "warning: "+format+"\n", args...)
}

// isTerminal reports whether w is a terminal whose width tables may use.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	st, err := f.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0
}

// makeParent makes the folder that a file goes into.
func makeParent(path string) error { return os.MkdirAll(filepath.Dir(path), 0o755) }
