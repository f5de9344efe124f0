package tokenizer

import (
	"fmt"
	"math"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// The file tokenizer.model is a protocol buffer (proto2) of SentencePiece:
//
//	ModelProto     1 pieces (repeated) · 2 trainer_spec · 3 normalizer_spec
//	SentencePiece  1 piece string · 2 score float · 3 type enum (default 1)
//	TrainerSpec    3 model_type · 24 treat_whitespace_as_suffix ·
//	               35 byte_fallback · 40 unk_id · 41 bos_id · 42 eos_id · 43 pad_id
//	NormalizerSpec 1 name · 2 precompiled_charsmap · 3 add_dummy_prefix ·
//	               4 remove_extra_whitespaces · 5 escape_whitespaces
//
// Fields not listed are skipped.

// PieceType is the type of a SentencePiece piece.
type PieceType int32

const (
	PieceNormal      PieceType = 1
	PieceUnknown     PieceType = 2
	PieceControl     PieceType = 3
	PieceUserDefined PieceType = 4
	PieceUnused      PieceType = 5
	PieceByte        PieceType = 6
)

// Piece is one entry of a SentencePiece vocabulary; its id is its position.
type Piece struct {
	Text  string
	Score float32
	Type  PieceType
}

// SPModelType says how SentencePiece chooses among segmentations.
type SPModelType int32

const (
	SPUnigram SPModelType = 1
	SPBPE     SPModelType = 2
	SPWord    SPModelType = 3
	SPChar    SPModelType = 4
)

// SPModel is a parsed tokenizer.model.
type SPModel struct {
	Pieces                 []Piece
	Type                   SPModelType
	ByteFallback           bool
	WhitespaceAsSuffix     bool
	UnkID, BOSID           int32 // -1: none
	EOSID, PadID           int32
	NormalizerName         string
	PrecompiledCharsmap    []byte
	AddDummyPrefix         bool
	RemoveExtraWhitespaces bool
	EscapeWhitespaces      bool
}

// ParseSPModel reads a tokenizer.model. It holds the file to what SentencePiece
// itself asks when loading: no empty and no repeated piece, exactly one unknown
// piece, byte pieces only with byte_fallback and then all 256. name is used in
// messages.
func ParseSPModel(name string, data []byte) (*SPModel, error) {
	m := &SPModel{
		Type: SPUnigram, BOSID: 1, EOSID: 2, PadID: -1,
		AddDummyPrefix: true, RemoveExtraWhitespaces: true, EscapeWhitespaces: true,
	}
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%s: %s: %w", name, fmt.Sprintf(format, args...), ErrFormat)
	}
	err := eachField(data, func(f protoField) error {
		switch f.num {
		case 1:
			if err := f.want(protowire.BytesType); err != nil {
				return err
			}
			p, err := parsePiece(f.bytes)
			if err != nil {
				return fmt.Errorf("piece %d: %w", len(m.Pieces), err)
			}
			m.Pieces = append(m.Pieces, p)
		case 2:
			if err := f.want(protowire.BytesType); err != nil {
				return err
			}
			if err := m.trainerSpec(f.bytes); err != nil {
				return fmt.Errorf("trainer_spec: %w", err)
			}
		case 3:
			if err := f.want(protowire.BytesType); err != nil {
				return err
			}
			if err := m.normalizerSpec(f.bytes); err != nil {
				return fmt.Errorf("normalizer_spec: %w", err)
			}
		}
		return nil
	})
	if err != nil {
		return nil, bad("%v", err)
	}
	if len(m.Pieces) == 0 {
		return nil, bad("no pieces; not a SentencePiece model")
	}
	if m.Type < SPUnigram || m.Type > SPChar {
		return nil, bad("model type %d", m.Type)
	}
	seen := make(map[string]int, len(m.Pieces))
	unk, bytesSeen := -1, 0
	for i, p := range m.Pieces {
		if p.Text == "" {
			return nil, bad("piece %d is empty", i)
		}
		if j, ok := seen[p.Text]; ok {
			return nil, bad("piece %d %q repeats piece %d", i, p.Text, j)
		}
		seen[p.Text] = i
		switch p.Type {
		case PieceUnknown:
			if unk >= 0 {
				return nil, bad("pieces %d and %d are both of type unknown", unk, i)
			}
			unk = i
		case PieceByte:
			if !m.ByteFallback {
				return nil, bad("piece %d is a byte although byte_fallback is false", i)
			}
			if _, ok := byteTokenValue(p.Text); !ok {
				return nil, bad("byte piece %d is %q, want <0x00> to <0xFF>", i, p.Text)
			}
			bytesSeen++
		}
	}
	if unk < 0 {
		return nil, bad("no piece of type unknown")
	}
	if m.ByteFallback && bytesSeen != 256 {
		return nil, bad("%d byte pieces although byte_fallback is true, want 256", bytesSeen)
	}
	return m, nil
}

func parsePiece(data []byte) (Piece, error) {
	p := Piece{Type: PieceNormal}
	err := eachField(data, func(f protoField) error {
		switch f.num {
		case 1:
			if err := f.want(protowire.BytesType); err != nil {
				return err
			}
			if !utf8.Valid(f.bytes) {
				return fmt.Errorf("text %q is not UTF-8", f.bytes)
			}
			p.Text = string(f.bytes)
		case 2:
			if err := f.want(protowire.Fixed32Type); err != nil {
				return err
			}
			p.Score = math.Float32frombits(uint32(f.value))
			if p.Score != p.Score {
				return fmt.Errorf("score is not a number")
			}
		case 3:
			if err := f.want(protowire.VarintType); err != nil {
				return err
			}
			p.Type = PieceType(int32(f.value))
			if p.Type < PieceNormal || p.Type > PieceByte {
				return fmt.Errorf("type %d", p.Type)
			}
		}
		return nil
	})
	return p, err
}

func (m *SPModel) trainerSpec(data []byte) error {
	return eachField(data, func(f protoField) error {
		switch f.num {
		case 3, 24, 35, 40, 41, 42, 43:
			if err := f.want(protowire.VarintType); err != nil {
				return err
			}
		}
		switch f.num {
		case 3:
			m.Type = SPModelType(int32(f.value))
		case 24:
			m.WhitespaceAsSuffix = f.value != 0
		case 35:
			m.ByteFallback = f.value != 0
		case 40:
			m.UnkID = int32(f.value)
		case 41:
			m.BOSID = int32(f.value)
		case 42:
			m.EOSID = int32(f.value)
		case 43:
			m.PadID = int32(f.value)
		}
		return nil
	})
}

func (m *SPModel) normalizerSpec(data []byte) error {
	return eachField(data, func(f protoField) error {
		want := protowire.VarintType
		if f.num == 1 || f.num == 2 {
			want = protowire.BytesType
		}
		if f.num >= 1 && f.num <= 5 {
			if err := f.want(want); err != nil {
				return err
			}
		}
		switch f.num {
		case 1:
			m.NormalizerName = string(f.bytes)
		case 2:
			m.PrecompiledCharsmap = append([]byte(nil), f.bytes...)
		case 3:
			m.AddDummyPrefix = f.value != 0
		case 4:
			m.RemoveExtraWhitespaces = f.value != 0
		case 5:
			m.EscapeWhitespaces = f.value != 0
		}
		return nil
	})
}

// protoField is one field on the wire: bytes for length-delimited ones (in
// place), value for the others.
type protoField struct {
	num   protowire.Number
	typ   protowire.Type
	value uint64
	bytes []byte
}

func (f protoField) want(t protowire.Type) error {
	if f.typ != t {
		return fmt.Errorf("field %d has wire type %d, want %d", f.num, f.typ, t)
	}
	return nil
}

// eachField calls fn for every field of a message.
func eachField(data []byte, fn func(protoField) error) error {
	for off := 0; off < len(data); {
		num, typ, n := protowire.ConsumeTag(data[off:])
		if n < 0 {
			return fmt.Errorf("offset %d: %w", off, protowire.ParseError(n))
		}
		off += n
		f := protoField{num: num, typ: typ}
		rest := data[off:]
		switch typ {
		case protowire.VarintType:
			f.value, n = protowire.ConsumeVarint(rest)
		case protowire.Fixed32Type:
			var v uint32
			v, n = protowire.ConsumeFixed32(rest)
			f.value = uint64(v)
		case protowire.Fixed64Type:
			f.value, n = protowire.ConsumeFixed64(rest)
		case protowire.BytesType:
			f.bytes, n = protowire.ConsumeBytes(rest)
		default:
			n = protowire.ConsumeFieldValue(num, typ, rest)
		}
		if n < 0 {
			return fmt.Errorf("offset %d, field %d: %w", off, num, protowire.ParseError(n))
		}
		if err := fn(f); err != nil {
			return err
		}
		off += n
	}
	return nil
}

// byteTokenValue reports the byte that a token text "<0xXX>" stands for.
func byteTokenValue(s string) (byte, bool) {
	if len(s) != 6 || s[:3] != "<0x" || s[5] != '>' {
		return 0, false
	}
	v := byte(0)
	for i := 3; i < 5; i++ {
		switch c := s[i]; {
		case c >= '0' && c <= '9':
			v = v<<4 | (c - '0')
		case c >= 'A' && c <= 'F':
			v = v<<4 | (c - 'A' + 10)
		case c >= 'a' && c <= 'f':
			v = v<<4 | (c - 'a' + 10)
		default:
			return 0, false
		}
	}
	return v, true
}

// byteToken is the text of a byte-fallback token, upper-case hexadecimal.
func byteToken(b byte) string {
	const hex = "0123456789ABCDEF"
	return string([]byte{'<', '0', 'x', hex[b>>4], hex[b&15], '>'})
}
