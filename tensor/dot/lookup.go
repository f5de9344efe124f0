package dot

// Products by lookup, the method of the Four Russians: of four activations there are
// 16 sums with one-bit weights, so a matrix of many rows need not multiply or add
// them again for each. A layout of 32 rows has the four bits of a row beside each
// other, as an index. All of it is integer, and the terms of units are added as
// by any other kernel.
//
//	tables  for each 4 activations: low bytes of 16 sums, then high bytes
//
// Bit j of an index is the weight of activation j: 1 or -1 in q1_0, 1 or 0 in the
// planes of q2_K.

// lookup multiplies rows of weights with the only activation row of b.
type lookup func(k *Kernel, dst []float32, w []byte, b *Batch, s *Scratch)

// lookups are the layouts whose products are looked up for a single activation row.
var lookups = map[string]lookup{
	"q1_0_32_lut": (*Kernel).lookUpQ1_0,
	"q2_K_32_lut": (*Kernel).lookUpQ2_K,
}

// sums4 makes the tables of activations that enter weights of bit 0 with a sign, or
// not at all.
func (s *Scratch) sums4(b *Batch, signed bool) []byte {
	version := b.version.Load()
	if s.tablesOf == b && s.tablesVersion == version && s.tablesSigned == signed {
		return s.tables
	}
	if len(s.tables) < 8*b.width {
		s.tables = make([]byte, 8*b.width)
	}
	var sums [16]int16
	for at := 0; at < b.width; at += 4 {
		a := b.codes[at:][:4]
		sums[0] = 0
		step := [4]int16{int16(a[0]), int16(a[1]), int16(a[2]), int16(a[3])}
		if signed {
			sums[0] = -(step[0] + step[1] + step[2] + step[3])
			for j := range step {
				step[j] *= 2
			}
		}
		for j, v := range step {
			for i := range 1 << j {
				sums[1<<j+i] = sums[i] + v
			}
		}
		t := s.tables[8*at:][:32]
		for i, v := range sums {
			t[i], t[16+i] = byte(v), byte(uint16(v)>>8)
		}
	}
	s.tablesOf, s.tablesVersion, s.tablesSigned = b, version, signed
	return s.tables
}

// entries reads a table.
func entries(t []byte) (sums [16]int32) {
	t = t[:32]
	for i := range sums {
		sums[i] = int32(int16(uint16(t[i]) | uint16(t[16+i])<<8))
	}
	return sums
}

// add32 looks the indices of 32 rows up.
func add32(n *[32]int32, index []byte, sums *[16]int32, times int32) {
	for i, b := range index[:16] {
		n[i] += times * sums[b&15]
		n[i+16] += times * sums[b>>4]
	}
}

func (k *Kernel) lookUpQ1_0(dst []float32, w []byte, b *Batch, s *Scratch) {
	tables, group := s.sums4(b, true), 32*k.rowBytes
	for r := 0; len(w) >= group; r, w = r+32, w[group:] {
		lookUpQ1_0((*[32]float32)(dst[r:]), w[:group], group, tables, b.scales, k.width/128)
	}
}

func lookUpQ1_0Scalar(dst *[32]float32, w, tables []byte, da []float32, blocks int) {
	*dst = [32]float32{}
	for u := range 4 * blocks {
		block := w[u/4*576:][:576]
		var n [32]int32
		for step := range 8 {
			sums := entries(tables[256*u+32*step:])
			add32(&n, block[64+128*(u%4)+16*step:], &sums, 1)
		}
		for i, v := range n {
			dst[i] += float32(float32(v) * float32(f16(block[2*i:])*da[u]))
		}
	}
	for i, v := range dst {
		dst[i] = number(v)
	}
}

func (k *Kernel) lookUpQ2_K(dst []float32, w []byte, b *Batch, s *Scratch) {
	tables, group := s.sums4(b, false), 32*k.rowBytes
	for r := 0; len(w) >= group; r, w = r+32, w[group:] {
		out := (*[32]float32)(dst[r:])
		*out = [32]float32{}
		for u := range k.width / 256 {
			block := w[u*2688:][:2688]
			var n, m [32]int32
			for j := range 16 {
				var part [32]int32
				for step := 4 * j; step < 4*j+4; step++ {
					sums := entries(tables[2048*u+32*step:])
					add32(&part, block[640+32*step:], &sums, 1)
					add32(&part, block[640+32*step+16:], &sums, 2)
				}
				for i, sc := range block[128+32*j:][:32] {
					n[i] += int32(sc&15) * part[i]
					m[i] += int32(sc>>4) * int32(b.pairs[16*u+j])
				}
			}
			da := b.scales[u]
			for i := range out {
				d := float32(f16(block[2*i:]) * da)
				out[i] += float32(float32(n[i]) * d)
				out[i] -= float32(float32(m[i]) * float32(f16(block[64+2*i:])*da))
			}
		}
		for i, v := range out {
			out[i] = number(v)
		}
	}
}
