package cact

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"quern/tensor"
	"quern/tensor/cq"
)

func golden(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "testdata", "cact", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func open(b []byte) (*File, error) {
	return Open(context.Background(), "x.cact", tensor.BytesBlob("x.cact", b), Options{Source: "base", Key: tensor.Derive("test", "x")})
}

func mustOpen(t testing.TB, b []byte) *File {
	t.Helper()
	f, err := open(b)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestGoldenHeaders pins what the exporter's files say.
func TestGoldenHeaders(t *testing.T) {
	f := mustOpen(t, golden(t, "needle2-a-mixed.cact"))
	h := f.Header
	if h.Generation != 2 || h.Vocab != 512 || h.DModel != 256 || h.Heads != 4 || h.KVHeads != 2 || h.Layers != 3 || h.QKHeadDim != 64 || h.VHeadDim != 64 ||
		h.MaxSeq != 256 || h.HadaN != 256 || h.Lanes != 4 || h.KVBits != 8 || h.EngramSlots != 64 || h.EngramSubDim != 128 || h.EngramTables != 2 ||
		h.EngramTaps != 4 || h.EngramDilation != 3 || h.RopeTheta != 100000 || len(h.Sites) != 1 || h.Sites[0] != 1 || len(h.Orders) != 2 || h.Orders[1] != 3 {
		t.Errorf("header %+v", h)
	}
	for name, w := range map[string]cq.Width{
		"embedding": cq.W4, "layer00.q_proj": cq.W3, "layer02.k_proj": cq.W158, "layer01.v_proj": cq.W2, "engram0.tables": cq.W2, "mhc_phi_res": cq.W2,
	} {
		e := f.Entry(name)
		if e == nil || e.Width != w || e.Group != 128 {
			t.Errorf("%s: %+v, want %s bits", name, e, w)
		}
	}
	if n := f.Entries[len(f.Entries)-1].Name; n != NameTokenizer || len(f.Heads) != 0 || f.Group != 128 {
		t.Errorf("last tensor %s, heads %v, group %d", n, f.Heads, f.Group)
	}
	f = mustOpen(t, golden(t, "needle2-b-w4.cact"))
	if f.Header.HadaN != 256 || f.Header.DModel != 192 || f.Header.KVWindow != 96 {
		t.Errorf("header %+v", f.Header)
	}
	if len(f.Heads) != 2 || f.Heads[0] != (Head{1, "contrastive_head", 4, 0, 128, true}) || f.Heads[1] != (Head{2, "confidence_head", 8, 0, 1, true}) {
		t.Errorf("heads %+v", f.Heads)
	}
	if e := f.Entry("contrastive_head.proj"); e == nil || !e.Shape.Equal(tensor.Shape{128, 768}) {
		t.Errorf("contrastive_head.proj: %+v", e)
	}
}

// TestGoldenLayout plans the exporter's files anew from what was read, and wants
// every byte of header and directory.
func TestGoldenLayout(t *testing.T) {
	for _, name := range []string{"needle2-a-w4.cact", "needle2-a-mixed.cact", "needle2-b-w4.cact", "needle3-a.cact", "needle3-b-width32.cact", "needle3-c.cact"} {
		b := golden(t, name)
		f := mustOpen(t, b)
		l, err := NewLayout(f.Header, f.Codebooks, f.Heads, layoutOf(f))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(l.Header, b[:len(l.Header)]) || l.Size != int64(len(b)) {
			t.Errorf("%s: header or size differ: %d bytes, want %d", name, l.Size, len(b))
		}
		for i, p := range l.Tensors {
			e := f.Entries[i]
			if p.Offset != e.Offset || p.Bytes != e.Bytes {
				t.Errorf("%s: %s at %d, %d bytes; want %d, %d", name, p.Name, p.Offset, p.Bytes, e.Offset, e.Bytes)
			}
		}
		// The window follows from the rest.
		trained := uint32(0)
		switch {
		case strings.HasPrefix(name, "needle2-b"):
			trained = 96
		case strings.HasPrefix(name, "needle3-a"):
			trained = 40
		}
		if w := f.Header.Window(trained); w != f.Header.KVWindow {
			t.Errorf("%s: window %d, want %d", name, w, f.Header.KVWindow)
		}
	}
}

func layoutOf(f *File) []LayoutTensor {
	var out []LayoutTensor
	for _, e := range f.Entries {
		out = append(out, LayoutTensor{Spec: e.Spec, Width: e.Width, Group: e.Group, Bytes: e.Bytes})
	}
	return out
}

// TestCodebooks: the header's entries are the standard codebooks.
func TestCodebooks(t *testing.T) {
	f := mustOpen(t, golden(t, "needle2-a-w4.cact"))
	for _, w := range cq.Widths() {
		got, err := f.Codebook(w)
		if err != nil {
			t.Fatal(err)
		}
		want, err := cq.Codebook(w, 128)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != len(want) {
			t.Fatalf("%s bits: %d entries", w, len(got))
		}
		for i := range got {
			if got[i] != want[i] {
				t.Errorf("%s bits, entry %d: %v, want %v", w, i, got[i], want[i])
			}
		}
	}
}

func TestTokenizerRoundTrip(t *testing.T) {
	f := mustOpen(t, golden(t, "needle2-a-w4.cact"))
	tok, err := f.Tokenizer(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if len(tok.Pieces) != 512 || !tok.AddDummyPrefix || !tok.ByteFallback || tok.Pad != 0 || tok.EOS != 1 || tok.BOS != 2 || tok.Unk != 3 {
		t.Errorf("%d pieces, %+v", len(tok.Pieces), tok.Pieces[:4])
	}
	if p := tok.Pieces[259]; p.Type != Normal {
		t.Errorf("piece 259: %+v", p)
	}
	b, err := tok.Encode()
	if err != nil {
		t.Fatal(err)
	}
	e := f.Entry(NameTokenizer)
	if !bytes.Equal(b, golden(t, "needle2-a-w4.cact")[e.Offset:e.Offset+e.Bytes]) {
		t.Error("encoded again it differs")
	}
	for n := range b {
		if _, err := ParseTokenizer(b[:n]); err == nil {
			t.Fatalf("cut at %d it is accepted", n)
		}
	}
}

// TestWindow works the formula by hand.
func TestWindow(t *testing.T) {
	// Published shape of generation 3: 20 layers of 2*(48+64) values, 5 sites.
	h := Header{Generation: 3, KVHeads: 2, QKHeadDim: 48, VHeadDim: 64, DModel: 768, Layers: 20, MaxSeq: 4096, SlidingWindow: 1024,
		GlobalMask: 1<<4 | 1<<9 | 1<<14 | 1<<19, Sites: []uint32{3, 7, 11, 15, 19}}
	// A layer takes 96+128+(3+4)*4 = 252, a site 768+24*4 = 864; local layers and
	// sites hold 1024 positions: (16*252+5*864)*1024 = 8552448. 12058624-8552448 =
	// 3506176 over 4*252 is 3478, in whole groups 3456.
	check := func(name string, h Header, trained, want uint32) {
		t.Helper()
		if got := h.Window(trained); got != want {
			t.Errorf("%s: %d, want %d", name, got, want)
		}
	}
	check("published", h, 0, 3456)
	check("trained for less", h, 500, 500)
	check("trained for more", h, 4000, 3456)
	g := h
	g.MaxSeq = 100
	check("the lower clamp wins", g, 0, 160)
	g = h
	g.GlobalMask = 0 // (20*252+5*864)*1024 = 9584640 fits
	check("no global layer", g, 0, 4096)
	g.SlidingWindow = 2048 // 19169280 does not
	check("no global layer, over the budget", g, 0, 2048)
	g.GlobalMask = 1
	check("local layers alone are over the budget", g, 0, 160)
	g = h
	g.SlidingWindow = 0 // 12058624 / 9360 = 1288
	check("no sliding window", g, 0, 1280)
}
