//go:build (!amd64 && !arm64) || noasm

package quant

// latticeLanes has no search here.
type latticeLanes struct{}

func newLatticeLanes(*latticeFit) *latticeLanes { return nil }

func (*latticeLanes) load([]float32, []float32, float32, float32) bool { return false }
func (*latticeLanes) fitGroup(*latticeGroup, int) (scale float32, ok, able bool) {
	return 0, false, false
}

// splitLanes has no search here.
type splitLanes struct{}

func newSplitLanes() (*splitLanes, *[256]float32) { return nil, new([256]float32) }

func (*splitLanes) load([]float32, []float32, float32, int) bool { return false }

func (*splitLanes) found(int) (scale float32, shift int, keys [4]uint32, ok bool) {
	return 0, 0, keys, false
}

func (*splitLanes) nearest(g *grid, key int, x, w []float32, scale float32, levels *[8]float32) int {
	return g.nearestEntry(key, x, w, scale, levels)
}
