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

// refuseInput refuses an output that the command reads: what its arguments or flags
// name, another shard of a file, or a file of a folder.
func refuseInput(c *cli.Context, out string) error {
	if out == "" {
		return nil
	}
	st, err := os.Stat(out)
	if err != nil {
		return nil //nolint:nilerr // what is not there is not read
	}
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
		for _, in := range filesOf(name) {
			if x, err := os.Stat(in); err == nil && os.SameFile(st, x) {
				return fmt.Errorf("%w: %s is read from, as %s; choose another name", pipeline.ErrSameFile, out, in)
			}
		}
	}
	return nil
}

// filesOf are the files that are read when name is.
func filesOf(name string) []string {
	if st, err := os.Stat(name); err == nil && st.IsDir() {
		var out []string
		// What cannot be listed cannot be read either.
		_ = filepath.WalkDir(name, func(p string, e fs.DirEntry, err error) error {
			if err == nil && !e.IsDir() && slices.Contains(modelFiles, strings.ToLower(filepath.Ext(p))) {
				out = append(out, p)
			}
			return nil
		})
		return out
	}
	if stem, _, n, ok := gguf.ParseSplitName(name); ok {
		shards := make([]string, n)
		for i := range shards {
			shards[i] = gguf.SplitName(stem, i, n)
		}
		return shards
	}
	return []string{name}
}
