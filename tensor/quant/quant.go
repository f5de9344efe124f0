// Package quant holds the block codecs: one file a type, each with its layout
// drawn, its decoder and its encoder. The encoders give ggml's bytes (llama.cpp
// v0.5.0, x86-64) for ggml's types.
//
// All arithmetic is float32, one rounding per operation, in the written order;
// products that are added are converted explicitly so that no compiler fuses
// them. Results never depend on the neighbouring blocks or on earlier calls.
//
// Some kernels have AVX2 forms for amd64 and NEON forms for arm64, among them the
// searches of the k-quants and of IQ4 and IQ1, with a group or a block in each lane,
// and those of IQ2 and IQ3, with a neighbour or a candidate in each lane. They do
// the scalar code's operations lane by lane and give the same bytes. Build tag noasm
// leaves them out, the environment variable QUERN_NOASM=1 switches them off.
package quant

//go:generate go -C _gen run . -out ../kernels_amd64.s -stubs ../stubs_amd64.go -pkg quant -neon ../kernels_arm64.s -neonstubs ../stubs_arm64.go
//go:generate go -C _gen run . -iq -out ../iq_kernels_amd64.s -stubs ../iq_stubs_amd64.go -pkg quant -neon ../iq_kernels_arm64.s -neonstubs ../iq_stubs_arm64.go

import (
	"fmt"

	"quern/tensor"
)

// Decoder turns the bytes of one tensor type into float32 values. A Decoder
// has no state and may be used by several goroutines at once.
type Decoder interface {
	Type() tensor.Type
	// Decode fills dst with the values of src; len(dst) is a multiple of the
	// block and len(src) matches it. Any bytes decode to something.
	Decode(dst []float32, src []byte)
}

// Codec turns float32 values into the bytes of one tensor type and back.
type Codec interface {
	Decoder
	// EncodeRow writes one row of len(src) values to dst. weights is the
	// row's importance (len(src) values, each >= 0) or nil. Types that ggml
	// quantizes without weights ignore it; see DeadWeights for zeros. src must
	// be finite: see Scan. A
	// block whose scale is beyond the type's range is written with an
	// infinite scale, which FirstBadBlock finds.
	EncodeRow(dst []byte, src, weights []float32)
}

// DecoderFor gives the decoder of a type that stores numbers. Integer types
// have none.
func DecoderFor(t tensor.Type) (Decoder, error) {
	if int(t) < len(decoders) && decoders[t] != nil {
		return decoders[t], nil
	}
	return nil, fmt.Errorf("%w: %s has no decoder to float32", tensor.ErrUnknownType, t)
}

// For gives the codec of a type that can be written. F64 and the 8-bit floats
// are read only, with ErrDecodeOnly.
func For(t tensor.Type) (Codec, error) {
	d, err := DecoderFor(t)
	if err != nil {
		return nil, err
	}
	if c, ok := d.(Codec); ok {
		return c, nil
	}
	return nil, fmt.Errorf("%w: %s", ErrDecodeOnly, t)
}
