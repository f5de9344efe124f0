package transformer

import (
	"runtime"

	"quern/runtime/mapped"
	"quern/runtime/num"
	"quern/tensor"
	"quern/tensor/quant"
)

// cache keeps the keys and values of one layer, in chunks of positions that are
// made as the text grows, so that nothing is copied and little is made that is
// not used:
//
//	keys    (kvHeads, room, headDim)   room positions
//	values  (kvHeads, room, headDim)
//
// in float32, or as F16 of two bytes, the lower first. Those lie outside of Go's heap.
type cache struct {
	half        bool
	heads, dim  int
	room        int // positions of a chunk
	floatChunks []chunk[float32]
	halfChunks  []chunk[byte]
	slab        *mapped.Slab // that halfChunks are of
}

type chunk[T any] struct{ keys, values []T }

// chunkPositions is the room of a chunk where the context is not smaller.
const chunkPositions = 64

func newCache(half bool, heads, dim, context int) cache {
	return cache{half: half, heads: heads, dim: dim, room: min(chunkPositions, context)}
}

// reserve makes room for n positions.
func (c *cache) reserve(n int) {
	values := c.heads * c.room * c.dim
	if c.half && c.slab == nil {
		c.slab = mapped.NewSlab()
	}
	for c.half && len(c.halfChunks)*c.room < n {
		c.halfChunks = append(c.halfChunks, chunk[byte]{c.slab.Bytes(2 * values), c.slab.Bytes(2 * values)})
	}
	for !c.half && len(c.floatChunks)*c.room < n {
		c.floatChunks = append(c.floatChunks, chunk[float32]{make([]float32, values), make([]float32, values)})
	}
}

// f16 is the codec of halves.
var f16, _ = quant.For(tensor.F16)

// bytes is the size of all chunks.
func (c *cache) bytes() int64 {
	return int64(c.heads*c.room*c.dim) * int64(2*2*len(c.halfChunks)+2*4*len(c.floatChunks))
}

// set keeps keys and values, (heads, dim) each, of a position that there is room
// for.
func (c *cache) set(position int, k, v []float32) {
	for h := range c.heads {
		at := (h*c.room + position%c.room) * c.dim
		k, v := k[h*c.dim:][:c.dim], v[h*c.dim:][:c.dim]
		if c.half {
			chunk := &c.halfChunks[position/c.room]
			f16.EncodeRow(chunk.keys[2*at:][:2*c.dim], k, nil)
			f16.EncodeRow(chunk.values[2*at:][:2*c.dim], v, nil)
			continue
		}
		chunk := &c.floatChunks[position/c.room]
		copy(chunk.keys[at:], k)
		copy(chunk.values[at:], v)
	}
	runtime.KeepAlive(c.slab)
}

// run is how far positions from one on lie in its chunk, and where of a head.
func (c *cache) run(head, from, to int) (chunk, at, n int) {
	chunk, first := from/c.room, from%c.room
	return chunk, (head*c.room + first) * c.dim, min(c.room-first, to-from)
}

// dots multiplies the keys of a head at positions from to to-1 with the rows of
// q: dst[r*(to-from)+i] is position from+i with row r.
func (c *cache) dots(dst []float32, head, from, to int, q num.Matrix) {
	wide := to - from
	for p := from; p < to; {
		i, at, n := c.run(head, p, to)
		if c.half {
			num.DotsHalf(dst[p-from:], wide, num.HalfMatrix{Data: c.halfChunks[i].keys[2*at:], Rows: n, Stride: c.dim}, q, c.dim)
		} else {
			num.Dots(dst[p-from:], wide, num.Matrix{Data: c.floatChunks[i].keys[at:], Rows: n, Stride: c.dim}, q, c.dim)
		}
		p += n
	}
	runtime.KeepAlive(c.slab)
}

// weigh writes to dst the sum of the values of a head from a position on, each
// times its weight, in the order of positions.
func (c *cache) weigh(dst []float32, head, from int, weights []float32) {
	clear(dst)
	for to := from + len(weights); from < to; {
		i, at, n := c.run(head, from, to)
		if c.half {
			num.AddWeightedHalf(dst, weights[:n], num.HalfMatrix{Data: c.halfChunks[i].values[2*at:], Rows: n, Stride: c.dim})
		} else {
			num.AddWeighted(dst, weights[:n], num.Matrix{Data: c.floatChunks[i].values[at:], Rows: n, Stride: c.dim})
		}
		from, weights = from+n, weights[n:]
	}
	runtime.KeepAlive(c.slab)
}
