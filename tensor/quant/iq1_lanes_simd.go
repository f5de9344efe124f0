//go:build (amd64 || arm64) && !noasm

package quant

// splitLanes is the search of IQ1 with a block in each lane. The kernels know the
// offsets down to keys.
type splitLanes struct {
	x, w        [32][8]float32 // values, later their products with the weights
	rank        [32][8]int32   // 32 times the place among the sorted values, and 4 times the lane
	sumX, sumW  [2][33][8]float32
	last        [4][33][8]float32 // what the sums of a cut get from its second place
	scale, best [8]float32
	cut         [8]int32 // first place << 21 | second << 5 | shift, -1 for none
	top         [8]float32
	first       [2][8]float32
	total       [4][8]float32
	keys        [4][8]uint32

	values  [3][256]float32 // a superblock, its weights and their roots
	n       int             // values of a block, 0 when the superblock is not here
	blocks8 int             // which eight blocks are in the lanes, -1 for none
}

func newSplitLanes() (s *splitLanes, w *[256]float32) {
	s = new(splitLanes)
	return s, &s.values[1]
}

// load takes a superblock with blocks of n values and sets the weights. It gives
// false for values that only the scalar search handles.
func (s *splitLanes) load(x, weights []float32, sigma2 float32, n int) bool {
	x = x[:256]
	var ok bool
	if weights != nil {
		ok = latticeImportanceSIMD(&s.values[0][0], &x[0], &weights[:256][0], sigma2)
	} else {
		ok = latticeWeighSIMD(&s.values[0][0], &x[0], 0)
	}
	s.n, s.blocks8 = 0, -1
	if ok {
		s.n = n
		copy(s.values[0][:], x)
	}
	return ok
}

// search finds the best cuts of eight blocks.
func (s *splitLanes) search(blocks8 int) {
	s.blocks8 = blocks8
	at, n := blocks8*8*s.n, s.n
	transposeSIMD(&s.x[0], &s.values[0][at : at+8*n][0], 4*n, n)
	transposeSIMD(&s.w[0], &s.values[1][at : at+8*n][0], 4*n, n)
	splitRankSIMD(&s.x[0][0], n)
	if n == 32 {
		splitSums1SIMD(&s.x[0][0])
		splitScan32SIMD(&s.x[0][0])
	} else {
		splitSums2SIMD(&s.x[0][0])
		splitScan16SIMD(&s.x[0][0])
	}
	splitKeysSIMD(&s.x[0][0], n/8)
}

// found gives the outcome for a block, and false for one that only the scalar
// search handles.
func (s *splitLanes) found(block int) (scale float32, shift int, keys [4]uint32, ok bool) {
	if s == nil || s.n == 0 {
		return 0, 0, keys, false
	}
	if block/8 != s.blocks8 {
		s.search(block / 8)
	}
	lane := block % 8
	cut := s.cut[lane]
	if cut < 0 {
		return 0, 0, keys, false
	}
	for k := range keys {
		keys[k] = s.keys[k][lane]
	}
	return s.scale[lane], int(cut & 31), keys, true
}

// nearest is grid.nearestEntry for runs of 8 with three codes.
func (s *splitLanes) nearest(g *grid, key int, x, w []float32, scale float32, levels *[8]float32) int {
	list := g.nearLanes(key)
	scaled := [4]float32{float32(scale * levels[0]), float32(scale * levels[1]), float32(scale * levels[2])}
	at := nearestRunSIMD(&list[0], len(list)/8, &x[:8][0], &w[:8][0], &scaled)
	return int(g.index[list[at]])
}
