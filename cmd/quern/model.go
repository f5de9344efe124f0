package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"quern/internal/atomicfile"
	"quern/internal/resident"
	"quern/pipeline"
	infer "quern/runtime"
	"quern/runtime/generate"
	"quern/runtime/load"
)

// modelFlags are those of all commands that run a model.
func modelFlags() []cli.Flag {
	return []cli.Flag{
		&cli.IntFlag{Name: "context", Aliases: []string{"c"}, Usage: "room for this many `TOKENS`; 0 means what the command or the model has by default"},
		&cli.StringFlag{Name: "act", Value: "exact", Usage: "activations: exact (float32) or q8 (8 bits, as the kernels of devices compute)"},
		&cli.IntFlag{Name: "jobs", Aliases: []string{"j"}, Usage: "workers; 0 means one a CPU; the result does not depend on it"},
		&cli.StringFlag{Name: "tokenizer", Usage: "use the tokenizer of another `FILE` or folder, for a file that holds none"},
		&cli.StringSliceFlag{Name: "repack", Usage: "compute on the matrices of this repack `CACHE` of the GGUF file, after checking that it is one; may come several times; the result is the same, but for layouts that round"},
		jsonFlag(),
	}
}

// orderFlag is for commands whose numbers are compared with llama.cpp's.
func orderFlag(def string) cli.Flag {
	return &cli.StringFlag{Name: "order", Usage: "the order of operations with --act q8: quern, the faster one, or ggml, that of llama.cpp on x86 with AVX2 to the last bit; by default " + def}
}

// sessionOptions reads modelFlags and orderFlag.
func sessionOptions(c *cli.Context) (infer.SessionOptions, error) {
	opt := infer.SessionOptions{Context: c.Int("context")}
	if opt.Context < 0 {
		return opt, usagef("--context %d: a number of tokens, or 0", opt.Context)
	}
	var err error
	if opt.Act, err = infer.ParseAct(c.String("act")); err != nil {
		return opt, usagef("--act: %v", err)
	}
	if word := c.String("order"); word != "" {
		if opt.Order, err = infer.ParseOrder(word); err != nil {
			return opt, usagef("--order: %v", err)
		}
		if opt.Order == infer.OrderGGML && opt.Act != infer.Q8 {
			return opt, usagef("--order ggml is one for activations of 8 bits: give --act q8 too")
		}
	}
	opt.Jobs, err = jobs(c)
	return opt, err
}

// openMain opens the command's model, with the tokenizer that a flag names.
func openMain(c *cli.Context, path string) (infer.Model, error) {
	m, err := openModelWith(c.Context, path, load.Options{Repack: c.StringSlice("repack")})
	if err != nil || c.String("tokenizer") == "" {
		return m, err
	}
	tok, err := load.Tokenizer(c.Context, c.String("tokenizer"))
	if err != nil {
		return nil, errors.Join(pipeline.SourceFault(err), m.Close())
	}
	return infer.WithTokenizer(m, tok), nil
}

// openModel opens a model. What opening leaves behind, mostly of the tokenizer, is
// given back.
func openModel(ctx context.Context, path string) (infer.Model, error) {
	return openModelWith(ctx, path, load.Options{})
}

func openModelWith(ctx context.Context, path string, opt load.Options) (infer.Model, error) {
	m, err := load.OpenWith(ctx, path, opt)
	if err != nil {
		return nil, pipeline.SourceFault(err)
	}
	settle()
	return m, nil
}

// settle gives back what came before a model runs, garbage and pages of files alike:
// weights, keys and values are what memory is for. From then on garbage is to be no
// more than a quarter of what is in use, keys and values apart. It gives the pages.
func settle() resident.Pages {
	debug.SetGCPercent(25)
	// Where pages cannot be found or released they just stay. The collector reads tables
	// of the program, so that it must have done before.
	pages, _ := resident.Find()
	debug.FreeOSMemory()
	_ = pages.Release()
	return pages
}

// leanly has an answer give back what starting took once the prompt is under way, and
// what of the program only the prompt needed once it is through.
func leanly(g *generate.Options) {
	var program resident.Pages
	g.Warm = func() {
		pages := settle()
		if exe, err := os.Executable(); err == nil {
			program = pages.Only(exe)
		}
	}
	each, made := g.Each, 0
	g.Each = func(id int32) error {
		if made++; made == 2 {
			_ = program.Release()
		}
		if each == nil {
			return nil
		}
		return each(id)
	}
}

// readText reads the text file that a flag names; "-" is standard input.
func readText(c *cli.Context, flag string) ([]byte, error) {
	name := c.String(flag)
	switch name {
	case "":
		return nil, usagef("%s: --%s is missing: a text file", c.Command.Name, flag)
	case "-":
		return io.ReadAll(c.App.Reader)
	}
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, pipeline.SourceFault(err)
	}
	return b, nil
}

// overText is a model with the text that a command runs it over.
type overText struct {
	path    string
	session infer.SessionOptions
	rep     reporter
	text    []byte
	model   infer.Model
}

// openOverText opens what the argument, modelFlags and --file name.
func openOverText(c *cli.Context) (*overText, error) {
	o := &overText{}
	var err error
	if o.path, err = oneArg(c, "a model"); err != nil {
		return nil, err
	}
	if o.session, err = sessionOptions(c); err != nil {
		return nil, err
	}
	if o.rep, err = newReporter(c); err != nil {
		return nil, err
	}
	if o.text, err = readText(c, "file"); err == nil {
		o.model, err = openMain(c, o.path)
	}
	if err != nil {
		o.rep.Close()
		return nil, err
	}
	return o, nil
}

func (o *overText) close() error {
	defer o.rep.Close()
	return o.model.Close()
}

// parseIDs reads token ids between commas or white space. Nothing between two commas
// is an id that somebody lost.
func parseIDs(flag, s string) ([]int32, error) {
	if strings.TrimSpace(s) == "" {
		return nil, usagef("--%s: no token ids", flag)
	}
	var ids []int32
	for _, part := range strings.Split(s, ",") {
		words := strings.Fields(part)
		if len(words) == 0 {
			return nil, usagef("--%s: %q lacks an id beside a comma", flag, s)
		}
		for _, w := range words {
			n, err := strconv.ParseUint(w, 10, 31)
			if err != nil {
				return nil, usagef("--%s: %q is no token id", flag, w)
			}
			ids = append(ids, int32(n))
		}
	}
	return ids, nil
}

// checkIDs refuses ids that a model does not have before anything is printed or
// written.
func checkIDs(flag string, ids []int32, vocab int) error {
	for i, id := range ids {
		if int(id) >= vocab {
			return usagef("--%s: id %d at place %d, the model has %d tokens", flag, id, i, vocab)
		}
	}
	return nil
}

func joinIDs(ids []int32) string {
	var b strings.Builder
	for i, id := range ids {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(int(id)))
	}
	return b.String()
}

// writeOutput writes a file that write fills, whole or not at all. Nothing that the
// command reads must be that file.
func writeOutput(c *cli.Context, path string, write func(w io.Writer) error) (err error) {
	if err := refuseInput(c, path); err != nil {
		return err
	}
	if err := makeParent(path); err != nil {
		return err
	}
	f, err := atomicfile.Create(path, atomicfile.Options{Before: programOf(c).hooks.before})
	if err != nil {
		return err
	}
	defer f.Abort()
	if err := write(f); err != nil {
		return err
	}
	return f.Commit()
}

// modelName is what documents call the model.
func modelName(path string) string { return filepath.Base(filepath.Clean(path)) }
