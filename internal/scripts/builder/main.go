// Command builder builds recipes as quern build does, without the parts that
// play no role in the bytes of an output. It compiles quickly for any processor,
// so that digests can be compared.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"quern/pipeline"
	"quern/recipes"
	"quern/stages/all"
	"quern/stages/source"
)

func main() {
	out := flag.String("o", ".", "folder for the outputs")
	jobs := flag.Int("jobs", 1, "workers")
	memory := flag.String("memory", "64MiB", "memory for rows in flight")
	var set []string
	flag.Func("set", "key=value, over all recipes", func(v string) error {
		set = append(set, v)
		return nil
	})
	flag.Parse()
	for _, path := range flag.Args() {
		if err := build(path, set, *out, *jobs, *memory); err != nil {
			fmt.Fprintf(os.Stderr, "builder: %s: %v\n", path, err)
			os.Exit(1)
		}
	}
}

func build(path string, set []string, out string, jobs int, memory string) error {
	mem, err := recipes.ParseSize(memory)
	if err != nil {
		return err
	}
	r, err := recipes.ReadFile(path, recipes.Options{Set: set})
	if err != nil {
		return err
	}
	prj, err := all.Project(r, source.Env{})
	if err != nil {
		return err
	}
	_, err = pipeline.Build(context.Background(), prj, pipeline.BuildOptions{OutDir: out, Jobs: jobs, Memory: mem})
	return err
}
