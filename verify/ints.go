package verify

import (
	"encoding/binary"

	"quern/tensor"
	"quern/tensor/quant"
)

// decoderFor is that of package quant, and one for integers: lists such as the ids of
// a pruned head. Their errors are shown in float32; whether they are equal is told by
// their bytes.
func decoderFor(t tensor.Type) (quant.Decoder, error) {
	if isInteger(t) {
		return integers{t}, nil
	}
	return quant.DecoderFor(t)
}

func isInteger(t tensor.Type) bool {
	switch t {
	case tensor.I8, tensor.I16, tensor.I32, tensor.I64:
		return true
	}
	return false
}

type integers struct{ t tensor.Type }

// Type is the type of the tensor.
func (d integers) Type() tensor.Type { return d.t }

// Decode gives the nearest float32.
func (d integers) Decode(dst []float32, src []byte) {
	for i := range dst {
		switch d.t {
		case tensor.I8:
			dst[i] = float32(int8(src[i]))
		case tensor.I16:
			dst[i] = float32(int16(binary.LittleEndian.Uint16(src[2*i:])))
		case tensor.I32:
			dst[i] = float32(int32(binary.LittleEndian.Uint32(src[4*i:])))
		case tensor.I64:
			dst[i] = float32(int64(binary.LittleEndian.Uint64(src[8*i:])))
		}
	}
}
