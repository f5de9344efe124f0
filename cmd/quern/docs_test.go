package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"quern/internal/testmodel"
)

const cliPageMark = "\n## Commands\n"

// TestCLIPage holds docs/cli.md against the program: its second half is written
// from the commands, and every flag that a command's --help shows stands there.
func TestCLIPage(t *testing.T) {
	page := filepath.Join(filepath.Dir(testmodel.Root()), "docs", "cli.md")
	text := string(mustRead(t, page))
	head, body, ok := strings.Cut(text, cliPageMark)
	if !ok {
		t.Fatalf("%s has no line %q", page, strings.TrimSpace(cliPageMark))
	}
	if want := commandPages(); body != want {
		if *update {
			check(t, os.WriteFile(page, []byte(head+cliPageMark+want), 0o644))
			body = want
		} else {
			t.Errorf("%s does not say what the program does; go test ./cmd/quern -run TestCLIPage -update writes it again", page)
		}
	}
	b := newBench(t)
	flag := regexp.MustCompile(`--[a-z][a-z-]*`)
	found := func(s string) []string {
		list := flag.FindAllString(s, -1)
		slices.Sort(list)
		return slices.Compact(list)
	}
	all := found(text)
	eachCommand(func(name string, c *cli.Command) {
		_, section, ok := strings.Cut(body, "\n### quern "+name+"\n")
		if !ok {
			t.Errorf("%s: no section", name)
			return
		}
		section, _, _ = strings.Cut(section, "\n### ")
		help := b.ok(append(strings.Fields(name), "--help")...).out
		for _, f := range found(help) {
			if f != "--help" && !strings.Contains(section, "`"+f) {
				t.Errorf("%s: %s is in --help and not on the page", name, f)
			}
		}
		for _, f := range found(section) {
			if !strings.Contains(help, f) {
				t.Errorf("%s: %s is on the page and not in --help", name, f)
			}
		}
	})
	// The prose above speaks of flags that there are.
	for _, f := range all {
		if !strings.Contains(body, f) && f != "--help" && f != "--flag" {
			t.Errorf("no command has the flag %s of the prose", f)
		}
	}
	for _, code := range []int{exitDone, exitFailed, exitUsage, exitVerify, exitSource, exitInterrupted} {
		if !strings.Contains(head, fmt.Sprintf("\n| %d | ", code)) {
			t.Errorf("the page does not explain exit code %d", code)
		}
	}
}

// commandPages writes a section for each command.
func commandPages() string {
	var b strings.Builder
	eachCommand(func(name string, c *cli.Command) {
		fmt.Fprintf(&b, "\n### quern %s\n\n", name)
		usage := "    quern " + name
		if len(c.Subcommands) > 0 {
			usage += " COMMAND"
		} else {
			usage += " [flags]"
		}
		if c.ArgsUsage != "" {
			usage += " " + c.ArgsUsage
		}
		fmt.Fprintf(&b, "%s\n\n%s.", usage, strings.ToUpper(c.Usage[:1])+c.Usage[1:])
		if d := strings.TrimSpace(strings.TrimSuffix(c.Description, appHelp)); d != "" {
			d = strings.ReplaceAll(d, "\n  ", "\n\n    ")
			fmt.Fprintf(&b, " %s", d)
		}
		b.WriteString("\n")
		if len(c.Flags) == 0 {
			return
		}
		b.WriteString("\n| flag | default | meaning |\n|---|---|---|\n")
		for _, f := range c.Flags {
			fmt.Fprintln(&b, flagRow(f))
		}
	})
	return b.String()
}

var placeholder = regexp.MustCompile("`([^`]+)`")

func flagRow(f cli.Flag) string {
	d := f.(cli.DocGenerationFlag)
	usage, value := d.GetUsage(), ""
	if m := placeholder.FindStringSubmatch(usage); m != nil {
		value = " " + m[1]
		usage = strings.Replace(usage, "`", "", 2)
	} else if d.TakesValue() {
		value = " VALUE"
	}
	names := make([]string, 0, 2)
	for _, n := range f.Names() {
		names = append(names, "`"+dashes(n)+value+"`")
		value = ""
	}
	def := ""
	if d.TakesValue() && d.GetDefaultText() != "" && d.GetDefaultText() != "0" {
		def = strings.Trim(d.GetDefaultText(), `"`)
	}
	return fmt.Sprintf("| %s | %s | %s |", strings.Join(names, ", "), def, strings.ReplaceAll(usage, "|", "\\|"))
}
