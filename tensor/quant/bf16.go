package quant

import (
	"encoding/binary"

	"quern/tensor"
)

// bf16 is little-endian bfloat16.
type bf16 struct{}

func (bf16) Type() tensor.Type { return tensor.BF16 }

func (bf16) Decode(dst []float32, src []byte) { decodeBF16(dst, src[:2*len(dst)]) }

func (bf16) EncodeRow(dst []byte, src, _ []float32) { encodeBF16(dst[:2*len(src)], src) }

func decodeBF16Scalar(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = FromBF16(binary.LittleEndian.Uint16(src[2*i:]))
	}
}

func encodeBF16Scalar(dst []byte, src []float32) {
	for i, v := range src {
		binary.LittleEndian.PutUint16(dst[2*i:], ToBF16(v))
	}
}
