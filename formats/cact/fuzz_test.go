package cact

import (
	"context"
	"testing"

	"quern/tensor"
)

// FuzzOpen: any bytes give an error or a file whose every tensor can be read and
// whose header is written back the same.
func FuzzOpen(f *testing.F) {
	for _, name := range []string{"needle2-a-mixed.cact", "needle2-b-w4.cact", "needle3-a-layers3.cact", "whistle.cact"} {
		b := golden(f, name)
		f.Add(b[:4000])
		f.Add(b)
	}
	for _, m := range mutations {
		f.Add(m.change(append([]byte(nil), golden(f, "needle2-b-w4.cact")...)))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := open(b)
		if err != nil {
			return
		}
		l, err := NewLayout(x.Header, x.Codebooks, x.Heads, layoutOf(x))
		if err != nil {
			t.Fatalf("read, but not written: %v", err)
		}
		if string(l.Header) != string(b[:len(l.Header)]) || l.Size != int64(len(b)) {
			t.Error("written back it differs")
		}
		for i := range x.Entries {
			e := &x.Entries[i]
			for _, s := range []*tensor.Tensor{e.Tensor, e.Norms} {
				if s == nil {
					continue
				}
				if err := s.ReadRows(context.Background(), make([]byte, s.Bytes()), 0, s.Rows()); err != nil {
					t.Errorf("%s: %v", s.Name, err)
				}
			}
		}
		_, _ = x.Tokenizer(context.Background())
	})
}

// FuzzTokenizer: what is read is written back the same.
func FuzzTokenizer(f *testing.F) {
	b := golden(f, "needle2-a-w4.cact")
	x := mustOpen(f, b)
	e := x.Entry(NameTokenizer)
	f.Add(b[e.Offset : e.Offset+e.Bytes])
	f.Add(b[e.Offset : e.Offset+200])
	f.Fuzz(func(t *testing.T, b []byte) {
		k, err := ParseTokenizer(b)
		if err != nil {
			return
		}
		again, err := k.Encode()
		if err != nil || string(again) != string(b) {
			t.Errorf("written back it differs: %v", err)
		}
	})
}
