package quant

import (
	"encoding/binary"
	"math"

	"quern/tensor"
)

// f64 reads little-endian IEEE binary64, rounding to the nearest float32.
// Values beyond float32 become Inf: see ScanF64.
type f64 struct{}

func (f64) Type() tensor.Type { return tensor.F64 }

func (f64) Decode(dst []float32, src []byte) {
	src = src[:8*len(dst)]
	for i := range dst {
		dst[i] = float32(math.Float64frombits(binary.LittleEndian.Uint64(src[8*i:])))
	}
}
