package neon

import "fmt"

// allocatable are the registers in use. Of the general ones R16 to R18 belong to
// the linker and the platform, R26 and up to Go.
var allocatable = map[class][]int{
	vector:  span(0, 31),
	general: append(span(0, 15), span(19, 25)...),
}

func span(from, to int) (n []int) {
	for i := from; i <= to; i++ {
		n = append(n, i)
	}
	return n
}

// graph says which registers may not share a number. Registers that are joined
// do share one: where points to one for all of them.
type graph struct {
	f      *function
	where  []temp
	meets  []map[temp]bool
	number []int // -1 where there is none yet
}

func (g *graph) find(r temp) temp {
	for g.where[r] != r {
		r = g.where[r]
	}
	return r
}

func (g *graph) meet(a, b temp) {
	if a != b && g.f.classes[a] == g.f.classes[b] {
		g.meets[a][b], g.meets[b][a] = true, true
	}
}

// allocate numbers the registers of a function, of which it may put some on the
// stack.
func (f *function) allocate() ([]int, error) {
	for {
		g := f.interference()
		g.join()
		failed, err := g.color()
		if err == nil {
			numbers := make([]int, len(f.classes))
			for r := range numbers {
				numbers[r] = g.number[g.find(temp(r))]
			}
			return numbers, nil
		}
		r, ok := g.cheapest(failed)
		if !ok {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
		f.spill(r)
	}
}

func (f *function) interference() *graph {
	g := &graph{f: f, where: make([]temp, len(f.classes)), meets: make([]map[temp]bool, len(f.classes)), number: make([]int, len(f.classes))}
	for r := range f.classes {
		g.where[r], g.meets[r], g.number[r] = temp(r), map[temp]bool{}, -1
	}
	for i, out := range f.liveOut() {
		in := f.code[i]
		for _, d := range in.dst {
			out.each(func(o temp) {
				// A copy and its source hold the same until one changes.
				if !in.move || o != in.src[0] {
					g.meet(d, o)
				}
			})
			for _, o := range in.dst {
				g.meet(d, o)
			}
		}
	}
	return g
}

func (g *graph) paired() map[temp]bool {
	paired := map[temp]bool{}
	for _, p := range g.f.pairs {
		paired[p[0]], paired[p[1]] = true, true
	}
	return paired
}

// join lets the two sides of a move share a number where they can.
func (g *graph) join() {
	paired := g.paired()
	for _, in := range g.f.code {
		if !in.move {
			continue
		}
		d, s := g.find(in.dst[0]), g.find(in.src[0])
		if d == s || g.meets[d][s] || paired[d] || paired[s] {
			continue
		}
		g.where[s] = d
		for o := range g.meets[s] {
			delete(g.meets[o], s)
			g.meet(d, o)
		}
		g.meets[s] = nil
	}
}

// color gives numbers: first to the pairs, then to the others, those last that
// meet few. It fails at a register for which none is left.
func (g *graph) color() (failed temp, err error) {
	for _, p := range g.f.pairs {
		if g.number[p[0]] >= 0 {
			continue
		}
		for n := 0; ; n++ {
			if n == 31 {
				return p[0], fmt.Errorf("no pair of registers is free")
			}
			if g.free(p[0], n) && g.free(p[1], n+1) {
				g.number[p[0]], g.number[p[1]] = n, n+1
				break
			}
		}
	}
	degree := make([]int, len(g.where))
	var left []temp
	for r := range g.where {
		if g.find(temp(r)) == temp(r) && g.number[r] < 0 {
			left = append(left, temp(r))
			degree[r] = len(g.meets[r])
		}
	}
	var stack []temp
	for len(left) > 0 {
		at := 0
		for i, r := range left {
			if degree[r] < degree[left[at]] {
				at = i
			}
		}
		r := left[at]
		left = append(left[:at], left[at+1:]...)
		stack = append(stack, r)
		for o := range g.meets[r] {
			degree[o]--
		}
	}
	for i := len(stack) - 1; i >= 0; i-- {
		r := stack[i]
		for _, n := range allocatable[g.f.classes[r]] {
			if g.free(r, n) {
				g.number[r] = n
				break
			}
		}
		if g.number[r] < 0 {
			return r, fmt.Errorf("too many registers of class %d are in use at once", g.f.classes[r])
		}
	}
	return 0, nil
}

func (g *graph) free(r temp, n int) bool {
	for o := range g.meets[r] {
		if g.number[o] == n {
			return false
		}
	}
	return true
}
