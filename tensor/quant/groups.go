package quant

// groups is the outcome of the searches over a superblock's groups.
type groups struct {
	scales, mins, sums [16]float32

	// A search in lanes keeps no codes. The code of x is by*(x-from), rounded
	// and bounded, and 0 for by 0; but for fitSweep, which leaves them in the
	// scratch.
	by, from [16]float32
	swept    bool
}

// newLanes gives the scratch of the searches in lanes, nil for the scalar ones.
func newLanes(fast bool) *lanes {
	if !fast {
		return nil
	}
	return new(lanes)
}
