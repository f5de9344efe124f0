// Command quern turns published language models into files that small devices
// run: a YAML recipe in, verified files out, the same bytes on every machine.
package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"
)

// version is set by the linker for releases.
var version = "dev"

// errInterrupted is the cause of a context that a signal ended.
var errInterrupted = errors.New("interrupted")

// patience is how long a command may take to stop after a signal. Then the
// process ends as it stands, which it may at any moment: what is unfinished has
// no final name.
const patience = 700 * time.Millisecond

func main() {
	// Nobody asks for a profile, whose tables take memory as allocations are sampled.
	runtime.MemProfileRate = 0
	ctx, cancel := context.WithCancelCause(context.Background())
	p := newProgram(os.Args, os.Stdin, os.Stdout, os.Stderr)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		cancel(errInterrupted)
		select {
		case <-signals:
		case <-time.After(patience):
		}
		os.Exit(p.abandon(errInterrupted))
	}()
	os.Exit(p.run(ctx))
}

// run is the whole program but for signals and the process's end, so that tests
// can call it.
func run(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	return newProgram(args, in, out, errOut).run(ctx)
}

const appHelp = `Exit codes:
   0    done
   1    failed
   2    bad usage or recipe
   3    verification or gate failed
   4    source or network failed
   130  interrupted`

// newApp describes the command line.
func newApp(p *program) *cli.App {
	app := &cli.App{
		Name:        "quern",
		Usage:       "grind published language models into files for small devices",
		Version:     version,
		Description: appHelp,
		Reader:      p.in,
		Writer:      p.out,
		ErrWriter:   p.errOut,
		// Errors are printed and turned into an exit code in program alone.
		ExitErrHandler:  func(*cli.Context, error) {},
		HideHelpCommand: true,
		// Regular expressions and names have commas.
		DisableSliceFlagSeparator: true,
		Metadata:                  map[string]any{programKey: p},
		Commands: []*cli.Command{
			buildCommand(),
			planCommand(),
			recipesCommand(),
			quantizeCommand(),
			inspectCommand(),
			diffCommand(),
			verifyCommand(),
			punchCommand(),
			sendCommand(),
			storeCommand(),
			pushCommand(),
			pullCommand(),
			runCommand(),
			logitsCommand(),
			headsCommand(),
			tokenizeCommand(),
			tokensCommand(),
			pplCommand(),
			loopsCommand(),
			imatrixCommand(),
			traceCommand(),
			schemaCommand(),
			completionCommand(),
			completeCommand(),
		},
	}
	app.OnUsageError = usageError(app.Name, app.Flags)
	unknown := groupAction(app.Name, app.Commands)
	app.Action = func(c *cli.Context) error {
		if c.Args().Present() {
			return unknown(c)
		}
		return cli.ShowAppHelp(c)
	}
	for _, c := range app.Commands {
		finishCommand(app.Name, c)
	}
	return app
}

// finishCommand gives a command what all have.
func finishCommand(parent string, c *cli.Command) {
	name := parent + " " + c.Name
	c.OnUsageError = usageError(name, c.Flags)
	if len(c.Subcommands) > 0 {
		c.HideHelpCommand = true
		c.Action = groupAction(name, c.Subcommands)
	}
	switch {
	case c.Hidden:
	case c.Description == "":
		c.Description = appHelp
	default:
		c.Description += "\n\n" + appHelp
	}
	for _, s := range c.Subcommands {
		finishCommand(name, s)
	}
}
