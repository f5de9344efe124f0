package needle

import (
	"fmt"
	"slices"

	"quern/formats/cact"
	"quern/tensor"
	"quern/tokenizer"
)

// Tokenizer turns a SentencePiece BPE model into that of an archive. The ids of
// padding, end, begin and unknown are 0 to 3 whatever the model says, as engines
// take them to be. Generation 2 always puts a space in front of a text.
func Tokenizer(m *tokenizer.SPModel, generation int) (*cact.Tokenizer, error) {
	if m.Type != tokenizer.SPBPE {
		return nil, fmt.Errorf("%w: a SentencePiece model of type %d; archives hold BPE (type %d)", tokenizer.ErrFormat, m.Type, tokenizer.SPBPE)
	}
	t := &cact.Tokenizer{Pad: 0, EOS: 1, BOS: 2, Unk: 3, ByteFallback: true, AddDummyPrefix: m.AddDummyPrefix || generation == 2}
	markers := cact.Markers(generation)
	for _, p := range m.Pieces {
		k := cact.Normal
		switch {
		case p.Type == tokenizer.PieceControl:
			k = cact.Control
		case p.Type == tokenizer.PieceUnknown:
			k = cact.Unknown
		case p.Type == tokenizer.PieceByte:
			k = cact.Byte
		case slices.Contains(markers, p.Text):
			k = cact.UserDefined
		}
		t.Pieces = append(t.Pieces, cact.Piece{Text: p.Text, Score: p.Score, Type: k})
	}
	if len(t.Pieces) < 4 {
		return nil, fmt.Errorf("%w: %d pieces; padding, end, begin and unknown are 0 to 3", tokenizer.ErrFormat, len(t.Pieces))
	}
	return t, nil
}

// SpeechPieces turns a SentencePiece model into the tokenizer of a speech model's text:
// ids and types are those that the model says.
func SpeechPieces(m *tokenizer.SPModel) (*cact.Tokenizer, error) {
	if m.Type != tokenizer.SPBPE {
		return nil, fmt.Errorf("%w: a SentencePiece model of type %d; archives hold BPE (type %d)", tokenizer.ErrFormat, m.Type, tokenizer.SPBPE)
	}
	t := &cact.Tokenizer{ByteFallback: m.ByteFallback, AddDummyPrefix: m.AddDummyPrefix}
	for _, f := range []struct {
		name string
		id   int32
		to   *uint32
	}{{"pad", m.PadID, &t.Pad}, {"eos", m.EOSID, &t.EOS}, {"bos", m.BOSID, &t.BOS}, {"unk", m.UnkID, &t.Unk}} {
		if f.id < 0 {
			return nil, fmt.Errorf("%w: it has no %s piece", tokenizer.ErrFormat, f.name)
		}
		*f.to = uint32(f.id)
	}
	for i, p := range m.Pieces {
		k, ok := pieceTypes[p.Type]
		if !ok {
			return nil, fmt.Errorf("%w: piece %d, %q, is of type %d, which archives do not hold", tokenizer.ErrFormat, i, p.Text, p.Type)
		}
		t.Pieces = append(t.Pieces, cact.Piece{Text: p.Text, Score: p.Score, Type: k})
	}
	if len(t.Pieces) == 0 {
		return nil, fmt.Errorf("%w: it has no pieces", tokenizer.ErrFormat)
	}
	return t, nil
}

var pieceTypes = map[tokenizer.PieceType]cact.PieceType{
	tokenizer.PieceNormal: cact.Normal, tokenizer.PieceUnknown: cact.Unknown, tokenizer.PieceControl: cact.Control,
	tokenizer.PieceUserDefined: cact.UserDefined, tokenizer.PieceByte: cact.Byte,
}

// TokenizerTensor makes the last tensor of an archive.
func TokenizerTensor(t *cact.Tokenizer) (*tensor.Tensor, error) {
	b, err := t.Encode()
	if err != nil {
		return nil, err
	}
	return Bytes(cact.NameTokenizer, tensor.U8, tensor.Shape{int64(len(b))}, b), nil
}
