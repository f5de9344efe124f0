package trace

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

const small = `quern-expert-trace 1
experts 4
used 2
layers 1,3-4
scores yes
ahead 1

0	1	2,0	0.25,0.125,0.5,0.125	3
0	3	1	0.1,0.9,0,0	-
0	4	0,3	1,0,-1e-3,0.5	-
1	1	3,1	0,0,0,0	2,1
1	3	0,1	0,0,0,0	0
1	4	0,1	0,0,0,0	-
`

// rows reads a trace to its end.
func rows(t testing.TB, r io.Reader) (Header, []Row, error) {
	tr, err := NewReader("t", r)
	if err != nil {
		return Header{}, nil, err
	}
	defer tr.Close()
	var out []Row
	for {
		row, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return tr.Header, out, nil
		}
		if err != nil {
			return tr.Header, out, err
		}
		c := *row
		c.Chosen, c.Scores, c.Ahead = slices.Clone(c.Chosen), slices.Clone(c.Scores), slices.Clone(c.Ahead)
		out = append(out, c)
	}
}

func TestRead(t *testing.T) {
	h, got, err := rows(t, strings.NewReader(small))
	if err != nil {
		t.Fatal(err)
	}
	if h.Experts != 4 || h.Used != 2 || !slices.Equal(h.Layers, []int{1, 3, 4}) || !h.Scores || h.Ahead != 1 {
		t.Errorf("%+v", h)
	}
	if len(got) != 6 {
		t.Fatalf("%d rows", len(got))
	}
	r := got[2]
	if r.Token != 0 || r.Layer != 2 || !slices.Equal(r.Chosen, []int{0, 3}) || !slices.Equal(r.Scores, []float32{1, 0, -1e-3, 0.5}) || len(r.Ahead) != 0 {
		t.Errorf("%+v", r)
	}
	if r := got[3]; r.Token != 1 || r.Layer != 0 || !slices.Equal(r.Ahead, []int{2, 1}) {
		t.Errorf("%+v", r)
	}
}

// A writer gives what a reader took, in the same words.
func TestWrite(t *testing.T) {
	h, list, err := rows(t, strings.NewReader(small))
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	w, err := NewWriter(&b, h)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range list {
		if err := w.Flush(); (err != nil) != (i%3 > 0) {
			t.Errorf("flush after %d rows: %v", i, err)
		}
		if err := w.Write(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if want := strings.Replace(small, "-1e-3", "-0.001", 1); b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
	if err := w.Write(Row{Chosen: []int{4}, Scores: make([]float32, 4)}); !errors.Is(err, ErrFormat) {
		t.Errorf("expert 4 of 4: %v", err)
	}
}

func TestCompressed(t *testing.T) {
	var gz, zs bytes.Buffer
	g := gzip.NewWriter(&gz)
	z, _ := zstd.NewWriter(&zs)
	for _, w := range []io.WriteCloser{g, z} {
		if _, err := io.WriteString(w, small); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for name, b := range map[string][]byte{"gzip": gz.Bytes(), "zstd": zs.Bytes()} {
		if _, got, err := rows(t, bytes.NewReader(b)); err != nil || len(got) != 6 {
			t.Errorf("%s: %d rows, %v", name, len(got), err)
		}
		if _, _, err := rows(t, bytes.NewReader(b[:len(b)/2])); err == nil {
			t.Errorf("half of %s was read", name)
		}
	}
}

func TestRefused(t *testing.T) {
	edit := func(old, with string) string { return strings.Replace(small, old, with, 1) }
	tests := []struct{ text, want string }{
		{"", `t:1: bad expert trace: the first line is not "quern-expert-trace 1"`},
		{edit("trace 1", "trace 2"), "t:1: "},
		{edit("experts 4\n", ""), "t:6: bad expert trace: 0 experts"},
		{edit("used 2", "used 5"), "5 of 4 experts used"},
		{edit("used 2", "used 2\nused 2"), "t:4: bad expert trace: used twice"},
		{edit("used 2", "uses 2"), `t:3: bad expert trace: unknown key "uses"`},
		{edit("used 2", "used -2"), "t:3: "},
		{edit("used 2", "used 99999999999999999999"), "t:3: "},
		{edit("1,3-4", "1,1-4"), "layer 1 after layer 1"},
		{edit("1,3-4", "1,4-3"), `layers "1,4-3"`},
		{edit("1,3-4", "0-2147483647"), "more than 4096 layers"},
		{edit("scores yes", "scores maybe"), `scores "maybe"`},
		{edit("ahead 1", "ahead 4"), "guesses 4 layers ahead of 3"},
		{edit("0\t1\t2,0", "0\t1\t2,4"), "t:8: bad expert trace: expert 4 of 4"},
		{edit("0\t1\t2,0", "0\t1\t2,2"), "expert 2 twice"},
		{edit("0\t1\t2,0", "0\t1\t2,0,1"), "3 experts chosen, the header says at most 2"},
		{edit("0\t1\t2,0", "0\t1\t"), "t:8: "},
		{edit("0\t1\t2,0", "0\t3\t2,0"), "token 0 in layer 3 where token 0 in layer 1 comes next"},
		{edit("1\t1\t3,1", "2\t1\t3,1"), "t:11: bad expert trace: token 2 in layer 1 where token 1"},
		{edit("0.25,", ""), "3 scores for 4 experts"},
		{edit("0.25,", "NaN,"), "a score of NaN"},
		{edit("0.25,", "1e60,"), "value out of range"},
		{edit("0.5,0.125\t3", "0.5,0.125"), "4 columns between tabs, the header asks for 5"},
		{edit("0.5,0.125\t3", "0.5,0.125\t3,3"), "expert 3 twice"},
		{small + "\n", "1 columns"},
	}
	for _, tt := range tests {
		if _, _, err := rows(t, strings.NewReader(tt.text)); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("got %v, want %s", err, tt.want)
		}
	}
	long := edit("0\t1\t2,0", "0\t1\t"+strings.Repeat("2,", maxLine))
	if _, _, err := rows(t, strings.NewReader(long)); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), "t:8: ") {
		t.Errorf("a long line: %v", err)
	}
}

// Whatever the place where a trace breaks off, the whole tokens before count and
// the end is seen.
func TestCut(t *testing.T) {
	body := strings.Index(small, "\n\n") + 2
	for n := body; n < len(small); n++ {
		whole := int64(strings.Count(small[body:n], "\n") / 3)
		u, cut, err := ReadUse("t", strings.NewReader(small[:n]))
		if err != nil {
			t.Fatalf("%d bytes: %v", n, err)
		}
		atEnd := small[n-1] == '\n' && strings.Count(small[body:n], "\n")%3 == 0
		if u.Tokens != whole || cut == atEnd {
			t.Errorf("%d bytes: %d tokens, cut %t, want %d tokens", n, u.Tokens, cut, whole)
		}
	}
}

func TestUse(t *testing.T) {
	u, cut, err := ReadUse("t", strings.NewReader(small))
	if err != nil || cut || u.Tokens != 2 {
		t.Fatalf("%+v, %t, %v", u, cut, err)
	}
	if want := [][]int64{{1, 1, 1, 1}, {1, 2, 0, 0}, {2, 1, 0, 1}}; !slices.EqualFunc(u.Counts, want, slices.Equal) {
		t.Errorf("counts %v", u.Counts)
	}
	if got := u.Warm(3); !slices.EqualFunc(got, [][]int{{0, 1, 2}, {1, 0, 2}, {0, 1, 3}}, slices.Equal) {
		t.Errorf("warm %v", got)
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(small))
	f.Add([]byte(small[:len(small)-4]))
	f.Add([]byte("quern-expert-trace 1\nexperts 16384\nused 1\nlayers 0\n\n0\t0\t5\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, list, err := rows(t, bytes.NewReader(b))
		if err != nil {
			return
		}
		var out bytes.Buffer
		w, err := NewWriter(&out, h)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list {
			if err := w.Write(r); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		if _, again, err := rows(t, &out); err != nil || len(again) != len(list) {
			t.Fatalf("%d rows became %d, %v", len(list), len(again), err)
		}
	})
}
