package main

import (
	"regexp"
	"strings"

	"github.com/urfave/cli/v2"
)

// line is a command line taken apart, so that flags may stand behind arguments
// as people write them (quern build recipe.yaml -o out): the flag package stops
// at the first argument.
type line struct {
	path  []string // program, command, subcommand
	flags []string // with their values
	plain []string // arguments
	set   map[string]string
	asIs  bool // the command takes its words as they are
	// hungry is a flag at the end of the line whose value is missing.
	hungry string
}

// splitLine sorts the words of a command line. Everything after "--" is an
// argument.
func splitLine(app *cli.App, args []string) line {
	l := line{set: map[string]string{}}
	if len(args) == 0 {
		return l
	}
	l.path = args[:1:1]
	rest := args[1:]
	commands, flags := app.Commands, app.Flags
	for len(rest) > 0 {
		next := find(commands, rest[0])
		if next == nil {
			break
		}
		commands, flags = next.Subcommands, next.Flags
		l.path, rest = append(l.path, rest[0]), rest[1:]
		if next.SkipFlagParsing {
			l.plain, l.asIs = rest, true
			return l
		}
	}
	value := takesValue(flags)
	for i := 0; i < len(rest); i++ {
		a := rest[i]
		if a == "--" {
			l.plain = append(l.plain, rest[i+1:]...)
			break
		}
		if len(a) < 2 || a[0] != '-' {
			l.plain = append(l.plain, a)
			continue
		}
		l.flags = append(l.flags, a)
		name, v, given := strings.Cut(strings.TrimLeft(a, "-"), "=")
		if !given && value[name] {
			if i++; i == len(rest) {
				l.hungry = a
				break
			}
			v = rest[i]
			l.flags = append(l.flags, v)
		}
		l.set[name] = v
	}
	return l
}

// has reports whether a flag was given with a value; a switch alone is "true".
func (l line) has(name, value string) bool {
	v, ok := l.set[name]
	return ok && (v == value || v == "" && value == "true")
}

// args puts the line together again, flags first.
func (l line) args() []string {
	out := append(append([]string(nil), l.path...), l.flags...)
	if !l.asIs && len(l.plain) > 0 && len(l.plain[0]) > 1 && l.plain[0][0] == '-' {
		// It was meant as an argument, though it looks like a flag.
		out = append(out, "--")
	}
	return append(out, l.plain...)
}

func find(commands []*cli.Command, name string) *cli.Command {
	for _, c := range commands {
		if c.HasName(name) {
			return c
		}
	}
	return nil
}

// takesValue lists the flags that are followed by a value.
func takesValue(flags []cli.Flag) map[string]bool {
	out := map[string]bool{}
	for _, f := range flags {
		if d, ok := f.(cli.DocGenerationFlag); ok && d.TakesValue() {
			for _, n := range f.Names() {
				out[n] = true
			}
		}
	}
	return out
}

// groupAction is the action of what only has commands below it: name one of
// them.
func groupAction(name string, commands []*cli.Command) cli.ActionFunc {
	return func(c *cli.Context) error {
		if !c.Args().Present() {
			return usagef("%sa command is missing; %s --help lists them", prefix(name), name)
		}
		hint := ""
		if s := cli.SuggestCommand(commands, c.Args().First()); s != "" {
			hint = " (" + strings.ToLower(s[:1]) + s[1:] + ")"
		}
		return usagef("%sunknown command %q%s; %s --help lists them", prefix(name), c.Args().First(), hint, name)
	}
}

// flagName is compiled where it is used: no command line that is right needs it.
const flagName = `(^|[ :])-([a-z])`

// usageError turns the flag package's complaints into ours.
func usageError(command string, flags []cli.Flag) cli.OnUsageErrorFunc {
	return func(_ *cli.Context, err error, _ bool) error {
		msg := err.Error()
		if name, ok := strings.CutPrefix(msg, "flag provided but not defined: -"); ok {
			msg = "unknown flag " + dashes(name)
			if s := cli.SuggestFlag(flags, name, false); s != "" {
				msg += " (did you mean " + s + "?)"
			}
		} else {
			msg = regexp.MustCompile(flagName).ReplaceAllString(msg, "$1--$2")
		}
		return usagef("%s%s; %s --help", prefix(command), msg, command)
	}
}

// prefix starts a message with the command that it is about; the program's own
// name stands before every message anyway.
func prefix(command string) string {
	_, sub, ok := strings.Cut(command, " ")
	if !ok {
		return ""
	}
	return sub + ": "
}

func dashes(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}
