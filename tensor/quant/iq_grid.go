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
	for i := range g.index {
		g.index[i] = -1
	}
	for e := range entries {
		g.index[g.key(g.entry(e))] = int32(e)
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
	var buf [8]int
	at := buf[:g.dim]
	for i := range at {
		at[i] = key >> (g.codeBits * i) & (1<<g.codeBits - 1)
	}
	entries := len(g.codes) / g.dim
	dist := make([]uint16, entries)
	var count [400]int
	for e := range entries {
		d := 0
		for i, c := range g.entry(e) {
			d += (int(c) - at[i]) * (int(c) - at[i])
		}
		dist[e] = uint16(d)
		count[d]++
	}
	var list []uint16
	classes := 0
	for d, n := range count {
		if n == 0 {
			continue
		}
		for e, de := range dist {
			if int(de) == d {
				list = append(list, uint16(e))
			}
		}
		if classes++; classes == g.classes {
			break
		}
	}
	g.near[key].Store(&list)
	return list
}

// nearestEntry gives the neighbour of a key with the least weighted squared
// distance to x at the given scale. levels maps codes to values.
func (g *grid) nearestEntry(key int, x, w []float32, scale float32, levels *[8]float32) int {
	list := g.neighbours(key)
	// Without a comparable distance ggml aborts; the first neighbour will do.
	best, bestD := int(list[0]), float32(math.MaxFloat32)
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
