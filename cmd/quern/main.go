// Command quern turns published language models into files that small devices
// run: a YAML recipe in, verified files out, the same bytes on every machine.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/urfave/cli/v2"
)

// version is set by the linker for releases.
var version = "dev"

// errInterrupted is the cause of a context that a signal ended.
var errInterrupted = errors.New("interrupted")

func main() {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		cancel(errInterrupted)
		// A second signal ends the process at once, as users expect of a
		// program that seems to hang. Unfinished files have temporary names.
		<-signals
		os.Exit(exitInterrupted)
	}()
	os.Exit(run(ctx, os.Args, os.Stdin, os.Stdout, os.Stderr))
}

// run is the whole program but for signals and the process's end, so that tests
// can call it.
func run(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	app := newApp(in, out, errOut)
	err := app.RunContext(ctx, reorder(app, args))
	if cause := context.Cause(ctx); cause != nil && err != nil {
		err = cause
	}
	code := exitCode(err)
	if err != nil {
		fmt.Fprintf(errOut, "quern: %v\n", err)
	}
	return code
}

const appHelp = `Exit codes:
   0    done
   1    failed
   2    bad usage or recipe
   3    verification or gate failed
   4    source or network failed
   130  interrupted`

func newApp(in io.Reader, out, errOut io.Writer) *cli.App {
	app := &cli.App{
		Name:                 "quern",
		Usage:                "grind published language models into files for small devices",
		Version:              version,
		Description:          appHelp,
		Reader:               in,
		Writer:               out,
		ErrWriter:            errOut,
		EnableBashCompletion: true,
		HideHelpCommand:      true,
		Suggest:              true,
		// Errors are printed and turned into an exit code in run alone.
		ExitErrHandler: func(*cli.Context, error) {},
		OnUsageError:   usageError,
		CommandNotFound: func(c *cli.Context, name string) {
			// The library ignores what this returns; Action below fails.
		},
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return usagef("unknown command %q; quern --help lists them", c.Args().First())
			}
			return cli.ShowAppHelp(c)
		},
		Commands: []*cli.Command{
			buildCommand(),
			planCommand(),
			inspectCommand(),
			verifyCommand(),
			storeCommand(),
			schemaCommand(),
			completionCommand(),
		},
	}
	for _, c := range app.Commands {
		setUsageErrors(c)
	}
	return app
}

func setUsageErrors(c *cli.Command) {
	c.OnUsageError = usageError
	for _, s := range c.Subcommands {
		setUsageErrors(s)
	}
}

func usageError(_ *cli.Context, err error, _ bool) error { return usagef("%v", err) }
