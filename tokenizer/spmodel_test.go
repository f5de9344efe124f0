package tokenizer

import (
	"errors"
	"math"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// spBuilder writes a tokenizer.model by hand.
type spBuilder struct {
	data    []byte
	trainer []byte
}

func (b *spBuilder) piece(text string, score float32, typ PieceType) *spBuilder {
	var p []byte
	p = protowire.AppendTag(p, 1, protowire.BytesType)
	p = protowire.AppendString(p, text)
	p = protowire.AppendTag(p, 2, protowire.Fixed32Type)
	p = protowire.AppendFixed32(p, math.Float32bits(score))
	if typ != PieceNormal {
		p = protowire.AppendTag(p, 3, protowire.VarintType)
		p = protowire.AppendVarint(p, uint64(typ))
	}
	b.data = protowire.AppendTag(b.data, 1, protowire.BytesType)
	b.data = protowire.AppendBytes(b.data, p)
	return b
}

func (b *spBuilder) set(field protowire.Number, value uint64) *spBuilder {
	b.trainer = protowire.AppendTag(b.trainer, field, protowire.VarintType)
	b.trainer = protowire.AppendVarint(b.trainer, value)
	return b
}

func (b *spBuilder) bytes() []byte {
	out := append([]byte(nil), b.data...)
	if b.trainer != nil {
		out = protowire.AppendTag(out, 2, protowire.BytesType)
		out = protowire.AppendBytes(out, b.trainer)
	}
	return out
}

func TestParseSPModel(t *testing.T) {
	m, err := ParseSPModel("tokenizer.model", readTestFile(t, "../testdata/convert/tokenizers/stories.model"))
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Pieces) != 512 || m.Type != SPBPE || !m.ByteFallback || m.UnkID != 0 || m.BOSID != 1 || m.EOSID != 2 || m.PadID != -1 {
		t.Errorf("pieces %d type %d byte fallback %v ids %d %d %d %d", len(m.Pieces), m.Type, m.ByteFallback, m.UnkID, m.BOSID, m.EOSID, m.PadID)
	}
	for id, want := range map[int]Piece{
		0:   {"<unk>", 0, PieceUnknown},
		1:   {"<s>", 0, PieceControl},
		2:   {"</s>", 0, PieceControl},
		3:   {"<0x00>", 0, PieceByte},
		13:  {"<0x0A>", 0, PieceByte},
		258: {"<0xFF>", 0, PieceByte},
		259: {"\u2581t", 0, PieceNormal},
		260: {"he", -1, PieceNormal},
		261: {"\u2581a", -2, PieceNormal},
		410: {"\u2581", -151, PieceNormal},
	} {
		if m.Pieces[id] != want {
			t.Errorf("piece %d is %+v, want %+v", id, m.Pieces[id], want)
		}
	}
	if !m.AddDummyPrefix || m.RemoveExtraWhitespaces || !m.EscapeWhitespaces || m.NormalizerName != "identity" {
		t.Errorf("normalizer %q: prefix %v, extra %v, escape %v", m.NormalizerName, m.AddDummyPrefix, m.RemoveExtraWhitespaces, m.EscapeWhitespaces)
	}
}

func TestParseSPModelDefaults(t *testing.T) {
	b := (&spBuilder{}).piece("<unk>", 0, PieceUnknown).piece("a", -1.5, PieceNormal).piece("b", 2, PieceUserDefined)
	m, err := ParseSPModel("tokenizer.model", b.bytes())
	if err != nil {
		t.Fatal(err)
	}
	if m.Type != SPUnigram || m.ByteFallback || m.UnkID != 0 || m.BOSID != 1 || m.EOSID != 2 || m.PadID != -1 || !m.AddDummyPrefix || !m.RemoveExtraWhitespaces {
		t.Errorf("defaults: %+v", m)
	}
	// A later trainer_spec adds to the first; unknown fields are skipped.
	data := b.set(41, 7).set(43, math.MaxUint64).bytes() // pad_id -1
	data = protowire.AppendTag(data, 2, protowire.BytesType)
	data = protowire.AppendBytes(data, protowire.AppendVarint(protowire.AppendTag(nil, 42, protowire.VarintType), 9))
	data = protowire.AppendTag(data, 99, protowire.BytesType)
	data = protowire.AppendString(data, "future")
	if m, err = ParseSPModel("tokenizer.model", data); err != nil {
		t.Fatal(err)
	}
	if m.BOSID != 7 || m.EOSID != 9 || m.PadID != -1 {
		t.Errorf("ids %d %d %d, want 7 9 -1", m.BOSID, m.EOSID, m.PadID)
	}
}

func TestParseSPModelRejects(t *testing.T) {
	base := func() *spBuilder { return (&spBuilder{}).piece("<unk>", 0, PieceUnknown).piece("a", 0, PieceNormal) }
	allBytes := func(n int) *spBuilder {
		b := base().set(35, 1)
		for i := 0; i < n; i++ {
			b.piece(byteToken(byte(i)), 0, PieceByte)
		}
		return b
	}
	if _, err := ParseSPModel("m", allBytes(256).bytes()); err != nil {
		t.Fatalf("all bytes: %v", err)
	}
	cases := []struct {
		name string
		data []byte
		want string
	}{
		{"empty", nil, "no pieces"},
		{"not a protocol buffer", []byte("\x7fELF"), "offset"},
		{"json", []byte(`{"a":1}`), ""},
		{"cut", base().bytes()[:9], "offset"},
		{"no unknown", (&spBuilder{}).piece("a", 0, PieceNormal).bytes(), "unknown"},
		{"two unknowns", base().piece("<x>", 0, PieceUnknown).bytes(), "pieces 0 and 2"},
		{"empty piece", base().piece("", 0, PieceNormal).bytes(), "piece 2 is empty"},
		{"repeated piece", base().piece("a", 0, PieceNormal).bytes(), `piece 2 "a" repeats piece 1`},
		{"bad UTF-8", base().piece("\xff", 0, PieceNormal).bytes(), "piece 2"},
		{"NaN score", base().piece("b", float32(math.NaN()), PieceNormal).bytes(), "not a number"},
		{"bad type", base().piece("b", 0, 7).bytes(), "type 7"},
		{"stray byte piece", base().piece("<0x00>", 0, PieceByte).bytes(), "byte_fallback is false"},
		{"few bytes", allBytes(255).bytes(), "255 byte pieces"},
		{"odd byte piece", allBytes(255).piece("xx", 0, PieceByte).bytes(), `"xx"`},
		{"bad model type", base().set(3, 9).bytes(), "model type 9"},
		{"wrong wire type", protowire.AppendVarint(protowire.AppendTag(base().bytes(), 1, protowire.VarintType), 1), "wire type"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := ParseSPModel("tokenizer.model", c.data)
			if !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "tokenizer.model") {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

// TestGoldenCases: the shared tokenizer cases, which come from an
// implementation of its own.
func TestGoldenCases(t *testing.T) {
	v, err := readFolder(t, "../testdata/models/stories260k").load(t)
	if err != nil {
		t.Fatal(err)
	}
	tok, err := New(v)
	if err != nil {
		t.Fatal(err)
	}
	var g struct {
		Cases map[string][]int32 `json:"tokenizer_cases"`
	}
	unmarshal(t, readTestFile(t, "../testdata/golden/runtime/golden.json"), &g)
	if len(g.Cases) < 15 {
		t.Fatalf("only %d cases", len(g.Cases))
	}
	for text, want := range g.Cases {
		got, err := tok.Encode(text, EncodeOptions{})
		if err != nil {
			t.Errorf("%q: %v", text, err)
		}
		equalIDs(t, text, got, want)
		if back := tok.Decode(got, DecodeOptions{}); !strings.Contains(text, "\u2581") && back != text {
			t.Errorf("%q comes back as %q", text, back)
		}
	}
	got, err := tok.Encode("Once upon a time", EncodeOptions{Special: true})
	if err != nil {
		t.Fatal(err)
	}
	equalIDs(t, "with BOS", got, []int32{1, 403, 407, 261, 378})
}
