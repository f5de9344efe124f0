package recipes

import "strconv"

// SelectTokens makes a list of the tokens that are frequent in texts.
type SelectTokens struct {
	Corpus     []Corpus
	Count      int64   // tokens to keep, 0 for no such number
	MinCount   int64   // leaves out rarer ones
	Coverage   float64 // share of the merged corpora to cover, 0 for none
	MultipleOf int64
	Keep       []string // texts whose tokens stay
	KeepIDs    []int64
}

// Corpus is texts that are counted together.
type Corpus struct {
	Source   string
	Name     string // in reports, the source's if empty
	Language string
	Weight   float64 // 0 for 1
	Coverage float64 // share of this corpus to cover, 0 for none
}

// TextSources are the sources that the recipe's steps read as texts, which may be
// folders.
func (r *Recipe) TextSources() map[string]bool {
	out := map[string]bool{}
	for _, s := range r.Steps {
		if p, ok := s.Params.(SelectTokens); ok {
			for _, c := range p.Corpus {
				out[c.Source] = true
			}
		}
	}
	return out
}

func selectTokensObject() *object {
	corpus := &object{
		name:    "corpus",
		doc:     "Texts that are counted together. A source's name will do in place of the mapping.",
		example: "{source: en, weight: 3}",
		short:   "source",
		new:     func() any { return new(Corpus) },
		fields: []field{
			{key: "source", goName: "Source", kind: kindSource, required: true, example: "en",
				doc: "The source with the texts: a file, a folder (dir) or a url. Texts may be compressed with gzip or Zstandard."},
			{key: "weight", goName: "Weight", kind: kindNumber, limited: true, min: 0, max: 1000000, noDef: "1", example: "3",
				doc: "How much the corpus counts beside others, whatever its size."},
			{key: "coverage", goName: "Coverage", kind: kindShare, limited: true, max: 1, noDef: "none", example: "99.5 %",
				doc: "The most frequent tokens of this corpus are kept until they make up this share of it."},
			{key: "name", goName: "Name", kind: kindName, noDef: "the source's name", example: "english",
				doc: "What reports and the table call it."},
			{key: "language", goName: "Language", kind: kindText, noDef: "not said", example: "English",
				doc: "What reports call it besides."},
		},
	}
	return &object{
		name: "select-tokens",
		doc: "Counts the tokens of texts and makes a list of those that a smaller head or vocabulary keeps, for steps behind it. The model stays as it is. " +
			"Special, byte and added tokens are always kept. See [tokens.md](tokens.md).",
		example: "select-tokens: {id: keep, corpus: [text], count: 384, multiple-of: 32}",
		new:     func() any { return new(SelectTokens) },
		anyOf:   [][]string{{"count", "min-count", "coverage"}},
		check:   checkSelectTokens,
		fields: []field{
			{key: "corpus", goName: "Corpus", kind: kindObject, list: true, object: corpus, required: true, example: "[{source: en, weight: 3}, code]",
				doc: "The texts, each corpus with its weight."},
			{key: "count", goName: "Count", kind: kindInt, limited: true, min: 1, max: 1 << 31, unit: "tokens", noDef: "no such number", example: "384",
				doc: "How many tokens are kept; with min-count or coverage the most."},
			{key: "min-count", goName: "MinCount", kind: kindInt, limited: true, min: 1, max: 1 << 62, unit: "tokens", noDef: "no such number", example: "5",
				doc: "Tokens that all texts together have fewer of are left out."},
			{key: "coverage", goName: "Coverage", kind: kindShare, limited: true, max: 1, noDef: "no such share", example: "99.5 %",
				doc: "The most frequent tokens are kept until they make up this share of the corpora, merged by weight."},
			{key: "multiple-of", goName: "MultipleOf", kind: kindInt, limited: true, min: 1, max: 1 << 20, unit: "tokens", noDef: "any number", example: "32",
				doc: "The next most frequent tokens are kept until their number is a multiple of this, so that the head's rows reach fast kernels."},
			{key: "keep", goName: "Keep", kind: kindText, list: true, noDef: "none", example: "['Once upon a time']",
				doc: "Texts whose tokens are kept, at the start of a text and behind a space."},
			{key: "keep-ids", goName: "KeepIDs", kind: kindInt, list: true, limited: true, min: 0, max: 1<<31 - 1, noDef: "none", example: "[17]",
				doc: "Ids that are kept."},
		},
	}
}

func checkSelectTokens(c *checker, v any, n *node, path string) {
	p := v.(*SelectTokens)
	x := n.get("corpus")
	if len(p.Corpus) == 0 {
		c.errorf(x.pos, join(path, "corpus"), "no texts")
	}
	seen := map[string]bool{}
	for i := range p.Corpus {
		k := &p.Corpus[i]
		at := join(path, "corpus."+strconv.Itoa(i))
		name := k.Name
		if name == "" {
			name = k.Source
		}
		if seen[name] {
			c.errorf(x.items[i].pos, at, "a corpus before is called %s; give one of them another name", name)
		}
		seen[name] = true
		item := x.items[i]
		if w := item.get("weight"); w != nil && !(k.Weight > 0) {
			c.errorf(w.pos, join(at, "weight"), "must be over 0; leave the corpus out")
		}
		if w := item.get("coverage"); w != nil && !(k.Coverage > 0) {
			c.errorf(w.pos, join(at, "coverage"), "must be over 0 %%")
		}
	}
	if w := n.get("coverage"); w != nil && !(p.Coverage > 0) {
		c.errorf(w.pos, join(path, "coverage"), "must be over 0 %%")
	}
}
