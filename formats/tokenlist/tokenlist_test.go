package tokenlist_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"quern/formats/tokenlist"
	"quern/internal/digest"
)

var sum = digest.Of([]byte("a tokenizer"))

func TestWrite(t *testing.T) {
	for _, c := range []struct {
		name string
		list tokenlist.List
		want string
	}{
		{"ids alone", tokenlist.List{IDs: []int32{0, 3, 2147483647}}, "0\n3\n2147483647\n"},
		{"vocabulary", tokenlist.List{Vocab: 512, IDs: []int32{1, 511}}, "# quern token list: vocabulary 512\n1\n511\n"},
		{"tokenizer", tokenlist.List{Vocab: 8, Tokenizer: sum, IDs: []int32{7}},
			"# quern token list: vocabulary 8, tokenizer " + sum.String() + "\n7\n"},
	} {
		var buf bytes.Buffer
		if err := c.list.Write(&buf); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if buf.String() != c.want {
			t.Errorf("%s: %q, want %q", c.name, buf.String(), c.want)
		}
		got, err := tokenlist.Read(&buf, tokenlist.Options{})
		if err != nil {
			t.Fatalf("%s: read back: %v", c.name, err)
		}
		if got.Vocab != c.list.Vocab || got.Tokenizer != c.list.Tokenizer || !slices.Equal(got.IDs, c.list.IDs) {
			t.Errorf("%s: read back as %+v", c.name, got)
		}
	}
}

func TestWriteRefuses(t *testing.T) {
	for name, l := range map[string]tokenlist.List{
		"empty":                    {Vocab: 5},
		"descending":               {IDs: []int32{2, 1}},
		"twice":                    {IDs: []int32{2, 2}},
		"negative":                 {IDs: []int32{-1, 2}},
		"outside":                  {Vocab: 2, IDs: []int32{2}},
		"tokenizer without a size": {Tokenizer: sum, IDs: []int32{2}},
		"vocabulary too large":     {Vocab: 1<<31 + 1, IDs: []int32{2}},
		"vocabulary under zero":    {Vocab: -1, IDs: []int32{2}},
	} {
		var buf bytes.Buffer
		if err := l.Write(&buf); !errors.Is(err, tokenlist.ErrFormat) || buf.Len() != 0 {
			t.Errorf("%s: %v, %d bytes written", name, err, buf.Len())
		}
	}
}

func TestRead(t *testing.T) {
	for _, c := range []struct {
		name, text string
		any        bool
		want       []int32
	}{
		{"one a line", "1\n2\n30\n", false, []int32{1, 2, 30}},
		{"no line end", "1\n2", false, []int32{1, 2}},
		{"CRLF", "1\r\n2\r\n", false, []int32{1, 2}},
		{"spaces", "1 2\t3\n\n 4", false, []int32{1, 2, 3, 4}},
		{"commas", "1,2, 3 ,4,\n5\n", false, []int32{1, 2, 3, 4, 5}},
		{"comments", "# kept by hand\n1 # bos\n2#eos\n\n# end", false, []int32{1, 2}},
		{"header", "# quern token list: vocabulary 9\n8\n", false, []int32{8}},
		{"header with CRLF", "# quern token list: vocabulary 9\r\n8\r\n", false, []int32{8}},
		{"any order", "5 1 3", true, []int32{1, 3, 5}},
	} {
		l, err := tokenlist.Read(iotest.OneByteReader(strings.NewReader(c.text)), tokenlist.Options{AnyOrder: c.any})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if !slices.Equal(l.IDs, c.want) {
			t.Errorf("%s: %d, want %d", c.name, l.IDs, c.want)
		}
	}
}

// rejects are texts that are no list, with the line that is at fault.
func rejects() []struct {
	name, text string
	any        bool
	line       int
	says       string
} {
	return []struct {
		name, text string
		any        bool
		line       int
		says       string
	}{
		{"empty", "", false, 1, "no ids"},
		{"comments only", "# a\n# b\n", false, 2, "no ids"},
		{"a word", "1\ntwo\n", false, 2, `"two"`},
		{"negative", "1\n-2\n", false, 2, `"-2"`},
		{"plus", "+1\n", false, 1, `"+1"`},
		{"fraction", "1\n2.5\n", false, 2, `"2.5"`},
		{"leading zero", "1\n02\n", false, 2, "begins with a zero"},
		{"too large", "1\n2147483648\n", false, 2, "31 bits"},
		{"far too large", "99999999999999999999999999\n", false, 1, "31 bits"},
		{"descending", "1\n7\n5\n", false, 3, "5 comes after 7"},
		{"twice", "1\n7\n7\n", false, 3, "7 is there twice"},
		{"twice in any order", "7\n1\n\n7\n", true, 4, "the other is in line 1"},
		{"comma first", "1\n, 2\n", false, 2, "comma"},
		{"two commas", "1,,2\n", false, 1, "comma"},
		{"list in brackets", "[1, 2]\n", false, 1, `"[1"`},
		{"byte order mark", "\ufeff1\n", false, 1, "token id"},
		{"NUL", "1\n\x00\n", false, 2, "token id"},
		{"outside", "# quern token list: vocabulary 5\n5\n", false, 2, "outside the vocabulary of 5"},
		{"header without a size", "# quern token list: 5\n1\n", false, 1, "is wanted"},
		{"header with size 0", "# quern token list: vocabulary 0\n1\n", false, 1, "no size"},
		{"header with a huge size", "# quern token list: vocabulary 99999999999\n1\n", false, 1, "no size"},
		{"header with +5", "# quern token list: vocabulary +5\n1\n", false, 1, "no size"},
		{"header with half a digest", "# quern token list: vocabulary 5, tokenizer sha256:00\n1\n", false, 1, "64 lower-case"},
		{"header with no digest", "# quern token list: vocabulary 5, tokenizer sha256:" + strings.Repeat("0", 64) + "\n1\n", false, 1, "no tokenizer"},
		{"header in line 2", "\n# quern token list: vocabulary 5\n1\n", false, 2, "line 1"},
		{"header and any order", "# quern token list: vocabulary 5\n2\n1\n", true, 3, "1 comes after 2"},
	}
}

func TestReadRefuses(t *testing.T) {
	for _, c := range rejects() {
		_, err := tokenlist.Parse([]byte(c.text), tokenlist.Options{Name: "keep.txt", AnyOrder: c.any})
		var re *tokenlist.ReadError
		if !errors.As(err, &re) || !errors.Is(err, tokenlist.ErrFormat) {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if re.Line != c.line || !strings.Contains(err.Error(), c.says) || !strings.HasPrefix(err.Error(), "keep.txt:") {
			t.Errorf("%s: %v; want line %d and %q", c.name, err, c.line, c.says)
		}
	}
}

func TestReadLimit(t *testing.T) {
	text := "1\n2\n3\n"
	if _, err := tokenlist.Read(strings.NewReader(text), tokenlist.Options{MaxBytes: 6}); err != nil {
		t.Error(err)
	}
	if _, err := tokenlist.Read(strings.NewReader(text), tokenlist.Options{MaxBytes: 5}); !errors.Is(err, tokenlist.ErrLimit) {
		t.Error(err)
	}
	broken := errors.New("broken")
	if _, err := tokenlist.Read(iotest.ErrReader(broken), tokenlist.Options{}); !errors.Is(err, broken) {
		t.Error(err)
	}
}

func TestCheck(t *testing.T) {
	other := digest.Of([]byte("another"))
	for _, c := range []struct {
		name  string
		list  tokenlist.List
		vocab int64
		sum   digest.Digest
		ok    bool
	}{
		{"plain ids", tokenlist.List{IDs: []int32{1, 9}}, 10, sum, true},
		{"plain ids past the end", tokenlist.List{IDs: []int32{1, 10}}, 10, sum, false},
		{"same size", tokenlist.List{Vocab: 10, IDs: []int32{1}}, 10, sum, true},
		{"another size", tokenlist.List{Vocab: 10, IDs: []int32{1}}, 11, sum, false},
		{"same tokenizer", tokenlist.List{Vocab: 10, Tokenizer: sum, IDs: []int32{1}}, 10, sum, true},
		{"another tokenizer", tokenlist.List{Vocab: 10, Tokenizer: sum, IDs: []int32{1}}, 10, other, false},
		{"unknown tokenizer", tokenlist.List{Vocab: 10, Tokenizer: sum, IDs: []int32{1}}, 10, digest.Digest{}, true},
	} {
		if err := c.list.Check(c.vocab, c.sum); (err == nil) != c.ok || err != nil && !errors.Is(err, tokenlist.ErrVocabulary) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestHas(t *testing.T) {
	l := tokenlist.List{IDs: []int32{0, 4, 5, 90}}
	for id := int32(-1); id < 100; id++ {
		if got := l.Has(id); got != slices.Contains(l.IDs, id) {
			t.Errorf("%d: %t", id, got)
		}
	}
}

// FuzzParse: no panic; what is read is a valid list, and its canonical form reads
// back as the same.
func FuzzParse(f *testing.F) {
	for _, c := range rejects() {
		f.Add([]byte(c.text), c.any)
	}
	f.Add([]byte("# quern token list: vocabulary 8, tokenizer "+sum.String()+"\n1\n7\n"), false)
	f.Add([]byte("5, 3 # x\n1"), true)
	f.Fuzz(func(t *testing.T, b []byte, any bool) {
		l, err := tokenlist.Parse(b, tokenlist.Options{AnyOrder: any})
		if err != nil {
			return
		}
		out, err := l.Bytes()
		if err != nil {
			t.Fatalf("read as %+v, which cannot be written: %v", l, err)
		}
		back, err := tokenlist.Parse(out, tokenlist.Options{})
		if err != nil || back.Vocab != l.Vocab || back.Tokenizer != l.Tokenizer || !slices.Equal(back.IDs, l.IDs) {
			t.Fatalf("%+v reads back as %+v, %v", l, back, err)
		}
	})
}
