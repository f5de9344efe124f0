package quant

import (
	_ "embed"
	"encoding/hex"
	"math"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// The IQ1, IQ2 and IQ3 types store runs of 8 or 4 values as the number of an
// entry of a fixed codebook, a grid: a well-spread choice among all runs of
// small codes. The tables were measured; a test holds them to their digests.

//go:embed grids.txt
var gridText string

// grid is one codebook. Entries are runs of dim codes; code c stands for level
// 2c+1 in a search and for a value of the alphabet in a decoder.
type grid struct {
	dim      int
	codeBits int       // bits of a code in a key
	classes  int       // how many classes of distance make a neighbourhood
	codes    []uint8   // entries * dim
	values   []float32 // entries * dim, decoded
	index    []int32   // entry by key, -1 where none is
	near     []atomic.Pointer[[]uint16]
	lanes    []atomic.Pointer[[]uint16]

	// For neighbour lists: the halves of the entries' keys, squared distances
	// between halves, and the entries in unary.
	halves [][2]uint8
	apart  [][]uint8
	steps  []uint32
}

var (
	gridIQ2XXS = sync.OnceValue(func() *grid { return loadGrid("iq2xxs", 2, 2) })
	gridIQ2XS  = sync.OnceValue(func() *grid { return loadGrid("iq2xs", 2, 2) })
	gridIQ2S   = sync.OnceValue(func() *grid { return loadGrid("iq2s", 2, 1) })
	gridIQ3XXS = sync.OnceValue(func() *grid { return loadGrid("iq3xxs", 3, 2) })
	gridIQ3S   = sync.OnceValue(func() *grid { return loadGrid("iq3s", 3, 3) })
	gridIQ1S   = sync.OnceValue(func() *grid { return loadGrid("iq1s", 2, 3) })
)

// loadGrid reads a table of the embedded text, which the tests vouch for.
func loadGrid(name string, codeBits, classes int) *grid {
	g := &grid{codeBits: codeBits, classes: classes}
	_, rest, _ := strings.Cut(gridText, "@"+name+" ")
	table, _, _ := strings.Cut(rest, "@")
	head, body, _ := strings.Cut(table, "\n")
	f := strings.Fields(head)
	entries, _ := strconv.Atoi(f[0])
	g.dim, _ = strconv.Atoi(f[1])
	var alphabet []float32
	for _, s := range strings.Split(f[2], ",") {
		v, _ := strconv.Atoi(s)
		alphabet = append(alphabet, float32(v))
	}
	packed, _ := strconv.Atoi(f[3])
	data, _ := hex.DecodeString(strings.Join(strings.Fields(body), ""))

	g.codes = make([]uint8, entries*g.dim)
	g.values = make([]float32, entries*g.dim)
	for i := range g.codes {
		c := data[i*packed/8] >> (i * packed % 8) & (1<<packed - 1)
		g.codes[i], g.values[i] = c, alphabet[c]
	}
	keys := 1 << (codeBits * g.dim)
	g.index = make([]int32, keys)
	g.near = make([]atomic.Pointer[[]uint16], keys)
	g.lanes = make([]atomic.Pointer[[]uint16], keys)
	for i := range g.index {
		g.index[i] = -1
	}
	half := codeBits * g.dim / 2
	for e := range entries {
		key := g.key(g.entry(e))
		g.index[key] = int32(e)
		g.halves = append(g.halves, [2]uint8{uint8(key & (1<<half - 1)), uint8(key >> half)})
		g.steps = append(g.steps, g.unary(key))
	}
	for a := range 1 << half {
		row := make([]uint8, 1<<half)
		for b := range row {
			for i := 0; i < half; i += codeBits {
				d := a>>i&(1<<codeBits-1) - b>>i&(1<<codeBits-1)
				row[b] += uint8(d * d)
			}
		}
		g.apart = append(g.apart, row)
	}
	return g
}

func (g *grid) entry(e int) []uint8 { return g.codes[e*g.dim : (e+1)*g.dim] }

// value gives the decoded values of an entry.
func (g *grid) value(e int) []float32 { return g.values[e*g.dim : (e+1)*g.dim] }

// key packs a run of codes.
func (g *grid) key(codes []uint8) int {
	k := 0
	for i, c := range codes[:g.dim] {
		k |= int(c) << (g.codeBits * i)
	}
	return k
}

// neighbours lists the entries nearest to a key that is no entry: by distance,
// then by number, as many classes of equal distance as the grid wants. Lists
// are made when first asked for; two goroutines may make the same one.
func (g *grid) neighbours(key int) []uint16 {
	if p := g.near[key].Load(); p != nil {
		return *p
	}
	list := g.nearest(nil, key)
	g.near[key].Store(&list)
	return list
}

// nearLanes is neighbours as keys in groups of 8, as appendLanes lays them.
func (g *grid) nearLanes(key int) []uint16 {
	if p := g.lanes[key].Load(); p != nil {
		return *p
	}
	near := g.nearest(nil, key)
	list := g.appendLanes(nil, near, (len(near)+7)/8)
	g.lanes[key].Store(&list)
	return list
}

// unary writes each code of a key as that many ones. Places where two codes
// differ are the steps between them.
func (g *grid) unary(key int) uint32 {
	width := 1<<g.codeBits - 1
	var u uint32
	for i := range g.dim {
		c := key >> (g.codeBits * i) & width
		u |= (1<<c - 1) << (width * i)
	}
	return u
}

// nearest appends the neighbours of a key.
func (g *grid) nearest(list []uint16, key int) []uint16 {
	half := g.codeBits * g.dim / 2
	lo, hi := g.apart[key&(1<<half-1)], g.apart[key>>half]
	var dist [2048]uint8
	var seen [256]bool
	for e, h := range g.halves {
		d := lo[h[0]] + hi[h[1]]
		dist[e] = d
		seen[d] = true
	}
	var class [256]uint8 // of a distance, from 1
	classes, limit := 0, 0
	for limit < 256 && classes < g.classes {
		if seen[limit] {
			classes++
			class[limit] = uint8(classes)
		}
		limit++
	}
	var found [3][]uint16
	var room [3][256]uint16
	for c := range found {
		found[c] = room[c][:0]
	}
	for e, d := range dist[:len(g.halves)] {
		if int(d) < limit {
			c := class[d] - 1
			found[c] = append(found[c], uint16(e))
		}
	}
	for _, f := range found {
		list = append(list, f...)
	}
	return list
}

// undominated cuts a list of neighbours down to those that have no earlier one
// between the key and them, in place.
func (g *grid) undominated(list []uint16, key int) []uint16 {
	at, kept := g.unary(key), list[:0]
next:
	for _, e := range list {
		far := g.steps[e] ^ at
		for _, f := range kept {
			if (g.steps[f]^at)&^far == 0 {
				continue next
			}
		}
		kept = append(kept, e)
	}
	return kept
}

// nearestEntry gives the neighbour of a key with the least weighted squared
// distance to x at the given scale. levels maps codes to values.
func (g *grid) nearestEntry(key int, x, w []float32, scale float32, levels *[8]float32) int {
	list := g.neighbours(key)
	// Without a comparable distance ggml aborts; the first neighbour will do.
	best, bestD := int(list[0]), float32(math.MaxFloat32)
	if g.dim == 8 {
		// Three codes and long lists: terms are made once.
		var terms [8][4]float32
		for i := range terms {
			for c, l := range levels[:3] {
				diff := float32(scale*l) - x[i]
				terms[i][c] = float32(float32(w[i]*diff) * diff)
			}
		}
		for _, e := range list {
			c := (*[8]uint8)(g.codes[8*int(e):])
			d2 := 0 + terms[0][c[0]&3]
			d2 += terms[1][c[1]&3]
			d2 += terms[2][c[2]&3]
			d2 += terms[3][c[3]&3]
			d2 += terms[4][c[4]&3]
			d2 += terms[5][c[5]&3]
			d2 += terms[6][c[6]&3]
			d2 += terms[7][c[7]&3]
			if d2 < bestD {
				best, bestD = int(e), d2
			}
		}
		return best
	}
	for _, e := range list {
		var d2 float32
		for i, c := range g.entry(int(e)) {
			diff := float32(scale*levels[c]) - x[i]
			d2 += float32(float32(w[i]*diff) * diff)
		}
		if d2 < bestD {
			best, bestD = int(e), d2
		}
	}
	return best
}

// oddLevels are the values of codes in the IQ2 and IQ3 searches.
var oddLevels = [8]float32{1, 3, 5, 7, 9, 11, 13, 15}
