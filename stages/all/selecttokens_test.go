package all_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"
	pqfile "github.com/apache/arrow/go/v17/parquet/file"
	"github.com/apache/arrow/go/v17/parquet/pqarrow"

	"quern/artifacts"
	"quern/artifacts/local"
	"quern/formats/tokenlist"
	"quern/pipeline"
	"quern/runtime/load"
	"quern/stages/source"
	"quern/tokenizer"
	"quern/tokenizer/count"
)

const selectRecipe = `version: 1
name: heads
sources:
  base: {dir: x}
  text: {file: x}
steps:
  - select-tokens: {id: keep, corpus: [text], count: 384, multiple-of: 32}
  - quantize: {type: Q8_0, fallback: F16}
outputs:
  - {format: gguf, file: out.gguf}
`

// selected builds a recipe and gives the list that its step made.
func selected(t *testing.T, recipe string, store pipeline.Store, set ...string) (*tokenlist.List, pipeline.ProductReport, *pipeline.Result) {
	t.Helper()
	res, err := build1(t.Context(), t, recipe, sourceEnv(), pipeline.BuildOptions{OutDir: t.TempDir(), Store: store}, set...)
	if err != nil {
		t.Fatal(err)
	}
	if len(res.Products) != 1 {
		t.Fatalf("%d products", len(res.Products))
	}
	return nil, res.Products[0], res
}

// expect counts plainly and picks the most frequent.
func expectTokens(t *testing.T, tok *tokenizer.Tokenizer, n int, texts ...string) []int32 {
	t.Helper()
	counts := make([]int, len(tok.Vocabulary().Tokens))
	for _, text := range texts {
		ids, err := tok.Encode(text, tokenizer.EncodeOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range ids {
			counts[id]++
		}
	}
	var out, rest []int32
	for id := range counts {
		if id < 259 { // <unk>, <s>, </s> and the bytes
			out = append(out, int32(id))
		} else {
			rest = append(rest, int32(id))
		}
	}
	slices.SortStableFunc(rest, func(a, b int32) int { return counts[b] - counts[a] })
	out = append(out, rest[:n-len(out)]...)
	slices.Sort(out)
	return out
}

// TestSelectTokens: the list is what plain counting gives, it is kept with its
// table and its report, and found again; a folder of compressed texts, a GGUF base
// and another number of jobs change nothing.
func TestSelectTokens(t *testing.T) {
	text, err := filepath.Abs(filepath.Join(testdata, "text/eval-stories.txt"))
	if err != nil {
		t.Fatal(err)
	}
	dir := folder(t, "stories-moe")
	s, err := local.Open(t.Context(), t.TempDir(), local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	store := pipeline.Keep(s, artifacts.Tool{Name: "test", Version: "1"})
	_, p, res := selected(t, selectRecipe, store, "sources.base.dir="+dir, "sources.text.file="+text)
	tok, err := load.Tokenizer(t.Context(), res.Outputs[0].Path)
	if err != nil {
		t.Fatal(err)
	}
	x := tok.(*tokenizer.Tokenizer)
	want := &tokenlist.List{Vocab: 512, Tokenizer: x.Vocabulary().Digest(), IDs: expectTokens(t, x, 384, string(readAll(t, text)))}
	bytesOf := func(l *tokenlist.List) []byte {
		b, err := l.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	kept := func(name string) map[string][]byte {
		t.Helper()
		d, err := s.Resolve(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		b, err := artifacts.ReadBuild(t.Context(), s, d)
		if err != nil {
			t.Fatal(err)
		}
		out := map[string][]byte{}
		for _, o := range b.Outputs {
			blob, err := s.Open(t.Context(), o.Digest)
			if err != nil {
				t.Fatal(err)
			}
			data := make([]byte, blob.Size())
			if _, err := blob.ReadAt(data, 0); err != nil {
				t.Fatal(err)
			}
			blob.Close()
			out[o.File] = data
		}
		return out
	}
	files := kept("heads.keep")
	if !bytes.Equal(files["tokens.txt"], bytesOf(want)) {
		t.Errorf("the list is\n%s\nwant\n%s", files["tokens.txt"], bytesOf(want))
	}
	if p.Name != "keep" || len(p.Lines) != 2 || p.Lines[0] != "384 of 512 tokens: 3 special, 256 bytes, 0 added, 125 more" || !strings.HasPrefix(p.Lines[1], "text: 5.5 % of 1908 tokens and ") {
		t.Errorf("%q says %q", p.Name, p.Lines)
	}
	if r := p.Report.(*count.Report); r.Corpora[0].Tokens != 1908 || r.Corpora[0].Outside != 105 {
		t.Errorf("%+v", r)
	}
	checkTable(t, files["tokens.parquet"], x, want)

	// Again, from the store.
	events := &recorded{}
	again, err := build1(t.Context(), t, selectRecipe, sourceEnv(), pipeline.BuildOptions{OutDir: t.TempDir(), Store: store, Events: events}, "sources.base.dir="+dir, "sources.text.file="+text)
	if err != nil {
		t.Fatal(err)
	}
	if events.has("making keep") || fmt.Sprint(again.Products[0].Lines) != fmt.Sprint(p.Lines) {
		t.Errorf("the second build says %q, with %q", again.Products[0].Lines, events.messages)
	}

	// A folder with the text in two halves, compressed. Each file begins anew.
	content := string(readAll(t, text))
	at := strings.Index(content[len(content)/2:], "\n\n") + len(content)/2 + 2
	texts := t.TempDir()
	for name, part := range map[string]string{"a/1.txt": content[:at], "b.txt.gz": content[at:]} {
		var buf bytes.Buffer
		buf.WriteString(part)
		if strings.HasSuffix(name, ".gz") {
			buf.Reset()
			z := gzip.NewWriter(&buf)
			z.Write([]byte(part))
			z.Close()
		}
		if err := os.MkdirAll(filepath.Join(texts, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(texts, name), buf.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	halves := &tokenlist.List{Vocab: 512, Tokenizer: want.Tokenizer, IDs: expectTokens(t, x, 384, content[:at], content[at:])}
	for _, set := range [][]string{
		{"sources.base.dir=" + dir, "sources.text.dir=" + texts},
		{"sources.base.gguf=" + res.Outputs[0].Path, "sources.text.file=" + texts},
	} {
		recipe := selectRecipe
		if strings.Contains(set[0], "gguf") {
			recipe = strings.Replace(recipe, "  - quantize: {type: Q8_0, fallback: F16}\n", "", 1)
		}
		_, p, _ := selected(t, recipe, store, set...)
		if got := kept("heads.keep"); !bytes.Equal(got["tokens.txt"], bytesOf(halves)) {
			t.Errorf("%q: another list", set)
		}
		if r := p.Report.(*count.Report); r.Corpora[0].Files != 2 {
			t.Errorf("%d files", r.Corpora[0].Files)
		}
	}
}

// recorded keeps what events say.
type recorded struct{ messages []string }

func (r *recorded) Event(e pipeline.Event) {
	if e.Kind == pipeline.EventPhase {
		r.messages = append(r.messages, e.Message)
	}
}

func (r *recorded) has(s string) bool { return slices.Contains(r.messages, s) }

// checkTable reads the table with the library's own reader.
func checkTable(t *testing.T, b []byte, tok *tokenizer.Tokenizer, want *tokenlist.List) {
	t.Helper()
	f, err := pqfile.NewParquetReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	r, err := pqarrow.NewFileReader(f, pqarrow.ArrowReadProperties{}, memory.NewGoAllocator())
	if err != nil {
		t.Fatal(err)
	}
	table, err := r.ReadTable(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer table.Release()
	var names []string
	for _, f := range table.Schema().Fields() {
		names = append(names, f.Name)
	}
	if want := []string{"id", "token", "bytes", "kind", "count_text", "weight", "kept"}; !slices.Equal(names, want) {
		t.Fatalf("columns %q, want %q", names, want)
	}
	col := func(i int) any { return table.Column(i).Data().Chunk(0) }
	var total int64
	for i := range int(table.NumRows()) {
		total += col(4).(*array.Int64).Value(i)
		if col(0).(*array.Int64).Value(i) != int64(i) || col(6).(*array.Boolean).Value(i) != want.Has(int32(i)) || string(col(2).(*array.Binary).Value(i)) != tok.Piece(int32(i), true) {
			t.Errorf("row %d is not of token %d", i, i)
		}
	}
	if table.NumRows() != 512 || total != 1908 || col(1).(*array.String).Value(3+0x0A) != "\n" || col(3).(*array.String).Value(3) != "byte" || col(3).(*array.String).Value(1) != "special" {
		t.Errorf("%d rows, %d tokens", table.NumRows(), total)
	}
}

// TestSelectTokensByWeight: two corpora, by weights and by their own coverage, and
// tokens that are asked for.
func TestSelectTokensByWeight(t *testing.T) {
	dir := folder(t, "stories-moe")
	texts := t.TempDir()
	for name, text := range map[string]string{"a.txt": strings.Repeat("Once upon a time there was a little girl. ", 50), "b.txt": "The dog said no."} {
		if err := os.WriteFile(filepath.Join(texts, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	run := func(step string) *count.Report {
		t.Helper()
		recipe := strings.Replace(selectRecipe, "{id: keep, corpus: [text], count: 384, multiple-of: 32}", step, 1)
		recipe = strings.Replace(recipe, "  text: {file: x}\n", fmt.Sprintf("  a: {file: %q}\n  b: {file: %q}\n", filepath.Join(texts, "a.txt"), filepath.Join(texts, "b.txt")), 1)
		_, p, _ := selected(t, recipe, nil, "sources.base.dir="+dir)
		return p.Report.(*count.Report)
	}
	// Both sides have more tokens than there is room for.
	light, heavy := run("{corpus: [a, b], count: 264}"), run("{corpus: [a, {source: b, weight: 9, language: dogs}], count: 264}")
	if light.Corpora[0].OutsideShare >= heavy.Corpora[0].OutsideShare || light.Corpora[1].OutsideShare <= heavy.Corpora[1].OutsideShare {
		t.Errorf("weights change nothing: %+v, %+v", light.Corpora, heavy.Corpora)
	}
	if heavy.Corpora[1].Language != "dogs" || heavy.Corpora[1].Weight != 9 {
		t.Errorf("%+v", heavy.Corpora[1])
	}
	if r := run("{corpus: [{source: a, coverage: 100 %}, {source: b, name: dog}], min-count: 1000}"); r.Corpora[0].Outside != 0 || r.Corpora[1].Outside == 0 || r.Corpora[1].Name != "dog" {
		t.Errorf("%+v", r.Corpora)
	}
	if r := run("{corpus: [a, b], coverage: 100 %}"); r.Corpora[0].Outside+r.Corpora[1].Outside != 0 || r.Text >= 253 {
		t.Errorf("%+v", r)
	}
	if r := run("{corpus: [a, b], count: 270, keep: [dragon], keep-ids: [500]}"); r.Kept != 270 {
		t.Errorf("%+v", r)
	}
}

func TestSelectTokensFaults(t *testing.T) {
	dir := folder(t, "stories-moe")
	text := filepath.Join(t.TempDir(), "t.txt")
	if err := os.WriteFile(text, []byte("Once upon a time"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, step, text string
		want             error
		says             string
	}{
		{"too few", "{corpus: [text], count: 100}", text, pipeline.ErrRecipe, "259 are kept in any case"},
		{"too many", "{corpus: [text], count: 1000}", text, pipeline.ErrRecipe, "512 that can be kept"},
		{"no multiple", "{corpus: [text], count: 510, multiple-of: 1000}", text, pipeline.ErrRecipe, "multiple of 1000"},
		{"no such id", "{corpus: [text], count: 300, keep-ids: [512]}", text, pipeline.ErrRecipe, "ends with token 511"},
		{"a model", "{corpus: [base, text], count: 300}", text, nil, "config.json: "},
		{"no text", "{corpus: [text], count: 300}", os.DevNull, pipeline.ErrSource, ""},
	} {
		recipe := strings.Replace(selectRecipe, "{id: keep, corpus: [text], count: 384, multiple-of: 32}", c.step, 1)
		_, err := build1(t.Context(), t, recipe, source.Env{}, pipeline.BuildOptions{OutDir: t.TempDir()}, "sources.base.dir="+dir, "sources.text.file="+c.text)
		if c.name == "a model" {
			if err == nil {
				t.Errorf("%s: built", c.name)
			}
			continue
		}
		if err == nil || !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
