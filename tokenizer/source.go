package tokenizer

import (
	"context"
	"fmt"
)

// A Source encodes text by the tokenizer.json of a model in Hugging Face form,
// as the library it was trained with does. It is what the ids of a written file
// are held against. It is not safe for concurrent use.
type Source struct{ auto *autoTokenizer }

// OpenSource reads the tokenizer files. With a tokenizer.model alone the error
// is ErrUnsupported: there is nothing to compare with.
func OpenSource(ctx context.Context, files Files, cfg Config) (*Source, error) {
	l := &loader{ctx: ctx, files: files, cfg: cfg, v: &Vocabulary{keys: newKeyList()}}
	if err := l.readSideFiles(); err != nil {
		return nil, err
	}
	if err := l.needTokenizer(); err != nil {
		return nil, fmt.Errorf("nothing to compare with: %w", err)
	}
	a, err := l.auto()
	if err != nil {
		return nil, err
	}
	return &Source{a}, nil
}

// Encode gives the ids of a text; special adds what the post-processor adds.
func (s *Source) Encode(text string, special bool) ([]int32, error) {
	return s.auto.enc.encode(text, special)
}

// A Difference is a text that two tokenizers see differently.
type Difference struct {
	Text      string
	Want, Got []int32
}

// Compare encodes texts with a source and a tokenizer and returns where they
// differ. BOS and EOS are left out, special tokens in a text are taken for
// these.
func Compare(want *Source, got *Tokenizer, texts []string) ([]Difference, error) {
	var out []Difference
	for _, text := range texts {
		w, err := want.Encode(text, false)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", text, err)
		}
		g, err := got.Encode(text, EncodeOptions{Parse: true})
		if err != nil {
			return nil, fmt.Errorf("%q: %w", text, err)
		}
		if !sameIDs(w, g) {
			out = append(out, Difference{text, w, g})
		}
	}
	return out, nil
}

func sameIDs(a, b []int32) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// SampleTexts are texts on which tokenizers that only look alike differ:
// accents, scripts, emoji, digits, spaces, line ends, contractions. All are in
// composed form (NFC), since GGUF readers do not normalize.
func SampleTexts() []string {
	return []string{
		"Hello world", "hello", " hello", "  hello", "hello ", "hello  ", "Hello, y'all! How are you?",
		"don't we'll I'd they've you're it's I'm", "DON'T WE'LL I'D", "'tis rock'n'roll",
		"1", "12", "123", "1234", "1234567", "3.14159 1,000,000", "\u00bd \u00b2 \u0663\u0664 \u0967\u0968",
		"\n", "\n\n", "a\nb", "a\n\n\nb", "a \n b", "\t\tx", "line\r\nend", "   ", " \n \t ",
		"caf\u00e9 na\u00efve \u00dcber", "Stra\u00dfe \u0130stanbul", "\u043d\u0435\u0449\u043e \u043d\u0430",
		"\u4f60\u597d\uff0c\u4e16\u754c", "\u65e5\u672c\u8a9e\u306e\u30c6\u30b9\u30c8", "\ud55c\uad6d\uc5b4", "\u0645\u0631\u062d\u0628\u0627",
		"\u0939\u093f\u0928\u094d\u0926\u0940", "\u0e44\u0e17\u0e22", "\U0001f680 \u2705", "\U0001f636\u200d\U0001f32b\ufe0f", "\U0001f1e6\U0001f1f9",
		"!!!???...", "(a)[b]{c}<d>", "a/b\\c|d~e@f#g", "https://example.org/p?q=1&r=2", "def f(x):\n    return x**2\n",
		"{\"key\": [1, 2]}", "MiXeD CaSe HTTPServer", "a\u00a0b\u3000c", "-----=====+++++", "\u201cquoted\u201d \u2018text\u2019",
	}
}
