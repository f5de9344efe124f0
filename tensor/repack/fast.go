package repack

import "encoding/binary"

// Unpacking by words, for what products on x86 wait for. unpackBytes says the same
// chunk by chunk; TestWords holds them together.

// unbundle32 is unbundle for blocks of 32 values: a scale of one or two bytes, and
// chunks of 4 or 8 bytes of each row in turn.
func (l *Layout) unbundle32(bundle, rows []byte, row int) {
	scale, f := l.fields[0].size, l.fields[1]
	var mask uint64
	if f.order == flipped {
		mask = 0x8888888888888888
	}
	n, size := l.rows, scale+f.size
	qs := bundle[scale*n : l.size]
	for r := range n {
		out := rows[r*row:][:size]
		if scale == 1 {
			out[0] = bundle[r]
		} else {
			binary.LittleEndian.PutUint16(out, binary.LittleEndian.Uint16(bundle[2*r:]))
		}
		out = out[scale:]
		if f.chunk == 8 {
			from := qs[8*r:]
			binary.LittleEndian.PutUint64(out, binary.LittleEndian.Uint64(from)^mask)
			binary.LittleEndian.PutUint64(out[8:], binary.LittleEndian.Uint64(from[8*n:])^mask)
			if len(out) == 32 {
				binary.LittleEndian.PutUint64(out[16:], binary.LittleEndian.Uint64(from[16*n:])^mask)
				binary.LittleEndian.PutUint64(out[24:], binary.LittleEndian.Uint64(from[24*n:])^mask)
			}
			continue
		}
		from := qs[4*r:]
		for c := 0; c+8 <= len(out); c += 8 {
			low, high := binary.LittleEndian.Uint32(from[c*n:]), binary.LittleEndian.Uint32(from[(c+4)*n:])
			binary.LittleEndian.PutUint64(out[c:], (uint64(low)|uint64(high)<<32)^mask)
		}
	}
}

// unpackRuns is unpackBytes for chunks that stay as they are, of the sizes that most
// bytes lie in. It reports whether f has such.
func (f field) unpackRuns(in, rows []byte, row, n int) bool {
	switch {
	case f.chunk == 8 && f.size%8 == 0:
		for r := range n {
			out, from := rows[r*row+f.at:][:f.size], in[8*r:]
			for c := 0; c+8 <= len(out); c += 8 {
				binary.LittleEndian.PutUint64(out[c:], binary.LittleEndian.Uint64(from[c*n:]))
			}
		}
	case f.chunk == 4 && f.size%8 == 0:
		for r := range n {
			out, from := rows[r*row+f.at:][:f.size], in[4*r:]
			for c := 0; c+8 <= len(out); c += 8 {
				low, high := binary.LittleEndian.Uint32(from[c*n:]), binary.LittleEndian.Uint32(from[(c+4)*n:])
				binary.LittleEndian.PutUint64(out[c:], uint64(low)|uint64(high)<<32)
			}
		}
	case f.chunk == 1:
		for r := range n {
			out, from := rows[r*row+f.at:][:f.size], in[r:]
			for c := range out {
				out[c] = from[c*n]
			}
		}
	case f.chunk == 2 && f.size%2 == 0:
		for r := range n {
			out, from := rows[r*row+f.at:][:f.size], in[2*r:]
			for c := 0; c+2 <= len(out); c += 2 {
				binary.LittleEndian.PutUint16(out[c:], binary.LittleEndian.Uint16(from[c*n:]))
			}
		}
	default:
		return false
	}
	return true
}

// unpackScales6 spreads the scales and minima of 8 rows: four rows' bytes are worked
// on in a word.
func (f field) unpackScales6(in, rows []byte, row int) {
	const low4, high2, low6 = 0x0f0f0f0f, 0x30303030, 0x3f3f3f3f
	var s, m [2][8]uint32 // of rows 0 to 3, and of rows 4 to 7, by sub-block
	for b := range 8 {
		g := in[12*b:][:12]
		x, y, z := binary.LittleEndian.Uint32(g), binary.LittleEndian.Uint32(g[4:]), binary.LittleEndian.Uint32(g[8:])
		s[0][b], m[0][b] = x&low6, y&low6
		s[1][b], m[1][b] = z&low4|x>>2&high2, z>>4&low4|y>>2&high2
	}
	for h := range 2 {
		var put [12]uint32 // byte r of word k is byte k of row r
		for j := range 4 {
			put[j] = s[h][j] | s[h][j+4]&high2<<2
			put[4+j] = m[h][j] | m[h][j+4]&high2<<2
			put[8+j] = s[h][j+4]&low4 | m[h][j+4]&low4<<4
		}
		for k := 0; k < 12; k += 4 {
			a, b, c, d := put[k], put[k+1], put[k+2], put[k+3]
			for r := range 4 {
				by := 8 * r
				w := a>>by&255 | b>>by&255<<8 | c>>by&255<<16 | d>>by&255<<24
				binary.LittleEndian.PutUint32(rows[(4*h+r)*row+f.at+k:], w)
			}
		}
	}
}
