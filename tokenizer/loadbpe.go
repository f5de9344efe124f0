package tokenizer

import "fmt"

func (t *hfTokenizer) isByteFallback() bool {
	return t != nil && t.model.kind == "BPE" && t.model.byteFallback
}

func (l *loader) bpe() error {
	return fmt.Errorf("byte-level BPE: %w", ErrUnsupported)
}

func (l *loader) byteFallback() error {
	return fmt.Errorf("BPE with byte fallback: %w", ErrUnsupported)
}
