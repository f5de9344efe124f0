package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"quern/formats/gguf"
	"quern/pipeline"
	"quern/recipes"
	"quern/stages/emit"
	"quern/stages/quantize"
	"quern/stages/source"
	"quern/tensor"
)

func quantizeCommand() *cli.Command {
	flags := []cli.Flag{
		&cli.BoolFlag{Name: "allow-requantize", Usage: "quantize tensors that are quantized already, with the errors of both"},
		&cli.BoolFlag{Name: "leave-output-tensor", Usage: "keep output.weight as it is"},
		&cli.BoolFlag{Name: "pure", Usage: "one type for all tensors, without the mix"},
		&cli.StringFlag{Name: "imatrix", Usage: "the importance matrix, a `FILE` in either of llama-imatrix's formats"},
		&cli.StringSliceFlag{Name: "include-weights", Usage: "use the importance matrix for tensors with this `PART` in their names alone; may be repeated"},
		&cli.StringSliceFlag{Name: "exclude-weights", Usage: "do not use the importance matrix for tensors with this `PART` in their names; may be repeated"},
		&cli.StringFlag{Name: "output-tensor-type", Usage: "the `TYPE` of output.weight"},
		&cli.StringFlag{Name: "token-embedding-type", Usage: "the `TYPE` of the token embedding"},
		&cli.StringSliceFlag{Name: "tensor-type", Usage: "`REGEX=TYPE` for some tensors, as llama-quantize takes it; may be repeated, the first match wins"},
		&cli.StringFlag{Name: "tensor-type-file", Usage: "a `FILE` of REGEX=TYPE, one a word"},
		&cli.StringSliceFlag{Name: "rule", Usage: "`REGEX=TYPE` for some tensors; it goes before --tensor-type, and one that no tensor meets is an error; may be repeated"},
		&cli.StringFlag{Name: "prune-layers", Usage: "leave out these layers, `N,N,...`, and number the others anew"},
		&cli.BoolFlag{Name: "keep-split", Usage: "write shards that hold what the shards of the input hold"},
		&cli.StringSliceFlag{Name: "override-kv", Usage: "set metadata, `KEY=TYPE:VALUE` with int, float, bool or str; may be repeated"},
		&cli.BoolFlag{Name: "dry-run", Usage: "show what would be written, to the byte, and write nothing"},
		&cli.IntFlag{Name: "max-buffer-size", Usage: "`MIB` of memory for rows in flight, another way to say --memory"},
		jsonFlag(), progressFlag(), storeFlag(),
	}
	return &cli.Command{
		Name:      "quantize",
		Usage:     "quantize a GGUF file as llama-quantize does",
		ArgsUsage: "IN [OUT] TYPE [JOBS]",
		Description: "IN is a GGUF file or the first shard of one, a model folder, hf:ORG/NAME[@REVISION] or artifact:NAME. TYPE\n" +
			"is a preset such as Q4_K_M, its number, or COPY. Without OUT the file goes beside IN and is called\n" +
			"ggml-model-TYPE.gguf. The bytes are those of llama-quantize with the same options. Nothing is kept in the\n" +
			"store, and no lock is written: quern build does that.",
		Flags:  slices.Concat(flags, workFlags(), networkFlags(), headerFlags()),
		Action: runQuantize,
	}
}

func runQuantize(c *cli.Context) error {
	q, err := readQuantize(c)
	if err != nil {
		return err
	}
	workers, mem, err := work(c)
	if err != nil {
		return err
	}
	if q.jobs > 0 && !c.IsSet("jobs") {
		workers = q.jobs
	}
	if n := c.Int("max-buffer-size"); c.IsSet("max-buffer-size") && !c.IsSet("memory") {
		if n <= 0 {
			return usagef("--max-buffer-size %d: a number of MiB over 0", n)
		}
		mem = max(int64(n)<<20, minMemory)
	}
	rep, err := newReporter(c)
	if err != nil {
		return err
	}
	defer rep.Close()
	prj, err := q.project(c, rep)
	if err != nil {
		return err
	}
	if c.Bool("dry-run") {
		return dryRun(c, prj, pipeline.EmitOptions{Jobs: workers, Memory: mem})
	}
	res, err := pipeline.Build(c.Context, prj, pipeline.BuildOptions{
		OutDir: q.dir, Jobs: workers, Memory: mem, Before: programOf(c).hooks.before, Events: rep, Unrecorded: true,
	})
	rep.Close()
	if res != nil {
		programOf(c).doc = res
	}
	if err != nil || c.Bool("json") {
		return err
	}
	return printBuild(c.App.Writer, res)
}

func dryRun(c *cli.Context, prj *pipeline.Project, opt pipeline.EmitOptions) error {
	p, err := pipeline.NewPlan(c.Context, prj, pipeline.PlanOptions{})
	if err != nil {
		return err
	}
	defer p.Close()
	doc, err := p.Report(c.Context, nil, opt)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return printJSON(c, doc)
	}
	return printPlan(c.App.Writer, doc)
}

// quantizeLine is a command line of quern quantize, understood.
type quantizeLine struct {
	in        string
	dir, file string // of the output; file is slash-separated
	jobs      int
	params    recipes.Quantize
	options   quantize.Options
	sources   []recipes.Source
}

// readQuantize reads arguments and flags.
func readQuantize(c *cli.Context) (*quantizeLine, error) {
	q := &quantizeLine{}
	if err := q.arguments(c.Args().Slice(), c.Bool("keep-split")); err != nil {
		return nil, err
	}
	base, err := modelSource(q.in, "")
	if err != nil {
		return nil, err
	}
	q.sources = []recipes.Source{base}
	q.params.Pure = c.Bool("pure")
	q.params.AllowRequantize = c.Bool("allow-requantize")
	q.params.LeaveOutput = c.Bool("leave-output-tensor")
	q.params.OutputType = c.String("output-tensor-type")
	q.params.EmbeddingType = c.String("token-embedding-type")
	q.params.IncludeWeights = c.StringSlice("include-weights")
	q.params.ExcludeWeights = c.StringSlice("exclude-weights")
	if len(q.params.IncludeWeights) > 0 && len(q.params.ExcludeWeights) > 0 {
		return nil, usagef("--include-weights and --exclude-weights exclude each other")
	}
	if f := c.String("imatrix"); f != "" {
		q.sources = append(q.sources, recipes.Source{Name: "imatrix", Kind: recipes.SourceFile, Value: absolute(f)})
		q.params.Imatrix, q.params.ImatrixName = "imatrix", f
	}
	q.options.KeepOrder = c.Bool("keep-split")
	q.options.DryRun = c.Bool("dry-run")
	if err := q.types(c); err != nil {
		return nil, err
	}
	for _, s := range c.StringSlice("override-kv") {
		kv, err := parseOverride(s)
		if err != nil {
			return nil, err
		}
		q.options.Overrides = append(q.options.Overrides, kv)
	}
	if s := c.String("prune-layers"); s != "" {
		for part := range strings.SplitSeq(s, ",") {
			n, err := strconv.ParseUint(strings.TrimSpace(part), 10, 31)
			if err != nil {
				return nil, usagef("--prune-layers %s: %q is no number of a layer", s, part)
			}
			q.options.Prune = append(q.options.Prune, int(n))
		}
	}
	return q, nil
}

// arguments reads IN [OUT] TYPE [JOBS]: the second is OUT unless it is a type.
func (q *quantizeLine) arguments(args []string, split bool) error {
	if len(args) < 2 {
		return usagef("quantize: IN [OUT] TYPE are wanted; quern quantize --help")
	}
	q.in = args[0]
	rest := args[1:]
	name, err := q.preset(rest[0])
	out := ""
	if err != nil {
		out = rest[0]
		if rest = rest[1:]; len(rest) == 0 {
			return usagef("quantize: a TYPE is missing: %v", err)
		}
		if name, err = q.preset(rest[0]); err != nil {
			return usagef("quantize: %v", err)
		}
	}
	rest = rest[1:]
	switch {
	case out != "":
		q.dir, q.file = filepath.Split(out)
	default:
		if strings.Contains(q.in, ":") {
			q.dir = "."
		} else {
			q.dir = filepath.Dir(q.in)
		}
		q.file = "ggml-model-" + name + ".gguf"
	}
	if q.file == "" || q.file == "." || q.file == ".." {
		return usagef("quantize: %s names a folder; a file is wanted", out)
	}
	if split {
		q.file = strings.TrimSuffix(q.file, ".gguf") + ".gguf"
	}
	switch len(rest) {
	case 0:
		return nil
	case 1:
		n, err := strconv.Atoi(rest[0])
		if err != nil || n < 0 {
			return usagef("quantize: %q is no number of jobs", rest[0])
		}
		q.jobs = n
		return nil
	}
	return usagef("quantize: too many arguments (%q)", args)
}

// preset reads a TYPE.
func (q *quantizeLine) preset(s string) (string, error) {
	if strings.EqualFold(s, "COPY") {
		q.options.Copy = true
		return "COPY", nil
	}
	name, err := quantize.ParsePreset(s)
	if err != nil {
		return "", err
	}
	q.params.Preset = name
	return name, nil
}

// types reads what gives single tensors types.
func (q *quantizeLine) types(c *cli.Context) error {
	for _, s := range c.StringSlice("rule") {
		re, t, err := patternType("--rule", s)
		if err != nil {
			return err
		}
		q.params.Rules = append(q.params.Rules, recipes.Rule{Match: re, Type: t.String()})
	}
	list := c.StringSlice("tensor-type")
	if f := c.String("tensor-type-file"); f != "" {
		b, err := os.ReadFile(f)
		if err != nil {
			return usagef("--tensor-type-file: %v", err)
		}
		list = append(list, strings.Fields(string(b))...)
	}
	for _, s := range list {
		re, t, err := patternType("--tensor-type", s)
		if err != nil {
			return err
		}
		q.options.TensorTypes = append(q.options.TensorTypes, quantize.TensorType{Pattern: re, Type: t})
	}
	for _, f := range []string{"output-tensor-type", "token-embedding-type"} {
		if s := c.String(f); s != "" {
			if _, err := tensor.ParseType(s); err != nil {
				return usagef("--%s: %v", f, err)
			}
		}
	}
	return nil
}

// patternType reads REGEX=TYPE. The last = counts: types have none.
func patternType(flag, s string) (string, tensor.Type, error) {
	i := strings.LastIndexByte(s, '=')
	if i <= 0 || i == len(s)-1 {
		return "", 0, usagef("%s %s: REGEX=TYPE is wanted", flag, s)
	}
	t, err := tensor.ParseType(s[i+1:])
	if err != nil {
		return "", 0, usagef("%s %s: %v", flag, s, err)
	}
	return s[:i], t, nil
}

// parseOverride reads KEY=TYPE:VALUE as llama.cpp's tools do: integers become
// u32 and lose their sign.
func parseOverride(s string) (gguf.KV, error) {
	bad := func(format string, args ...any) (gguf.KV, error) {
		return gguf.KV{}, usagef("--override-kv %s: %s", s, fmt.Sprintf(format, args...))
	}
	key, rest, ok := strings.Cut(s, "=")
	if !ok || key == "" || len(key) >= 128 {
		return bad("KEY=TYPE:VALUE is wanted, with a key of at most 127 bytes")
	}
	kind, text, ok := strings.Cut(rest, ":")
	if !ok {
		return bad("the value needs its type: int:, float:, bool: or str:")
	}
	var v gguf.Value
	switch kind {
	case "int":
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return bad("%q is no integer", text)
		}
		if n < 0 {
			n = -n
		}
		if n > 1<<32-1 {
			return bad("%s does not fit the u32 that integers become", text)
		}
		v = gguf.Scalar(uint32(n))
	case "float":
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return bad("%q is no number", text)
		}
		v = gguf.Scalar(float32(f))
	case "bool":
		if text != "true" && text != "false" {
			return bad("%q is neither true nor false", text)
		}
		v = gguf.Scalar(text == "true")
	case "str":
		if len(text) > 127 {
			return bad("a string has at most 127 bytes")
		}
		v = gguf.Scalar(text)
	default:
		return bad("type %q is none of int, float, bool and str", kind)
	}
	return gguf.KV{Key: key, Value: v}, nil
}

// project is the command as a build of one step.
func (q *quantizeLine) project(c *cli.Context, events pipeline.Events) (*pipeline.Project, error) {
	st, err := quantize.NewWith(q.params, q.options)
	if err != nil {
		return nil, usagef("quantize: %v", err)
	}
	e := &environment{c: c, events: events}
	if k := q.sources[0].Kind; k == recipes.SourceArtifact || k == recipes.SourceHF {
		// What was built or fetched before is in the store.
		if e, err = openEnvironment(c, events, k == recipes.SourceHF); err != nil {
			return nil, err
		}
	}
	env, err := e.sources()
	if err != nil {
		return nil, err
	}
	out := recipes.Output{Format: "gguf", File: filepath.ToSlash(q.file)}
	em := emit.NewGGUF(out)
	if q.options.KeepOrder {
		em = emit.NewKeptSplit(out)
	}
	return &pipeline.Project{
		Name:     "quantize",
		Open:     func(ctx context.Context) ([]*pipeline.Source, error) { return source.Open(ctx, env, q.sources) },
		Stages:   []pipeline.PlacedStage{{Stage: st, Where: q.in}},
		Emitters: []pipeline.PlacedEmitter{{Emitter: em, Where: q.in}},
	}, nil
}
