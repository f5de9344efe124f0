package faulty_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"

	"quern/internal/faulty"
)

func TestReaders(t *testing.T) {
	own := errors.New("own")
	for name, c := range map[string]struct {
		r    io.Reader
		want string
		err  error
	}{
		"short":       {faulty.Short(strings.NewReader("abcdef"), 4), "abcd", nil},
		"break":       {faulty.Break(strings.NewReader("abcdef"), 4, nil), "abcd", faulty.ErrInjected},
		"break own":   {faulty.Break(strings.NewReader("abcdef"), 0, own), "", own},
		"flip":        {faulty.Flip(strings.NewReader("abcdef"), 8*2+1), "abadef", nil},
		"flip split":  {faulty.Flip(faulty.Dribble(strings.NewReader("abcdef"), 1), 8*5), "abcdeg", nil},
		"flip beyond": {faulty.Flip(strings.NewReader("abcdef"), 8*6), "abcdef", nil},
		"dribble":     {faulty.Dribble(strings.NewReader(strings.Repeat("x", 1000)), 3), strings.Repeat("x", 1000), nil},
	} {
		got, err := io.ReadAll(c.r)
		if string(got) != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func TestReaderAts(t *testing.T) {
	src := strings.NewReader("abcdef")
	p := make([]byte, 3)
	if n, err := faulty.FlipAt(src, 8*2+1).ReadAt(p, 1); n != 3 || err != nil || string(p) != "bad" {
		t.Errorf("flip: %q, %d, %v", p, n, err)
	}
	b := faulty.BreakAt(src, 4, nil)
	if n, err := b.ReadAt(p, 1); n != 3 || err != nil || string(p) != "bcd" {
		t.Errorf("before the break: %q, %d, %v", p, n, err)
	}
	if n, err := b.ReadAt(p, 2); n != 2 || !errors.Is(err, faulty.ErrInjected) {
		t.Errorf("across the break: %d, %v", n, err)
	}
	if n, err := b.ReadAt(p, 4); n != 0 || !errors.Is(err, faulty.ErrInjected) {
		t.Errorf("after the break: %d, %v", n, err)
	}
}

func TestFull(t *testing.T) {
	var b bytes.Buffer
	w := faulty.Full(&b, 5)
	if n, err := w.Write([]byte("abc")); n != 3 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := w.Write([]byte("def")); n != 2 || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := w.Write([]byte("g")); n != 0 || err == nil || b.String() != "abcde" {
		t.Errorf("%d, %v, %q", n, err, b.String())
	}
}

func TestCountdown(t *testing.T) {
	once, from := faulty.FailOnce(1, io.EOF), faulty.FailFrom(1, io.EOF)
	var a, b string
	for range 4 {
		a += map[bool]string{true: "ok ", false: "bad "}[once.Next() == nil]
		b += map[bool]string{true: "ok ", false: "bad "}[from.Next() == nil]
	}
	if a != "ok bad ok ok " || b != "ok bad bad bad " || !once.Fired() || !from.Fired() {
		t.Errorf("%s, %s", a, b)
	}
	if faulty.FailOnce(9, io.EOF).Fired() {
		t.Error("fired without a call")
	}
}
