package pager

import (
	"math/bits"
	"slices"
)

// clock is the time of the processor and of flash. Flash reads one expert after
// another; what is missing goes before what is only guessed, but nothing is
// broken off.
type clock struct {
	now          int64 // of the processor
	free         int64 // when flash has nothing more to do
	flash        int64 // bytes a second
	latency      int64
	queue        []job // guesses that wait
	under        []arrived
	guessedBytes int64
}

// job is a guess to be read.
type job struct {
	layer, expert int
	asked, bytes  int64
}

// arrived is a guess that was read, or is being read.
type arrived struct {
	layer, expert int
	at            int64
}

// span is how long a read takes, rounded up.
func (c *clock) span(bytes int64) int64 {
	hi, lo := bits.Mul64(uint64(bytes), 1e9)
	lo, carry := bits.Add64(lo, uint64(c.flash)-1, 0)
	if hi += carry; hi >= uint64(c.flash) {
		return endOfTime
	}
	q, _ := bits.Div64(hi, lo, uint64(c.flash))
	return later(int64(min(q, endOfTime)), c.latency)
}

// endOfTime is where the clock stops: 146 years.
const endOfTime = 1 << 62

// later adds two times that are not negative.
func later(a, b int64) int64 {
	if a > endOfTime-b {
		return endOfTime
	}
	return a + b
}

// advance lets flash start the guesses that had their turn before now.
func (c *clock) advance() {
	for len(c.queue) > 0 {
		j := c.queue[0]
		start := max(c.free, j.asked)
		if start >= c.now {
			return
		}
		c.free = later(start, c.span(j.bytes))
		c.guessedBytes += j.bytes
		c.under = append(c.under, arrived{j.layer, j.expert, c.free})
		c.queue = c.queue[1:]
	}
	c.queue = nil
}

// read reads what is missing and says when it is there.
func (c *clock) read(bytes int64) int64 {
	c.advance()
	c.free = later(max(c.free, c.now), c.span(bytes))
	return c.free
}

func (c *clock) enqueue(j job) { c.queue = append(c.queue, j) }

// arrival says when a guess is there; started is false while it waits. The guess
// is forgotten when it has started.
func (c *clock) arrival(layer, expert int) (at int64, started bool) {
	c.advance()
	for i, a := range c.under {
		if a.layer == layer && a.expert == expert {
			c.under = slices.Delete(c.under, i, i+1)
			return a.at, true
		}
	}
	return 0, false
}

// forget takes a guess back, as far as that can be done.
func (c *clock) forget(layer, expert int) {
	c.queue = slices.DeleteFunc(c.queue, func(j job) bool { return j.layer == layer && j.expert == expert })
	c.under = slices.DeleteFunc(c.under, func(a arrived) bool { return a.layer == layer && a.expert == expert })
}
