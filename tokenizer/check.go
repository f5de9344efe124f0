package tokenizer

import "fmt"

// Sizes are the four numbers that must agree before a model is written; 0 means
// unknown or absent (HeadRows is 0 for a tied head).
type Sizes struct {
	Config    int64 // vocab_size of config.json
	Tokenizer int64 // ids the tokenizer files define: Vocabulary.Size
	Embedding int64 // rows of the token embedding
	Head      int64 // rows of the output head
}

// Check compares the sizes. Rows without an id are fine up to the declared
// size, which the converter fills with unused tokens; an id without a row is
// not, and neither is a head of another height than the embedding. missing
// lists the first texts of ids past the rows, from v.Tokens.
func (s Sizes) Check(v *Vocabulary) error {
	declared := s.Config
	if declared == 0 {
		declared = s.Tokenizer
	}
	if s.Head != 0 && s.Embedding != 0 && s.Head != s.Embedding {
		return fmt.Errorf("the embedding has %d rows, the output head %d: %w", s.Embedding, s.Head, ErrVocabSize)
	}
	if s.Embedding != 0 && s.Tokenizer > s.Embedding {
		return fmt.Errorf("the tokenizer has %d ids, the embedding %d rows; ids without rows: %s (drop the ids or pad the rows): %w",
			s.Tokenizer, s.Embedding, v.sample(s.Embedding, s.Tokenizer), ErrVocabSize)
	}
	if s.Config != 0 && s.Tokenizer > s.Config {
		return fmt.Errorf("the tokenizer has %d ids, config.json says vocab_size %d; ids past it: %s: %w",
			s.Tokenizer, s.Config, v.sample(s.Config, s.Tokenizer), ErrVocabSize)
	}
	if s.Embedding != 0 && declared != s.Embedding {
		return fmt.Errorf("config.json says vocab_size %d, the embedding has %d rows, the tokenizer %d ids: %w",
			declared, s.Embedding, s.Tokenizer, ErrVocabSize)
	}
	return nil
}

// sample names up to eight ids of [from, to).
func (v *Vocabulary) sample(from, to int64) string {
	out := ""
	for id := from; id < to; id++ {
		if id == from+8 {
			return fmt.Sprintf("%s and %d more", out, to-id)
		}
		if out != "" {
			out += ", "
		}
		text := ""
		if v != nil && id < int64(len(v.Tokens)) {
			text = fmt.Sprintf(" %q", v.Tokens[id])
		}
		out += fmt.Sprintf("%d%s", id, text)
	}
	return out
}
