//go:build (!amd64 && !arm64) || noasm

package quant

const useSIMD = false

// lanes has no searches here.
type lanes struct{}

func (*lanes) affine16(*groups, []float32, []float32, float32, *affineFit, int32) bool { return false }
func (*lanes) affine8(*[2]groups, []float32, []float32, *affineFit, int32) bool        { return false }

func (*lanes) symmetric16(*groups, []float32, []float32, float32, int32) bool { return false }
func (*lanes) sweep16(*groups, []float32) bool                                { return false }
func (*lanes) iq4Super(*[8]float32, []float32, []float32, float32) bool       { return false }
func (*lanes) iq4Blocks([]byte, []float32, []float32) bool                    { return false }

func (*lanes) fitted(*groups, *[256]uint8, []float32, []float32, float32, fittedCodes) bool {
	return false
}
func (*lanes) iq4Codes([]byte, []float32, *[8]float32) {}
func (*lanes) recode(*[256]uint8, []float32, *groups, *[16]float32, *[16]float32, int, int32, int32) {
}

func (*lanes) symmetricScales(n int32, x, w []float32, l []uint8) float32 {
	return fitSymmetric(n, x, w, l)
}

func positiveTrialsFast(mse, by *[8]float32, n int32, x, w []float32) {
	positiveTrials(mse, by, n, x, w)
}
