//go:build !amd64 || noasm

package quant

// latticeLanes has no search here.
type latticeLanes struct{}

func newLatticeLanes(*latticeFit) *latticeLanes { return nil }

func (*latticeLanes) load([]float32, []float32, float32, float32) bool { return false }
func (*latticeLanes) fitGroup(*latticeGroup, int) (scale float32, ok, able bool) {
	return 0, false, false
}
