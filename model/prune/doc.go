// Package prune cuts what a model can say: the rows of its output head alone, or
// the vocabulary with tokenizer, embedding and head together.
//
// A pruned head is two tensors in place of one:
//
//	output.weight  [n, hidden]  rows of the whole head, any type, bytes untouched
//	output_ids     [n] I32      the token that each row stands for, ascending
//	output.bias    [n]          where the head has one
//
// The logit of token output_ids[i] is row i's, that of any other token -Inf. The
// embedding keeps all rows, so every text can be read. A head that was the embedding
// (tied) becomes a matrix of its own, and the key
//
//	quern.output_ids.tied  bool  true
//
// says so: as long as both have one type, rows that are gone can be had back from the
// embedding. In Hugging Face form the tensors are lm_head.weight, lm_head.bias and
// output_ids.
//
// A pruned vocabulary leaves an ordinary model with fewer tokens. Two keys tell
// where they come from (package tokenizer):
//
//	tokenizer.quern.ids         [i32]  of each token, its id in the vocabulary before
//	tokenizer.quern.vocab_size  u32    how many tokens that one had
package prune

import "errors"

// OutputIDs is the name of the tensor that says which tokens a pruned head's rows
// stand for.
const OutputIDs = "output_ids"

// KeyTied marks a pruned head whose rows are those of the embedding.
const KeyTied = "quern.output_ids.tied"

var (
	// ErrPrune marks a model that cannot be pruned as asked.
	ErrPrune = errors.New("cannot prune")
	// ErrGone marks rows that an earlier pruning has thrown away.
	ErrGone = errors.New("rows are gone")
)
