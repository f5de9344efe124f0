package tokenizer

import "errors"

var (
	// ErrFormat marks a tokenizer file that breaks its own format.
	ErrFormat = errors.New("malformed tokenizer file")
	// ErrUnsupported marks a tokenizer that is well formed but of a kind that
	// has no place in the target or is not implemented.
	ErrUnsupported = errors.New("unsupported tokenizer")
	// ErrUnknownPre marks a pre-tokenizer that no name stands for.
	ErrUnknownPre = errors.New("unknown pre-tokenizer")
	// ErrPreConflict marks a tokenizer whose probe hash belongs to one
	// pre-tokenizer and whose definition is that of another.
	ErrPreConflict = errors.New("pre-tokenizer hash and definition disagree")
	// ErrVocabSize marks vocabulary sizes that do not fit together.
	ErrVocabSize = errors.New("vocabulary sizes disagree")
	// ErrSpecialID marks a special token id that the vocabulary does not have.
	ErrSpecialID = errors.New("special token id outside the vocabulary")
	// ErrNoTokenizer marks a folder without any tokenizer file.
	ErrNoTokenizer = errors.New("no tokenizer file")
)
