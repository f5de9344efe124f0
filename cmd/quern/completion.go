package main

import (
	"fmt"

	"github.com/urfave/cli/v2"
)

// The scripts call quern itself with the library's completion flag, so they
// never need to change when commands do.
const bashCompletion = `_quern() {
  local cur words
  cur="${COMP_WORDS[COMP_CWORD]}"
  words=("${COMP_WORDS[@]:0:$COMP_CWORD}")
  COMPREPLY=($(compgen -W "$("${words[@]}" --generate-bash-completion 2>/dev/null)" -- "$cur"))
  [ ${#COMPREPLY[@]} -eq 0 ] && COMPREPLY=($(compgen -f -- "$cur"))
}
complete -o filenames -F _quern quern
`

const zshCompletion = `#compdef quern
_quern() {
  local -a opts
  opts=("${(@f)$(${words[@]:0:#words[@]-1} --generate-bash-completion 2>/dev/null)}")
  if [[ "${opts[1]}" != "" ]]; then
    _describe 'quern' opts
  else
    _files
  fi
}
compdef _quern quern
`

const fishCompletion = `function __quern_complete
    set -l words (commandline -opc)
    $words --generate-bash-completion 2>/dev/null
end
complete -c quern -a '(__quern_complete)'
`

func completionCommand() *cli.Command {
	return &cli.Command{
		Name:      "completion",
		Usage:     "print a completion script for a shell",
		ArgsUsage: "bash|zsh|fish",
		Description: "For bash: source <(quern completion bash). For zsh: quern completion zsh > \"${fpath[1]}/_quern\".\n" +
			"For fish: quern completion fish | source.",
		Action: func(c *cli.Context) error {
			if c.NArg() != 1 {
				return usagef("completion: name one shell: bash, zsh or fish")
			}
			scripts := map[string]string{"bash": bashCompletion, "zsh": zshCompletion, "fish": fishCompletion}
			s, ok := scripts[c.Args().First()]
			if !ok {
				return usagef("completion: %q: bash, zsh or fish", c.Args().First())
			}
			_, err := fmt.Fprint(c.App.Writer, s)
			return err
		},
	}
}
