package quant

import (
	"encoding/binary"
	"math"
	"unsafe"

	"golang.org/x/sys/cpu"

	"quern/tensor"
)

// f32 is little-endian IEEE binary32: on most machines a copy.
type f32 struct{}

func (f32) Type() tensor.Type { return tensor.F32 }

func (f32) Decode(dst []float32, src []byte) {
	src = src[:4*len(dst)]
	if !cpu.IsBigEndian {
		copy(bytesOf(dst), src)
		return
	}
	for i := range dst {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
	}
}

func (f32) EncodeRow(dst []byte, src, _ []float32) {
	dst = dst[:4*len(src)]
	if !cpu.IsBigEndian {
		copy(dst, bytesOf(src))
		return
	}
	for i, v := range src {
		binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(v))
	}
}

// bytesOf gives the memory of f.
func bytesOf(f []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(f))), 4*len(f))
}
