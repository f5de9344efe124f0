package main

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"
)

// The scripts ask quern itself what may follow, so they never need to change
// when commands do. Where quern has nothing to say they complete file names.
const bashCompletion = `_quern() {
  local cur="${COMP_WORDS[COMP_CWORD]}"
  COMPREPLY=($(compgen -W "$("${COMP_WORDS[0]}" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)" -- "$cur"))
  [ ${#COMPREPLY[@]} -eq 0 ] && COMPREPLY=($(compgen -f -- "$cur"))
}
complete -o filenames -F _quern quern
`

const zshCompletion = `#compdef quern
_quern() {
  local -a found
  found=("${(@f)$(${words[1]} __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  if [[ -n "${found[1]}" ]]; then
    compadd -- $found
  else
    _files
  fi
}
compdef _quern quern
`

const fishCompletion = `function __quern_complete
    set -l words (commandline -opc)
    set -l cur (commandline -ct)
    set -l program $words[1]
    set -e words[1]
    $program __complete $words "$cur" 2>/dev/null
end
complete -c quern -a '(__quern_complete)'
`

// shells are the shells that there are scripts for.
func shells() []string { return []string{"bash", "zsh", "fish"} }

func completionCommand() *cli.Command {
	return &cli.Command{
		Name:      "completion",
		Usage:     "print a completion script for a shell",
		ArgsUsage: strings.Join(shells(), "|"),
		Description: "For bash: source <(quern completion bash). For zsh: quern completion zsh > \"${fpath[1]}/_quern\".\n" +
			"For fish: quern completion fish | source.",
		Flags: []cli.Flag{jsonFlag()},
		Action: func(c *cli.Context) error {
			if c.NArg() != 1 {
				return usagef("completion: name one shell: bash, zsh or fish")
			}
			scripts := map[string]string{"bash": bashCompletion, "zsh": zshCompletion, "fish": fishCompletion}
			s, ok := scripts[c.Args().First()]
			if !ok {
				return usagef("completion: %q: bash, zsh or fish", c.Args().First())
			}
			if c.Bool("json") {
				return printJSON(c, map[string]string{"shell": c.Args().First(), "script": s})
			}
			_, err := fmt.Fprint(c.App.Writer, s)
			return err
		},
	}
}

// completeCommand answers the scripts: its arguments are the words of the line
// so far, the last one unfinished.
func completeCommand() *cli.Command {
	return &cli.Command{
		Name: "__complete", Hidden: true, SkipFlagParsing: true, HideHelp: true,
		Action: func(c *cli.Context) error {
			for _, s := range complete(c.App.Commands, c.Args().Slice()) {
				if _, err := fmt.Fprintln(c.App.Writer, s); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// complete lists what the last word may become; nothing means a file name.
func complete(commands []*cli.Command, words []string) []string {
	if len(words) == 0 {
		words = []string{""}
	}
	before, cur := words[:len(words)-1], words[len(words)-1]
	var cmd *cli.Command
	for len(before) > 0 {
		next := find(commands, before[0])
		if next == nil {
			break
		}
		cmd, commands, before = next, next.Subcommands, before[1:]
	}
	var flags []cli.Flag
	if cmd != nil {
		flags = cmd.Flags
	}
	if n := len(before); n > 0 && strings.HasPrefix(before[n-1], "-") {
		name := strings.TrimLeft(before[n-1], "-")
		if !strings.Contains(name, "=") && takesValue(flags)[name] {
			return starting(flagChoices(name), cur)
		}
	}
	var list []string
	switch {
	case strings.HasPrefix(cur, "-"):
		for _, f := range flags {
			list = append(list, "--"+f.Names()[0])
		}
		list = append(list, "--help")
	case len(before) == 0 && len(commands) > 0:
		for _, c := range commands {
			if !c.Hidden {
				list = append(list, c.Name)
			}
		}
	case cmd != nil && cmd.Name == "completion" && len(before) == 0:
		list = shells()
	}
	return starting(list, cur)
}

func starting(list []string, with string) []string {
	var out []string
	for _, s := range list {
		if strings.HasPrefix(s, with) {
			out = append(out, s)
		}
	}
	return out
}

// flagChoices lists the values of a flag that takes one of a few words.
func flagChoices(name string) []string {
	switch name {
	case "progress":
		return []string{"auto", "bar", "plain", "json", "none"}
	case "measure":
		return []string{"auto", "always", "never"}
	case "format":
		return []string{"modelpack", "docker", "ollama", "quern"}
	case "act":
		return []string{"exact", "q8"}
	case "order":
		return []string{"quern", "ggml"}
	case "method":
		return []string{"auto", "link", "reflink", "copy"}
	}
	return nil
}
