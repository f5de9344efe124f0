package main

import (
	"strings"

	"github.com/urfave/cli/v2"
)

// reorder moves the flags of a command before its arguments: the flag package
// stops at the first argument, but people write quern build recipe.yaml -o out.
// Everything after "--" stays an argument.
func reorder(app *cli.App, args []string) []string {
	if len(args) < 2 {
		return args
	}
	out := args[:1:1]
	rest := args[1:]
	commands := app.Commands
	var cmd *cli.Command
	for len(rest) > 0 {
		next := find(commands, rest[0])
		if next == nil {
			break
		}
		cmd, commands = next, next.Subcommands
		out, rest = append(out, rest[0]), rest[1:]
	}
	if cmd == nil {
		return args
	}
	value := takesValue(cmd)
	var flags, plain []string
	for i := 0; i < len(rest); i++ {
		a := rest[i]
		if a == "--" {
			plain = append(plain, rest[i+1:]...)
			break
		}
		if len(a) < 2 || a[0] != '-' {
			plain = append(plain, a)
			continue
		}
		flags = append(flags, a)
		name := strings.TrimLeft(a, "-")
		if !strings.Contains(name, "=") && value[name] && i+1 < len(rest) {
			i++
			flags = append(flags, rest[i])
		}
	}
	out = append(out, flags...)
	if len(plain) > 0 && len(plain[0]) > 0 {
		// A first argument that looks like a flag was meant as an argument.
		if plain[0][0] == '-' && len(plain[0]) > 1 {
			out = append(out, "--")
		}
	}
	return append(out, plain...)
}

func find(commands []*cli.Command, name string) *cli.Command {
	for _, c := range commands {
		if c.HasName(name) {
			return c
		}
	}
	return nil
}

// takesValue lists the flags of a command that are followed by a value.
func takesValue(c *cli.Command) map[string]bool {
	out := map[string]bool{}
	for _, f := range c.Flags {
		if d, ok := f.(cli.DocGenerationFlag); ok && d.TakesValue() {
			for _, n := range f.Names() {
				out[n] = true
			}
		}
	}
	return out
}
