package neon

// spill moves a vector to the stack: it is loaded before each instruction that
// reads it and stored after each that writes it.
func (f *function) spill(r temp) {
	slot := f.slots
	f.slots++
	f.short[r] = true
	var code []inst
	for _, in := range f.code {
		reads, writes := false, false
		now := f.newTemp(vector)
		f.short[now] = true
		replace := func(list []temp) (out []temp, found bool) {
			for _, o := range list {
				if o == r {
					o, found = now, true
				}
				out = append(out, o)
			}
			return out, found
		}
		in.src, reads = replace(in.src)
		in.dst, writes = replace(in.dst)
		if reads {
			code = append(code, inst{op: loadSlot, dst: []temp{now}, i: int64(slot)})
		}
		code = append(code, in)
		if writes {
			code = append(code, inst{op: storeSlot, src: []temp{now}, i: int64(slot)})
		}
	}
	f.code = code
}

// cheapest gives the vector whose life on the stack costs least for each
// instruction that it leaves a register to, among those that meet r and r.
func (g *graph) cheapest(r temp) (temp, bool) {
	f := g.f
	depth := f.depths()
	cost, life := make([]float64, len(f.classes)), make([]float64, len(f.classes))
	out := f.liveOut()
	for i, in := range f.code {
		weight := 1.0
		for range depth[i] {
			weight *= 10
		}
		for _, list := range [][]temp{in.src, in.dst} {
			for _, o := range list {
				cost[o] += weight
			}
		}
		out[i].each(func(o temp) { life[o]++ })
	}
	paired := g.paired()
	best, found := temp(-1), false
	for o := range f.classes {
		o := temp(o)
		in := g.find(o)
		if f.classes[o] != vector || f.short[o] || paired[o] || life[o] < 8 || in != r && !g.meets[r][in] {
			continue
		}
		if !found || cost[o]/life[o] < cost[best]/life[best] {
			best, found = o, true
		}
	}
	return best, found
}

// depths gives the number of loops around each instruction.
func (f *function) depths() []int {
	labels := map[string]int{}
	depth := make([]int, len(f.code))
	for i, in := range f.code {
		if in.isLabel {
			labels[in.text] = i
		}
		if at, ok := labels[in.text]; in.jump && ok {
			for k := at; k <= i; k++ {
				depth[k]++
			}
		}
	}
	return depth
}
