// Package count counts the tokens of text corpora and chooses which tokens a
// reduced output head or vocabulary keeps.
//
// Corpora are streamed: blocks of text are cut where no token goes across
// (tokenizer.Counter), counted on all cores, and added up. The numbers depend
// neither on the number of workers nor on where blocks end. Memory is some blocks
// of text and one table of words for each worker, which takes some 170 MiB after texts
// with a million different words, both short and long ones.
//
// Each file is a text of its own. Files may be compressed with gzip or Zstandard,
// which their first bytes tell.
package count

import (
	"context"
	"errors"
	"io"
)

var (
	// ErrCorpus marks text that cannot be counted.
	ErrCorpus = errors.New("bad corpus")
	// ErrSelect marks a selection that cannot be made.
	ErrSelect = errors.New("bad selection of tokens")
)

// A Corpus is texts that are counted together.
type Corpus struct {
	Name     string
	Language string // for reports, may be empty
	// Weight is how much the corpus counts beside others, 1 if 0.
	Weight float64
	// Cover is the share of the corpus' tokens that a selection must keep, 0
	// for none.
	Cover float64
	Files []File
}

func (c *Corpus) weight() float64 {
	if c.Weight == 0 {
		return 1
	}
	return c.Weight
}

// A File is one text.
type File struct {
	Name string
	Open func(ctx context.Context) (io.ReadCloser, error)
}

// Counts are the numbers of tokens of some corpora.
type Counts struct {
	Vocab   int
	Corpora []Tokens
}

// Tokens are the numbers of one corpus.
type Tokens struct {
	Name     string
	Language string
	Weight   float64
	Cover    float64
	Files    int
	Bytes    int64    // of text, without compression
	Total    uint64   // tokens
	IDs      []uint64 // how often each token came, by id
}
