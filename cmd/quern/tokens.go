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

	"github.com/urfave/cli/v2"

	"quern/formats/tokenlist"
	"quern/pipeline"
	"quern/runtime/load"
	"quern/stages/selecttokens"
	"quern/tokenizer"
	"quern/tokenizer/count"
)

func tokensCommand() *cli.Command {
	commands := []*cli.Command{
		{
			Name:      "count",
			Usage:     "count the tokens of texts",
			ArgsUsage: "MODEL TEXT...",
			Description: "A TEXT is a file or a folder of files, each also compressed with gzip or Zstandard, and is a corpus called after it;\n" +
				"NAME=TEXT gives it another name. Prints the most frequent tokens.",
			Flags: append([]cli.Flag{
				&cli.IntFlag{Name: "top", Value: 20, Usage: "print this many tokens"},
				&cli.BoolFlag{Name: "all", Usage: "print all tokens, in the order of their ids"},
			}, countFlags()...),
			Action: runTokensCount,
		},
		{
			Name:      "select",
			Usage:     "choose the tokens that a smaller head keeps, by their frequency in texts",
			ArgsUsage: "MODEL TEXT...",
			Description: "Special, byte and added tokens are always kept. TEXT is as in quern tokens count.\n" +
				"The list has one id a line; prune-head steps and quern tokens take it.",
			Flags: slices.Concat([]cli.Flag{
				&cli.Int64Flag{Name: "count", Usage: "keep this many tokens"},
				&cli.Int64Flag{Name: "min-count", Usage: "leave out tokens that the texts have fewer of"},
				&cli.StringFlag{Name: "coverage", Usage: "keep tokens until they make up this `SHARE` of the texts, such as 99.5%"},
				&cli.StringSliceFlag{Name: "keep", Usage: "keep the tokens of a `TEXT` too; may be repeated"},
				&cli.StringFlag{Name: "keep-ids", Usage: "keep these `IDS` too, between commas"},
			}, listFlags(), countFlags()),
			Action: runTokensSelect,
		},
		{
			Name:        "cut",
			Usage:       "cut a list of tokens to fewer, the least frequent first",
			ArgsUsage:   "LIST MODEL TEXT...",
			Description: "Special, byte and added tokens of the list stay.",
			Flags:       slices.Concat([]cli.Flag{&cli.Int64Flag{Name: "count", Usage: "keep this many tokens"}}, listFlags(), countFlags()),
			Action:      runTokensCut,
		},
		{
			Name:        "extend",
			Usage:       "add the most frequent tokens to a list that has not got them",
			ArgsUsage:   "LIST MODEL TEXT...",
			Description: "All tokens of the list stay; special, byte and added tokens that it lacks are added first.",
			Flags:       slices.Concat([]cli.Flag{&cli.Int64Flag{Name: "count", Usage: "make the list this long"}}, listFlags(), countFlags()),
			Action:      runTokensExtend,
		},
		{
			Name:      "cover",
			Usage:     "say how much of some texts a list of tokens covers",
			ArgsUsage: "LIST MODEL TEXT...",
			Flags:     countFlags(),
			Action:    runTokensCover,
		},
		{
			Name:        "compare",
			Usage:       "compare two lists of tokens",
			ArgsUsage:   "LIST LIST [MODEL TEXT...]",
			Description: "Says which tokens both have and which one alone has; with a model and texts also how much of them each list covers.",
			Flags:       append([]cli.Flag{&cli.BoolFlag{Name: "ids", Usage: "print the ids that one list alone has"}}, countFlags()...),
			Action:      runTokensCompare,
		},
	}
	return &cli.Command{
		Name:        "tokens",
		Usage:       "count tokens, and make lists of those that a smaller head keeps",
		Description: "See docs/tokens.md for what counts and how lists are written.",
		Subcommands: commands,
		Action:      groupAction("quern tokens", commands),
	}
}

func countFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringSliceFlag{Name: "weight", Usage: "how much a corpus counts beside others, `NAME=NUMBER`; 1 unless given; may be repeated"},
		&cli.StringFlag{Name: "parquet", Usage: "write all tokens as a Parquet table to `FILE`"},
		&cli.IntFlag{Name: "jobs", Aliases: []string{"j"}, Usage: "workers; 0 means one a CPU"},
		jsonFlag(), progressFlag(),
	}
}

func listFlags() []cli.Flag {
	return []cli.Flag{
		&cli.Int64Flag{Name: "multiple-of", Usage: "keep further tokens until their number is a multiple of this"},
		&cli.StringFlag{Name: "out", Aliases: []string{"o"}, Usage: "write the list to `FILE`"},
	}
}

// counting is a model's tokenizer with texts and, behind count, their counts.
type counting struct {
	c       *cli.Context
	model   string
	tok     *tokenizer.Tokenizer
	kinds   []count.Kind
	corpora []count.Corpus
	counts  *count.Counts
	texts   []string // the files and folders of corpora
}

// vocabulary opens the tokenizer of a model.
func vocabulary(c *cli.Context, path string) (*counting, error) {
	t, err := load.Tokenizer(c.Context, path)
	if err != nil {
		return nil, pipeline.SourceFault(err)
	}
	tok, ok := t.(*tokenizer.Tokenizer)
	if !ok {
		return nil, usagef("tokens: %s has a tokenizer of its own kind; tokens are counted for GGUF files and Hugging Face models", path)
	}
	return &counting{c: c, model: path, tok: tok, kinds: count.Kinds(tok)}, nil
}

// openTexts opens a model's tokenizer and finds the corpora that arguments name.
func openTexts(c *cli.Context, model string, texts []string) (*counting, error) {
	if len(texts) == 0 {
		return nil, usagef("%s: a text is missing: a file or a folder", c.Command.Name)
	}
	corpora, err := corporaOf(texts, c.StringSlice("weight"))
	if err != nil {
		return nil, err
	}
	x, err := vocabulary(c, model)
	if err != nil {
		return nil, err
	}
	x.corpora = corpora
	for _, arg := range texts {
		x.texts = append(x.texts, textPath(arg))
	}
	return x, nil
}

// count counts the corpora. It takes long, so what else may be wrong is looked at
// before.
func (x *counting) count() error {
	c := x.c
	workers, err := jobs(c)
	if err != nil {
		return err
	}
	if err := refuseOutputs(c, slices.Concat(x.texts, c.StringSlice("keep")), "out", "parquet"); err != nil {
		return err
	}
	counter, err := x.tok.NewCounter()
	if err != nil {
		return pipeline.SourceFault(err)
	}
	rep, err := newReporter(c)
	if err != nil {
		return err
	}
	defer rep.Close()
	x.counts, err = count.Count(c.Context, counter, len(x.kinds), x.corpora, count.Options{Jobs: workers,
		Progress: func(n int64) {
			rep.Event(pipeline.Event{Kind: pipeline.EventProgress, Output: "text", Done: n})
		}})
	if err != nil && !errors.Is(err, c.Context.Err()) {
		err = pipeline.SourceFault(err)
	}
	return err
}

// textPath is the path in a NAME=TEXT argument.
func textPath(arg string) string {
	if _, path, named := strings.Cut(arg, "="); named {
		if _, err := os.Stat(arg); err != nil {
			return path
		}
	}
	return arg
}

// corporaOf reads NAME=TEXT arguments and the weights.
func corporaOf(texts, weights []string) ([]count.Corpus, error) {
	var out []count.Corpus
	for _, arg := range texts {
		path := textPath(arg)
		name, _, _ := strings.Cut(arg, "=")
		if path == arg {
			name, _, _ = strings.Cut(filepath.Base(arg), ".")
		}
		if slices.ContainsFunc(out, func(x count.Corpus) bool { return x.Name == name }) {
			return nil, usagef("tokens: two texts are called %s; NAME=TEXT gives one another name", name)
		}
		files, err := count.Files(path)
		if err != nil {
			return nil, pipeline.SourceFault(err)
		}
		out = append(out, count.Corpus{Name: name, Files: files})
	}
	for _, w := range weights {
		name, num, _ := strings.Cut(w, "=")
		v, err := strconv.ParseFloat(num, 64)
		if err != nil || !(v > 0) || v > 1e6 {
			return nil, usagef("--weight %s: NAME=NUMBER with a number over 0 is wanted", w)
		}
		i := slices.IndexFunc(out, func(x count.Corpus) bool { return x.Name == name })
		if i < 0 {
			return nil, usagef("--weight %s: no text is called %s", w, name)
		}
		out[i].Weight = v
	}
	return out, nil
}

// readTokens reads a list of ids of the model.
func (x *counting) readTokens(path string) (*tokenlist.List, error) {
	l, err := readTokenList(path)
	if err != nil {
		return nil, err
	}
	return l, x.check(path, l)
}

// check holds a list against the model.
func (x *counting) check(path string, l *tokenlist.List) error {
	if err := l.Check(int64(len(x.kinds)), x.tok.Digest()); err != nil {
		return pipeline.SourceFault(fmt.Errorf("%s: %w", path, err))
	}
	return nil
}

// readTokenList reads a list of ids; those from elsewhere may be in any order.
func readTokenList(path string) (*tokenlist.List, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, pipeline.SourceFault(err)
	}
	defer f.Close()
	l, err := tokenlist.Read(f, tokenlist.Options{Name: path, AnyOrder: true})
	if err != nil {
		return nil, pipeline.SourceFault(err)
	}
	return l, nil
}

// write writes the list and the table that flags ask for.
func (x *counting) write(ids []int32) error {
	out, table := x.c.String("out"), x.c.String("parquet")
	if out != "" {
		l := &tokenlist.List{Vocab: int64(len(x.kinds)), Tokenizer: x.tok.Digest(), IDs: ids}
		if err := writeOutput(x.c, out, l.Write); err != nil {
			return err
		}
	}
	if table == "" {
		return nil
	}
	b, err := selecttokens.Table(x.tok, x.counts, x.kinds, ids)
	if err != nil {
		return err
	}
	return writeOutput(x.c, table, func(w io.Writer) error { _, err := w.Write(b); return err })
}
