//go:build !noasm

package dot

import (
	"os"

	"golang.org/x/sys/cpu"

	"quern/tensor"
)

// useAVX2 is decided once, at start. It changes the speed, not the results.
var useAVX2 = cpu.X86.HasAVX2 && cpu.X86.HasF16C && os.Getenv("QUERN_NOASM") != "1"

func quantizeQ8_0(q []int8, d []float32, sums []int32, x []float32) {
	for u := 0; u < len(d); u++ {
		if useAVX2 {
			if u = len(d) - quantizeQ8_0AVX2(&q[32*u], &d[u], &sums[u], &x[32*u], len(d)-u); u == len(d) {
				return
			}
		}
		quantizeQ8_0Scalar(q[32*u:], d[u:u+1], sums[u:], x[32*u:])
	}
}

func quantizeQ8_K(q *[256]int8, sums *[16]int16, x *[256]float32) float32 {
	var d float32
	if useAVX2 && quantizeQ8_KAVX2(&q[0], &d, &sums[0], &x[0]) {
		return d
	}
	return quantizeQ8_KScalar(q, sums, x)
}

// unpacker is the vector code that unpacks a type, and the way it leaves the
// scales.
type unpacker struct {
	rows   func(codes *byte, d, m *float32, scales *uint32, corr *int16, src *byte, blocks, rows, rowBytes, ahead int)
	scales func(d, m *float32, units int) // makes them float32, if they are not
}

var unpackers = [...]unpacker{
	tensor.KMCUQ4: {unpackKMCUQ4AVX2, widenAVX2},

	tensor.Q4_0:   {unpackQ4_0AVX2, widenAVX2},
	tensor.Q4_1:   {unpackQ4_1AVX2, widenBothAVX2},
	tensor.Q5_0:   {unpackQ5_0AVX2, widenAVX2},
	tensor.Q5_1:   {unpackQ5_1AVX2, widenBothAVX2},
	tensor.Q8_0:   {unpackQ8_0AVX2, widenAVX2},
	tensor.IQ4_NL: {unpackIQ4_NLAVX2, widenAVX2},
	tensor.MXFP4:  {unpackMXFP4AVX2, nil},
	tensor.NVFP4:  {unpackNVFP4AVX2, nil},
	tensor.Q2_K:   {unpackQ2_KAVX2, widenBothAVX2},
	tensor.Q3_K:   {unpackQ3_KAVX2, widenAVX2},
	tensor.Q4_K:   {unpackQ4_KAVX2, widenBothAVX2},
	tensor.Q5_K:   {unpackQ5_KAVX2, widenBothAVX2},
	tensor.Q6_K:   {unpackQ6_KAVX2, widenAVX2},
	tensor.TQ2_0:  {unpackTQ2_0AVX2, widenAVX2},
	tensor.IQ4_XS: {unpackIQ4_XSAVX2, widenAVX2},
}

// unpackRows fills the first rows of a tile with blocks of a type. Rows of the
// source lie rowBytes apart; what will be unpacked next lies ahead.
func unpackRows(typ tensor.Type, t *tile, rows, blocks int, src []byte, rowBytes, ahead int) {
	fast := unpackers[typ]
	if fast.rows == nil || !useAVX2 {
		unpackRowsScalar(typ, t, rows, blocks, src, rowBytes)
		return
	}
	f := families[typ]
	_ = src[(rows-1)*rowBytes+blocks*f.block-1]
	fast.rows(&t.codes[0], &t.d[0], &t.m[0], &t.scales[0], &t.corr[0], &src[0], blocks, rows, rowBytes, ahead)
	if fast.scales != nil {
		fast.scales(&t.d[0], &t.m[0], blocks*f.units)
	}
}

// vectorUnpacks reports whether unpackRows of a type is vector code.
func vectorUnpacks(t tensor.Type) bool {
	return useAVX2 && int(t) < len(unpackers) && unpackers[t].rows != nil
}

// sumGroup runs the group kernels, which take 4 weight rows each.
func sumGroup(k kind, acc *[64]float32, t *tile, b *Batch, at, units int) {
	if !useAVX2 {
		sumGroupScalar(k, acc, t, b, at, units)
		return
	}
	for r := 0; r < lanes; r += 4 {
		to, codes, d, m := &acc[lanes*r], &t.codes[r*tileWidth], &t.d[r], &t.m[r]
		if k < biased256 {
			a, da, sums := &b.codes[32*at], &b.scales[at], &b.sums[at]
			switch k {
			case biased32:
				groupBiased32AVX2(to, codes, d, m, a, da, sums, units)
			case affine32:
				groupAffine32AVX2(to, codes, d, m, a, da, sums, units)
			case signed32:
				groupSigned32AVX2(to, codes, d, m, a, da, sums, units)
			default:
				groupHalves32AVX2(to, codes, d, m, a, da, sums, units)
			}
			continue
		}
		scales, corr := &t.scales[r*tileWidth/16], &t.corr[r*tileWidth/16]
		a, da, pairs := &b.codes[256*at], &b.scales[at], &b.pairs[16*at]
		switch k {
		case biased256:
			groupBiased256AVX2(to, codes, d, m, scales, corr, a, da, pairs, units)
		case wide256:
			groupWide256AVX2(to, codes, d, m, scales, corr, a, da, pairs, units)
		case affine256:
			groupAffine256AVX2(to, codes, d, m, scales, corr, a, da, pairs, units)
		default:
			groupSigned256AVX2(to, codes, d, m, scales, corr, a, da, pairs, units)
		}
	}
}

func sumSingle(k kind, acc *[lanes]float32, t *tile, b *Batch, at, units int) {
	if !useAVX2 {
		sumSingleScalar(k, acc, t, b, at, units)
		return
	}
	to, codes, d, m := &acc[0], &t.codes[0], &t.d[0], &t.m[0]
	if k < biased256 {
		a, da, sums := &b.codes[32*at], &b.scales[at], &b.sums[at]
		switch k {
		case biased32:
			singleBiased32AVX2(to, codes, d, m, a, da, sums, units)
		case affine32:
			singleAffine32AVX2(to, codes, d, m, a, da, sums, units)
		case signed32:
			singleSigned32AVX2(to, codes, d, m, a, da, sums, units)
		default:
			singleHalves32AVX2(to, codes, d, m, a, da, sums, units)
		}
		return
	}
	scales, corr := &t.scales[0], &t.corr[0]
	a, da, pairs := &b.codes[256*at], &b.scales[at], &b.pairs[16*at]
	switch k {
	case biased256, wide256:
		singleBiased256AVX2(to, codes, d, m, scales, corr, a, da, pairs, units)
	case affine256:
		singleAffine256AVX2(to, codes, d, m, scales, corr, a, da, pairs, units)
	default:
		singleSigned256AVX2(to, codes, d, m, scales, corr, a, da, pairs, units)
	}
}

// gemvs32 and gemvs256 are the kernels that multiply 8 rows of a type with one
// activation row where they lie.
var gemvs32 = [...]func(dst *float32, w *byte, rowBytes, ahead int, a *int8, da *float32, sums *int32, units int){
	tensor.Q4_0:   gemvQ4_0AVX2,
	tensor.Q4_1:   gemvQ4_1AVX2,
	tensor.Q5_0:   gemvQ5_0AVX2,
	tensor.Q5_1:   gemvQ5_1AVX2,
	tensor.Q8_0:   gemvQ8_0AVX2,
	tensor.IQ4_NL: gemvIQ4_NLAVX2,
}

var gemvs256 = [...]func(dst *float32, w *byte, rowBytes, ahead int, a *int8, da *float32, sums *int16, units int){
	tensor.Q2_K:   gemvQ2_KAVX2,
	tensor.Q3_K:   gemvQ3_KAVX2,
	tensor.Q4_K:   gemvQ4_KAVX2,
	tensor.Q5_K:   gemvQ5_KAVX2,
	tensor.Q6_K:   gemvQ6_KAVX2,
	tensor.IQ4_XS: gemvIQ4_XSAVX2,
}

// gemv multiplies rows of weights with the only activation row of b, 8 at a time
// as far as there are 8, and gives their number: 0 for types without a kernel.
func gemv(k *Kernel, dst []float32, w []byte, b *Batch) int {
	if !useAVX2 {
		return 0
	}
	n, ahead := len(w)/k.rowBytes&^(lanes-1), lanes*k.rowBytes
	switch t := int(k.typ); {
	case t < len(gemvs32) && gemvs32[t] != nil:
		for r := 0; r < n; r += lanes {
			_ = dst[r+lanes-1]
			gemvs32[t](&dst[r], &w[r*k.rowBytes], k.rowBytes, ahead, &b.codes[0], &b.scales[0], &b.sums[0], b.units)
		}
	case t < len(gemvs256) && gemvs256[t] != nil:
		for r := 0; r < n; r += lanes {
			_ = dst[r+lanes-1]
			gemvs256[t](&dst[r], &w[r*k.rowBytes], k.rowBytes, ahead, &b.codes[0], &b.scales[0], &b.pairs[0], b.units)
		}
	default:
		return 0
	}
	return n
}

// packed32 and packed256 are the kernels that multiply a group of repacked rows with
// one activation row; bundles are its bundles.
var (
	packed32 = map[string]func(dst *float32, w *byte, ahead int, a *int8, da *float32, sums *int32, bundles int){
		"q4_0_4x4": gemv_q4_0_4x4AVX2, "q4_0_4x8": gemv_q4_0_4x8AVX2, "q4_0_8x8": gemv_q4_0_8x8AVX2,
		"mxfp4_4x4": gemv_mxfp4_4x4AVX2, "mxfp4_8x8": gemv_mxfp4_8x8AVX2,
		"iq4_nl_4x4": gemv_iq4_nl_4x4AVX2, "iq4_nl_8x8": gemv_iq4_nl_8x8AVX2,
		"q8_0_4x4": gemv_q8_0_4x4AVX2, "q8_0_4x8": gemv_q8_0_4x8AVX2,
		"q2_0_8x4": gemv_q2_0_8x4AVX2, "q2_0_8x4_base3": gemv_q2_0_8x4_base3AVX2, "q2_0_8x4_merged128": gemv_q2_0_8x4_merged128AVX2,
		"q1_0_8x4_planes": gemv_q1_0_8x4_planesAVX2,
	}
	packed256 = map[string]func(dst *float32, w *byte, ahead int, a *int8, da *float32, sums *int16, bundles int){
		"q4_K_8x4": gemv_q4_K_8x4AVX2, "q4_K_8x8": gemv_q4_K_8x8AVX2, "q5_K_8x4": gemv_q5_K_8x4AVX2, "q5_K_8x8": gemv_q5_K_8x8AVX2,
		"q6_K_8x4": gemv_q6_K_8x4AVX2, "q6_K_8x8": gemv_q6_K_8x8AVX2, "q2_K_8x4": gemv_q2_K_8x4AVX2, "tq2_0_8x4": gemv_tq2_0_8x4AVX2,
		"tq1_0_8x4": gemv_tq1_0_8x4AVX2,
	}
)

// gemvPacked is gemv for repacked rows, a group at a time.
func gemvPacked(k *Kernel, dst []float32, w []byte, b *Batch) int {
	if !useAVX2 {
		return 0
	}
	small, large := packed32[k.layout.String()], packed256[k.layout.String()]
	if small == nil && large == nil {
		return 0
	}
	group := k.Rows() * k.rowBytes
	bundles := group / k.layout.BundleBytes()
	n := len(w) / group * k.Rows()
	for r := 0; r < n; r += k.Rows() {
		_, _ = dst[r+k.Rows()-1], w[r*k.rowBytes+group-1]
		if small != nil {
			small(&dst[r], &w[r*k.rowBytes], group, &b.codes[0], &b.scales[0], &b.sums[0], bundles)
		} else {
			large(&dst[r], &w[r*k.rowBytes], group, &b.codes[0], &b.scales[0], &b.pairs[0], bundles)
		}
	}
	return n
}

func lookUpQ1_0(dst *[32]float32, w []byte, ahead int, tables []byte, da []float32, blocks int) {
	if useAVX2 {
		_, _, _ = w[576*blocks-1], tables[1024*blocks-1], da[4*blocks-1]
		lookUpQ1_0AVX2(&dst[0], &w[0], ahead, &tables[0], &da[0], blocks)
		return
	}
	lookUpQ1_0Scalar(dst, w, tables, da, blocks)
}

func turn(acc *[64]float32) {
	if useAVX2 {
		turnAVX2(&acc[0])
		return
	}
	turnScalar(acc)
}

// vectorDecodes reports whether unpacking and expandRow are faster than the
// decoder. They give the same values.
func vectorDecodes(t tensor.Type) bool {
	return useAVX2 && int(t) < len(families) && families[t] != nil
}

// expandRow gives the values of row 0 of a tile.
func expandRow(f *family, dst []float32, t *tile) {
	to, codes, d, m, units := &dst[0], &t.codes[0], &t.d[0], &t.m[0], len(dst)/f.kind.values()
	switch f.kind {
	case biased32, signed32:
		expand32AVX2(to, codes, d, d, f.bias, units)
	case halves32:
		expand32AVX2(to, codes, d, m, 0, units)
	case affine32:
		expandAffine32AVX2(to, codes, d, m, 0, units)
	case affine256:
		expandAffine256AVX2(to, codes, d, m, &t.scales[0], &t.corr[0], 0, units)
	default:
		expand256AVX2(to, codes, d, m, &t.scales[0], &t.corr[0], f.bias, units)
	}
}

func dotFloats(dst []float32, stride, n int, rows, x []float32, width int) {
	if !useAVX2 {
		dotFloatsScalar(dst, stride, n, rows, x, width)
		return
	}
	tokens := len(x) / width
	for t := 0; t < tokens; t += 2 {
		var sums [2 * floatRows]float32
		count := min(tokens-t, 2)
		if count == 2 {
			dotFloatsTwoAVX2(&sums[0], &rows[0], &x[t*width], width)
		} else {
			dotFloatsAVX2(&sums[0], &rows[0], &x[t*width], width)
		}
		for c := range count {
			out := dst[(t+c)*stride:][:n]
			for i := range out {
				out[i] = number(sums[c*floatRows+i])
			}
		}
	}
}
