package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"quern/device"
	"quern/device/chart"
	"quern/device/pager"
	"quern/formats/gguf"
	"quern/formats/trace"
	"quern/model"
	"quern/pipeline"
	"quern/tensor"
)

func traceSimulateCommand() *cli.Command {
	return &cli.Command{
		Name:      "simulate",
		Usage:     "play a trace through pools of experts and foretell misses and speed",
		ArgsUsage: "TRACE",
		Description: "Every layer keeps a pool of experts; those that it lacks are read from flash while the token waits. Several pools,\n" +
			"policies and biases may be given, between commas: each is played with each. Without --pool, eight pools between what a\n" +
			"token uses and all experts. A bias is added to the scores of experts in the pool, as cache-aware routing does.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "model", Usage: "take the sizes of experts from a GGUF `FILE`"},
			&cli.StringFlag{Name: "expert-bytes", Usage: "what an expert takes on flash, a `SIZE`, where no model is given"},
			&cli.StringFlag{Name: "flash", Usage: "what flash gives in a second, a `SIZE` such as 278MB"},
			&cli.DurationFlag{Name: "latency", Usage: "the `TIME` that a read of an expert takes beside that, such as 200us"},
			&cli.Float64Flag{Name: "compute", Usage: "the `TOKENS` a second when nothing has to be read; 0 foretells flash alone"},
			&cli.StringFlag{Name: "pool", Usage: "the `EXPERTS` that a layer keeps, one number or several"},
			&cli.StringFlag{Name: "policy", Value: "lru", Usage: "lru drops what was used the longest ago, decay what was used least of late"},
			&cli.IntFlag{Name: "half-life", Value: 256, Usage: "for decay: after so many `TOKENS` a use counts half"},
			&cli.StringFlag{Name: "bias", Value: "0", Usage: "what scores of experts in the pool get on top, one number or several"},
			&cli.IntFlag{Name: "prefetch", Usage: "read the first so many `EXPERTS` of each guess ahead"},
			&cli.BoolFlag{Name: "warm", Usage: "start with the most used experts of the trace in the pools"},
			&cli.Int64Flag{Name: "skip", Usage: "do not count the first so many `TOKENS`"},
			&cli.StringFlag{Name: "plot", Usage: "draw misses and speed over the pool into an SVG `FILE`"},
			jsonFlag(),
		},
		Action: runTraceSimulate,
	}
}

// simulateDoc is the document of quern trace simulate --json.
type simulateDoc struct {
	Trace string        `json:"trace"`
	Runs  []simulateRun `json:"runs"`
}

type simulateRun struct {
	Policy string  `json:"policy"`
	Pool   int     `json:"pool"`
	Bias   float32 `json:"bias"`
	// PoolBytes is what the pools of all layers take.
	PoolBytes int64 `json:"pool_bytes"`
	pager.Result
	MissRate     float64 `json:"miss_rate"`
	BytesPerTok  float64 `json:"bytes_per_token"`
	TokensPerSec float64 `json:"tokens_per_second"`
}

func runTraceSimulate(c *cli.Context) error {
	path, err := oneArg(c, "a trace")
	if err != nil {
		return err
	}
	h, err := traceHeader(path)
	if err != nil {
		return pipeline.SourceFault(err)
	}
	base, err := simulateOptions(c, h)
	if err != nil {
		return err
	}
	opts, err := variants(c, h, base)
	if err != nil {
		return err
	}
	if c.Bool("warm") {
		use, _, err := readUse(path)
		if err != nil {
			return pipeline.SourceFault(err)
		}
		for i := range opts {
			opts[i].Warm = use.Warm(opts[i].Pool)
		}
	}
	results, cut, err := simulate(path, opts)
	switch {
	case errors.Is(err, pager.ErrOptions):
		return usagef("%v", err)
	case err != nil:
		return pipeline.SourceFault(err)
	case results[0].Tokens == 0:
		return usagef("--skip %d: the trace has no tokens behind these", base.Skip)
	}
	doc := simulateDoc{Trace: filepath.Base(path)}
	for i, r := range results {
		run := simulateRun{Policy: policyNames[opts[i].Policy], Pool: opts[i].Pool, Bias: opts[i].Bias, Result: r,
			MissRate: r.MissRate(), BytesPerTok: r.BytesPerToken(), TokensPerSec: r.TokensPerSecond()}
		for _, n := range opts[i].ExpertBytes {
			run.PoolBytes += n * int64(opts[i].Pool)
		}
		doc.Runs = append(doc.Runs, run)
	}
	if plot := c.String("plot"); plot != "" {
		if err := writeOutput(c, plot, func(w io.Writer) error { return drawRuns(w, doc.Runs) }); err != nil {
			return err
		}
	}
	if c.Bool("json") {
		return printJSON(c, doc)
	}
	if cut {
		fmt.Fprintln(c.App.ErrWriter, "warning: the trace breaks off inside a token")
	}
	return printRuns(c.App.Writer, doc.Runs)
}

var policyNames = map[pager.Policy]string{pager.LRU: "lru", pager.Decay: "decay"}

// Bounds of --compute: from a token in eleven days to one in the unit that time is
// counted in.
const minCompute, maxCompute = 1e-6, 1e9

// simulateOptions reads what all variants have in common.
func simulateOptions(c *cli.Context, h trace.Header) (pager.Options, error) {
	o := pager.Options{HalfLife: c.Int("half-life"), Prefetch: c.Int("prefetch"), Latency: c.Duration("latency"), Skip: c.Int64("skip")}
	var err error
	if o.Flash, err = size(c, "flash"); err != nil {
		return o, err
	}
	if o.Flash == 0 {
		return o, usagef("trace simulate: --flash is missing: what flash gives in a second, such as 278MB")
	}
	if t := c.Float64("compute"); t != 0 && (t < minCompute || t > maxCompute) || t != t {
		return o, usagef("--compute %v: tokens a second, from %v to %v, or 0", t, minCompute, maxCompute)
	} else if t > 0 {
		o.Compute = time.Duration(float64(time.Second) / t)
	}
	file := c.String("model")
	each, err := size(c, "expert-bytes")
	switch {
	case err != nil:
		return o, err
	case (file == "") == (each == 0):
		return o, usagef("trace simulate: --model FILE or --expert-bytes SIZE, one of them, says what an expert takes")
	case each > 0:
		o.ExpertBytes = slices.Repeat([]int64{each}, len(h.Layers))
	default:
		o.ExpertBytes, err = expertBytes(c, file, h)
	}
	return o, err
}

// expertBytes reads the sizes of experts from a file, which must be of the model
// that was traced.
func expertBytes(c *cli.Context, file string, h trace.Header) ([]int64, error) {
	blob, err := tensor.OpenFile(file)
	if err != nil {
		return nil, pipeline.SourceFault(err)
	}
	defer blob.Close()
	g, err := gguf.Open(c.Context, filepath.Base(file), blob, gguf.Options{})
	if err != nil {
		return nil, pipeline.SourceFault(err)
	}
	f := &device.File{Name: filepath.Base(file), Size: g.Size, Meta: g.Meta}
	for _, t := range g.Tensors {
		f.Parts = append(f.Parts, device.Part{Name: t.Name, Shape: t.Shape(), Offset: t.Offset, Bytes: t.Bytes})
	}
	e, err := device.ExpertsOf(f)
	if err != nil {
		return nil, pipeline.SourceFault(err)
	}
	if e == nil {
		return nil, pipeline.SourceFault(fmt.Errorf("%s: %w: the model has no routed experts", file, model.ErrForm))
	}
	if e.Count != int64(h.Experts) || !slices.Equal(e.Blocks, h.Layers) {
		return nil, pipeline.SourceFault(fmt.Errorf("%s: %w: %d experts in the layers %v, the trace has %d in %v: it is of another model",
			file, model.ErrForm, e.Count, e.Blocks, h.Experts, h.Layers))
	}
	return e.Sizes, nil
}

// variants makes one set of options for each combination.
func variants(c *cli.Context, h trace.Header, base pager.Options) ([]pager.Options, error) {
	pools, err := poolsOf(c, h)
	if err != nil {
		return nil, err
	}
	var out []pager.Options
	for word := range strings.SplitSeq(c.String("policy"), ",") {
		o := base
		switch word {
		case "lru":
			o.Policy = pager.LRU
		case "decay":
			o.Policy = pager.Decay
		default:
			return nil, usagef("--policy %q: lru or decay", word)
		}
		for b := range strings.SplitSeq(c.String("bias"), ",") {
			bias, err := strconv.ParseFloat(b, 32)
			if err != nil {
				return nil, usagef("--bias %q: a number", b)
			}
			o.Bias = float32(bias)
			for _, p := range pools {
				o.Pool = p
				out = append(out, o)
			}
		}
	}
	return out, nil
}

func poolsOf(c *cli.Context, h trace.Header) ([]int, error) {
	var out []int
	if s := c.String("pool"); s != "" {
		for word := range strings.SplitSeq(s, ",") {
			n, err := strconv.Atoi(word)
			if err != nil {
				return nil, usagef("--pool %q: a number of experts", word)
			}
			out = append(out, n)
		}
		return out, nil
	}
	for i := range 8 {
		out = append(out, h.Used+(h.Experts-h.Used)*i/7)
	}
	return slices.Compact(out), nil
}

// traceHeader reads the first lines of a trace.
func traceHeader(path string) (trace.Header, error) {
	f, err := os.Open(path)
	if err != nil {
		return trace.Header{}, err
	}
	defer f.Close()
	t, err := trace.NewReader(filepath.Base(path), f)
	if err != nil {
		return trace.Header{}, err
	}
	defer t.Close()
	return t.Header, nil
}

func simulate(path string, opts []pager.Options) (results []pager.Result, cut bool, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	return pager.Run(filepath.Base(path), f, opts)
}

func printRuns(w io.Writer, runs []simulateRun) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "policy\tbias\tpool\tpool bytes\tmisses\tof uses\tchanged\tscore lost\tread a token\twaiting\ttokens a second")
	for _, r := range runs {
		waiting := 0.0
		if r.Time > 0 {
			waiting = float64(r.Waiting) / float64(r.Time)
		}
		fmt.Fprintf(t, "%s\t%g\t%d\t%s\t%d\t%.2f %%\t%.2f %%\t%.2f %%\t%s\t%.1f %%\t%.2f\n", r.Policy, r.Bias, r.Pool, bytesText(r.PoolBytes), r.Misses, 100*r.MissRate,
			100*float64(r.Replaced)/float64(max(r.Uses, 1)), 100*r.Lost, bytesText(int64(r.BytesPerTok)), 100*waiting, r.TokensPerSec)
	}
	return t.Flush()
}

// drawRuns draws a line for each policy and bias.
func drawRuns(w io.Writer, runs []simulateRun) error {
	misses := chart.Panel{Title: "Experts that were missing", XLabel: "experts in the pool of a layer", Percent: true}
	speed := chart.Panel{Title: "Tokens a second", XLabel: misses.XLabel}
	for _, r := range runs {
		name := fmt.Sprintf("%s, bias %g", r.Policy, r.Bias)
		i := slices.IndexFunc(misses.Lines, func(l chart.Line) bool { return l.Name == name })
		if i < 0 {
			i = len(misses.Lines)
			misses.Lines, speed.Lines = append(misses.Lines, chart.Line{Name: name}), append(speed.Lines, chart.Line{Name: name})
		}
		add := func(l *chart.Line, y float64) { l.X, l.Y = append(l.X, float64(r.Pool)), append(l.Y, y) }
		add(&misses.Lines[i], r.MissRate)
		add(&speed.Lines[i], r.TokensPerSec)
	}
	return chart.Write(w, misses, speed)
}
