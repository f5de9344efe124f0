// Command tokens encodes and decodes what it reads, so that programs in other
// languages can hold package tokenizer against its peers.
//
//	tokens gguf FILE     by the vocabulary of a GGUF file, as llama.cpp does
//	tokens folder DIR    by a model folder's vocabulary as it would be converted
//	tokens source DIR    by the folder's tokenizer.json, as the library does that made it
//
// Texts come on stdin, a u32 with the length before each. For each there is a
// line of JSON: ids without special tokens around and taken for plain text, ids with
// special tokens in the text taken for these, and the texts that these decode to
// (empty with source), as whole and as a stream gives it.
package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"quern/runtime/load"
	"quern/tokenizer"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "tokens:", err)
		os.Exit(1)
	}
}

type answer struct {
	Plain    []int32 `json:"plain"`
	Parsed   []int32 `json:"parsed"`
	Text     string  `json:"text"`
	Streamed string  `json:"streamed"`
}

func run(ctx context.Context, args []string) error {
	if len(args) != 2 {
		return errors.New("usage: tokens gguf FILE | folder DIR | source DIR")
	}
	encode, err := open(ctx, args[0], args[1])
	if err != nil {
		return err
	}
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	lines := json.NewEncoder(out)
	in := bufio.NewReader(os.Stdin)
	for {
		var n uint32
		if err := binary.Read(in, binary.LittleEndian, &n); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		text := make([]byte, n)
		if _, err := io.ReadFull(in, text); err != nil {
			return err
		}
		a, err := encode(string(text))
		if err != nil {
			return fmt.Errorf("%q: %w", text, err)
		}
		if err := lines.Encode(a); err != nil {
			return err
		}
	}
}

func open(ctx context.Context, kind, path string) (func(string) (answer, error), error) {
	if kind == "gguf" {
		t, err := load.Tokenizer(ctx, path)
		if err != nil {
			return nil, err
		}
		return by(t.(*tokenizer.Tokenizer)), nil
	}
	config, err := os.ReadFile(filepath.Join(path, "config.json"))
	if err != nil {
		return nil, err
	}
	cfg, err := tokenizer.ParseConfig("config.json", config)
	if err != nil {
		return nil, err
	}
	if kind == "source" {
		s, err := tokenizer.OpenSource(ctx, folder(path), cfg)
		if err != nil {
			return nil, err
		}
		return func(text string) (a answer, err error) {
			a.Parsed, err = s.Encode(text, false)
			a.Plain = []int32{}
			return a, err
		}, nil
	}
	v, err := tokenizer.Load(ctx, folder(path), cfg, tokenizer.LoadOptions{})
	if err != nil {
		return nil, err
	}
	t, err := tokenizer.New(v)
	if err != nil {
		return nil, err
	}
	return by(t), nil
}

func by(t *tokenizer.Tokenizer) func(string) (answer, error) {
	return func(text string) (a answer, err error) {
		if a.Plain, err = t.Encode(text, tokenizer.EncodeOptions{}); err != nil {
			return a, err
		}
		if a.Parsed, err = t.Encode(text, tokenizer.EncodeOptions{Parse: true}); err != nil {
			return a, err
		}
		a.Text = t.Decode(a.Parsed, tokenizer.DecodeOptions{Special: true})
		var b strings.Builder
		s := t.NewStream(true)
		for _, id := range a.Parsed {
			b.WriteString(s.Next(id))
		}
		a.Streamed = b.String() + s.Flush()
		return a, nil
	}
}

// folder reads files of a model folder.
type folder string

func (f folder) ReadFile(_ context.Context, path string, limit int64) ([]byte, error) {
	b, err := os.ReadFile(filepath.Join(string(f), filepath.FromSlash(path)))
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("%s is too long", path)
	}
	return b, err
}
