package quant

import (
	"encoding/binary"

	"quern/tensor"
)

// f16 is little-endian IEEE binary16.
type f16 struct{}

func (f16) Type() tensor.Type { return tensor.F16 }

func (f16) Decode(dst []float32, src []byte) { decodeF16(dst, src[:2*len(dst)]) }

func (f16) EncodeRow(dst []byte, src, _ []float32) { encodeF16(dst[:2*len(src)], src) }

func decodeF16Scalar(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = FromF16(binary.LittleEndian.Uint16(src[2*i:]))
	}
}

func encodeF16Scalar(dst []byte, src []float32) {
	for i, v := range src {
		binary.LittleEndian.PutUint16(dst[2*i:], ToF16(v))
	}
}
