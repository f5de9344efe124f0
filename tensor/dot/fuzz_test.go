package dot

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// FuzzKernelsEqualScalar multiplies any bytes of any type with any floats.
func FuzzKernelsEqualScalar(f *testing.F) {
	types := blockTypes()
	rng := rand.New(rand.NewPCG(17, 18))
	for i, typ := range types {
		w := make([]byte, 3*int(typ.BlockBytes()))
		anyBytes(rng, w)
		x := make([]byte, 4*2*256)
		for j := 0; j < len(x); j += 4 {
			binary.LittleEndian.PutUint32(x[j:], math.Float32bits(float32(rng.NormFloat64())))
		}
		f.Add(uint8(i), uint8(i%10), w, x)
	}
	f.Fuzz(func(t *testing.T, kind, tokens uint8, w, x []byte) {
		typ := types[int(kind)%len(types)]
		blocks := 1 + int(kind)/len(types)
		width := blocks * int(typ.BlockValues())
		for _, format := range []Format{FormatOf(typ), F32} {
			k := kernel(t, typ, width, format)
			rows := min(len(w)/k.RowBytes(), 20)
			if rows == 0 {
				return
			}
			floats := make([][]float32, 1+tokens%18)
			for i := range floats {
				floats[i] = make([]float32, width)
				for j := range floats[i] {
					if at := (i*width + j) * 4; len(x) >= 4 {
						at %= len(x) &^ 3
						floats[i][j] = math.Float32frombits(binary.LittleEndian.Uint32(x[at:]))
					}
				}
				for j := 0; j+256 <= width; j += 256 {
					compareQuantizers(t, (*[256]float32)(floats[i][j:]))
				}
			}
			compareMul(t, fmt.Sprintf("%s x %s, width %d, %d rows, %d tokens", typ, format, width, rows, len(floats)),
				k, w[:rows*k.RowBytes()], batchOf(t, format, width, floats...), new(Scratch))
		}
	})
}
