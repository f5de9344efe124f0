package needle

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"quern/formats/cact"
	"quern/tensor"
	"quern/tensor/quant"
)

// TestSpeechAdapter: an adapter that does not fit a speech model's vocabulary, or is
// for a model of another kind, is refused and says why.
func TestSpeechAdapter(t *testing.T) {
	m := checkpoint(t, "whistle")
	k, err := ConfigOf(m)
	if err != nil || k.Speech == nil || k.Vocab != 402 || !slices.Equal(k.Speech.Languages, []string{"en", "de"}) {
		t.Fatal(k, err)
	}
	rows := func(n int64) *tensor.Tensor { return numbersOf("rows", tensor.Shape{n, 64}) }
	for _, c := range []struct {
		name string
		a    Adapter
		text string
	}{
		{"of a text model", Adapter{}, "model of text"},
		{"other languages", Adapter{Languages: []string{"de", "en"}}, "begin with"},
		{"rows that nothing names", Adapter{Languages: []string{"en", "de"}, Rows: rows(1)}, "1 rows for 0 pieces"},
		{"a piece without a row", Adapter{Languages: []string{"en", "de"}, Pieces: []string{"zz"}}, "0 rows for 1 pieces"},
		{"rows of another width", Adapter{Languages: []string{"en", "de", "pt"}, Rows: numbersOf("rows", tensor.Shape{1, 32})}, "64 values"},
	} {
		if _, err := Merge(m, &c.a); !errors.Is(err, ErrAdapter) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if _, err := Merge(third(t, nil), &Adapter{Languages: []string{"en"}}); !errors.Is(err, ErrAdapter) || !strings.Contains(err.Error(), "speech") {
		t.Errorf("a speech adapter for text: %v", err)
	}
	if _, err := Width(m, 32); !errors.Is(err, ErrSlice) {
		t.Errorf("half of a speech model: %v", err)
	}
	out, err := Merge(m, &Adapter{Languages: []string{"en", "de", "pt"}, Pieces: []string{"zz"}, Rows: rows(2)})
	if err != nil {
		t.Fatal(err)
	}
	if k, err = ConfigOf(out); err != nil || k.Vocab != 404 || k.Speech.Text != 401 || !slices.Equal(k.Speech.Pieces, []string{"zz"}) {
		t.Errorf("%+v, %v", k.Speech, err)
	}
	e := out.Tensor(nameEmbedding)
	got := bytesOf(t, e)
	old, fresh := bytesOf(t, m.Tensor(nameEmbedding)), bytesOf(t, rows(2))
	f32 := func(b []byte, bf16 bool, row, col int) float32 { return at16(b, bf16, row*64+col) }
	for _, c := range []struct {
		row  int
		want float32
	}{{0, f32(old, true, 0, 5)}, {399, f32(old, true, 399, 5)}, {400, f32(fresh, false, 0, 5)}, {401, f32(old, true, 400, 5)}, {402, f32(old, true, 401, 5)}, {403, f32(fresh, false, 1, 5)}} {
		if v := at32(got, c.row*64+5); v != c.want {
			t.Errorf("row %d has %v, want %v", c.row, v, c.want)
		}
	}
}

func TestSpeechTokenizerRefuses(t *testing.T) {
	h := &cact.Header{Audio: &cact.Audio{Text: 3}}
	base := &cact.Tokenizer{Pieces: []cact.Piece{{Text: "a", Score: -1}, {Text: "b", Score: -9}, {Text: "<|x|>", Type: cact.UserDefined}}}
	got, err := SpeechTokenizer(base, h, []string{"en"}, []string{"c"})
	if err != nil || len(got.Pieces) != 4 || got.Pieces[2] != (cact.Piece{Text: "c", Score: -10}) || got.Pieces[3] != (cact.Piece{Text: "<|en|>", Type: cact.UserDefined}) {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := SpeechTokenizer(base, h, nil, []string{"a"}); !errors.Is(err, cact.ErrTokenizer) {
		t.Errorf("a piece that is there: %v", err)
	}
	h.Audio.Text = 9
	if _, err := SpeechTokenizer(base, h, nil, nil); !errors.Is(err, cact.ErrTokenizer) {
		t.Errorf("too few pieces: %v", err)
	}
}

func at32(b []byte, i int) float32 { return math.Float32frombits(le.Uint32(b[4*i:])) }

// at16 reads a number of 16 bits: bfloat16, or else F16.
func at16(b []byte, bf16 bool, i int) float32 {
	if bf16 {
		return math.Float32frombits(uint32(le.Uint16(b[2*i:])) << 16)
	}
	return quant.FromF16(le.Uint16(b[2*i:]))
}
