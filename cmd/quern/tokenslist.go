package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"quern/formats/tokenlist"
	"quern/internal/digest"
	"quern/recipes"
	"quern/tokenizer/count"
)

// tokenCount is a token of quern tokens count --json.
type tokenCount struct {
	ID     int32      `json:"id"`
	Text   string     `json:"text"`
	Kind   count.Kind `json:"kind"`
	Counts []uint64   `json:"counts"`
	Weight float64    `json:"weight"`
}

// countDoc is the document of quern tokens count --json.
type countDoc struct {
	Model      string           `json:"model"`
	Vocabulary int              `json:"vocabulary"`
	Tokenizer  digest.Digest    `json:"tokenizer"`
	Corpora    []count.Coverage `json:"corpora"`
	Tokens     []tokenCount     `json:"tokens"`
}

func runTokensCount(c *cli.Context) error {
	if c.NArg() < 2 {
		return usagef("tokens count: a model and a text; quern tokens count --help")
	}
	if c.Int("top") < 0 {
		return usagef("--top %d: a number of tokens", c.Int("top"))
	}
	x, err := openTexts(c, c.Args().First(), c.Args().Tail())
	if err != nil {
		return err
	}
	if err := x.count(); err != nil {
		return err
	}
	all := make([]int32, len(x.kinds))
	for id := range all {
		all[id] = int32(id)
	}
	if err := x.write(nil); err != nil {
		return err
	}
	scores := count.Scores(x.counts)
	shown := slices.Clone(all)
	if !c.Bool("all") {
		slices.SortStableFunc(shown, func(a, b int32) int { return cmp.Compare(scores[b], scores[a]) })
		shown = shown[:min(c.Int("top"), len(shown))]
	}
	doc := countDoc{modelName(x.model), len(all), x.tok.Digest(), count.Cover(x.counts, x.kinds, count.TokenBytes(x.tok), all).Corpora, []tokenCount{}}
	for _, id := range shown {
		t := tokenCount{id, x.tok.Piece(id, true), x.kinds[id], nil, scores[id]}
		for _, k := range x.counts.Corpora {
			t.Counts = append(t.Counts, k.IDs[id])
		}
		doc.Tokens = append(doc.Tokens, t)
	}
	if c.Bool("json") {
		return printJSON(c, doc)
	}
	for _, v := range doc.Corpora {
		if _, err := fmt.Fprintf(c.App.Writer, "%s: %d tokens, %d of them different, in %d bytes of %d files\n", v.Name, v.Tokens, v.Distinct, v.Bytes, v.Files); err != nil {
			return err
		}
	}
	for _, t := range doc.Tokens {
		if _, err := fmt.Fprintf(c.App.Writer, "%8d %10s %q\n", t.ID, strings.Trim(fmt.Sprint(t.Counts), "[]"), t.Text); err != nil {
			return err
		}
	}
	return nil
}

// listDoc is the document of commands that make or look at a list.
type listDoc struct {
	Model     string        `json:"model"`
	Tokenizer digest.Digest `json:"tokenizer"`
	File      string        `json:"file,omitempty"`
	*count.Report
	IDs []int32 `json:"ids"`
}

// report writes a list and says what it is worth.
func (x *counting) report(r *count.Report, ids []int32) error {
	if err := x.write(ids); err != nil {
		return err
	}
	c := x.c
	if c.Bool("json") {
		return printJSON(c, listDoc{modelName(x.model), x.tok.Digest(), c.String("out"), r, ids})
	}
	for _, line := range r.Lines() {
		if _, err := fmt.Fprintln(c.App.Writer, line); err != nil {
			return err
		}
	}
	return nil
}

// choose counts and makes a list by rules.
func (x *counting) choose(kinds []count.Kind, r count.Rules) error {
	if err := x.count(); err != nil {
		return err
	}
	s, err := count.Select(x.counts, kinds, r)
	if err != nil {
		return usagef("%v", err)
	}
	s.Kinds = x.kinds
	return x.report(s.Report(x.counts, count.TokenBytes(x.tok)), s.IDs)
}

// rules reads the flags that all selections share.
func rules(c *cli.Context, needCount bool) (count.Rules, error) {
	r := count.Rules{Count: c.Int64("count"), MultipleOf: c.Int64("multiple-of")}
	switch {
	case r.Count < 0 || c.IsSet("count") && r.Count == 0:
		return r, usagef("--count %d: a number of tokens", r.Count)
	case needCount && r.Count == 0:
		return r, usagef("%s: --count is missing: how many tokens the list has", c.Command.Name)
	case r.MultipleOf < 0 || c.IsSet("multiple-of") && r.MultipleOf == 0:
		return r, usagef("--multiple-of %d: a number of tokens", r.MultipleOf)
	}
	return r, nil
}

func runTokensSelect(c *cli.Context) error {
	if c.NArg() < 2 {
		return usagef("tokens select: a model and a text; quern tokens select --help")
	}
	r, err := rules(c, false)
	if err != nil {
		return err
	}
	if r.MinCount = c.Int64("min-count"); r.MinCount < 0 {
		return usagef("--min-count %d: a number of tokens", r.MinCount)
	}
	if s := c.String("coverage"); s != "" {
		v, percent := recipes.ParsePercent(strings.TrimSpace(s))
		if !percent {
			v, err = strconv.ParseFloat(strings.TrimSpace(s), 64)
		}
		if err != nil || !(v > 0 && v <= 1) || !percent && v == 1 {
			return usagef("--coverage %s: a share such as 99.5%% or 0.995", s)
		}
		r.Coverage = v
	}
	if r.Count == 0 && r.MinCount == 0 && r.Coverage == 0 {
		return usagef("tokens select: --count, --min-count or --coverage says how many tokens are kept")
	}
	var ids []int32
	if c.IsSet("keep-ids") {
		if ids, err = parseIDs("keep-ids", c.String("keep-ids")); err != nil {
			return err
		}
	}
	x, err := openTexts(c, c.Args().First(), c.Args().Tail())
	if err != nil {
		return err
	}
	if r.Keep, err = count.TextIDs(x.tok, c.StringSlice("keep")); err != nil {
		return usagef("--keep: %v", err)
	}
	r.Keep = append(r.Keep, ids...)
	return x.choose(x.kinds, r)
}

// listed opens the list, the model and the texts of a command.
func listed(c *cli.Context) (*counting, *tokenlist.List, error) {
	if c.NArg() < 3 {
		return nil, nil, usagef("tokens %s: a list, a model and a text; quern tokens %s --help", c.Command.Name, c.Command.Name)
	}
	args := c.Args().Slice()
	x, err := openTexts(c, args[1], args[2:])
	if err != nil {
		return nil, nil, err
	}
	l, err := x.readTokens(args[0])
	return x, l, err
}

func runTokensCut(c *cli.Context) error {
	r, err := rules(c, true)
	if err != nil {
		return err
	}
	x, l, err := listed(c)
	if err != nil {
		return err
	}
	if r.Count > int64(len(l.IDs)) {
		return usagef("--count %d: the list has %d tokens; quern tokens extend makes it longer", r.Count, len(l.IDs))
	}
	// What the list has not is not to be had, and what has no frequency in it can
	// be kept all the same.
	kinds := make([]count.Kind, len(x.kinds))
	for id, k := range x.kinds {
		switch {
		case !l.Has(int32(id)):
			kinds[id] = count.Unused
		case k == count.Unused:
			kinds[id] = count.Text
		default:
			kinds[id] = k
		}
	}
	return x.choose(kinds, r)
}

func runTokensExtend(c *cli.Context) error {
	r, err := rules(c, true)
	if err != nil {
		return err
	}
	x, l, err := listed(c)
	if err != nil {
		return err
	}
	if r.Count < int64(len(l.IDs)) {
		return usagef("--count %d: the list has %d tokens already; quern tokens cut makes it shorter", r.Count, len(l.IDs))
	}
	r.Keep = l.IDs
	return x.choose(x.kinds, r)
}

func runTokensCover(c *cli.Context) error {
	x, l, err := listed(c)
	if err != nil {
		return err
	}
	if err := x.count(); err != nil {
		return err
	}
	return x.report(count.Cover(x.counts, x.kinds, count.TokenBytes(x.tok), l.IDs), l.IDs)
}
