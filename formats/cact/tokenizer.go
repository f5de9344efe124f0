package cact

import (
	"context"
	"fmt"
	"math"
	"unicode/utf8"
)

// PieceType is the type of a tokenizer's piece.
type PieceType uint8

// The types, by the numbers of the format.
const (
	Normal      PieceType = 0
	Unknown     PieceType = 1
	Control     PieceType = 2
	UserDefined PieceType = 3
	Byte        PieceType = 4
)

// Piece is one entry of the vocabulary; its id is its position.
type Piece struct {
	Text  string
	Score float32
	Type  PieceType
}

// Tokenizer is the last tensor of an archive:
//
//	+0   u32  n_pieces
//	+4   u32  pad, eos, bos, unk: ids
//	+20  u8   add_dummy_prefix: 1 when a space is put in front of a text
//	+21  u8   byte_fallback
//	+22  u16  zero
//	+24  pieces in id order: f32 score, u8 type, u16 length, UTF-8 text
type Tokenizer struct {
	Pad, EOS, BOS, Unk uint32
	AddDummyPrefix     bool
	ByteFallback       bool
	Pieces             []Piece
}

const (
	tokenizerHeader = 24
	pieceHeader     = 7
	// MaxTokenizer bounds the blob that is read whole.
	MaxTokenizer = 256 << 20
)

// Markers are the pieces that are of type UserDefined, the chat's own words.
func Markers(generation int) []string {
	m := []string{"<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tools>", "</tools>",
		"<tool_call>", "</tool_call>", "<tool_result>", "</tool_result>"}
	if generation == 3 {
		m = append(m, "<context>", "</context>", "<extract>", "</extract>", "<schema>", "</schema>")
	}
	return m
}

// ParseTokenizer reads a tokenizer blob. Errors wrap ErrTokenizer and say where in
// the blob they were found.
func ParseTokenizer(b []byte) (*Tokenizer, error) {
	bad := func(off int, format string, args ...any) error {
		return fmt.Errorf("%w: byte %d: "+format, append([]any{ErrTokenizer, off}, args...)...)
	}
	if len(b) < tokenizerHeader {
		return nil, bad(len(b), "%d bytes, its header has %d", len(b), tokenizerHeader)
	}
	n := int64(le.Uint32(b))
	if room := int64(len(b)-tokenizerHeader) / pieceHeader; n == 0 || n > room {
		return nil, bad(0, "%d pieces, there is room for 1 to %d", n, room)
	}
	t := &Tokenizer{Pad: le.Uint32(b[4:]), EOS: le.Uint32(b[8:]), BOS: le.Uint32(b[12:]), Unk: le.Uint32(b[16:])}
	for i, id := range []uint32{t.Pad, t.EOS, t.BOS, t.Unk} {
		if int64(id) >= n {
			return nil, bad(4+4*i, "id %d of %s in a vocabulary of %d", id, []string{"pad", "eos", "bos", "unk"}[i], n)
		}
	}
	if b[20] > 1 || b[21] > 1 {
		return nil, bad(20, "add_dummy_prefix %d, byte_fallback %d; 0 or 1 are wanted", b[20], b[21])
	}
	t.AddDummyPrefix, t.ByteFallback = b[20] == 1, b[21] == 1
	if le.Uint16(b[22:]) != 0 {
		return nil, bad(22, "%#04x where zeros are wanted", le.Uint16(b[22:]))
	}
	t.Pieces = make([]Piece, n) // n pieces fit into b
	at := tokenizerHeader
	for i := range t.Pieces {
		if len(b)-at < pieceHeader {
			return nil, bad(at, "piece %d of %d is cut", i, n)
		}
		p := &t.Pieces[i]
		p.Score, p.Type = math.Float32frombits(le.Uint32(b[at:])), PieceType(b[at+4])
		size := int(le.Uint16(b[at+5:]))
		if p.Score != p.Score {
			return nil, bad(at, "piece %d: its score is not a number", i)
		}
		if p.Type > Byte {
			return nil, bad(at+4, "piece %d: type %d, 0 to 4 are known", i, p.Type)
		}
		at += pieceHeader
		if len(b)-at < size {
			return nil, bad(at-2, "piece %d: a text of %d bytes, %d are left", i, size, len(b)-at)
		}
		if !utf8.Valid(b[at : at+size]) {
			return nil, bad(at, "piece %d: the text is not UTF-8", i)
		}
		p.Text = string(b[at : at+size])
		at += size
	}
	if at != len(b) {
		return nil, bad(at, "%d bytes after the last piece", len(b)-at)
	}
	return t, nil
}

// Encode writes the blob.
func (t *Tokenizer) Encode() ([]byte, error) {
	if len(t.Pieces) == 0 || int64(len(t.Pieces)) > math.MaxUint32 {
		return nil, fmt.Errorf("%w: a tokenizer of %d pieces", ErrWrite, len(t.Pieces))
	}
	b := make([]byte, 0, tokenizerHeader+16*len(t.Pieces))
	for _, v := range []uint32{uint32(len(t.Pieces)), t.Pad, t.EOS, t.BOS, t.Unk} {
		b = le.AppendUint32(b, v)
	}
	b = append(b, flag(t.AddDummyPrefix), flag(t.ByteFallback), 0, 0)
	for i, p := range t.Pieces {
		if len(p.Text) > math.MaxUint16 || !utf8.ValidString(p.Text) || p.Type > Byte {
			return nil, fmt.Errorf("%w: tokenizer piece %d: %d bytes of type %d; UTF-8 of up to 65535 bytes is needed", ErrWrite, i, len(p.Text), p.Type)
		}
		b = le.AppendUint32(b, math.Float32bits(p.Score))
		b = append(b, byte(p.Type))
		b = le.AppendUint16(b, uint16(len(p.Text)))
		b = append(b, p.Text...)
	}
	return b, nil
}

func flag(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// Tokenizer reads the archive's tokenizer, nil when it has none.
func (f *File) Tokenizer(ctx context.Context) (*Tokenizer, error) {
	e := f.Entry(NameTokenizer)
	if e == nil {
		return nil, nil
	}
	if e.Bytes > MaxTokenizer {
		return nil, f.fail(e.Offset, NameTokenizer, fmt.Errorf("%w: %d bytes, at most %d are read", ErrTokenizer, e.Bytes, MaxTokenizer))
	}
	b := make([]byte, e.Bytes)
	if err := f.blob.ReadAt(ctx, b, e.Offset); err != nil {
		return nil, f.fail(e.Offset, NameTokenizer, err)
	}
	t, err := ParseTokenizer(b)
	if err != nil {
		return nil, f.fail(e.Offset, NameTokenizer, err)
	}
	if int64(len(t.Pieces)) > int64(f.Header.Vocab) {
		return nil, f.fail(e.Offset, NameTokenizer, fmt.Errorf("%w: %d pieces, the header's vocabulary has %d", ErrTokenizer, len(t.Pieces), f.Header.Vocab))
	}
	return t, nil
}
