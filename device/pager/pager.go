// Package pager predicts how a mixture of experts runs on a device that keeps
// part of the experts in memory and reads the others from flash when a token
// needs them. It plays an expert-use trace through a pool of experts for each
// layer and keeps the clock of one processor and one flash.
//
//	processor:  layer i      | wait | layer i+1 ...
//	flash:         guesses   | missing experts of layer i | guesses
//
// Time is in whole nanoseconds, so that predictions are the same on every
// machine. What is not modelled: page faults of the weights that are mapped,
// other programs, and that choosing other experts changes what later layers see.
package pager

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"quern/formats/trace"
)

// ErrOptions marks settings that do not fit each other or the trace.
var ErrOptions = errors.New("bad pager settings")

// Policy says which expert leaves a full pool.
type Policy int

const (
	// LRU evicts the expert that was used the longest time ago.
	LRU Policy = iota
	// Decay evicts the expert with the least use, where use counts for less the
	// older it is.
	Decay
)

// Options are those of one simulation.
type Options struct {
	Policy Policy
	// HalfLife is the number of tokens after which use counts half, for Decay.
	HalfLife int
	// Pool is the number of experts that a layer keeps, at least as many as a token
	// uses.
	Pool int
	// Bias is added to the scores of the experts in the pool before the best are
	// chosen; the trace must have scores. 0 leaves the choice as it was.
	Bias float32
	// Prefetch is the most experts of a guess that are read before they are needed;
	// the trace must have guesses.
	Prefetch int
	// Warm, if not nil, has the experts of each layer that the pool starts with.
	Warm [][]int
	// ExpertBytes is what an expert of each layer takes on flash.
	ExpertBytes []int64
	// Flash is the number of bytes that flash gives in a second, Latency what each
	// read of an expert takes beside that.
	Flash   int64
	Latency time.Duration
	// Compute is the time that a token takes when nothing is missing.
	Compute time.Duration
	// Skip is the number of tokens at the start that change the pools but are not
	// counted.
	Skip int64
}

// Result is what a simulation has seen.
type Result struct {
	Tokens int64 `json:"tokens"`
	// Uses is how many experts tokens went to, Misses how many of them had to be
	// read when they were needed. Late were on the way from flash.
	Uses   int64 `json:"uses"`
	Misses int64 `json:"misses"`
	Late   int64 `json:"late"`
	// Prefetched counts experts read on a guess, Useful those of them that were used
	// before they left the pool again.
	Prefetched int64 `json:"prefetched"`
	Useful     int64 `json:"prefetched_useful"`
	// Replaced counts uses that the bias sent to another expert than the router
	// chose; Lost is the share of the chosen experts' scores that this gave away.
	Replaced int64   `json:"replaced"`
	Lost     float64 `json:"score_lost"`
	// Bytes were read from flash. Time is what the tokens took, Waiting how much
	// of it went into waiting for flash.
	Bytes   int64         `json:"bytes_read"`
	Time    time.Duration `json:"time_ns"`
	Waiting time.Duration `json:"waiting_ns"`
}

// MissRate is the share of uses that had to wait for a read from its start.
func (r Result) MissRate() float64 { return ratio(r.Misses, r.Uses) }

// TokensPerSecond is the speed; 0 when no time has passed.
func (r Result) TokensPerSecond() float64 {
	return ratio(r.Tokens*int64(time.Second), int64(r.Time))
}

// BytesPerToken is what a token reads from flash.
func (r Result) BytesPerToken() float64 { return ratio(r.Bytes, r.Tokens) }

func ratio(a, b int64) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}

// Simulation plays a trace row by row.
type Simulation struct {
	h    trace.Header
	opt  Options
	pool []pool
	clock
	res      Result
	kept     float64 // scores of the experts that were chosen
	ideal    float64 // scores of those that the router chose
	began    int64   // the clock when counting began
	before   int64   // bytes read on guesses until then
	decay    float64
	rows     int64
	biased   []float32
	choice   []int
	wanted   []int
	counting bool
}

// New prepares a simulation of a trace with that header.
func New(h trace.Header, opt Options) (*Simulation, error) {
	if err := opt.check(h); err != nil {
		return nil, err
	}
	s := &Simulation{h: h, opt: opt, pool: make([]pool, len(h.Layers)), biased: make([]float32, h.Experts)}
	s.clock = clock{flash: opt.Flash, latency: int64(opt.Latency)}
	if opt.Policy == Decay {
		s.decay = halving(opt.HalfLife)
	}
	for i := range s.pool {
		s.pool[i] = newPool(h.Experts)
		if opt.Warm != nil {
			for k, e := range opt.Warm[i][:min(opt.Pool, len(opt.Warm[i]))] {
				s.pool[i].put(e, 0)
				// The first of the list is the last to go.
				s.pool[i].used[e], s.pool[i].heat[e] = int64(-k), 1/float64(k+2)
			}
		}
	}
	return s, nil
}

func (o Options) check(h trace.Header) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrOptions, fmt.Sprintf(format, args...))
	}
	switch {
	case o.Policy != LRU && o.Policy != Decay:
		return bad("policy %d", o.Policy)
	case o.Policy == Decay && o.HalfLife < 1:
		return bad("a half-life of %d tokens", o.HalfLife)
	case o.Pool < h.Used:
		return bad("a pool of %d experts is smaller than the %d that a token uses", o.Pool, h.Used)
	case o.Pool > h.Experts:
		return bad("a pool of %d experts, a layer has %d", o.Pool, h.Experts)
	case o.Bias < 0 || o.Bias-o.Bias != 0:
		return bad("a bias of %v", o.Bias)
	case o.Bias > 0 && !h.Scores:
		return bad("a bias needs scores, which the trace does not have")
	case o.Prefetch < 0 || o.Prefetch > o.Pool:
		return bad("%d experts read ahead into a pool of %d", o.Prefetch, o.Pool)
	case o.Prefetch > 0 && h.Ahead == 0:
		return bad("reading ahead needs guesses, which the trace does not have")
	case len(o.ExpertBytes) != len(h.Layers):
		return bad("sizes of experts of %d layers, the trace has %d", len(o.ExpertBytes), len(h.Layers))
	case o.Flash < 1:
		return bad("flash of %d bytes a second", o.Flash)
	case o.Latency < 0:
		return bad("a latency of %v", o.Latency)
	case o.Compute < 0:
		return bad("%v for a token", o.Compute)
	case o.Skip < 0:
		return bad("%d tokens skipped", o.Skip)
	case o.Warm != nil && len(o.Warm) != len(h.Layers):
		return bad("a first fill for %d layers, the trace has %d", len(o.Warm), len(h.Layers))
	}
	for i, n := range o.ExpertBytes {
		if n < 1 || n > 1<<40 {
			return bad("an expert of %d bytes in layer %d", n, h.Layers[i])
		}
	}
	for i, list := range o.Warm {
		for _, e := range list {
			if e < 0 || e >= h.Experts {
				return bad("expert %d in the first fill of layer %d, which has %d", e, h.Layers[i], h.Experts)
			}
		}
	}
	return nil
}

// Add plays one row. Rows come as a trace.Reader gives them.
func (s *Simulation) Add(r *trace.Row) {
	if r.Layer == 0 && r.Token >= s.opt.Skip && !s.counting {
		s.counting, s.began, s.before = true, s.now, s.guessedBytes
	}
	p := &s.pool[r.Layer]
	s.rows++
	chosen := s.choose(p, r)
	if s.opt.Policy == Decay {
		for e := range p.heat {
			p.heat[e] = float64(p.heat[e] * s.decay)
		}
	}
	s.serve(p, r.Layer, chosen)
	for _, e := range chosen {
		p.used[e] = s.rows
		p.heat[e]++
	}
	s.ahead(r)
	s.now = later(s.now, s.share(r.Layer))
}

// share is the part of a token's time that a layer takes: the parts of all layers
// are the whole, to the nanosecond.
func (s *Simulation) share(layer int) int64 {
	n, all := int64(len(s.h.Layers)), int64(s.opt.Compute)
	// The remainder goes to the first layers.
	part := all / n
	if int64(layer) < all%n {
		part++
	}
	return part
}

// choose gives the experts of a row: those of the router, or with a bias the best
// after what is at hand got its bonus.
func (s *Simulation) choose(p *pool, r *trace.Row) []int {
	if s.opt.Bias == 0 {
		return r.Chosen
	}
	copy(s.biased, r.Scores)
	for e, in := range p.in {
		if in {
			s.biased[e] += s.opt.Bias
		}
	}
	s.choice = s.choice[:0]
	for range r.Chosen {
		best := -1
		for e, v := range s.biased {
			if (best < 0 || v > s.biased[best]) && !slices.Contains(s.choice, e) {
				best = e
			}
		}
		s.choice = append(s.choice, best)
	}
	if s.counting {
		for _, e := range s.choice {
			s.kept += float64(r.Scores[e])
			if !slices.Contains(r.Chosen, e) {
				s.res.Replaced++
			}
		}
		for _, e := range r.Chosen {
			s.ideal += float64(r.Scores[e])
		}
	}
	return s.choice
}

// serve waits until all chosen experts are in the pool.
func (s *Simulation) serve(p *pool, layer int, chosen []int) {
	start, end := s.now, s.now
	for _, e := range chosen {
		hit := p.in[e]
		if hit && p.guessed[e] {
			p.guessed[e] = false
			s.count(&s.res.Useful, 1)
			at, started := s.arrival(layer, e)
			switch {
			case !started: // still waits for its turn: now it comes first
				s.forget(layer, e)
				s.count(&s.res.Prefetched, -1)
				s.count(&s.res.Useful, -1)
				hit = false
			case at > start:
				s.count(&s.res.Late, 1)
				end = max(end, at)
			}
		}
		if !hit {
			if !p.in[e] {
				s.evict(p, layer, chosen)
				p.put(e, s.rows)
			}
			end = max(end, s.read(s.opt.ExpertBytes[layer]))
			s.count(&s.res.Misses, 1)
			s.count(&s.res.Bytes, s.opt.ExpertBytes[layer])
		}
	}
	s.count(&s.res.Uses, int64(len(chosen)))
	s.count((*int64)(&s.res.Waiting), end-start)
	s.now = end
	s.advance()
}

// evict makes room for one expert. Those of list stay.
func (s *Simulation) evict(p *pool, layer int, list []int) bool {
	if p.n < s.opt.Pool {
		return true
	}
	worst := -1
	for e, in := range p.in {
		if !in || slices.Contains(list, e) {
			continue
		}
		if worst < 0 || s.opt.Policy == LRU && p.used[e] < p.used[worst] || s.opt.Policy == Decay && p.heat[e] < p.heat[worst] {
			worst = e
		}
	}
	if worst < 0 {
		return false
	}
	if p.guessed[worst] {
		s.forget(layer, worst)
	}
	p.drop(worst)
	return true
}

// ahead starts reading what a row's guess names and the pool does not have.
func (s *Simulation) ahead(r *trace.Row) {
	layer := r.Layer + s.h.Ahead
	if s.opt.Prefetch == 0 || layer >= len(s.pool) {
		return
	}
	p := &s.pool[layer]
	s.wanted = append(s.wanted[:0], r.Ahead[:min(len(r.Ahead), s.opt.Prefetch)]...)
	for _, e := range s.wanted {
		if p.in[e] {
			continue
		}
		if !s.evict(p, layer, s.wanted) {
			return
		}
		p.put(e, s.rows)
		p.guessed[e] = true
		s.enqueue(job{layer, e, s.now, s.opt.ExpertBytes[layer]})
		s.count(&s.res.Prefetched, 1)
	}
}

func (s *Simulation) count(n *int64, by int64) {
	if s.counting {
		*n += by
	}
}

// Result says what was seen so far.
func (s *Simulation) Result(tokens int64) Result {
	r := s.res
	r.Tokens = max(0, tokens-s.opt.Skip)
	if s.counting {
		r.Time = time.Duration(s.now - s.began)
		r.Bytes += s.guessedBytes - s.before
	}
	if s.ideal > 0 {
		r.Lost = 1 - s.kept/s.ideal
	}
	return r
}
