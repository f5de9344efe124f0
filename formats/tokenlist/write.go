package tokenlist

import (
	"io"
	"strconv"
)

// Write writes a list in its one canonical form. A list whose ids do not ascend,
// are negative or outside the vocabulary is an error of ErrFormat, and nothing is
// written.
func (l *List) Write(w io.Writer) error {
	b, err := l.Bytes()
	if err != nil {
		return err
	}
	_, err = w.Write(b)
	return err
}

// Bytes is what Write writes.
func (l *List) Bytes() ([]byte, error) {
	if err := l.validate(); err != nil {
		return nil, err
	}
	b := make([]byte, 0, 128+8*len(l.IDs))
	if l.Vocab != 0 {
		b = append(b, header+" vocabulary "...)
		b = strconv.AppendInt(b, l.Vocab, 10)
		if !l.Tokenizer.IsZero() {
			b = append(b, ", tokenizer "...)
			b = append(b, l.Tokenizer.String()...)
		}
		b = append(b, '\n')
	}
	for _, id := range l.IDs {
		b = strconv.AppendInt(b, int64(id), 10)
		b = append(b, '\n')
	}
	return b, nil
}
