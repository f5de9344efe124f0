package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"quern/formats/gguf"
	"quern/pipeline"
)

// inputFlags are the flags that name files which a command reads.
var inputFlags = []string{"file", "tokenizer", "base", "messages", "audio", "repack", "model", "against", "golden", "recipe", "keep"}

// modelFiles are the endings of what a model folder is read from.
var modelFiles = []string{".safetensors", ".json", ".model", ".txt", ".jinja", ".bin", ".pt", ".pkl", ".md", ".cact"}

// refuseOutputs refuses files that flags name, before anything is computed for them:
// those that are read, also as one of texts or in it, and two that are one.
func refuseOutputs(c *cli.Context, texts []string, flags ...string) error {
	for i, flag := range flags {
		out := c.String(flag)
		if err := refuseInput(c, out); err != nil {
			return err
		}
		for _, t := range texts {
			if err := refuseOneOf(out, filesUnder(t, func(string) bool { return true })); err != nil {
				return err
			}
		}
		for _, other := range flags[:i] {
			if sameEntry(out, c.String(other)) {
				return usagef("--%s and --%s are one file, %s", other, flag, out)
			}
		}
	}
	return nil
}

// sameEntry reports whether two names are of one entry of a folder. Of two links to
// one file each is replaced by itself.
func sameEntry(a, b string) bool {
	if a == "" || b == "" || filepath.Base(a) != filepath.Base(b) {
		return false
	}
	if filepath.Clean(a) == filepath.Clean(b) {
		return true
	}
	x, err := os.Stat(filepath.Dir(a))
	if err != nil {
		return false
	}
	y, err := os.Stat(filepath.Dir(b))
	return err == nil && os.SameFile(x, y)
}

// refuseInput refuses an output that the command reads: what its arguments or flags
// name, another shard of a file, or a file of a folder.
func refuseInput(c *cli.Context, out string) error {
	names := c.Args().Slice()
	for _, f := range c.Command.Flags {
		name := f.Names()[0]
		if !c.IsSet(name) || !slices.Contains(inputFlags, name) {
			continue
		}
		if s := c.String(name); s != "" {
			names = append(names, s)
		}
		names = append(names, c.StringSlice(name)...)
	}
	for _, name := range names {
		if err := refuseOneOf(out, filesOf(name)); err != nil {
			return err
		}
	}
	return nil
}

// refuseOneOf refuses an output that is one of some inputs.
func refuseOneOf(out string, inputs []string) error {
	st, err := os.Stat(out)
	if err != nil {
		return nil //nolint:nilerr // what is not there is not read
	}
	for _, in := range inputs {
		if x, err := os.Stat(in); err == nil && os.SameFile(st, x) {
			return fmt.Errorf("%w: %s is read from, as %s; choose another name", pipeline.ErrSameFile, out, in)
		}
	}
	return nil
}

// filesOf are the files that are read when name is.
func filesOf(name string) []string {
	stem, _, n, ok := gguf.ParseSplitName(name)
	if st, err := os.Stat(name); !ok || err == nil && st.IsDir() {
		return filesUnder(name, func(p string) bool { return slices.Contains(modelFiles, strings.ToLower(filepath.Ext(p))) })
	}
	shards := make([]string, n)
	for i := range shards {
		shards[i] = gguf.SplitName(stem, i, n)
	}
	return shards
}

// filesUnder are the files of a folder that one reads, or the file itself.
func filesUnder(name string, read func(path string) bool) []string {
	if st, err := os.Stat(name); err != nil || !st.IsDir() {
		return []string{name}
	}
	var out []string
	// What cannot be listed cannot be read either.
	_ = filepath.WalkDir(name, func(p string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && read(p) {
			out = append(out, p)
		}
		return nil
	})
	return out
}
