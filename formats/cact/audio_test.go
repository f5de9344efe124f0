package cact

import (
	"bytes"
	"errors"
	"math"
	"strconv"
	"testing"

	"quern/tensor"
)

// TestSpeechArchive pins what the exporter's speech archive says, and plans it anew.
func TestSpeechArchive(t *testing.T) {
	b := golden(t, "whistle.cact")
	f := mustOpen(t, b)
	h := f.Header
	if h.Audio == nil || h.KVWindow != 0 || h.Vocab != 402 || h.Layers != 3 || len(f.Heads) != 0 {
		t.Fatalf("header %+v", h)
	}
	if want := (Audio{Text: 400, EncLayers: 2, EncLanes: 3, Kernel: 5, Stem: 8, Stages: 3, Mels: 16, Rate: 4000, FFT: 128, Win: 100, Hop: 40}); *h.Audio != want {
		t.Errorf("manifest %+v, want %+v", *h.Audio, want)
	}
	for name, want := range map[string]tensor.Shape{
		"layer02.cross.v_proj": {64, 64}, "layer00.cross_gate": {1}, "encoder01.pw1": {128, 64}, "encoder01.dw": {5, 64}, "encoder00.k_proj": {8, 64},
		"encoder.mhc_phi_res": {2 * 9, 3 * 64}, "stem.w": {9, 8}, "stem.pw_2": {8, 8}, "stem.out": {64, 16}, "mel": {65, 16},
	} {
		if e := f.Entry(name); e == nil || !e.Shape.Equal(want) {
			t.Errorf("%s: %+v, want %v", name, e, want)
		}
	}
	l, err := NewLayout(h, f.Codebooks, f.Heads, layoutOf(f))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(l.Header, b[:len(l.Header)]) || l.Size != int64(len(b)) {
		t.Error("planned anew, header or size differ")
	}
	if n := int64(len(f.Entries)) - 1 - h.count(); n != h.Audio.count(h.Layers) {
		t.Errorf("%d tensors beyond a text model's, counted %d", n, h.Audio.count(h.Layers))
	}
	e := f.Entry(NameAudio)
	for i, v := range h.Audio.Values() {
		if math.Float32frombits(le.Uint32(b[e.Offset+int64(4*i):])) != v {
			t.Errorf("value %d of the manifest is written as %v", i, v)
		}
	}
	if _, err := NewLayout(h, f.Codebooks, f.Heads, layoutOf(f)[:len(f.Entries)-3]); !errors.Is(err, ErrModel) {
		t.Errorf("without its end: %v", err)
	}
	h.Generation = 2
	if _, err := NewLayout(h, f.Codebooks, f.Heads, layoutOf(f)); !errors.Is(err, ErrModel) {
		t.Errorf("in generation 2: %v", err)
	}
}

// TestSpeechManifest: every number of the manifest, changed, is an error: no tensor
// fits any more, or the number is none.
func TestSpeechManifest(t *testing.T) {
	good := golden(t, "whistle.cact")
	f := mustOpen(t, good)
	at := f.Entry(NameAudio).Offset
	free := map[int]bool{2: true, 9: true, 10: true, 11: true, 12: true} // text, rate, win and hop shape no tensor, 128 and 129 points one
	for i := range audioFields {
		old := math.Float32frombits(le.Uint32(good[at+int64(4*i):]))
		for _, v := range []float32{0, -1, old + 1, old + 0.5, float32(math.NaN()), float32(math.Inf(1)), 1 << 24, math.MaxFloat32} {
			b := append([]byte(nil), good...)
			le.PutUint32(b[at+int64(4*i):], math.Float32bits(v))
			_, err := open(b)
			if err == nil && !(free[i] && v == old+1) {
				t.Errorf("number %d as %v is accepted", i, v)
			}
			var re *ReadError
			if err != nil && !errors.As(err, &re) {
				t.Errorf("number %d as %v: %v", i, v, err)
			}
		}
	}
}

// words are what hostile files put into the places of numbers.
func words(v uint32) []uint32 {
	return []uint32{0, 1, v - 1, v + 1, 2 * v, v ^ 1<<31, 1 << 16, math.MaxUint32}
}

// TestEveryNumber puts hostile values into every word of header and directory of
// archives of both generations. A word of the directory is never taken for another;
// what a header says may change only where no tensor's size follows from it. Whatever
// is read can be written again as it was.
func TestEveryNumber(t *testing.T) {
	// Words of the header that archives of one shape can differ in.
	free := map[string]bool{"kv_window": true, "kv_bits": true, "max_seq_len": true, "num_heads": true, "out_vocab": true, "sliding_window": true,
		"global_mask_lo": true, "global_mask_hi": true, "engram_seed_heads": true, "rope_theta": true}
	for i := range 4 {
		free["engram_orders["+strconv.Itoa(i)+"]"] = true
	}
	for i := range 16 {
		free["engram_sites["+strconv.Itoa(i)+"]"] = true
	}
	for _, name := range []string{"needle2-a-mixed.cact", "needle2-b-w4.cact", "needle3-a-layers3.cact", "whistle.cact"} {
		good := golden(t, name)
		f := mustOpen(t, good)
		end := int(f.dirOffset()) + len(f.Entries)*recordBytes
		fields, _ := f.Header.Fields()
		hdr := headerBytes(f.Header.Generation)
		b := append([]byte(nil), good...)
		for at := 0; at < end; at += 4 {
			if at >= hdr && at < int(f.dirOffset()) {
				continue // codebooks: any that ascend
			}
			old := le.Uint32(good[at:])
			for _, v := range words(old) {
				if v == old {
					continue
				}
				le.PutUint32(b[at:], v)
				x, err := open(b)
				if err != nil {
					var re *ReadError
					if !errors.As(err, &re) {
						t.Errorf("%s: word at %d as %#x: %v", name, at, v, err)
					}
					continue
				}
				switch in := (at - int(f.dirOffset())) % recordBytes; {
				case at < hdr && at >= 12 && free[fields[at/4-3]]:
				case at >= hdr && in == 40 && (old == 2 || old == 5) && (v == 2 || v == 5):
					// Two widths of one size.
				default:
					t.Errorf("%s: word at %d, %#x, is accepted as %#x", name, at, old, v)
				}
				l, err := NewLayout(x.Header, x.Codebooks, x.Heads, layoutOf(x))
				if err != nil || !bytes.Equal(l.Header, b[:len(l.Header)]) {
					t.Errorf("%s: word at %d as %#x is not written as it was read: %v", name, at, v, err)
				}
			}
			le.PutUint32(b[at:], old)
		}
	}
}

// TestEveryTokenizerNumber does so with the lengths and counts of a tokenizer.
func TestEveryTokenizerNumber(t *testing.T) {
	for _, name := range []string{"needle2-b-w4.cact", "needle3-a.cact", "whistle.cact"} {
		f := mustOpen(t, golden(t, name))
		e := f.Entry(NameTokenizer)
		good := golden(t, name)[e.Offset : e.Offset+e.Bytes]
		tok, err := ParseTokenizer(good)
		if err != nil {
			t.Fatal(err)
		}
		try := func(at int, b []byte, must bool) {
			x, err := ParseTokenizer(b)
			if err != nil {
				if !errors.Is(err, ErrTokenizer) {
					t.Errorf("%s: at %d: %v", name, at, err)
				}
				return
			}
			if must {
				t.Errorf("%s: byte %d changed is accepted", name, at)
			}
			if again, err := x.Encode(); err != nil || !bytes.Equal(again, b) {
				t.Errorf("%s: at %d: not written as it was read: %v", name, at, err)
			}
		}
		b := append([]byte(nil), good...)
		for at := 0; at < 20; at += 4 {
			old := le.Uint32(b[at:])
			for _, v := range words(old) {
				le.PutUint32(b[at:], v)
				try(at, b, v != old && (at == 0 || v >= uint32(len(tok.Pieces))))
			}
			le.PutUint32(b[at:], old)
		}
		at := tokenizerHeader
		for _, p := range tok.Pieces {
			for _, v := range []uint16{0, uint16(len(p.Text)) + 1, 255, math.MaxUint16} {
				le.PutUint16(b[at+5:], v)
				try(at+5, b, int(v) != len(p.Text))
			}
			le.PutUint16(b[at+5:], uint16(len(p.Text)))
			old := b[at+4]
			b[at+4] = 5
			try(at+4, b, true)
			b[at+4] = old
			at += pieceHeader + len(p.Text)
		}
	}
}
