// Package quant holds the block codecs: one file a type, each with its layout
// drawn, its decoder and its encoder. The encoders give ggml's bytes (llama.cpp
// v0.5.0, x86-64) for ggml's types.
//
// All arithmetic is float32, one rounding per operation, in the written order;
// products that are added are converted explicitly so that no compiler fuses
// them. Results never depend on the neighbouring blocks or on earlier calls.
package quant

import (
	"fmt"

	"quern/tensor"
)

// Codec turns float32 values into the bytes of one tensor type and back. A
// Codec has no state and may be used by several goroutines at once.
type Codec interface {
	Type() tensor.Type
	// Decode fills dst with the values of src; len(dst) is a multiple of the
	// block and len(src) matches it.
	Decode(dst []float32, src []byte)
	// EncodeRow writes one row of len(src) values to dst. weights is the
	// row's importance (len(src) values, each >= 0) or nil. Types that ggml
	// quantizes without weights ignore it. src must be finite.
	EncodeRow(dst []byte, src, weights []float32)
}

// For gives the codec of a type, or an error that says which are there.
func For(t tensor.Type) (Codec, error) {
	if int(t) < len(codecs) && codecs[t] != nil {
		return codecs[t], nil
	}
	return nil, fmt.Errorf("%w: no codec for %s", tensor.ErrUnknownType, t)
}
