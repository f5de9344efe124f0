package dot

import "quern/tensor"

// Scratch is the memory of one goroutine's products. Its zero value is ready;
// it grows to what it is used for and may go from kernel to kernel.
type Scratch struct {
	tile *tile
	// acc holds the accumulators of 8 weight rows: for each group of
	// activations 8 rows of 8, then a single activation row's 8.
	acc  []float32
	rows []float32 // decoded weights, for float32 activations
	// plain are repacked weights put in order.
	plain []byte
	// tables are for products by lookup, of what a batch held at a version.
	tables        []byte
	tablesOf      *Batch
	tablesVersion uint64
	tablesSigned  bool
}

// piece is the part of a packed group, or of a single activation row, that one
// tile meets.
type piece struct {
	codes  []int8
	scales []float32
	sums   []int32
	pairs  []int16
}

// at is where unit u of group g lies among the scales. Activations lie apart
// rows side by side.
func (b *Batch) at(g, u, apart int) int { return g*lanes*b.units + u*apart }

// piece cuts n units from there.
func (b *Batch) piece(at, n, apart int) piece {
	block := b.format.block()
	p := piece{codes: b.codes[at*block:][:n*apart*block], scales: b.scales[at:][:n*apart]}
	if b.format == Q8_0 {
		p.sums = b.sums[at:][:n*apart]
	} else {
		p.pairs = b.pairs[16*at:][:16*n*apart]
	}
	return p
}

// mulInt8 goes through the weights in tiles of 8 rows, and through wide rows in
// pieces, so that a tile stays in the nearest cache while all activations meet
// it. An accumulator takes the units in row order all the same.
func (k *Kernel) mulInt8(dst []float32, stride int, w []byte, b *Batch, s *Scratch) {
	if b.rows == 1 {
		if k.lookup != nil {
			k.lookup(k, dst, w, b, s)
			return
		}
		n := 0
		if k.layout == nil {
			n = gemv(k, dst, w, b)
		} else {
			n = gemvPacked(k, dst, w, b)
		}
		dst, w = dst[n:], w[n*k.rowBytes:]
		if len(w) == 0 {
			return
		}
	}
	if s.tile == nil {
		s.tile = new(tile)
	}
	if n := b.groups*lanes*lanes + lanes; len(s.acc) < n {
		s.acc = make([]float32, n)
	}
	f, t := k.family, s.tile
	groups, single := s.acc[:b.groups*lanes*lanes], b.rows > b.groups*lanes
	acc := (*[lanes]float32)(s.acc[len(groups):])
	values := f.units * f.kind.values()
	blocks, most := k.width/values, tileWidth/values
	rows := len(w) / k.rowBytes
	for r := 0; r < rows; r += lanes {
		n := min(rows-r, lanes)
		clear(groups)
		*acc = [lanes]float32{}
		for first := 0; first < blocks; first += most {
			count := min(blocks-first, most)
			k.unpackTile(t, w, r, n, first, count, s)
			u, units := first*f.units, count*f.units
			for g := range b.groups {
				sumGroup(f.kind, (*[64]float32)(s.acc[64*g:]), t, b, b.at(g, u, lanes), units)
			}
			if single {
				sumSingle(f.kind, acc, t, b, b.at(b.groups, u, 1), units)
			}
		}
		for g := range b.groups {
			acc := (*[64]float32)(s.acc[64*g:])
			turn(acc)
			for lane := range min(b.rows-g*lanes, lanes) {
				out, sums := dst[(g*lanes+lane)*stride+r:][:n], (*[lanes]float32)(acc[lane*lanes:])
				if n == lanes {
					*(*[lanes]float32)(out) = *sums
					continue
				}
				copy(out, sums[:])
			}
		}
		if single {
			out := dst[(b.rows-1)*stride+r:][:n]
			for i := range out {
				out[i] = number(acc[i])
			}
		}
	}
}

// turnScalar gives the sums of 8 weight rows with 8 activation rows the order of
// results, those of an activation row together, and NaNs their bits.
func turnScalar(acc *[64]float32) {
	from := *acc
	for i, v := range from {
		acc[i%lanes*lanes+i/lanes] = number(v)
	}
}

// unpackRowsScalar fills the first rows of a tile with blocks of a type. Rows of
// the source lie rowBytes apart.
func unpackRowsScalar(typ tensor.Type, t *tile, rows, blocks int, src []byte, rowBytes int) {
	f := families[typ]
	for i := range rows {
		f.unpack(t, i, src[i*rowBytes:][:blocks*f.block])
	}
}

// number gives every NaN the same bits: which of two NaNs an operation keeps
// depends on the machine.
func number(v float32) float32 {
	if v != v {
		return quietNaN
	}
	return v
}

// sumGroupScalar adds to acc, 8 weight rows of 8 activation rows, the products
// of the tile's units with those of a group of activations.
func sumGroupScalar(k kind, acc *[64]float32, t *tile, b *Batch, at, units int) {
	p := b.piece(at, units, lanes)
	for i := range lanes {
		for lane := range lanes {
			sum := &acc[i*lanes+lane]
			if k < biased256 {
				sum32(k, sum, t, i, p, units, lane, lanes)
			} else {
				sum256(k, sum, t, i, p, units, lane, lanes)
			}
		}
	}
}

// sumSingleScalar adds to acc the products of 8 weight rows with one activation
// row.
func sumSingleScalar(k kind, acc *[lanes]float32, t *tile, b *Batch, at, units int) {
	p := b.piece(at, units, 1)
	for i := range lanes {
		if k < biased256 {
			sum32(k, &acc[i], t, i, p, units, 0, 1)
		} else {
			sum256(k, &acc[i], t, i, p, units, 0, 1)
		}
	}
}

// codeSum is the sum of products of n codes, a multiple of 4, with the
// activations of a lane.
func codeSum(k kind, w []byte, a []int8, n, apart int) int32 {
	var sum int32
	if k == signed32 || k == halves32 || k == signed256 {
		for j := 0; j < n; j += 4 {
			q, x := (*[4]byte)(w[j:]), (*[4]int8)(a[j*apart:])
			sum += int32(int8(q[0]))*int32(x[0]) + int32(int8(q[1]))*int32(x[1]) +
				int32(int8(q[2]))*int32(x[2]) + int32(int8(q[3]))*int32(x[3])
		}
		return sum
	}
	for j := 0; j < n; j += 4 {
		q, x := (*[4]byte)(w[j:]), (*[4]int8)(a[j*apart:])
		sum += int32(q[0])*int32(x[0]) + int32(q[1])*int32(x[1]) + int32(q[2])*int32(x[2]) + int32(q[3])*int32(x[3])
	}
	return sum
}

// sum32 adds units of 32 values of weight row i and of the activation row that
// lies in a lane.
func sum32(k kind, sum *float32, t *tile, i int, p piece, units, lane, apart int) {
	acc := *sum
	for u := range units {
		w, a := t.row(i, 32*u), p.codes[32*u*apart+4*lane:]
		at := u*apart + lane
		d, m := t.d[u*lanes+i], t.m[u*lanes+i]
		if k == halves32 {
			low := codeSum(k, w, a, 16, apart)
			high := codeSum(k, w[16:], a[16*apart:], 16, apart)
			acc += float32(float32(low) * float32(d*p.scales[at]))
			acc += float32(float32(high) * float32(m*p.scales[at]))
			continue
		}
		n := codeSum(k, w, a, 32, apart)
		if k == biased32 {
			n -= 16 * p.sums[at]
		}
		acc += float32(float32(n) * float32(d*p.scales[at]))
		if k == affine32 {
			acc += float32(float32(p.sums[at]) * float32(m*p.scales[at]))
		}
	}
	*sum = acc
}

// sum256 is sum32 for units of 256.
func sum256(k kind, sum *float32, t *tile, i int, p piece, units, lane, apart int) {
	acc := *sum
	for u := range units {
		w, a := t.row(i, 256*u), p.codes[256*u*apart+4*lane:]
		scales := t.scales[i*tileWidth/16+16*u:][:16]
		corr := t.corr[i*tileWidth/16+16*u:][:16]
		var n, m int32
		for j := range 16 {
			n += int32(int16(scales[j])) * codeSum(k, w[16*j:], a[16*j*apart:], 16, apart)
			if k != signed256 {
				m += int32(corr[j]) * int32(p.pairs[(16*u+j&^1)*apart+2*lane+j&1])
			}
		}
		da := p.scales[u*apart+lane]
		d := float32(t.d[u*lanes+i] * da)
		if k == affine256 {
			acc += float32(float32(n) * d)
			acc -= float32(float32(m) * float32(t.m[u*lanes+i]*da))
			continue
		}
		acc += float32(float32(n-m) * d)
	}
	*sum = acc
}
