package cact

// The KV cache of a device has a fixed size; the window is how many positions fit.
const (
	kvBudget    = 11*1024*1024 + 512*1024 // bytes
	kvGroup     = 32                      // values that share a scale of 4 bytes
	kvMinWindow = 160
)

// Window gives the kv_window of a header: the positions whose keys and values, at
// one byte each with a scale a group of 32, fit the budget of 11.5 MiB, in whole
// groups, at least 160, or what the model was trained for (0 for no limit) when
// that is less. KVWindow itself is not looked at.
func (h *Header) Window(trained uint32) uint32 {
	w := h.budgetWindow()
	if trained != 0 && int64(trained) < w {
		return trained
	}
	return uint32(w)
}

func (h *Header) budgetWindow() int64 {
	values := func(n int64) int64 { return n + n/kvGroup*4 }
	kd, vd := int64(h.KVHeads)*int64(h.QKHeadDim), int64(h.KVHeads)*int64(h.VHeadDim)
	layers, sites, top := int64(h.Layers), int64(len(h.Sites)), int64(h.MaxSeq)
	perLayer := values(kd) + values(vd)
	perSite := values(int64(h.DModel))
	clamp := func(n int64) int64 { return max(kvMinWindow, min(n/kvGroup*kvGroup, top)) }
	if h.SlidingWindow == 0 {
		return clamp(kvBudget / (layers*perLayer + sites*perSite))
	}
	var globals int64
	for m := h.GlobalMask; m != 0; m &= m - 1 {
		globals++
	}
	local := min(int64(h.SlidingWindow), top)
	fixed := ((layers-globals)*perLayer + sites*perSite) * local
	switch {
	case globals > 0 && fixed > kvBudget:
		// Python's division rounds down, below every clamp.
		return kvMinWindow
	case globals > 0:
		return clamp((kvBudget - fixed) / (globals * perLayer))
	case fixed <= kvBudget:
		return top
	}
	return max(kvMinWindow, local)
}
