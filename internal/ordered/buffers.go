package ordered

// buffers lends out byte slices and keeps returned ones for reuse. The
// capacity of all of them together, lent and free, stays within the budget,
// except that one buffer is always to be had when none is lent. It belongs to
// one goroutine.
type buffers struct {
	budget int64
	lent   int64 // bytes
	out    int   // buffers lent
	idle   int64 // bytes
	free   [][]byte
}

// get lends a slice of length n, or reports that the budget is used up.
func (p *buffers) get(n int64) ([]byte, bool) {
	best := -1
	for i, b := range p.free {
		if int64(cap(b)) >= n && (best < 0 || cap(b) < cap(p.free[best])) {
			best = i
		}
	}
	// A large buffer is not spent on a small chunk while there is room for one
	// of the right size.
	if best >= 0 && int64(cap(p.free[best]))/4 > n && n <= p.budget-p.lent-p.idle {
		best = -1
	}
	if best >= 0 && (p.out == 0 || p.lent+int64(cap(p.free[best])) <= p.budget) {
		b := p.free[best]
		p.drop(best)
		p.lend(b)
		return b[:n], true
	}
	if p.out > 0 && n > p.budget-p.lent {
		return nil, false
	}
	// Make room for a new buffer: the smallest free ones are the least useful.
	for len(p.free) > 0 && n > p.budget-p.lent-p.idle {
		least := 0
		for i, b := range p.free {
			if cap(b) < cap(p.free[least]) {
				least = i
			}
		}
		p.drop(least)
	}
	b := make([]byte, n)
	p.lend(b)
	return b, true
}

func (p *buffers) lend(b []byte) {
	p.lent += int64(cap(b))
	p.out++
}

// put takes back what get lent.
func (p *buffers) put(b []byte) {
	p.lent -= int64(cap(b))
	p.out--
	p.idle += int64(cap(b))
	p.free = append(p.free, b)
}

func (p *buffers) drop(i int) {
	p.idle -= int64(cap(p.free[i]))
	last := len(p.free) - 1
	p.free[i] = p.free[last]
	p.free[last] = nil
	p.free = p.free[:last]
}
