package transformer

// cache keeps the keys and values of one layer in float32:
//
//	keys    (kvHeads, room, headDim)
//	values  (kvHeads, room, headDim)
//
// A small one has its full size at once: the system gives pages as they are
// touched. A large one grows with the text, by doubling, up to the session's
// context.
type cache struct {
	keys, values []float32
	room         int
}

// smallCache is the size up to which a layer's keys or values have all their
// room from the start, in values: 1 MiB.
const smallCache = 256 << 10

// reserve makes room for n positions of which used are in use.
func (c *cache) reserve(n, used, most, heads, dim int) {
	if n <= c.room {
		return
	}
	room := min(max(n, 2*c.room, smallCache/(heads*dim)), most)
	move := func(old []float32) []float32 {
		out := make([]float32, heads*room*dim)
		for h := range heads {
			copy(out[h*room*dim:], old[h*c.room*dim:][:used*dim])
		}
		return out
	}
	c.keys = move(c.keys)
	c.values = move(c.values)
	c.room = room
}
