package needle_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"quern/formats/cact"
	"quern/runtime/needle"
	"quern/tokenizer"
)

// TestTokenizer compares with the exporter's reference tokenizer.
func TestTokenizer(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(dir, "tokens.json"))
	if err != nil {
		t.Fatal(err)
	}
	var all map[string][]struct {
		Text    string
		IDs     []int32
		Decoded string
	}
	if err := json.Unmarshal(b, &all); err != nil {
		t.Fatal(err)
	}
	if len(all) != 3 {
		t.Fatalf("%d archives", len(all))
	}
	for name, cases := range all {
		k, err := openArchive(t, name+".cact").Tokenizer()
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range cases {
			ids, err := k.Encode(c.Text, tokenizer.EncodeOptions{})
			if err != nil || !slices.Equal(ids, c.IDs) {
				t.Errorf("%s: %q gives %v, %v, want %v", name, c.Text, ids, err, c.IDs)
			}
			if got := k.Decode(c.IDs, tokenizer.DecodeOptions{}); got != c.Decoded {
				t.Errorf("%s: %v reads %q, want %q", name, c.IDs, got, c.Decoded)
			}
			with, err := k.Encode(c.Text, tokenizer.EncodeOptions{Special: true})
			if err != nil || !slices.Equal(with, append([]int32{2}, c.IDs...)) {
				t.Errorf("%s: %q with BOS gives %v, %v", name, c.Text, with, err)
			}
			if got := k.Decode(with, tokenizer.DecodeOptions{Trim: true, Special: true}); got != c.Decoded {
				t.Errorf("%s: %v reads %q with special pieces, want %q", name, with, got, c.Decoded)
			}
		}
		if !k.IsEnd(1) || k.IsEnd(2) || k.BOS() != 2 || !k.AddsBOS() {
			t.Errorf("%s: ends with 1: %v, BOS is %d", name, k.IsEnd(1), k.BOS())
		}
		if got := k.Piece(2, true); got == "" || k.Piece(2, false) != "" || k.Piece(-1, true) != "" || k.Piece(1<<30, true) != "" {
			t.Errorf("%s: BOS reads %q", name, got)
		}
		if ids, err := k.Encode("a"+k.Piece(2, true)+"b", tokenizer.EncodeOptions{Parse: true}); err != nil || !slices.Contains(ids, 2) {
			t.Errorf("%s: BOS in the text gives %v, %v", name, ids, err)
		}
	}
}

func TestTokenizerRefuses(t *testing.T) {
	for _, v := range []*cact.Tokenizer{
		{},
		{EOS: 1, BOS: 0, Unk: 0, Pieces: []cact.Piece{{Text: "a"}}},
		{Pieces: []cact.Piece{{Text: "<0xZZ>", Type: cact.Byte}}},
		{Pieces: []cact.Piece{{Text: "x", Type: cact.Byte}}},
		{Pieces: []cact.Piece{{Text: "", Type: cact.UserDefined}}},
	} {
		if _, err := needle.NewTokenizer(v); !errors.Is(err, needle.ErrVocabulary) {
			t.Errorf("%+v: %v", v, err)
		}
	}
}
