// Package tokenlist reads and writes lists of token ids: the tokens that a
// reduced output head or vocabulary keeps.
//
//	# quern token list: vocabulary 262144, tokenizer sha256:<64 hex digits>
//	0
//	1
//	17
//
// The first line says which vocabulary the ids are of: how many ids it has and,
// where known, the digest of the tokenizer (Vocabulary.Digest of package
// tokenizer). Ids are decimal, ascending and each there once. What is written has
// one id a line and no other comments.
//
// Lists from elsewhere are read too. The first line may be missing, "#" starts a
// comment that ends with its line, and ids may be separated by any white space
// and by single commas.
package tokenlist

import (
	"errors"
	"fmt"
	"slices"

	"quern/internal/digest"
)

// MediaType is what manifests call such a file.
const MediaType = "application/vnd.quern.tokens"

// DefaultMaxBytes is the largest file that is read unless Options say otherwise:
// three million ids of seven digits.
const DefaultMaxBytes = 24 << 20

var (
	// ErrFormat marks text that is no list of token ids.
	ErrFormat = errors.New("bad token list")
	// ErrVocabulary marks a list whose ids are of another vocabulary than the
	// one it is used with.
	ErrVocabulary = errors.New("token list of another vocabulary")
	// ErrLimit marks a file over Options.MaxBytes.
	ErrLimit = errors.New("token list over the limit")
)

// ReadError says where in which file reading failed.
type ReadError struct {
	File string
	Line int // from 1
	Err  error
}

// Error joins file, line and cause.
func (e *ReadError) Error() string { return fmt.Sprintf("%s:%d: %v", e.File, e.Line, e.Err) }

// Unwrap gives the cause.
func (e *ReadError) Unwrap() error { return e.Err }

// A List is a set of token ids.
type List struct {
	// Vocab is how many ids the vocabulary has, 0 when that is not known.
	Vocab int64
	// Tokenizer identifies the vocabulary; the zero Digest when unknown.
	Tokenizer digest.Digest
	// IDs ascend. Each is there once.
	IDs []int32
}

// Has reports whether a list has an id.
func (l *List) Has(id int32) bool {
	_, ok := slices.BinarySearch(l.IDs, id)
	return ok
}

// Check makes sure that a list is one of a vocabulary: that its ids are under
// vocab, and that what its first line says of the vocabulary holds. A zero digest,
// here or in the list, is not compared.
func (l *List) Check(vocab int64, tokenizer digest.Digest) error {
	if l.Vocab != 0 && l.Vocab != vocab {
		return fmt.Errorf("%w: the list is of a vocabulary of %d tokens, this one has %d", ErrVocabulary, l.Vocab, vocab)
	}
	if !l.Tokenizer.IsZero() && !tokenizer.IsZero() && l.Tokenizer != tokenizer {
		return fmt.Errorf("%w: the list is of the tokenizer %s, this one is %s", ErrVocabulary, l.Tokenizer, tokenizer)
	}
	if n := len(l.IDs); n > 0 && int64(l.IDs[n-1]) >= vocab {
		return fmt.Errorf("%w: token %d is in the list, and the vocabulary ends with token %d", ErrVocabulary, l.IDs[n-1], vocab-1)
	}
	return nil
}

// validate is what writer and reader ask of a list.
func (l *List) validate() error {
	if l.Vocab < 0 || l.Vocab > maxVocab {
		return fmt.Errorf("%w: a vocabulary of %d tokens", ErrFormat, l.Vocab)
	}
	if l.Vocab == 0 && !l.Tokenizer.IsZero() {
		return fmt.Errorf("%w: a tokenizer without the size of its vocabulary", ErrFormat)
	}
	if len(l.IDs) == 0 {
		return fmt.Errorf("%w: no ids", ErrFormat)
	}
	for i, id := range l.IDs {
		if id < 0 {
			return fmt.Errorf("%w: id %d is negative", ErrFormat, id)
		}
		if i > 0 && l.IDs[i-1] >= id {
			return fmt.Errorf("%w: id %d comes after %d; ids ascend", ErrFormat, id, l.IDs[i-1])
		}
	}
	if last := l.IDs[len(l.IDs)-1]; l.Vocab != 0 && int64(last) >= l.Vocab {
		return fmt.Errorf("%w: id %d is outside the vocabulary of %d tokens", ErrFormat, last, l.Vocab)
	}
	return nil
}
