//go:build (!amd64 && !arm64) || noasm

package quant

func decodeF16(dst []float32, src []byte)         { decodeF16Scalar(dst, src) }
func encodeF16(dst []byte, src []float32)         { encodeF16Scalar(dst, src) }
func decodeBF16(dst []float32, src []byte)        { decodeBF16Scalar(dst, src) }
func encodeBF16(dst []byte, src []float32)        { encodeBF16Scalar(dst, src) }
func encodeQ8_0(dst []byte, src []float32)        { encodeQ8_0Scalar(dst, src) }
func encodeQ4_0(dst []byte, src []float32)        { encodeQ4_0Scalar(dst, src) }
func encodeKMCUQ4(dst []byte, src []float32)      { encodeKMCUQ4Scalar(dst, src) }
func scanCounts(src []float32, lim limits) counts { return scanCountsScalar(src, lim) }
