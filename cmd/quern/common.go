package main

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"

	"github.com/urfave/cli/v2"

	"quern/pipeline"
	"quern/recipes"
	"quern/recipes/builtin"
	"quern/stages/all"
	"quern/stages/source"
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

func headerFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "max-header", Usage: "the longest header of a weight file that is read, a `SIZE` such as 200MiB; the default is each format's own limit"},
		&cli.BoolFlag{Name: "rebuild-index", Usage: "leave the index of a checkpoint's shards aside and read the headers of the files that are there"},
	}
}

// headers reads what headerFlags give.
func headers(c *cli.Context) (source.Headers, error) {
	h := source.Headers{Rebuild: c.Bool("rebuild-index")}
	if !c.IsSet("max-header") {
		return h, nil
	}
	n, err := recipes.ParseSize(c.String("max-header"))
	if err != nil {
		return h, usagef("--max-header: %v", err)
	}
	if n <= 0 {
		return h, usagef("--max-header %s: a size over 0", c.String("max-header"))
	}
	h.Max = n
	return h, nil
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

// work reads the flags of workFlags.
func work(c *cli.Context) (workers int, mem int64, err error) {
	if mem, err = memory(c); err != nil {
		return 0, 0, err
	}
	workers, err = jobs(c)
	return workers, mem, err
}

// maxJobs is more workers than any machine has CPUs; each takes memory of its own.
const maxJobs = 4096

func jobs(c *cli.Context) (int, error) {
	n := c.Int("jobs")
	if n < 0 || n > maxJobs {
		return 0, usagef("--jobs %d: a number of workers up to %d, or 0 for one a CPU", n, maxJobs)
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

// project reads a recipe and makes it concrete.
func project(c *cli.Context, e *environment) (*recipes.Recipe, *pipeline.Project, error) {
	path, err := oneArg(c, "a recipe")
	if err != nil {
		return nil, nil, err
	}
	r, err := readRecipe(path, recipes.Options{Set: c.StringSlice("set")})
	if err != nil {
		return nil, nil, recipeError(err)
	}
	to, err := targetsOf(c)
	if err != nil {
		return nil, nil, err
	}
	e.streams = onlySent(r, to)
	env, err := e.sources()
	if err != nil {
		return nil, nil, err
	}
	p, err := all.Project(r, env)
	if err != nil {
		return nil, nil, err
	}
	if len(to) > 0 {
		for i := range p.Emitters {
			p.Emitters[i].To = to
		}
	}
	return r, p, nil
}

// readRecipe reads the recipe at a path, or a built-in one by builtin: and its name.
func readRecipe(path string, opt recipes.Options) (*recipes.Recipe, error) {
	if name, ok := builtin.Cut(path); ok {
		return builtin.Parse(name, opt)
	}
	return recipes.ReadFile(path, opt)
}

// recipeError makes a recipe that cannot be read bad usage, as one is that
// cannot be understood.
func recipeError(err error) error {
	if errors.Is(err, recipes.ErrRecipe) {
		return err
	}
	return usagef("%v", err)
}

// makeParent makes the folder that a file goes into.
func makeParent(path string) error { return os.MkdirAll(filepath.Dir(path), 0o755) }
