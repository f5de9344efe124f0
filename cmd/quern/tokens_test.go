package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"quern/formats/tokenlist"
	"quern/tokenizer/count"
)

// tokenFile writes a file into a bench's own folder.
func tokenFile(t *testing.T, name, text string) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), name)
	check(t, os.WriteFile(p, []byte(text), 0o644))
	return p
}

func idsOf(t *testing.T, path string) *tokenlist.List {
	t.Helper()
	l, err := tokenlist.Parse(mustRead(t, path), tokenlist.Options{Name: path})
	check(t, err)
	return l
}

func TestTokensCount(t *testing.T) {
	b := newBench(t)
	var doc countDoc
	b.ok("tokens", "count", storiesModel(), evalStories(), "--json", "--all").json(t, &doc)
	if len(doc.Tokens) != 512 || doc.Vocabulary != 512 || len(doc.Corpora) != 1 || doc.Corpora[0].Name != "eval-stories" {
		t.Fatalf("%d tokens, %+v", len(doc.Tokens), doc.Corpora)
	}
	want := make([]uint64, 512)
	var ids tokenizeDoc
	b.ok("tokenize", storiesModel(), "-f", evalStories(), "--plain", "--json").json(t, &ids)
	for _, id := range ids.Tokens {
		want[id]++
	}
	for i, x := range doc.Tokens {
		if x.ID != int32(i) || x.Counts[0] != want[i] {
			t.Errorf("token %d: %d times, want %d", i, x.Counts[0], want[i])
		}
	}
	out := b.ok("tokens", "count", storiesModel(), "tales="+evalStories(), evalStories(), "--weight", "tales=2", "--top", "3").out
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 5 || !strings.HasPrefix(lines[0], "tales: 1908 tokens, 175 of them different") || !strings.HasPrefix(lines[1], "eval-stories: 1908 ") {
		t.Errorf("%q", lines)
	}
	for _, bad := range [][]string{
		{"tokens", "count", storiesModel()},
		{"tokens", "count", storiesModel(), evalStories(), evalStories()},
		{"tokens", "count", storiesModel(), evalStories(), "--weight", "other=2"},
		{"tokens", "count", storiesModel(), evalStories(), "--weight", "eval-stories=0"},
		{"tokens", "count", storiesModel(), evalStories(), "--weight", "eval-stories"},
		{"tokens", "count", storiesModel(), evalStories(), "--top", "-1"},
		{"tokens"}, {"tokens", "cuont"},
	} {
		b.fails(exitUsage, nil, bad...)
	}
	b.fails(exitSource, []string{"none.txt"}, "tokens", "count", storiesModel(), filepath.Join(t.TempDir(), "none.txt"))
	b.fails(exitSource, []string{"no text"}, "tokens", "count", storiesModel(), tokenFile(t, "empty.txt", ""))
}

func TestTokensLists(t *testing.T) {
	b := newBench(t)
	dir := t.TempDir()
	list, table := filepath.Join(dir, "keep.txt"), filepath.Join(dir, "keep.parquet")
	var doc struct {
		count.Report
		IDs  []int32
		File string
	}
	b.ok("tokens", "select", storiesModel(), evalStories(), "--count", "380", "--multiple-of", "32", "-o", list, "--parquet", table, "--json").json(t, &doc)
	l := idsOf(t, list)
	if len(l.IDs) != 384 || l.Vocab != 512 || l.Tokenizer.IsZero() || !slices.Equal(doc.IDs, l.IDs) || doc.Rounded != 4 || doc.File != list {
		t.Errorf("%d ids of %d, %d for the multiple", len(l.IDs), l.Vocab, doc.Rounded)
	}
	if !strings.HasPrefix(string(mustRead(t, table)), "PAR1") {
		t.Error("no table")
	}
	if out := b.ok("tokens", "select", storiesModel(), evalStories(), "--coverage", "95%").out; !strings.Contains(out, "of 1908 tokens") {
		t.Errorf("%q", out)
	}
	cut, longer := filepath.Join(dir, "cut.txt"), filepath.Join(dir, "longer.txt")
	b.ok("tokens", "cut", list, storiesModel(), evalStories(), "--count", "300", "-o", cut)
	b.ok("tokens", "extend", cut, storiesModel(), evalStories(), "--count", "384", "-o", longer)
	if got := idsOf(t, longer); !slices.Equal(got.IDs, l.IDs) {
		t.Errorf("cut and extended, it is another list")
	}
	for _, id := range idsOf(t, cut).IDs {
		if !l.Has(id) {
			t.Errorf("cutting has added token %d", id)
		}
	}
	if got := len(idsOf(t, cut).IDs); got != 300 {
		t.Errorf("%d tokens are left", got)
	}
	// Ids alone, between commas and in any order, are a list too.
	own := tokenFile(t, "own.txt", "500, 3, 258\n400 401\n")
	if out := b.ok("tokens", "cover", own, storiesModel(), evalStories()).out; !strings.Contains(out, "5 of 512 tokens: 0 special, 2 bytes") {
		t.Errorf("%q", out)
	}
	ext := filepath.Join(dir, "ext.txt")
	b.ok("tokens", "extend", own, storiesModel(), evalStories(), "--count", "262", "-o", ext)
	if got := idsOf(t, ext); len(got.IDs) != 262 || !got.Has(500) || !got.Has(400) || !got.Has(1) {
		t.Errorf("%d", got.IDs)
	}

	out := b.ok("tokens", "compare", list, cut, storiesModel(), evalStories(), "--ids").out
	if !strings.HasPrefix(out, "300 tokens in both, 84 only in "+list+", 0 only in "+cut+"\n") || strings.Count(out, "fall outside") != 2 {
		t.Errorf("%q", out)
	}
	var cmp compareDoc
	b.ok("tokens", "compare", cut, own, "--json").json(t, &cmp)
	if cmp.Both+len(cmp.OnlyA) != 300 || cmp.Both+len(cmp.OnlyB) != 5 || cmp.Equal {
		t.Errorf("%+v", cmp)
	}

	for _, c := range []struct {
		code int
		says string
		args []string
	}{
		{exitUsage, "--count", []string{"select", storiesModel(), evalStories()}},
		{exitUsage, "259 are kept in any case", []string{"select", storiesModel(), evalStories(), "--count", "10"}},
		{exitUsage, "--coverage", []string{"select", storiesModel(), evalStories(), "--coverage", "1"}},
		{exitUsage, "--coverage", []string{"select", storiesModel(), evalStories(), "--coverage", "120%"}},
		{exitUsage, "extend", []string{"cut", cut, storiesModel(), evalStories(), "--count", "301"}},
		{exitUsage, "cut makes", []string{"extend", cut, storiesModel(), evalStories(), "--count", "299"}},
		{exitUsage, "--count is missing", []string{"cut", cut, storiesModel(), evalStories()}},
		{exitUsage, "two lists", []string{"compare", cut}},
		{exitUsage, "choose another name", []string{"extend", cut, storiesModel(), evalStories(), "--count", "310", "-o", cut}},
		{exitSource, "id 512 is outside", []string{"cover", tokenFile(t, "o.txt", "# quern token list: vocabulary 512\n512\n"), storiesModel(), evalStories()}},
		{exitSource, "vocabulary ends with token 511", []string{"cover", tokenFile(t, "o.txt", "600\n"), storiesModel(), evalStories()}},
		{exitSource, "vocabulary of 500 tokens", []string{"cover", tokenFile(t, "o.txt", "# quern token list: vocabulary 500\n1\n"), storiesModel(), evalStories()}},
		{exitSource, "o.txt:2: ", []string{"compare", cut, tokenFile(t, "o.txt", "1\nx\n")}},
	} {
		b.fails(c.code, []string{c.says}, append([]string{"tokens"}, c.args...)...)
	}
	// Neither a list nor the text itself is written over.
	b.fails(exitUsage, []string{"choose another name"}, "tokens", "compare", list, cut, storiesModel(), evalStories(), "--parquet", cut)
	text := tokenFile(t, "text.txt", "Once upon a time")
	b.fails(exitUsage, []string{"choose another name"}, "tokens", "select", storiesModel(), text, "--count", "300", "-o", text)
	if string(mustRead(t, text)) != "Once upon a time" {
		t.Error("the text is gone")
	}
}
