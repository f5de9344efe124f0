package pager

// pool is what a layer has in memory.
type pool struct {
	n       int
	in      []bool
	guessed []bool    // came, or comes, on a guess and was not used yet
	used    []int64   // the row that used or brought it last
	heat    []float64 // use that decays
}

func newPool(experts int) pool {
	return pool{in: make([]bool, experts), guessed: make([]bool, experts), used: make([]int64, experts), heat: make([]float64, experts)}
}

func (p *pool) put(e int, row int64) {
	if !p.in[e] {
		p.in[e] = true
		p.n++
	}
	p.used[e] = row
}

func (p *pool) drop(e int) {
	p.in[e], p.guessed[e] = false, false
	p.n--
}

// halving gives the factor whose n-th power is a half, by halving an interval:
// the same bits on every machine.
func halving(n int) float64 {
	lo, hi := 0.0, 1.0
	for range 200 {
		mid := lo + float64((hi-lo)/2)
		if power(mid, n) < 0.5 {
			lo = mid
		} else {
			hi = mid
		}
	}
	return hi
}

func power(x float64, n int) float64 {
	out := 1.0
	for ; n > 0; n >>= 1 {
		if n&1 == 1 {
			out = float64(out * x)
		}
		x = float64(x * x)
	}
	return out
}
