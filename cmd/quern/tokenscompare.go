package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"quern/formats/tokenlist"
	"quern/pipeline"
	"quern/tokenizer/count"
)

// compareDoc is the document of quern tokens compare --json.
type compareDoc struct {
	Files  [2]string `json:"files"`
	Sizes  [2]int    `json:"sizes"`
	Both   int       `json:"both"`
	OnlyA  []int32   `json:"only_first"`
	OnlyB  []int32   `json:"only_second"`
	Equal  bool      `json:"equal"`
	CoverA any       `json:"cover_first,omitempty"`
	CoverB any       `json:"cover_second,omitempty"`
}

func runTokensCompare(c *cli.Context) error {
	args := c.Args().Slice()
	if len(args) < 2 || len(args) == 3 {
		return usagef("tokens compare: two lists, or two lists, a model and a text; quern tokens compare --help")
	}
	doc := compareDoc{Files: [2]string{args[0], args[1]}, OnlyA: []int32{}, OnlyB: []int32{}}
	var lists [2]*tokenlist.List
	for i := range lists {
		l, err := readTokenList(args[i])
		if err != nil {
			return err
		}
		lists[i], doc.Sizes[i] = l, len(l.IDs)
	}
	a, b := lists[0], lists[1]
	if b.Vocab != 0 && a.Vocab != 0 {
		if err := a.Check(b.Vocab, b.Tokenizer); err != nil {
			return pipeline.SourceFault(fmt.Errorf("%s and %s: %w", args[0], args[1], err))
		}
	}
	for _, id := range a.IDs {
		if b.Has(id) {
			doc.Both++
		} else {
			doc.OnlyA = append(doc.OnlyA, id)
		}
	}
	for _, id := range b.IDs {
		if !a.Has(id) {
			doc.OnlyB = append(doc.OnlyB, id)
		}
	}
	doc.Equal = len(doc.OnlyA)+len(doc.OnlyB) == 0
	var covers [2]*count.Report
	if len(args) > 2 {
		x, err := openTexts(c, args[2], args[3:])
		if err != nil {
			return err
		}
		for i, l := range lists {
			if err := x.check(args[i], l); err != nil {
				return err
			}
		}
		if err := x.count(); err != nil {
			return err
		}
		size := count.TokenBytes(x.tok)
		for i, l := range lists {
			covers[i] = count.Cover(x.counts, x.kinds, size, l.IDs)
		}
		doc.CoverA, doc.CoverB = covers[0], covers[1]
		if err := x.write(a.IDs); err != nil {
			return err
		}
	}
	if c.Bool("json") {
		return printJSON(c, doc)
	}
	w := c.App.Writer
	if _, err := fmt.Fprintf(w, "%d tokens in both, %d only in %s, %d only in %s\n", doc.Both, len(doc.OnlyA), args[0], len(doc.OnlyB), args[1]); err != nil {
		return err
	}
	if c.Bool("ids") {
		for i, only := range [][]int32{doc.OnlyA, doc.OnlyB} {
			if _, err := fmt.Fprintf(w, "%s: %s\n", args[i], joinIDs(only)); err != nil {
				return err
			}
		}
	}
	for i, r := range covers {
		if r == nil {
			continue
		}
		for _, line := range r.Lines() {
			if _, err := fmt.Fprintf(w, "%s: %s\n", args[i], line); err != nil {
				return err
			}
		}
	}
	return nil
}
